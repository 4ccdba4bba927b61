"""Reports as Markdown: a title, a table made from the cells of the text, and sentences below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARKUP = re.compile(r"[<*]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""What would be read as HTML or as emphasis; underscores inside of words are not."""


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table. Columns in which no row has anything are left out.

    >>> from remat.report.markdown import markdown_table
    >>> print("\\n".join(markdown_table(["policy", "kept"], [["dots|names:a", "1 B"]])))
    | policy | kept |
    |---|---|
    | dots\\|names:a | 1 B |
    """
    found = [list(map(str, row)) for row in rows]
    used = [i for i in range(len(head)) if not found or any(row[i] for row in found)]
    lines = [_line([head[i] for i in used]), f"|{'---|' * len(used)}"]
    return [*lines, *(_line([row[i] for i in used]) for row in found)]


def markdown_report(title: str, table: Sequence[str], notes: Iterable[str] = ()) -> str:
    """A bold title, the table, and a list of sentences."""
    listed = [f"- {markdown_cell(note.strip())}" for note in notes if note.strip()]
    parts = [[f"**{markdown_cell(title)}**"], table, listed]
    return "\n\n".join("\n".join(part) for part in parts if part)


def markdown_cell(text: str) -> str:
    """A text that does not end its cell and is no markup: bars and line breaks, and what stands for HTML."""
    text = text.replace("|", "\\|").replace("\n", " ")
    return text if "`" in text else _MARKUP.sub(r"\\\g<0>", text)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(markdown_cell, cells))} |"
