"""The plans of a program from which a budget is met: what each keeps and takes, worked out once.

For some numbers of bytes the best set of values to keep is found (`kept_set`), and set into each way of cutting the
program into regions (`structures`). Each such plan is differentiated and simulated as it would run. A budget takes the
fastest plan whose peak is within it, from one list: so a larger budget is never slower, whatever the solver did. A
budget of what is kept takes the best set for just that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from remat.decisions import RECOMPUTE
from remat.ir.keys import Mark, program_digests, program_keys
from remat.ir.linearized import Linearized
from remat.ir.ops import Checkpoint, Name
from remat.ir.program import Equation, Program, Value
from remat.ir.rewrite import inline_all
from remat.ir.traits import is_batched_product, is_product
from remat.ir.types import short_text, size_in_bytes
from remat.planning.apply import regions_of
from remat.planning.choice import Choice, KeptValue
from remat.planning.devices import Spread, spread_of
from remat.planning.kept_set import KeptSets
from remat.planning.problem import Problem, problem_of
from remat.planning.seconds import Rates
from remat.planning.structures import end_of, structures_for
from remat.simulate.live_bytes import simulate_split
from remat.targets.current import current_target, use_target
from remat.transforms.decide import decide
from remat.transforms.enclose import around
from remat.transforms.linearize import linearize_program
from remat.transforms.split import Split, split

MOST, FEWEST, EQUATIONS = 24, 8, 12_000
"""For how many numbers of bytes the best sets are found: as many as keep planning under a minute on two cores, which is
about that many equations differentiated and simulated for each structure."""


class Frontier:
    """The plans of one program. They are worked out when they are asked for: a budget of what is kept needs one of
    them, one of the peak all.

    **Attributes**

    - `choices`: the plans that are worth having, the fastest first, each with a lower peak than those before.
      `tried`: all that were looked at. `without`: the program without any region.
    - `solver`: for kept sets and bounds.
    - `spread`: over how many devices; all bytes and seconds of plans are of one of them.
    """

    def __init__(self, region: Checkpoint, active: Sequence[bool], parts: Sequence[int]):
        self._target = current_target()
        rates = Rates.of(self._target)
        self._program = inline_all(region.program)
        self.spread = spread_of(self._program, active, parts)
        self._trial = _Trial(region, active, rates, self.spread)
        self._sets = _Sets(self._program, region, active, rates)
        self.solver = self._sets.solver

    @cached_property
    def tried(self) -> tuple[Choice, ...]:
        found = [self.without]
        for structure in structures_for(self._program):
            found += self._each(structure, self._sets.to_try(structure))
        return tuple(found)

    def _each(self, structure: str, sets: Sequence[tuple[KeptValue, ...]]) -> list[Choice]:
        with use_target(self._target):  # whatever is current by now
            return self._trial.each(structure, sets)

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        return _front(self.tried)

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
        kept = self._sets.best(limit * self.spread.parts)
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


def frontier_of(region: Checkpoint, active: Sequence[bool], parts: Sequence[int] = ()) -> Frontier:
    """The plans of a region that is differentiated with respect to its active inputs, for the current target. `parts`
    says in how many parts each input is, over devices, where that is known.

    **Raises** `ReverseModeError` for a program that cannot be run in reverse.
    """
    return Frontier(region, active, parts)


class _Sets:
    """The sets of values that may be kept, of a region that is linearized as one."""

    def __init__(self, program: Program, region: Checkpoint, active: Sequence[bool], rates: Rates):
        keys = program_keys(program)
        copies: dict[Value, Any] = {}
        whole = around(program, Checkpoint(program, None, region.prevent_cse, region.function, derived=True))
        self.linearized = linearize_program(whole, active, copies=copies)
        digests = program_digests(program)
        self.choices = {copies[v]: (key, digests[v]) for v, key in keys.items() if isinstance(copies.get(v), Value)}
        self.problem = problem_of(self.linearized, self.choices, rates)
        self.solver = KeptSets(self.problem)
        held = {copies.get(v) for e in end_of(program) for v in e.outputs}
        self._held = [i for i, v in enumerate(self.problem.values) if v in held]
        """What is kept with an open end, whatever a plan says."""

    def best(self, limit: int) -> tuple[KeptValue, ...] | None:
        """The best set within so many bytes; None if there is none."""
        found = self.solver.within(limit)
        return None if found is None else _as_kept(self.problem, found.kept, self.choices)

    def to_try(self, structure: str) -> list[tuple[KeptValue, ...]]:
        """The sets that plans of a structure are made of, whatever the budget is."""
        return self._with_open_end if structure == "open_end" else self._usually

    @cached_property
    def _usually(self) -> list[tuple[KeptValue, ...]]:
        usual = _usual_sets(self.linearized, self.problem, self.choices)
        return list(dict.fromkeys([*_kept_sets(self.solver, self.problem, self.choices), *usual]))

    @property
    def _with_open_end(self) -> list[tuple[KeptValue, ...]]:
        held = {self.problem.values[i] for i in self._held}
        choices = {v: known for v, known in self.choices.items() if v not in held}
        found = _kept_sets(KeptSets(self.problem, self._held), self.problem, choices)
        return list(dict.fromkeys([*found, *_usual_sets(self.linearized, self.problem, choices)]))


def _kept_sets(
    solver: KeptSets, problem: Problem, choices: dict[Value, tuple[str, str]]
) -> list[tuple[KeptValue, ...]]:
    """The best sets for some numbers of bytes, without those that take more and save nothing."""
    fewest, most = solver.fewest_bytes(), solver.most_bytes()
    count = max(FEWEST, min(MOST, EQUATIONS // max(1, len(problem.seconds))))
    found: list[tuple[KeptValue, ...]] = []
    best = float("inf")
    for i in range(count + 1):
        part = (i / count) ** 1.5  # closer where less is kept
        solution = solver.within(round(fewest + part * (most - fewest)))
        if solution is None or solution.seconds >= best * (1 - 1e-3):
            continue
        best = solution.seconds
        found.append(_as_kept(problem, solution.kept, choices))
    return found


def _usual_sets(
    linearized: Linearized, problem: Problem, choices: dict[Value, tuple[str, str]]
) -> list[tuple[KeptValue, ...]]:
    """What people keep by hand: nothing, all products, and products without batch dimensions. The solver counts bytes
    between the passes, and a compiler may take less for one of these."""
    made_by = {v: e for e in linearized.all_equations() for v in e.outputs}
    products = [i for i, v in enumerate(problem.values) if v in choices and v in made_by and is_product(made_by[v].op)]
    weights = [i for i in products if not _is_batched(made_by[problem.values[i]])]
    return [_as_kept(problem, numbers, choices) for numbers in ([], products, weights)]


def _is_batched(equation: Equation) -> bool:
    return is_batched_product(equation.op, [a.type for a in equation.inputs])


def _as_kept(problem: Problem, numbers: Iterable[int], choices: dict[Value, tuple[str, str]]) -> tuple[KeptValue, ...]:
    values = [(problem.values[i], problem.bytes[i]) for i in sorted(numbers) if problem.values[i] in choices]
    return tuple([KeptValue(choices[v][0], short_text(v.type), size, choices[v][1]) for v, size in values])


class _Trial:
    """Differentiates and simulates plans of one region."""

    def __init__(self, region: Checkpoint, active: Sequence[bool], rates: Rates, spread: Spread):
        self.region, self.active, self.rates, self.spread = region, active, rates, spread

    def without(self, program: Program) -> Choice:
        linearized = linearize_program(program, self.active)
        return self._choice("none", (), split(linearized, decide(linearized, False), warn=False))

    def each(self, structure: str, sets: Sequence[tuple[KeptValue, ...]]) -> list[Choice]:
        """The plans of one structure, which is linearized once."""
        every = frozenset(v.key for kept in sets for v in kept)
        program = regions_of(self.region, structure, every, "plan")
        linearized = linearize_program(program, self.active)
        decisions = decide(linearized, False)
        key_of = {
            e.outputs[0]: e.op.tag
            for e in linearized.all_equations()
            if isinstance(e.op, Name) and isinstance(e.op.tag, Mark)
        }
        found: list[Choice] = []
        for kept in sets:
            wanted = {v.key for v in kept}
            left_out = {v: RECOMPUTE for v, key in key_of.items() if key not in wanted}
            found.append(self._choice(structure, kept, split(linearized, {**decisions, **left_out}, warn=False)))
        return found

    def _choice(self, structure: str, kept: tuple[KeptValue, ...], made: Split) -> Choice:
        held = {*made.linearized.inputs, *(v for v, _ in made.linearized.constants)}
        bytes_kept = sum(size_in_bytes(made.level.residuals[v].type) for v in made.residuals if v not in held)
        seconds = self.rates.program(made.forward) + self.rates.program(made.second)
        peak, spread = simulate_split(made).set_aside, self.spread
        return Choice(structure, kept, spread.kept(bytes_kept), spread.peak(peak), seconds / spread.parts)


def _front(tried: Sequence[Choice]) -> tuple[Choice, ...]:
    """The plans that no other one is as fast as with a lower peak, the fastest first."""
    front: list[Choice] = []
    for choice in sorted(tried, key=lambda c: (c.seconds, c.peak_bytes)):
        if not front or choice.peak_bytes < front[-1].peak_bytes:
            front.append(choice)
    return tuple(front)
