"""The plans of a program from which a budget is met: what each keeps and takes, worked out once.

For some numbers of bytes the best set of values to keep is found (`candidates`), and set into each way of cutting the
program into regions (`structures`). Each such plan is differentiated and simulated as it would run (`trial`), and so
are some next to the best of them (`neighbours`). A budget takes the fastest plan whose peak is within it, from one
list: so a larger budget is never slower, whatever the solver did. A budget of what is kept takes the best set for just
that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from remat.ir.ops import Checkpoint
from remat.ir.rewrite import inline_all
from remat.planning.candidates import Candidates
from remat.planning.choice import Choice, KeptValue, settled_front_of
from remat.planning.devices import spread_of
from remat.planning.neighbours import with_neighbours
from remat.planning.seconds import Rates
from remat.planning.structures import structures_for
from remat.planning.trial import Arranged, Trial
from remat.targets.current import current_target, use_target


class Frontier:
    """The plans of one program. They are worked out when they are asked for: a budget of what is kept needs one of
    them, one of the peak all.

    **Attributes**

    - `choices`: the plans that are worth having, the fastest first, each with a lower peak than those before.
      `tried`: all that were looked at. `without`: the program without any region.
    - `solver`: for kept sets and bounds.
    - `spread`: over how many devices; all bytes and seconds of plans are of one of them.
    """

    def __init__(self, region: Checkpoint, active: Sequence[bool], parts: Sequence[int] = ()):
        """Of a region that is differentiated with respect to its active inputs, for the current target. `parts` says in
        how many parts each input is, over devices, where that is known.

        **Raises** `ReverseModeError` for a program that cannot be run in reverse.
        """
        self._target = current_target()
        rates = Rates.of(self._target)
        self._program = inline_all(region.program)
        self.spread = spread_of(self._program, active, parts)
        self._trial = Trial(region, active, rates, self.spread)
        self._candidates = Candidates(self._program, region, active, rates)
        self._arranged: dict[str, Arranged] = {}
        self.solver = self._candidates.solver

    @cached_property
    def tried(self) -> tuple[Choice, ...]:
        found, candidates = [self.without], self._candidates
        for structure in structures_for(self._program):
            found += self._each(structure, candidates.to_try(structure))
        return tuple(with_neighbours(found, candidates.values, candidates.equation_count, self._one))

    def _each(self, structure: str, sets: Sequence[tuple[KeptValue, ...]]) -> list[Choice]:
        with use_target(self._target):  # whatever is current by now
            arranged = self._trial.arranged(structure, frozenset(v.key for kept in sets for v in kept))
            return [self._trial.keeping(arranged, kept) for kept in sets]

    def _one(self, structure: str, kept: tuple[KeptValue, ...]) -> Choice:
        with use_target(self._target):
            if structure not in self._arranged:
                every = {v.key for v in self._candidates.values}
                self._arranged[structure] = self._trial.arranged(structure, every)
            return self._trial.keeping(self._arranged[structure], kept)

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        return settled_front_of(self.tried)

    @cached_property
    def without(self) -> Choice:
        with use_target(self._target):
            return self._trial.without(self._program)

    @property
    def smallest(self) -> Choice:
        """The plan with the lowest peak."""
        return self.choices[-1]

    @property
    def barest(self) -> Choice:
        """The plan with the lowest peak of those that keep no value but boundaries and carries."""
        bare = [c for c in self.tried if not c.kept and c.structure != "none"]
        return min(bare, key=lambda c: (c.peak_bytes, c.seconds), default=self.smallest)

    def within(self, limit: int) -> Choice | None:
        """The fastest plan whose peak is at most `limit`; None if there is none."""
        return next((c for c in self.choices if c.peak_bytes <= limit), None)

    @property
    def smallest_saved(self) -> Choice:
        """The plan that keeps least."""
        return min(self.tried, key=lambda c: (c.kept_bytes, c.seconds))

    def within_saved(self, limit: int) -> Choice | None:
        """The fastest plan that keeps at most `limit` bytes; None if there is none. In straight-line code that is the
        best set within these bytes in one region; in long loops, one in nested loops may keep less."""
        kept = self._candidates.best(limit * self.spread.parts)
        exact = [] if kept is None else self._each("plain", [kept])
        found = [c for c in exact if c.kept_bytes <= limit]
        if not found or any(name.startswith("loops") for name in structures_for(self._program)):
            found += [c for c in self.tried if c.kept_bytes <= limit]
        return min(found, key=lambda c: (c.seconds, c.peak_bytes), default=None)

    def lower_bound(self, limit: int) -> float:
        """Seconds that no plan takes less than that keeps at most `limit` bytes between the passes, and computes
        nothing twice over: of the linear relaxation."""
        parts = self.spread.parts
        return self.without.seconds + self.solver.bound(limit * parts) / parts
