"""A comparison as a table of at most 80 columns, and the sentences that close it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat.report.markdown import markdown_report, markdown_table
from remat.report.measurement import count_text
from remat.report.width import WIDTH, wrapped
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.comparison import Change, Comparison, Fit, Row


def comparison_text(comparison: Comparison) -> str:
    """One line for each policy; those that failed, and what was warned of, below."""
    lines = [*wrapped(_title(comparison)), "", *_table(comparison), ""]
    lines += [line for remark in _remarks(comparison) for line in wrapped(remark)]
    return "\n".join(line.rstrip() for line in lines)


def comparison_markdown(comparison: Comparison) -> str:
    """The same as a table in Markdown."""
    columns = _columns(comparison)
    head = ["policy", *(title for title, _ in columns), "front"]
    rows = [
        [f"`{row.policy}`", *(cells[i] for _, cells in columns), "*" if row.front else ""]
        for i, row in enumerate(comparison)
    ]
    return markdown_report(_title(comparison), markdown_table(head, rows), _remarks(comparison))


def _title(comparison: Comparison) -> str:
    held = f"arguments {bytes_text(comparison.argument_bytes)}"
    return f"{comparison.function}, value and gradient, for {comparison.target}; {held}"


def _remarks(comparison: Comparison) -> list[str]:
    """What the figures are, what failed, and what was warned of."""
    remarks = [_figures(comparison)]
    for row in comparison:
        if row.error is not None:
            remarks.append(f"{row.policy} failed: {_short(row.error)}")
        remarks += [f"{row.policy}: {text}" for text in row.warnings]
    return remarks


def _figures(comparison: Comparison) -> str:
    timed = all(r.seconds is not None for r in comparison if r.error is None)
    worse = "taking longer" if timed else "recomputing more"
    front = f"* is on the front: no other row needs less memory without {worse}, or the reverse. "
    front += "Time is by the target's peak rates. " if timed else ""
    if comparison.measured:
        return f"{front}Measured bytes are temporaries and results as compiled; all else is from the program."
    return f"{front}All figures are from the program; peaks are simulated, not measured."


def _columns(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """The columns of figures: a title, and a cell for each policy."""
    rows = comparison.rows
    columns = [("kept", [_size(r.kept_bytes) for r in rows])]
    if any(r.host_bytes for r in rows):
        columns.append(("host", [_size(r.host_bytes) if r.host_bytes else "-" for r in rows]))
    columns.append(("recomputed", [_flops(r.recomputed_flops) for r in rows]))
    if any(r.seconds for r in rows):
        columns.append(("time", [_relative(r.seconds, rows) for r in rows]))
    if any(r.step_seconds for r in rows):
        columns.append(("step", [_step(r) for r in rows]))
    columns.append(("simulated", [_size(r.peak_bytes) for r in rows]))
    if comparison.measured:
        columns.append(("measured", [_size(r.live_bytes) for r in rows]))
    return columns


def _table(comparison: Comparison) -> list[str]:
    rows, columns = comparison.rows, _columns(comparison)
    widths = [max(len(title), *map(len, cells), 0) for title, cells in columns]
    first = min(max(map(len, ["policy", *(r.policy for r in rows)])), WIDTH - sum(widths) - 2 * len(widths) - 2)
    titles = "".join(f"  {title:>{w}}" for (title, _), w in zip(columns, widths, strict=True))
    lines = [f"{'policy':<{first}}{titles}"]
    for i, row in enumerate(rows):
        cells = [f"  {column[i]:>{w}}" for (_, column), w in zip(columns, widths, strict=True)]
        lines += _line(row, first, "".join(cells))
    return lines


def _line(row: Row, width: int, cells: str) -> list[str]:
    """A policy that is too long for its column has lines of its own."""
    if row.error is not None and row.peak_bytes is None:
        cells = "  failed"
    *above, last = [row.policy] if len(row.policy) <= width else [*wrapped(row.policy), ""]
    return [*above, f"{last:<{width}}{cells}{' *' if row.front else ''}"]


def _size(count: int | None) -> str:
    return "-" if count is None else bytes_text(count)


def _flops(count: int | None) -> str:
    return "-" if count is None else "0" if count == 0 else f"{count_text(count)}FLOP"


def _relative(seconds: float | None, rows: Sequence[Row]) -> str:
    """Predicted time as a multiple of the shortest: a roofline says how plans compare, not how long they take."""
    least = min((r.seconds for r in rows if r.seconds), default=0.0)
    return "-" if not seconds or not least else f"x{seconds / least:.2f}"


def _step(row: Row) -> str:
    if row.step_seconds is None or row.step_spread is None:
        return "-"
    return f"{row.step_seconds * 1e3:.1f}±{row.step_spread * 1e3:.1f} ms"


def fit_text(fit: Fit) -> str:
    """Which policies fit, and which of them to take; or how much the smallest lacks."""
    limit, how = bytes_text(fit.limit_bytes), "measured" if fit.measured else "simulated"
    if fit.smallest is None:
        return f"No policy has figures, so nobody knows whether any fits into {limit}."
    if not fit.rows:
        least = bytes_text(fit.smallest.total_bytes or 0)
        text = (
            f"None of {fit.count} policies fits into {limit}, arguments included ({how}); {fit.smallest.policy} "
            f"takes least: {least}."
        )
    else:
        best = fit.rows[0]
        text = (
            f"{len(fit.rows)} of {fit.count} policies fit{'s' if len(fit.rows) == 1 else ''} into {limit}, arguments "
            f"included ({how}); {best.policy} recomputes least: it takes {bytes_text(best.total_bytes or 0)}."
        )
    return textwrap.fill(text, WIDTH)


def change_text(change: Change) -> str:
    """One line: the policy, and its bytes then and now."""
    before, after = (_size(b) if b is not None else "no figure" for b in (change.before, change.after))
    share = f" ({change.after / change.before - 1:+.1%})" if change.before and change.after is not None else ""
    return f"{change.policy}: {before} -> {after}{share}{', worse' if change.worse else ''}"


def _short(text: str, limit: int = 300) -> str:
    first = " ".join(text.split())
    return first if len(first) <= limit else f"{first[:limit]}..."
