"""A plan of how a program is differentiated, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

IN_WORDS = {
    "none": "no checkpoint",
    "plain": "one region, just in time",
    "open_end": "one region, up to the last loop",
    "two_levels": "one region, in segments",
    "segments": "a region around each segment",
    "loops_in_2": "long loops in segments",
    "loops_in_3": "long loops in nested segments",
}
"""The structures (`remat.planning.structures`), as reports call them."""


@dataclass(frozen=True)
class KeptValue:
    """A value that a plan keeps: its key and digest (`remat.ir.keys`), the type of one, and the bytes of all of it."""

    key: str
    type: str
    bytes: int
    digest: str


@dataclass(frozen=True)
class Choice:
    """A plan: a structure, and the values that are kept.

    **Attributes**

    - `structure`: see `remat.planning.structures`; `none` is the program without a region.
    - `kept`: the values. `kept_bytes`: what is kept for the backward pass, boundaries and carries included.
    - `peak_bytes`: simulated, what is set aside besides the arguments: results, and the rest at its worst. `seconds`:
      of both passes on the target, by its peak rates.
    """

    structure: str
    kept: tuple[KeptValue, ...]
    kept_bytes: int
    peak_bytes: int
    seconds: float


SLOWER, HIGHER = 1.005, 1.001
"""Times and peaks up to these parts of others count as the same: rates and buffers are not simulated better."""


def front_of(tried: Sequence[Choice]) -> tuple[Choice, ...]:
    """The plans that no other one is as fast as with a lower peak, the fastest first."""
    front: list[Choice] = []
    for choice in sorted(tried, key=lambda c: (c.seconds, c.peak_bytes)):
        if not front or choice.peak_bytes < front[-1].peak_bytes:
            front.append(choice)
    return tuple(front)


def settled_front_of(tried: Sequence[Choice]) -> tuple[Choice, ...]:
    """The same with, of plans that are about the same in both, the one that keeps least: its peak is the surest. The
    program without any region stays: it is the simplest.
    """
    found: list[Choice] = []
    for choice in reversed(front_of(tried)):
        same = [c for c in tried if c.seconds <= SLOWER * choice.seconds and c.peak_bytes <= HIGHER * choice.peak_bytes]
        least = min(same, key=lambda c: (c.kept_bytes, c.seconds, c.peak_bytes))
        best = choice if choice.structure == "none" else least
        last = found[-1] if found else None
        if best is not last:
            in_order = last is None or (best.seconds < last.seconds and best.peak_bytes > last.peak_bytes)
            found.append(best if in_order else choice)
    return tuple(reversed(found))
