"""The plans of a program from which a budget is met: what each keeps and takes, worked out once.

For some numbers of bytes the best set of values to keep is found (`kept_set`), and set into each way of cutting the
program into regions (`structures`). Each such plan is differentiated and simulated as it would run. A budget takes the
fastest plan whose peak is within it, from one list: so a larger budget is never slower, whatever the solver did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
from remat.planning.kept_set import KeptSets
from remat.planning.problem import Problem, problem_of
from remat.planning.seconds import Rates
from remat.planning.structures import structures_for
from remat.simulate.live_bytes import simulate_split
from remat.targets.current import current_target
from remat.transforms.decide import decide
from remat.transforms.enclose import around
from remat.transforms.linearize import linearize_program
from remat.transforms.split import Split, split

MOST, FEWEST, EQUATIONS = 24, 8, 12_000
"""For how many numbers of bytes the best sets are found: as many as keep planning under a minute on two cores, which is
about that many equations differentiated and simulated for each structure."""


@dataclass(frozen=True, eq=False)
class Frontier:
    """The plans of one program, the fastest first, each with a lower peak than those before.

    **Attributes**

    - `choices`: the plans. `tried`: all that were looked at.
    - `base_seconds`: of the program without any region. `solver`: for bounds.
    """

    choices: tuple[Choice, ...]
    tried: tuple[Choice, ...]
    base_seconds: float
    solver: KeptSets = field(repr=False)

    @property
    def without(self) -> Choice:
        """The program without any region."""
        return next(c for c in self.tried if c.structure == "none")

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
        """The fastest plan that keeps at most `limit` bytes; None if there is none."""
        found = [c for c in self.tried if c.kept_bytes <= limit]
        return min(found, key=lambda c: (c.seconds, c.peak_bytes), default=None)

    def lower_bound(self, limit: int) -> float:
        """Seconds that no plan takes less than that keeps at most `limit` bytes between the passes, and computes
        nothing twice over: of the linear relaxation."""
        return self.base_seconds + self.solver.bound(limit)


def frontier_of(region: Checkpoint, active: Sequence[bool]) -> Frontier:
    """The plans of a region that is differentiated with respect to its active inputs, for the current target.

    **Raises** `ReverseModeError` for a program that cannot be run in reverse.
    """
    rates = Rates.of(current_target())
    program = inline_all(region.program)
    keys = program_keys(program)
    copies: dict[Value, Any] = {}
    whole = around(program, Checkpoint(program, None, region.prevent_cse, region.function, derived=True))
    linearized = linearize_program(whole, active, copies=copies)
    digests = program_digests(program)
    choices = {copies[v]: (key, digests[v]) for v, key in keys.items() if isinstance(copies.get(v), Value)}
    problem = problem_of(linearized, choices, rates)
    solver = KeptSets(problem)
    sets = [*_kept_sets(solver, problem, choices), *_usual_sets(linearized, problem, choices)]
    sets = list(dict.fromkeys(sets))
    trial = _Trial(region, active, rates)
    tried = [trial.without(program)]
    every = frozenset(v.key for kept in sets for v in kept)
    for structure in structures_for(program):
        tried += trial.each(structure, every, sets)
    return Frontier(_front(tried), tuple(tried), tried[0].seconds, solver)


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
    values = [(problem.values[i], problem.bytes[i]) for i in sorted(numbers) if problem.is_choice[i]]
    return tuple([KeptValue(choices[v][0], short_text(v.type), size, choices[v][1]) for v, size in values])


class _Trial:
    """Differentiates and simulates plans of one region."""

    def __init__(self, region: Checkpoint, active: Sequence[bool], rates: Rates):
        self.region, self.active, self.rates = region, active, rates

    def without(self, program: Program) -> Choice:
        linearized = linearize_program(program, self.active)
        return self._choice("none", (), split(linearized, decide(linearized, False), warn=False))

    def each(self, structure: str, every: frozenset[str], sets: Sequence[tuple[KeptValue, ...]]) -> list[Choice]:
        """The plans of one structure, which is linearized once."""
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
        return Choice(structure, kept, bytes_kept, simulate_split(made).set_aside, seconds)


def _front(tried: Sequence[Choice]) -> tuple[Choice, ...]:
    """The plans that no other one is as fast as with a lower peak, the fastest first."""
    front: list[Choice] = []
    for choice in sorted(tried, key=lambda c: (c.seconds, c.peak_bytes)):
        if not front or choice.peak_bytes < front[-1].peak_bytes:
            front.append(choice)
    return tuple(front)
