"""How wide reports are, and their sentences in lines."""

from __future__ import annotations

import shutil
import textwrap

WIDTH = 80
WIDEST = 200


def wrapped(text: str) -> list[str]:
    """The lines of a sentence, those after the first indented."""
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def terminal_width() -> int:
    """Columns that a table may take: those of the terminal, from 80 to 200."""
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH), WIDEST)


def cut_left(text: str, width: int) -> str:
    """A text of at most that many columns, the end of it."""
    return text if len(text) <= width else f"..{text[len(text) - width + 2 :]}"


def cut_right(text: str, width: int) -> str:
    """A text of at most that many columns, the beginning of it."""
    return text if len(text) <= width else f"{text[: width - 2]}.."
