"""Findings as text of at most 80 columns, and as a table in Markdown."""

from __future__ import annotations

import os
import textwrap
from typing import TYPE_CHECKING

from remat.report.markdown import markdown_cell, markdown_table
from remat.report.width import WIDTH, wrapped
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.findings.finding import Finding, Findings
    from remat.ir.source import Position


def findings_text(findings: Findings) -> str:
    """A line that counts them, and then each: code, what it is about and bytes; place; what happened; what to write."""
    lines = wrapped(f"{_title(findings)}: {_count(findings)}")
    for finding in findings:
        lines += ["", *_finding(finding)]
    return "\n".join(line.rstrip() for line in lines)


def _finding(finding: Finding) -> list[str]:
    size = bytes_text(finding.bytes) if finding.bytes else ""
    head = f"{finding.level} {finding.code}: {finding.subject}"
    lines = textwrap.wrap(head, WIDTH - len(size) - 2, subsequent_indent="  ")
    lines[0] = f"{lines[0]:<{WIDTH - len(size)}}{size}"
    place = _place(finding.source)
    return [
        *lines,
        *([f"  {place}"] if place else []),
        *textwrap.wrap(finding.message, WIDTH, initial_indent="  ", subsequent_indent="  "),
        *textwrap.wrap(finding.fix, WIDTH, initial_indent="  > ", subsequent_indent="    "),
    ]


def findings_markdown(findings: Findings) -> str:
    """One row for each, below a title."""
    head = ["level", "code", "about", "bytes", "where", "what", "fix"]
    rows = [
        [f.level, f.code, f"`{f.subject}`", bytes_text(f.bytes) if f.bytes else "", _place(f.source), f.message, f.fix]
        for f in findings
    ]
    title = f"**{markdown_cell(_title(findings))}**: {_count(findings)}"
    return "\n".join([title, "", *markdown_table(head, rows)] if rows else [title])


def _title(findings: Findings) -> str:
    return f"{findings.function}, policy {findings.policy}, for {findings.target}"


def _count(findings: Findings) -> str:
    counts = [(len(findings.warnings), "warning"), (len(findings.notes), "note")]
    return ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for n, word in counts if n) or "nothing found"


def _place(position: Position) -> str:
    """A place that an editor can open: `models/attention.py:12 (attend)`."""
    if not position.file:
        return ""
    path = os.path.relpath(position.file) if os.path.isabs(position.file) else position.file
    path = position.file if path.startswith("..") else path
    return f"{path}:{position.line} ({position.function.rpartition('.')[2]})"
