"""What changed between two lists of kept values, as text of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from remat.report.text import counted
from remat.report.width import WIDTH, cut_left, cut_right, wrapped
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.residuals import Residual
    from remat.inspect.residuals_diff import ChangedResidual, ResidualsDiff

ROWS = 20
"""How many values of each kind are listed; the others are added up."""

TYPE_WIDTH = 24


def diff_text(diff: ResidualsDiff) -> str:
    """The totals of both, then what is new, what is gone and what changed, the largest first."""
    sizes = f"{bytes_text(diff.before_bytes)} -> {bytes_text(diff.after_bytes)} ({signed_text(diff.bytes_added)})"
    lines = wrapped(f"kept for the backward pass, {diff.before} -> {diff.after}: {sizes}")
    if not diff:
        return "\n".join([*lines, "", "the same values are kept"])
    lines += _part("kept now, and not before", "+", diff.added)
    lines += _part("kept before, and not now", "-", diff.gone)
    if diff.changed:
        lines += ["", f"kept otherwise: {counted(len(diff.changed), 'value')}"]
        groups = _alike(diff.changed)
        lines += [line for changes, group in groups[:ROWS] for line in _changed(changes, group)]
        rest = [c for _, group in groups[ROWS:] for c in group]
        lines += _rest(sum(c.bytes_added for c in rest), len(rest))
    return "\n".join(lines)


def _part(title: str, sign: str, residuals: Sequence[Residual]) -> list[str]:
    if not residuals:
        return []
    total = sum(r.total_bytes for r in residuals)
    lines = ["", f"{title}: {bytes_text(total)} in {counted(len(residuals), 'value')}"]
    lines += [_line(f"{sign}{bytes_text(r.total_bytes)}", r) for r in residuals[:ROWS]]
    rest = sum(r.total_bytes for r in residuals[ROWS:])
    return [*lines, *_rest(rest if sign == "+" else -rest, len(residuals) - ROWS)]


def _line(size: str, residual: Residual) -> str:
    loops = f" x {'x'.join(map(str, residual.loops))}" if residual.loops else ""
    begin = f"  {size:>11}  {cut_right(residual.type + loops, TYPE_WIDTH):<{TYPE_WIDTH}}  "
    return f"{begin}{cut_left(residual.key, WIDTH - len(begin))}"


def _alike(changed: Iterable[ChangedResidual]) -> list[tuple[tuple[str, ...], list[ChangedResidual]]]:
    """What changed in the same way, together; what changed by most bytes first."""
    groups: dict[tuple[str, ...], list[ChangedResidual]] = {}
    for c in changed:
        changes = [f"{name}: {getattr(c.before, name)} -> {getattr(c.after, name)}" for name in c.changed]
        groups.setdefault(tuple(changes), []).append(c)
    return sorted(groups.items(), key=lambda item: -abs(sum(c.bytes_added for c in item[1])))


def _changed(changes: Sequence[str], group: Sequence[ChangedResidual]) -> Iterable[str]:
    size = sum(c.bytes_added for c in group)
    if len(group) == 1:
        yield _line(signed_text(size), group[0].after)
    else:
        among = f"  {signed_text(size):>11}  in {counted(len(group), 'value')}, among them "
        yield f"{among}{cut_left(group[0].key, WIDTH - len(among))}"
    for change in changes:
        yield from textwrap.wrap(change, WIDTH, initial_indent=" " * 15, subsequent_indent=" " * 17)


def _rest(size: int, count: int) -> list[str]:
    return [f"  {signed_text(size):>11}  in {count} more"] if count > 0 else []


def signed_text(count: int) -> str:
    """A change of bytes: `+1.5 KiB`, `-16 B`."""
    return f"{'-' if count < 0 else '+' if count else ''}{bytes_text(abs(count))}"
