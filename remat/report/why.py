"""Why a value is kept, as text of at most 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.report.text import position_text
from remat.report.width import wrapped
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.why import Dropped, Why


def why_text(why: Why) -> str:
    """What is kept, who decided, who needs it, and what dropping it would cost."""
    kept = why.residual
    times = f" x {kept.times}" if kept.times > 1 else ""
    name = f" named {str(kept.name)!r}" if kept.name is not None else ""
    lines = wrapped(f"{why.key}{name}: {kept.type}{times}, {bytes_text(kept.total_bytes)} in {kept.memory}")
    lines += wrapped(f"  made by   {kept.origin.text or kept.origin.kind}  {position_text(kept.source)}".rstrip())
    lines += wrapped(f"  kept      {kept.reason}")
    for user in kept.needed_by:
        lines += wrapped(f"  needed by the derivative of {user.operation}  {position_text(user.source)}".rstrip())
    return "\n".join([*lines, *(wrapped(f"  dropped   {_dropped(why.dropped)}") if why.dropped is not None else [])])


def _dropped(dropped: Dropped) -> str:
    changes = [
        f"{_signed(dropped.kept_bytes)} kept",
        f"{_signed(dropped.peak_bytes)} at the peak (simulated)",
        f"{dropped.dot_flops / 1e9:+.3g} GFLOP in products",
    ]
    text = ", ".join(changes)
    if dropped.recomputed:
        text += f"; computes again {', '.join(dropped.recomputed[:8])}"
        text += f" and {len(dropped.recomputed) - 8} more" if len(dropped.recomputed) > 8 else ""
    return text + (f"; keeps {', '.join(dropped.also_kept[:4])} instead" if dropped.also_kept else "")


def _signed(count: int) -> str:
    return f"{'-' if count < 0 else '+'}{bytes_text(abs(count))}"
