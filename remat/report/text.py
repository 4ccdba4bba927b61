"""Plain text reports, in JAX's line format where JAX has one."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.fwd_bwd import ForwardBackward
    from remat.inspect.residuals import Residual, Residuals
    from remat.ir.source import Position


def position_text(position: Position) -> str:
    if not position.file:
        return ""
    return f"{position.file}:{position.line}:{position.column} ({position.function})"


def residual_line(residual: Residual) -> str:
    """One residual in the format of `jax.ad_checkpoint.print_saved_residuals`; loops are added at the end."""
    kind, text = residual.origin.kind, residual.origin.text
    where = position_text(residual.source)
    if kind == "argument":
        origin = f"from the argument {text}"
    elif kind == "constant":
        origin = "from a constant"
    elif kind == "named":
        origin = f"named '{text}' from {where}"
    else:
        origin = f"output of {text} from {where}"
    carried = ", carried" if residual.carried else ""
    loops = f", x{'x'.join(map(str, residual.loops))} in scan" if residual.loops else ""
    return f"{residual.stacked_type} {origin.rstrip()}{carried}{loops}"


def residual_lines(residuals: Residuals) -> str:
    """One line for each residual, as in JAX, then the totals."""
    return "\n".join([*map(residual_line, residuals), *total_lines(residuals)])


def total_lines(residuals: Residuals) -> list[str]:
    """What the residuals add up to: new memory apart from what the caller holds anyway."""
    new = [r for r in residuals if r.is_new]
    lines = ["", f"total: {bytes_text(residuals.new_bytes)} kept for the backward pass in {counted(len(new), 'value')}"]
    if residuals.offloaded_bytes:
        lines.append(f"  of these {bytes_text(residuals.offloaded_bytes)} in host memory (planned)")
    held = residuals.total_bytes - residuals.new_bytes
    if held:
        lines.append(f"  besides {bytes_text(held)} of arguments and constants, which the caller holds anyway")
    if new:
        largest = max(new, key=lambda r: r.total_bytes)
        share = f"{largest.total_bytes / max(1, residuals.new_bytes):.0%}"
        lines.append(f"  largest: {bytes_text(largest.total_bytes)} ({share}) {residual_line(largest)}")
    return lines


def counted(count: int, noun: str) -> str:
    """`1 value`, `2 values`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def side_by_side(report: ForwardBackward, width: int | None = None) -> str:
    """Forward and backward program in two columns, or one below the other where the terminal is too narrow."""
    width = width or shutil.get_terminal_size((80, 24)).columns
    left = ["forward computation:", "", *report.forward]
    right = ["backward computation:", "", *report.backward]
    column = max(map(len, left), default=0)
    if column + 3 + max(map(len, right), default=0) > width:
        return "\n".join([*left, "", *right])
    return "\n".join(_columns(left, right, column))


def _columns(left: Sequence[str], right: Sequence[str], column: int) -> list[str]:
    rows = itertools.zip_longest(left, right, fillvalue="")
    return [f"{a:<{column}} | {b}".rstrip() for a, b in rows]
