"""What is kept for the backward pass as Markdown and as HTML for notebooks: the cells and sentences of the text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from remat.inspect.kept_groups import KeptGroup, title_text
from remat.report.kept import (
    Cells,
    cells_of,
    footer,
    head_of,
    legend,
    second_derivative_note,
    share_text,
    usual_reason,
)
from remat.report.markdown import markdown_report, markdown_table
from remat.report.text import counted
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.residuals import Residuals

OPEN = 0.1
"""Groups with at least this part of the bytes are unfolded."""

STYLE = "text-align: left; white-space: nowrap; padding-right: 1em"


def residuals_markdown(residuals: Residuals) -> str:
    """One table with a row for each that the text has, then the totals."""
    head = ["in", *head_of(residuals)._replace(count="how many")]
    usual, is_sharded = usual_reason(residuals), residuals.device_bytes is not None
    rows = [[_title(g), *cells_of(row, usual, is_sharded)] for g in residuals.groups for row in g.rows]
    notes = [second_derivative_note(residuals), legend(usual) if usual else "", *footer(residuals)]
    return markdown_report(residuals.heading, markdown_table(head, rows) if rows else [], notes)


def residuals_html(residuals: Residuals) -> str:
    """Groups that fold, each with its rows as a table, then the totals."""
    usual = usual_reason(residuals)
    notes = [second_derivative_note(residuals), legend(usual) if usual else "", *footer(residuals)]
    parts = [f"<b>{escape(residuals.heading)}</b>"]
    for group in residuals.groups:
        rows = [cells_of(row, usual, residuals.device_bytes is not None) for row in group.rows]
        parts.append(_details(group, head_of(residuals), rows, residuals.new_bytes))
    listed = "".join(f"<li>{escape(note.strip())}</li>" for note in notes if note)
    return "".join(["<div>", *parts, f"<ul>{listed}</ul></div>"])


def _details(group: KeptGroup, titles: Cells, rows: Iterable[Cells], new_bytes: int) -> str:
    share = share_text(group.total_bytes, new_bytes)
    is_open = " open" if group.total_bytes >= OPEN * new_bytes else ""
    place = f" <small>{escape(group.place.short)}</small>" if group.loops else ""
    head = "".join(f'<th style="{STYLE}">{escape(text)}</th>' for text in titles)
    body = "".join(f"<tr>{''.join(_cell(text) for text in row)}</tr>" for row in rows)
    about = f"{bytes_text(group.total_bytes)}, {share} in {counted(len(group.rows), 'row')}"
    return (
        f"<details{is_open}><summary><b>{escape(_title(group))}</b>{place}: {about}</summary>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )


def _cell(text: str) -> str:
    return f'<td style="{STYLE}">{escape(text)}</td>'


def _title(group: KeptGroup) -> str:
    return f"{title_text(group)}, {group.count} of these" if group.count > 1 else title_text(group)
