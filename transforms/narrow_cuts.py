"""Where to cut straight-line code into segments that are recomputed one at a time.

Of each segment, what later ones read is kept (its *boundary*); its inside is there only while its own backward runs.
The bytes that are alive then are the boundaries of this segment and of those before it, the inside of this one, and the
gradients of what this one and those after it read (a boundary that is no larger than these costs nothing).
The cuts make the largest of these figures as small as possible: a search over the figure, and for each candidate the
cuts with the smallest boundaries, by dynamic programming over the narrow places of the program. Of the cuts that are
nearly as good, those are taken for which the least work is done again. With equal layers in a
chain that is the square root scheme of Chen et al. (2016, arXiv:1604.06174), without its assumption that only one value
crosses a cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

CANDIDATES = 256
"""How many places are considered: the narrowest of each stretch. One step of the search is quadratic in them."""

SLACK = 1.1
"""How much higher a peak may be for less work."""

WORTHWHILE = 0.95
"""Cuts are made if the peak is at most this part of the one without."""

ROUNDS = 24
"""Steps of the search for the smallest peak; each halves the interval."""


@dataclass(frozen=True)
class Made:
    """A value: its bytes, the position where it is used last (the number of items, for results of the program), and
    that of the first equation whose backward reads it (None: of none)."""

    size: int
    last_use: int
    first_read: int | None = None


@dataclass(frozen=True)
class Item:
    """One equation, as far as cuts go. One that is `alone` is a segment by itself: a loop."""

    made: tuple[Made, ...]
    alone: bool = False
    cheap: bool = False
    """Whether computing it again costs about as much as reading its result."""
    inside: int = 0
    """Bytes that its backward holds besides values that equations make: those inside a loop."""
    boundary: int = 0
    """What is kept of it besides results that others read: the carries of a loop."""
    gradients: int = 0
    """Bytes of the gradients that begin with its backward: those of arguments that it is the last to read."""
    work: float = 0
    """Operations of products in it,"""
    needed: int | None = None
    """and the position of the first equation for whose backward they have to be done again (None: of none)."""


def narrow_cuts(items: Sequence[Item], held_open: float = 1.0) -> list[int]:
    """The positions before which segments begin, the first one (0) included.

    **Arguments**

    - `items`: the equations in order.
    - `held_open`: how much more the last segment holds than one of which each value is recomputed when it is needed.

    **Returns** `[0]` if no cut makes the peak smaller. The last segment is held as a whole, as its backward begins at
    once.
    """
    places = _candidates(items)
    costs = _Costs.of(items, places, held_open)
    best = _smallest_peak(costs)
    return [0] if best is None else [places[i] for i in best[:-1]]


def _candidates(items: Sequence[Item]) -> list[int]:
    """0, the number of items, the places around items that are alone, and the narrowest places between."""
    count = len(items)
    crossing = np.zeros(count + 2)
    for i, item in enumerate(items):
        for value in item.made:
            crossing[i + 1] += value.size
            crossing[value.last_use + 1] -= value.size
    crossing = np.cumsum(crossing)
    stride = max(1, -(-count // CANDIDATES))
    chosen = {start + int(np.argmin(crossing[start : start + stride])) for start in range(1, count, stride)}
    chosen = {_slid(items, crossing, c) for c in chosen}
    around = {k for i, item in enumerate(items) if item.alone for k in (i, i + 1)}
    return sorted({0, count} | {c for c in chosen if c < count} | around)


def _slid(items: Sequence[Item], crossing: Any, place: int) -> int:
    """The place behind the cheap equations that follow, as far as no more crosses there: what a heavy equation reads is
    an array anyway, and the value before is not."""
    best = place
    for i in range(place, len(items)):
        if not items[i].cheap:
            break
        best = i + 1 if crossing[i + 1] <= crossing[place] else best
    return best


@dataclass(frozen=True)
class _Costs:
    """Bytes of the segment between the places i and j; inf where there cannot be one."""

    boundary: Any
    """[i, j]: what is kept of it."""
    inside: Any
    """[i, j]: what is there while its backward runs, gradients of later segments included."""
    work: Any
    """[i, j]: operations that are done again."""

    @classmethod
    def of(cls, items: Sequence[Item], places: Sequence[int], held_open: float) -> _Costs:
        """Sums over the items between two places, all at once."""
        count = len(places)
        interval = np.searchsorted(places, range(len(items) + 1), side="right") - 1
        inside, kept, gradients = np.zeros(count), np.zeros(count), np.zeros(count)
        crossing = np.zeros((count, count))  # [a, b]: made after the place a, used last after the place b
        reads = np.zeros((count, count))  # [a, b]: made after the place a, read first after the place b
        work = np.zeros((count, count))  # [a, b]: after the place a, needed first after the place b
        possible = np.triu(np.ones((count, count), bool), 1)
        for i, item in enumerate(items):
            a = interval[i]
            inside[a] += item.inside
            kept[a] += item.boundary
            gradients[a] += item.gradients
            if item.needed is not None:
                work[a, interval[item.needed]] += item.work
            for value in item.made:
                crossing[a, interval[value.last_use]] += value.size
                if value.first_read is not None:
                    reads[a, interval[value.first_read]] += value.size
            if item.alone:
                possible[: a + 1, a + 1 :] = False
                possible[a, a + 1] = True
        made_before = _sums(crossing)
        later = np.cumsum(made_before[:, ::-1], 1)[:, ::-1]  # [a, b]: made before a, used last after b
        boundary = np.diagonal(later)[None, :] - later + _between(kept)
        boundary[:, -1] = _between(kept)[:, -1]  # results of the program are there anyway
        read_inside, done_again = _inside(reads), _inside(work)
        read_inside[:, -1] *= held_open
        done_again[:, -1] = 0
        inside = _between(inside) + read_inside + (gradients.sum() - _sums(gradients))[:, None]
        return cls(np.where(possible, boundary, np.inf), np.where(possible, inside, np.inf), done_again)


def _sums(parts: Any) -> Any:
    """Row i: the sum of the rows before i."""
    return np.concatenate([np.zeros_like(parts[:1]), np.cumsum(parts, 0)[:-1]])


def _inside(pairs: Any) -> Any:
    """[i, j]: the sum of what begins after i and ends before j."""
    return _sums(np.cumsum(pairs[::-1], 0)[::-1].T).T


def _between(parts: Any) -> Any:
    """[i, j]: the sum of the parts from i up to j."""
    total = _sums(parts)
    return total[None, :] - total[:, None]


def _smallest_peak(costs: _Costs) -> list[int] | None:
    """The places that cut at the smallest peak found; None if that is hardly better than no cut."""
    whole = costs.inside[0, -1]
    low, high = 0.0, float(np.sum(np.diagonal(costs.inside, 1)) + np.sum(np.diagonal(costs.boundary, 1)))
    best = None
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        found = _cuts(costs, middle)
        if found is None:
            low = middle
        else:
            high, best = middle, found
    if best is None or len(best) <= 2 or high > WORTHWHILE * whole:
        return None
    kept = sum(costs.boundary[i, j] for i, j in pairwise(best))
    weighed = costs.work * (kept / max(costs.work[0, :].max(), 1.0))
    return _cuts(costs, high * SLACK, weighed) or best


def _cuts(costs: _Costs, peak: float, work: Any = None) -> list[int] | None:
    """The cuts with the smallest boundaries that stay below a peak, with work weighed against them if that is given;
    None if none were found."""
    count = len(costs.boundary)
    kept, spent = np.full(count, np.inf), np.full(count, np.inf)
    kept[0] = spent[0] = 0
    previous = np.zeros(count, int)
    for j in range(1, count):
        after = kept[:j] + costs.boundary[:j, j]
        cost = after if work is None else after + spent[:j] + work[:j, j]
        cost = np.where(after + costs.inside[:j, j] > peak, np.inf, cost)
        previous[j] = i = int(np.argmin(cost))
        if np.isfinite(cost[i]):
            kept[j] = after[i]
            spent[j] = 0 if work is None else spent[i] + work[i, j]
    if not np.isfinite(kept[-1]):
        return None
    path = [count - 1]
    while path[-1]:
        path.append(int(previous[path[-1]]))
    return path[::-1]
