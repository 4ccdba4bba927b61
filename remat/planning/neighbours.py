"""Better plans next to those that are known: with one value more, or one less.

The sets that plans are made of are the fastest for the bytes that are kept between the passes. A lower peak may need
another one: one that spreads what is kept evenly over the program, or that keeps more, so that less is recomputed at
the peak. So the plans that are worth having are changed by one value, the one with the lowest peak first, again and
again. How many are tried depends on the size of the program alone, so the same plans are found each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remat.planning.choice import Choice, KeptValue, front_of

MOST, EQUATIONS = 80, 4000
"""How many plans are tried: at most so many, and as many as come to about so many equations."""

Try = Callable[[str, tuple[KeptValue, ...]], Choice]


def with_neighbours(found: Sequence[Choice], values: Sequence[KeptValue], equations: int, attempt: Try) -> list[Choice]:
    """The plans found, and those next to them.

    `values` is what a plan may keep, what costs most to compute first; `attempt` tries a structure with a set.
    """
    tried, looked_at = list(found), set[Choice]()
    known = {(c.structure, frozenset(c.kept)) for c in found}
    left = min(MOST, EQUATIONS // max(1, equations))
    while left > 0:
        start = _next([c for c in tried if c.structure != "none"], looked_at)
        if start is None:
            break
        looked_at.add(start)
        for value in values:
            kept = tuple([v for v in start.kept if v != value] if value in start.kept else [*start.kept, value])
            if left > 0 and (start.structure, frozenset(kept)) not in known:
                known.add((start.structure, frozenset(kept)))
                tried.append(attempt(start.structure, kept))
                left -= 1
    return tried


def _next(tried: Sequence[Choice], looked_at: set[Choice]) -> Choice | None:
    """The plan to change next: of those worth having, then of all, the one with the lowest peak."""
    for some in (front_of(tried), tried):
        left = [c for c in some if c not in looked_at]
        if left:
            return min(left, key=lambda c: (c.peak_bytes, c.seconds))
    return None
