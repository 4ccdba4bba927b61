"""The result of a simulation, as data: how many bytes are alive at each step, and which arrays they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from remat.ir.program import Equation, Value
from remat.ir.source import Source
from remat.ir.types import short_text
from remat.units import bytes_text


class Array(NamedTuple):
    """An array in memory: from the step that makes it to the last one that needs it, both included."""

    value: Value
    bytes: int
    since: int
    until: int
    source: Source
    """Where the equation was written that makes it; of what a loop stores, the one in its body."""
    operation: str = ""
    """What that equation does."""
    name: Any = None
    """From `checkpoint_name`."""
    times: int = 1
    """How many values it holds: one for each iteration of the loops that store them."""
    output: int | None = None
    """Which output of the program it is, if any."""


class Nested(NamedTuple):
    """What a loop, branch or mapped program needs while a step runs it: `times` what `timeline` needs (once for each
    device, where it runs on several)."""

    timeline: Timeline
    times: int

    @property
    def peak(self) -> int:
        return self.timeline.peak * self.times


@dataclass(frozen=True, eq=False)
class Timeline:
    """Live bytes, step by step; what the caller holds (inputs, constants) is not counted.

    **Attributes**

    - `equations`: what runs at each step, calls replaced by what they do.
    - `bytes`: how many bytes are alive while each step runs, what it needs inside included.
    - `arrays`: the arrays of this level, in the order in which they are made.
    - `set_aside`: what a compiled program takes besides its arguments, of the top level: memory for all of its results
      from the beginning, and for the rest at its worst. At least the peak (`remat.simulate.set_aside`).
    - `nested`: for steps that run a loop or branch, the timeline of one iteration or of the most demanding branch.
    """

    equations: Sequence[Equation]
    bytes: Sequence[int]
    arrays: Sequence[Array]
    nested: Mapping[int, Nested] = field(default_factory=dict)
    set_aside: int = 0

    @cached_property
    def peak(self) -> int:
        """The most bytes that are alive at once."""
        return max(self.bytes, default=0)

    @cached_property
    def peak_step(self) -> int:
        """The first step with that many bytes; 0 for a program of no steps."""
        return self.bytes.index(self.peak) if self.bytes else 0

    def alive_at(self, step: int) -> list[Array]:
        """The arrays that are alive while a step runs, the largest first; together they have `bytes[step]`.

        Arrays inside a loop or branch are alive during the step that runs it, and are those of its own peak.
        """
        found = [a for a in self.arrays if a.since <= step <= a.until]
        return sorted([*found, *self.inside(step)], key=lambda a: -a.bytes)

    def inside(self, step: int) -> list[Array]:
        """Those of them that are inside the loop or branch that the step runs, if it does."""
        inner = self.nested.get(step)
        if inner is None:
            return []
        alive = inner.timeline.alive_at(inner.timeline.peak_step)
        return [a._replace(bytes=a.bytes * inner.times, since=step, until=step, output=None) for a in alive]

    def __str__(self) -> str:
        return timeline_text(self)


def timeline_text(timeline: Timeline, limit: int = 12) -> str:
    """The peak, and the largest arrays that are alive then."""
    if not timeline.bytes:
        return "no steps"
    step, alive = timeline.peak_step, timeline.alive_at(timeline.peak_step)
    where = timeline.equations[step].source.text
    name = timeline.equations[step].op.name
    lines = [f"peak {bytes_text(timeline.peak)} at step {step} of {len(timeline.bytes)}: {name}  {where}".rstrip()]
    for array in alive[:limit]:
        span = f"{array.since}-{array.until}"
        text = f"{bytes_text(array.bytes):>12}  {short_text(array.value.type):20} {span:>12}  {array.source.text}"
        lines.append(text.rstrip())
    if len(alive) > limit:
        rest = sum(a.bytes for a in alive[limit:])
        lines.append(f"{bytes_text(rest):>12}  in {len(alive) - limit} more")
    return "\n".join(lines)
