"""The set of values to keep within a number of bytes that costs the least to do without the others: a 0/1 program.

    minimize    sum seconds(e) r(e)
    subject to  s(v) + r(made_by(v)) >= 1          for each value v that is needed
                s(u) + r(made_by(u)) >= r(e)       for each equation e that runs again, and value u that it reads
                sum bytes(v) s(v) <= limit

with s(v) = 1 where v is kept and r(e) = 1 where e runs again. HiGHS solves it, and its bound says how far from the best
a solution can be.

Source: the formulation is the well-known one of recomputation without a schedule (for example Jain et al., Checkmate,
2020, without its time index); each equation runs again at most once, whenever that is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from remat.planning.problem import GIVEN, Problem

GAP = 1e-3
"""How close to the bound a solution has to be, as a part of it."""

NODES = 500
"""How many nodes of the search tree one solution may take: a limit that is the same on every machine."""

SECONDS = 60.0
"""How long one solution may take, so that planning ends: on a busy machine a plan must not be another one."""


@dataclass(frozen=True, eq=False)
class KeptSet:
    """A solution.

    **Attributes**

    - `kept`: the numbers of the values that are kept. `bytes`: what they take, together with what loops carry.
    - `seconds`: what recomputing the others takes. `bound`: no set within the limit takes less.
    """

    kept: frozenset[int]
    bytes: int
    seconds: float
    bound: float


class KeptSets:
    """Solves for one limit after another. Made once for a problem. Values that are `held` anyway take nothing."""

    def __init__(self, problem: Problem, held: Collection[int] = ()):
        self.problem = problem
        self._held = held
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._entries: list[float] = []
        self._least: list[float] = []
        self._fill()

    def most_bytes(self) -> int:
        """Bytes beyond which keeping more saves nothing."""
        found = self.within(None)
        return 0 if found is None else found.bytes

    def fewest_bytes(self) -> int:
        """What has to be kept in any case: results of effects and of loops, and what loops carry."""
        sizes = np.concatenate([self._sizes, np.zeros(len(self.problem.seconds)), np.zeros(self._shift_count)])
        found = self._solve(sizes, None, True)
        return 0 if found is None else int(np.rint(self._sizes @ np.round(found.x[: len(self._sizes)])))

    def within(self, limit: int | None) -> KeptSet | None:
        """The best set within so many bytes (None: any number); None if there is none."""
        seconds = np.asarray(self.problem.seconds)
        scale = max(seconds.sum(), 1e-30)
        tie = 1e-6 / max(self._sizes.sum(), 1)  # of two sets as fast, the smaller
        objective = np.concatenate([self._sizes * tie, seconds / scale, np.zeros(self._shift_count)])
        found = self._solve(objective, limit)
        if found is None:
            return None
        x = np.round(found.x)
        count = len(self._sizes)
        kept = frozenset(np.flatnonzero(x[:count]).tolist())
        taken = float(seconds @ x[count : count + len(seconds)])
        bound = max(0.0, (found.mip_dual_bound - 1e-6) * scale) if found.mip_dual_bound is not None else 0.0
        return KeptSet(kept, int(np.rint(self._sizes @ x[:count])), taken, min(bound, taken))

    def bound(self, limit: int) -> float:
        """Seconds that no plan within so many kept bytes gets below: the linear relaxation, in which what loops carry
        takes nothing, since nested loops keep few of them."""
        seconds = np.asarray(self.problem.seconds)
        objective = np.concatenate([np.zeros(len(self._sizes)), seconds, np.zeros(self._shift_count)])
        sizes = np.where(self.problem.is_carried, 0.0, self._sizes)
        found = self._solve(objective, limit, True, sizes)
        return 0.0 if found is None else max(0.0, float(found.fun))

    # The matrix: columns are values, then equations, then one for each carried value.

    def _fill(self) -> None:
        problem = self.problem
        self._sizes = np.asarray(problem.bytes, dtype=float)
        self._sizes[list(self._held)] = 0
        self._shift_count = len(problem.made_before)
        first = len(problem.values) + len(problem.seconds)
        shift_column = {c: first + i for i, c in enumerate(problem.made_before)}
        for c, column in shift_column.items():  # rebuilt from the iteration before only if that value is kept
            self._row([(problem.made_before[c], 1.0), (column, -1.0)], 0.0)
        for value in set(problem.needed):
            self._row(self._available(value, shift_column), 1.0)
        for number, inputs in enumerate(problem.inputs):
            for value in inputs:
                terms = self._available(value, shift_column)
                if terms is not None:
                    self._row([*terms, (len(problem.values) + number, -1.0)], 0.0)

    def _available(self, value: int, shift_column: dict[int, int]) -> list[tuple[int, float]] | None:
        """The columns of which one has to be 1 for a value to be there; None if it is there anyway."""
        problem = self.problem
        if problem.is_free[value]:
            return None
        terms = [(value, 1.0)]
        if problem.made_by[value] != GIVEN:
            terms.append((len(problem.values) + problem.made_by[value], 1.0))
        if value in shift_column:
            terms.append((shift_column[value], 1.0))
        return terms

    def _row(self, terms: list[tuple[int, float]] | None, least: float) -> None:
        if terms is None:
            return
        self._rows.extend([len(self._least)] * len(terms))
        self._columns.extend(c for c, _ in terms)
        self._entries.extend(e for _, e in terms)
        self._least.append(least)

    def _solve(self, objective: Any, limit: int | None, relaxed: bool = False, sizes: Any = None) -> Any:
        """What HiGHS found, or None if there is no solution."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array

        columns = len(objective)
        least: Any = np.asarray(self._least)  # the stub of scipy knows numbers only
        constraints = [LinearConstraint(self._matrix, lb=least)]
        if limit is not None:
            taken = self._sizes if sizes is None else sizes
            sizes = np.concatenate([taken, np.zeros(columns - len(taken))])
            scale = max(self._sizes.max(initial=1.0), 1.0)
            constraints.append(LinearConstraint(coo_array((sizes / scale)[None, :]).tocsr(), ub=limit / scale))
        options = {"mip_rel_gap": GAP, "node_limit": NODES, "time_limit": SECONDS}
        integrality = np.zeros(columns) if relaxed else np.ones(columns)
        found = milp(
            objective, constraints=constraints, bounds=Bounds(0, self._most), integrality=integrality, options=options
        )
        return found if found.x is not None else None

    @cached_property
    def _matrix(self) -> Any:
        from scipy.sparse import coo_array

        shape = len(self._least), len(self._most)
        return coo_array((self._entries, (self._rows, self._columns)), shape=shape).tocsr()

    @cached_property
    def _most(self) -> Any:
        """The largest value of each variable: 0 for what cannot be kept, and for what does not run again."""
        problem = self.problem
        kept = [
            float(not free and (choice or carried or made_by in problem.fixed))
            for free, choice, carried, made_by in zip(
                problem.is_free, problem.is_choice, problem.is_carried, problem.made_by, strict=True
            )
        ]
        again = [float(i not in problem.fixed) for i in range(len(problem.seconds))]
        return np.asarray([*kept, *again, *([1.0] * self._shift_count)])
