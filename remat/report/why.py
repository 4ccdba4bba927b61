"""Why a value is kept, as text of at most 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat.report.markdown import markdown_report, markdown_table
from remat.report.text import position_text
from remat.report.width import wrapped
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.why import Dropped, Why


def why_text(why: Why) -> str:
    """What is kept, who decided, who needs it, and what dropping it would cost."""
    lines = wrapped(_title(why))
    return "\n".join([*lines, *(line for label, text in _facts(why) for line in wrapped(f"  {label:<9} {text}"))])


def why_markdown(answers: Sequence[Why]) -> str:
    """The same as one table in Markdown for each value."""
    tables = [markdown_table(["", "what"], [("value", f"`{a.key}`"), *_facts(a)]) for a in answers]
    return "\n\n".join(markdown_report(_title(a), t) for a, t in zip(answers, tables, strict=True))


def _title(why: Why) -> str:
    kept = why.residual
    times = f" x {kept.times}" if kept.times > 1 else ""
    name = f" named {str(kept.name)!r}" if kept.name is not None else ""
    return f"{why.key}{name}: {kept.type}{times}, {bytes_text(kept.total_bytes)} in {kept.memory}"


def _facts(why: Why) -> list[tuple[str, str]]:
    """What is known of the value, each with what it is about."""
    kept = why.residual
    facts = [("made by", f"{kept.origin.text or kept.origin.kind}  {position_text(kept.source)}".rstrip())]
    facts.append(("kept", kept.reason))
    for user in kept.needed_by:
        facts.append(("needed by", f"the derivative of {user.operation}  {position_text(user.source)}".rstrip()))
    return [*facts, *([("dropped", _dropped(why.dropped))] if why.dropped is not None else [])]


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
