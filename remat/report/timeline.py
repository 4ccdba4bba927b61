"""A timeline as text of at most 80 columns: a chart of live bytes, and what is alive at the peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat.report.markdown import markdown_report, markdown_table
from remat.report.width import WIDTH, wrapped
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.timeline import Alive, Step, Timeline

HEIGHT = 10
WIDEST = 6
"""How many columns a step has at most."""
ROWS = 15
"""How many rows of what is alive are printed."""


Cells = tuple[str, str, str, str, str, str]
"""A row of the table: bytes, how many, type, steps, what it is, and where."""


def timeline_text(timeline: Timeline) -> str:
    """The chart, the place of the peak, and the table."""
    lines = [*wrapped(_title(timeline)), ""]
    peak = timeline.peak_at
    if peak is None:
        return "\n".join([*lines, "no steps"])
    lines += [*chart(timeline.bytes, timeline.forward_steps), "", *wrapped(_peak_text(timeline, peak)), ""]
    lines += _table(timeline.alive)
    lines += ["", *wrapped(_what_it_is(timeline))]
    return "\n".join(line.rstrip() for line in lines)


def timeline_markdown(timeline: Timeline) -> str:
    """The chart as it is, and a table of all that is alive at the peak."""
    peak = timeline.peak_at
    if peak is None:
        return markdown_report(_title(timeline), [], ["no steps"])
    rows = [_row(group) for group in _groups(timeline.alive)]
    drawn = ["```", *(line.rstrip() for line in chart(timeline.bytes, timeline.forward_steps)), "```", ""]
    table = markdown_table(["alive then", "how many", "type", "steps", "what", "where"], rows)
    notes = [_peak_text(timeline, peak), _what_it_is(timeline)]
    return markdown_report(_title(timeline), [*drawn, *table], notes)


def _title(timeline: Timeline) -> str:
    return f"{timeline.function}, value and gradient, policy {timeline.policy}, for {timeline.target}"


def _what_it_is(timeline: Timeline) -> str:
    held = bytes_text(timeline.argument_bytes)
    return f"Simulated from the program, not measured. Not counted: {held} of arguments."


def chart(live: Sequence[int], forward_steps: int, width: int = WIDTH, height: int = HEIGHT) -> list[str]:
    """Live bytes as columns, each the most of some steps that follow one another, or one of several for a step where
    there are few; the peak is marked below. A `#` is more than half full, a `.` is less.
    """
    top, label = max(max(live), 1), 11
    columns = min(len(live), width - label - 2)
    wide = min((width - label - 2) // columns, WIDEST)
    ends = [len(live) * (i + 1) // columns for i in range(columns)]
    most = [max(live[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    scaled = [2 * height * m / top for m in most]
    lines = []
    for row in reversed(range(height)):
        cells = "".join(("#" if s > 2 * row + 1 else "." if s > 2 * row else " ") * wide for s in scaled)
        mark = bytes_text(top) if row == height - 1 else bytes_text(top / 2) if row == height // 2 - 1 else ""
        lines.append(f"{mark:>{label}} |{cells}")
    backward = sum(end <= forward_steps for end in ends)
    peak = most.index(max(most))
    marks = ["^" * wide if i == peak else ("|" if i == backward else "-").ljust(wide, "-") for i in range(columns)]
    lines.append(f"{'0':>{label}} +{''.join(marks)}")
    lines.append(f"{'':{label}}  {_passes(backward * wide, columns * wide)}")
    return lines


def _passes(backward: int, columns: int) -> str:
    """The names of the passes, each at its beginning if there is room."""
    first = "forward" if backward > len("forward") else "fwd" if backward > len("fwd") else ""
    return f"{first:<{backward}}" + ("" if backward >= columns else "backward")


def _peak_text(timeline: Timeline, peak: Step) -> str:
    during = {"forward": "the forward pass", "backward": "the backward pass"}.get(peak.made, "recomputation")
    inside = f" in {' in '.join(reversed(peak.inside))}" if peak.inside else ""
    where = peak.source.short
    return (
        f"peak {bytes_text(timeline.peak)} at step {peak.number} of {peak.of} ({timeline.forward_steps} forward), in "
        f"{during}: {peak.operation}{inside}{where and f', {where}'}"
    )


def _groups(alive: Sequence[Alive]) -> list[list[Alive]]:
    """Arrays that are the same but for when they live are one row."""
    groups: dict[tuple[object, ...], list[Alive]] = {}
    for a in alive:
        groups.setdefault((a.type, a.bytes, a.name, a.made, a.operation, a.source, a.result is None), []).append(a)
    return sorted(groups.values(), key=lambda g: -sum(a.bytes for a in g))


def _table(alive: Sequence[Alive]) -> list[str]:
    ordered = _groups(alive)
    rows = [("alive then", "", "type", "steps", "what", ""), *map(_row, ordered[:ROWS])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[2] = min(widths[2], 24)
    lines = [_line(row, widths) for row in rows]
    rest = [a for group in ordered[ROWS:] for a in group]
    if rest:
        lines.append(f"{bytes_text(sum(a.bytes for a in rest)):>10}  in {len(rest)} more")
    return [cut(line, WIDTH) for line in lines]


def _fitting(lines: Sequence[str]) -> str:
    """The first text that is not too wide, or else the last."""
    return next((line for line in lines if len(line) <= WIDTH), lines[-1])


def _row(group: Sequence[Alive]) -> Cells:
    """The cells of a row."""
    a = group[0]
    steps = f"{min(x.since for x in group)}-{max(x.until for x in group)}"
    count = f"x {len(group)}" if len(group) > 1 else ""
    where = "" if a.result else a.source.short
    return bytes_text(sum(x.bytes for x in group)), count, a.type, steps, _what(group), where


def _what(group: Sequence[Alive]) -> str:
    a = group[0]
    if a.result is not None:
        return a.result if len(group) == 1 else f"{a.result}, and others"
    name = f"'{a.name}'" if a.name is not None else a.operation
    stored = f" x{a.times} in loops" if a.times > 1 else ""
    again = ", recomputed" if a.made == "recomputed" else ""
    return f"{name}{stored}{again}"


def _line(row: Cells, widths: Sequence[int]) -> str:
    size, count, type, steps, what, where = row
    begin = f"{size:>10}  {count:<{widths[1]}}  " if widths[1] else f"{size:>10}  "
    line = f"{begin}{cut(type, widths[2]):<{widths[2]}}  {steps:>{widths[3]}}  {what}  "
    return _fitting([f"{line}{where}".rstrip(), f"{line}{where.partition(' ')[0]}"])


def cut(text: str, width: int) -> str:
    """A text of at most that many columns."""
    return text if len(text) <= width else f"{text[: width - 2]}.."
