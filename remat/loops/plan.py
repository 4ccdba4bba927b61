"""How a loop is cut into nested segments, as data: how many carries that keeps, and how often an iteration runs again.

Two levels are the square root scheme of Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016); more are
the nested scheme in section 3 of that paper. All segments of a level have the same length, as the body of a loop needs
it to be in a program that is not unrolled. So this is not the best there is: the binomial schedule of Griewank and
Walther, "Algorithm 799: revolve" (2000), keeps fewer carries for the same number of repetitions, by segments that get
shorter and shorter.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from remat.errors import ArgumentError, ArgumentTypeError


@dataclass(frozen=True)
class Block:
    """`count` equal segments, one after another, each a region that runs `inside`; or as many iterations, if that is
    empty."""

    count: int
    inside: Plan = ()

    @property
    def size(self) -> int:
        """Iterations of one segment."""
        return steps(self.inside) if self.inside else 1


Plan = tuple[Block, ...]
"""Blocks in the order in which they run."""


def steps(plan: Plan) -> int:
    """How many iterations a plan has."""
    return sum(b.count * b.size for b in plan)


def carries(plan: Plan) -> int:
    """The largest number of carries that are kept at one time: those in which the segments of this level begin, and
    those inside the segment that is being differentiated."""
    return sum(b.count for b in plan) + max((carries(b.inside) for b in plan), default=0)


def depth(plan: Plan) -> int:
    """How many levels there are, which is how often an iteration is computed again, at most."""
    return max((1 + depth(b.inside) for b in plan), default=0)


def in_segments(length: int, count: int) -> Plan:
    """`count` segments whose lengths differ by one at most, the longer ones first."""
    size, longer = divmod(length, count)
    blocks = (Block(longer, _iterations(size + 1)), Block(count - longer, _iterations(size)))
    return tuple(b for b in blocks if b.count)


@functools.lru_cache(4096)
def in_levels(length: int, levels: int) -> Plan:
    """Nested segments with about `length ** (1 / levels)` carries kept on each level; fewer levels if more keep no
    fewer carries. A program of `levels` levels holds at most about as many copies of an iteration."""
    best = _iterations(length)
    for depth_now in range(2, levels + 1):
        best = min((best, *_nested(length, depth_now)), key=carries)
    return best


def in_slots(length: int, slots: int) -> Plan | None:
    """The plan of the fewest levels that keeps at most `slots` carries, if there is one."""
    for levels in range(1, max(2, length.bit_length() + 1)):
        plan = in_levels(length, levels)
        if carries(plan) <= slots:
            return plan
    return None


def fewest_slots(length: int) -> int:
    """How many carries the plan keeps that keeps the fewest."""
    return carries(in_levels(length, max(1, length.bit_length())))


def chosen_plan(
    caller: str, length: int, segments: Any, levels: Any, slots: Any, budget: tuple[Any, int] | None = None
) -> Plan:
    """The plan that a user asks for; by default, the square root of the length in segments. A `budget` comes with the
    number of carries that go into it.

    **Raises** `ArgumentError` for more than one way of asking, and for numbers that cannot be.
    """
    asked = {"segments": segments, "levels": levels, "slots": slots, "budget": budget and budget[0]}
    given = {k: v for k, v in asked.items() if v is not None}
    if len(given) > 1:
        text = " and ".join(f"{k}={v!r}" for k, v in given.items())
        raise ArgumentError(f"{caller} was given {text}, which are different ways to say the same. Give one of them.")
    for name, value in given.items():
        if name != "budget":
            _check_positive(caller, name, value)
    if segments is not None:
        if segments > length:
            raise ArgumentError(
                f"{caller} was to cut a loop of {length} iterations into segments={segments}. There can be at most one "
                "segment for each iteration; leave segments out to get the square root of the length."
            )
        return in_segments(length, segments)
    if budget is not None:
        plan = in_slots(length, budget[1])
        if plan is None:
            raise ArgumentError(
                f"{caller} cannot run a loop of {length} iterations with budget={budget[0]!r}, into which {budget[1]} "
                f"carries go: nested segments keep at least {fewest_slots(length)}. Give as much as those take."
            )
        return plan
    if slots is None:
        return in_levels(length, levels or 2)
    plan = in_slots(length, slots)
    if plan is None:
        raise ArgumentError(
            f"{caller} cannot run a loop of {length} iterations with slots={slots}: nested segments keep at least "
            f"{fewest_slots(length)} carries. Give slots={fewest_slots(length)} or more."
        )
    return plan


def _check_positive(caller: str, name: str, value: Any) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(f"{name} of {caller} must be an integer, but is {value!r}.")
    if value < 1:
        raise ArgumentError(f"{name} of {caller} must be 1 or more, but is {value}.")


def _iterations(count: int) -> Plan:
    return (Block(count),) if count else ()


def _nested(length: int, levels: int) -> list[Plan]:
    """Plans of exactly this many levels to choose from."""
    root = length ** (1 / levels)
    counts = {c for c in (math.floor(root), math.ceil(root), round(root)) if 1 < c <= length}
    if levels == 2:
        return [in_segments(length, c) for c in sorted(counts)]
    return [_with_rest(length, c, levels) for c in sorted(counts)]


def _with_rest(length: int, count: int, levels: int) -> Plan:
    """`count` equal segments of levels below, and the rest, which is shorter than `count`, as one more."""
    size, rest = divmod(length, count)
    whole = Block(count, in_levels(size, levels - 1))
    return (whole, Block(1, _iterations(rest))) if rest else (whole,)
