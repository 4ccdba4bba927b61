"""How much memory XLA sets aside for a program: for its results, and for everything else at its worst.

Each result has memory of its own from the beginning, since the caller gets it. Until the result is made, other arrays
may be there, whole: XLA goes through the arrays from the largest to the smallest, and puts each into the smallest
result in which there is room for it all its life. What finds no room shares one block, which is as large as these
arrays are at their worst together. That is more than what is ever alive at once, where arrays are larger than results.

Not optimal, as in XLA: the gaps inside a result's memory stay, and so does what the order of the arrays gives away.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from itertools import accumulate

from remat.simulate.timeline import Array, Nested

TRIES = 64
"""How many results are looked into for one array; that keeps the time linear."""


def set_aside(arrays: Sequence[Array], nested: Mapping[int, Nested], steps: int, shared: bool) -> int:
    """The bytes that are set aside for the arrays of a program, those inside loops and branches included.

    **Arguments**

    - `arrays`, `nested`, `steps`: of a timeline. - `shared`: whether other arrays may be where a result will be.
    """
    results = [a for a in arrays if a.output is not None]
    others = [a for a in arrays if a.output is None]
    for step, inner in nested.items():
        alive = inner.timeline.alive_at(inner.timeline.peak_step) if inner.timeline.bytes else []
        others.extend([a._replace(bytes=a.bytes * inner.times, since=step, until=step) for a in alive])
    if shared and results:
        others = _without_room(results, others)
    change = [0] * (steps + 1)
    for array in others:
        change[array.since] += array.bytes
        change[array.until + 1] -= array.bytes
    return sum([a.bytes for a in results]) + max(accumulate(change), default=0)


def _without_room(results: list[Array], others: list[Array]) -> list[Array]:
    """The arrays that find no room in the memory of results."""
    results = sorted(results, key=lambda a: (a.bytes, -a.since))
    sizes = [a.bytes for a in results]
    taken = [[(a.since, a.until)] for a in results]
    left = []
    for array in sorted(others, key=lambda a: -a.bytes):
        first = bisect_left(sizes, array.bytes)
        for times in taken[first : first + TRIES]:
            if _is_free(times, array):
                insort(times, (array.since, array.until))
                break
        else:
            left.append(array)
    return left


def _is_free(times: list[tuple[int, int]], array: Array) -> bool:
    """Whether none of these spans, which are in order and apart, meets the life of an array."""
    after = bisect_left(times, (array.since, array.until))
    return (after == len(times) or times[after][0] > array.until) and (after == 0 or times[after - 1][1] < array.since)
