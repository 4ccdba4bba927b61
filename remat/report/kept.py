"""What is kept for the backward pass as text, by module, scope and loop: a table that adds up, and what it all costs.

It is as wide as the terminal, from 80 columns to 200. What does not fit on the line of a row stands on a second one.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from remat.inspect.kept_groups import KeptGroup, KeptRow, title_text
from remat.report.measurement import count_text
from remat.report.text import counted
from remat.report.width import WIDTH, cut_left, cut_right, terminal_width
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.recomputation import Recomputation
    from remat.inspect.residuals import Residual, Residuals

T = TypeVar("T")

READERS = 4
"""How many of the operations that read a value are named."""

TYPE_WIDTH, VALUE_WIDTH = 28, 48


class Cells(NamedTuple):
    """The columns of one row."""

    bytes: str
    per_device: str
    count: str
    type: str
    value: str
    read_by: str
    why: str
    made_at: str


HEAD = Cells("bytes", "", "", "type", "value", "read in the backward pass by", "kept because", "made at")


def residuals_text(residuals: Residuals, held: bool = False, rows: int | None = None, width: int | None = None) -> str:
    """Groups of rows, then the totals; see `Residuals.to_text`."""
    width = width or terminal_width()
    usual = usual_reason(residuals)
    shown = [(g, first_of(g.rows, rows)) for g in first_of(residuals.groups, rows)]
    lines = [*_filled(residuals.heading, width), *_filled(second_derivative_note(residuals), width), ""]
    if shown:
        lines += _table(residuals, shown, usual, width)
    if usual and shown:
        lines += ["", *_filled(legend(usual), width)]
    if held and residuals.held:
        lines += ["", "besides, held by the caller anyway:", *_held_lines(residuals.held, width)]
    return "\n".join([*lines, "", *(line for text in footer(residuals) for line in _filled(text, width))])


def legend(usual: str) -> str:
    """What the columns mean."""
    return (
        "A value is read by the derivatives of the operations named. Unless its row says why, it is kept because: "
        f"{usual}."
    )


def first_of(items: Sequence[T], count: int | None) -> Sequence[T]:
    """The first so many, or all if only one more is left; None is all."""
    return items if count is None or len(items) <= count + 1 else items[:count]


def usual_reason(residuals: Residuals) -> str:
    """The reason that most new values are kept for; said once."""
    reasons = Counter(r.reason for r in residuals if r.is_new)
    return reasons.most_common(1)[0][0] if reasons else ""


def second_derivative_note(residuals: Residuals) -> str:
    """What to know where the function is a derivative itself; empty where it is not."""
    if not residuals.is_of_a_derivative:
        return ""
    return (
        f"note: {residuals.function} is differentiated already: it holds a backward pass. What follows is kept for the "
        "derivative of all of that, the second derivative. For what the gradient itself keeps, ask about the function "
        "that is given to grad."
    )


def _table(
    residuals: Residuals, shown: Sequence[tuple[KeptGroup, Sequence[KeptRow]]], usual: str, width: int
) -> list[str]:
    is_sharded = residuals.device_bytes is not None
    cells = [[cells_of(row, usual, is_sharded) for row in rows] for _, rows in shown]
    head = head_of(residuals)
    every = [head, *(c for group in cells for c in group)]
    needed = _one_line_width(every)
    is_wide = needed <= width
    width = min(width, max(needed, WIDTH)) if is_wide else width
    columns = _widths(every, is_wide)
    lines = [_line(head, columns, is_wide, width)[0]]
    for (group, rows), found in zip(shown, cells, strict=True):
        has_title = len(residuals.groups) > 1 or group.title or group.loops
        lines += ["", *([_group_line(group, residuals.new_bytes, width)] if has_title else [])]
        lines += [line for row in found for line in _line(row, columns, is_wide, width)]
        rest = group.rows[len(rows) :]
        if rest:
            lines.append(_rest_line(sum(r.total_bytes for r in rest), counted(len(rest), "more row"), columns))
    rest = residuals.groups[len(shown) :]
    if rest:
        lines += ["", _rest_line(sum(g.total_bytes for g in rest), counted(len(rest), "more group"), columns)]
    return lines


def _group_line(group: KeptGroup, new_bytes: int, width: int) -> str:
    count = f", {group.count} of these" if group.count > 1 else ""
    place = f"  {group.place.short}" if group.loops else ""
    size = f"{bytes_text(group.total_bytes)}, {share_text(group.total_bytes, new_bytes)}"
    title = f"{title_text(group)}{count}"
    title = cut_left(title, width - len(size) - len(place) - 2)
    return f"{title}{place:<{width - len(title) - len(size)}}{size}"


def cells_of(row: KeptRow, usual: str, is_sharded: bool) -> Cells:
    """The columns of a row; why it is kept only where that is not the usual reason."""
    r = row.like
    elsewhere = "" if r.memory == "device" else f", in {r.memory}"
    return Cells(
        bytes=bytes_text(row.total_bytes),
        per_device=device_text(row) if is_sharded else "",
        count=times_text(row),
        type=r.type,
        value=f"{row.value}{elsewhere}",
        read_by=readers_text(row),
        why="" if r.reason == usual else r.reason,
        made_at=r.place.short,
    )


def head_of(residuals: Residuals) -> Cells:
    """What the columns are called."""
    return HEAD if residuals.device_bytes is None else HEAD._replace(per_device="per device")


def device_text(row: KeptRow) -> str:
    """Bytes on one device; what it is at most, where the sharding is not known."""
    known = row.like.device_bytes
    return f"<= {bytes_text(row.total_bytes)}" if known is None else bytes_text(known * row.count)


def times_text(row: KeptRow) -> str:
    """How many of them there are: `x 32`, `4 of these`, `4 of these x 32`."""
    loops = f"x {'x'.join(map(str, row.like.loops))}" if row.like.loops else ""
    return " ".join(part for part in (f"{row.count} of these" if row.count > 1 else "", loops) if part)


def readers_text(row: KeptRow) -> str:
    """The operations that read it."""
    readers = row.reads
    more = f" and {len(readers) - READERS} more" if len(readers) > READERS else ""
    return ", ".join(readers[:READERS]) + more


def _widths(rows: Sequence[Cells], is_wide: bool) -> list[int]:
    limits = [12, 12, 20, TYPE_WIDTH, VALUE_WIDTH, 10**6, 10**6, 10**6]
    used = len(limits) if is_wide else 5
    return [min(max(len(row[i]) for row in rows), limits[i]) for i in range(used)]


def _one_line_width(rows: Sequence[Cells]) -> int:
    return 2 + sum(w + 2 for w in _widths(rows, True) if w) - 2


def _line(row: Cells, widths: Sequence[int], is_wide: bool, width: int) -> list[str]:
    sizes = "  ".join(f"{text:>{w}}" for text, w in zip(row[:2], widths[:2], strict=True) if w)
    texts = (row.count, cut_right(row.type, widths[3]))
    begin = f"  {sizes}  {''.join(f'{text:<{w}}  ' for text, w in zip(texts, widths[2:4], strict=True) if w)}"
    if is_wide:
        rest = zip((cut_left(row.value, widths[4]), *row[5:]), widths[4:], strict=True)
        return [f"{begin}{'  '.join(f'{text:<{w}}' for text, w in rest if w)}".rstrip()]
    first = f"{begin}{cut_left(row.value, width - len(begin))}".rstrip()
    if row.bytes == HEAD.bytes:
        return [first]
    indent = " " * (widths[0] + 4)
    text = _about(row, row.made_at)
    text = text if len(indent) + len(text) <= width else _about(row, row.made_at.partition(" ")[0])
    return [first, *textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)]


def _about(row: Cells, made_at: str) -> str:
    parts = [f"read by {row.read_by}" if row.read_by else "", row.why, made_at and f"made at {made_at}"]
    return "; ".join(part for part in parts if part)


def _rest_line(size: int, what: str, widths: Sequence[int]) -> str:
    return f"  {bytes_text(size):>{widths[0]}}  in {what}"


def _held_lines(held: Iterable[Residual], width: int) -> list[str]:
    rows = [(bytes_text(r.total_bytes), r.type, f"{r.origin.kind} {r.origin.text}".rstrip()) for r in held]
    widths = [min(max(len(row[i]) for row in rows), TYPE_WIDTH) for i in range(2)]
    lines: list[str] = []
    for size, type, what in rows:
        begin = f"  {size:>{widths[0]}}  {cut_right(type, widths[1]):<{widths[1]}}  "
        lines.append(f"{begin}{cut_left(what, width - len(begin))}")
    return lines


def footer(residuals: Residuals) -> list[str]:
    """What it all adds up to, one sentence each."""
    new = [r for r in residuals if r.is_new]
    texts = [f"total: {bytes_text(residuals.new_bytes)} kept for the backward pass in {counted(len(new), 'value')}"]
    for memory, size in residuals.memory_bytes.items():
        if memory != "device":
            texts.append(f"  of these {bytes_text(size)} in {memory} (planned)")
    if residuals.device_bytes is not None:
        texts.append(_device_sentence(residuals))
    if residuals.held:
        held = bytes_text(residuals.total_bytes - residuals.new_bytes)
        texts.append(f"  besides {held} of {_held_text(residuals.held)}, which the caller holds anyway")
    if residuals.recomputation is not None:
        texts.append(recomputation_text(residuals.recomputation))
    return texts


def _device_sentence(residuals: Residuals) -> str:
    size, unknown = bytes_text(residuals.device_bytes or 0), residuals.unknown_shardings
    if not unknown:
        return f"  on one device: {size}"
    return f"  on one device: <= {size}, with {counted(unknown, 'value')} counted whole whose sharding is XLA's choice"


def _held_text(held: Sequence[Residual]) -> str:
    kinds = Counter(r.origin.kind for r in held)
    return " and ".join(counted(kinds[kind], kind) for kind in ("argument", "constant") if kinds[kind])


def recomputation_text(again: Recomputation) -> str:
    """What the backward pass computes again, in a sentence."""
    if not again.equations:
        return "recomputed in the backward pass: nothing"
    cost = f"{count_text(round(again.flops))}FLOP, {share_text(again.flops, again.forward_flops)} of the forward pass"
    unknown = f" (not known of {', '.join(again.unknown)})" if again.unknown else ""
    seconds = f"{seconds_text(again.seconds)} on {again.target} by its peak rates, predicted"
    return f"recomputed in the backward pass: {counted(again.equations, 'equation')}, {cost}{unknown}, {seconds}"


def share_text(part: float, whole: float) -> str:
    """A part in percent; small ones with a digit after the point."""
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.1f} %" if 0 < percent < 10 else f"{percent:.0f} %"


UNITS = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))


def seconds_text(seconds: float) -> str:
    """A time with three digits: `1.25 ms`."""
    unit, factor = next((u, f) for u, f in UNITS if seconds * f >= 1 or u == UNITS[-1][0])
    return f"{seconds * factor:.3g} {unit}"


def _filled(text: str, width: int) -> list[str]:
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(text, width, subsequent_indent=indent) if text else []
