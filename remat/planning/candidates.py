"""The sets of values that plans keep: the best ones for some numbers of bytes, and what people keep by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from remat.ir.keys import program_digests, program_keys
from remat.ir.linearized import Linearized
from remat.ir.ops import Checkpoint
from remat.ir.program import Equation, Program, Value
from remat.ir.traits import is_batched_product, is_product
from remat.ir.types import short_text
from remat.planning.choice import KeptValue
from remat.planning.kept_set import KeptSets
from remat.planning.problem import GIVEN, Problem, problem_of
from remat.planning.seconds import Rates
from remat.transforms.enclose import around
from remat.transforms.linearize import linearize_program
from remat.transforms.open_end import end_of

MOST, FEWEST, EQUATIONS = 24, 8, 12_000
"""For how many numbers of bytes the best sets are found: as many as keep planning under a minute on two cores, which is
about that many equations differentiated and simulated for each structure."""


class Candidates:
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
        held = {copies.get(v) for e in end_of(program.equations) for v in e.outputs}
        self._held = [i for i, v in enumerate(self.problem.values) if v in held]
        """What is kept with an open end, whatever a plan says."""

    @property
    def values(self) -> list[KeptValue]:
        """All that a plan may keep, what costs most to compute first."""
        problem = self.problem
        seconds = [0.0 if e == GIVEN else problem.seconds[e] for e in problem.made_by]
        numbers = sorted(range(len(problem.values)), key=lambda i: (-seconds[i], -problem.bytes[i]))
        return [v for i in numbers for v in _as_kept(problem, [i], self.choices)]

    @property
    def equation_count(self) -> int:
        return max(1, len(self.problem.seconds))

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
    """What people keep by hand: nothing, all products, products without batch dimensions, and those outside of loops,
    as with regions around loop bodies. The solver counts bytes between the passes, and a compiler may take less for one
    of these."""
    made_by = {v: e for e in linearized.all_equations() for v in e.outputs}
    products = [i for i, v in enumerate(problem.values) if v in choices and v in made_by and is_product(made_by[v].op)]
    weights = [i for i in products if not _is_batched(made_by[problem.values[i]])]
    outside = {v for e in linearized.equations for v in e.outputs}
    outer = [i for i in products if problem.values[i] in outside]
    return [_as_kept(problem, numbers, choices) for numbers in ([], products, weights, outer)]


def _is_batched(equation: Equation) -> bool:
    return is_batched_product(equation.op, [a.type for a in equation.inputs])


def _as_kept(problem: Problem, numbers: Iterable[int], choices: dict[Value, tuple[str, str]]) -> tuple[KeptValue, ...]:
    values = [(problem.values[i], problem.bytes[i]) for i in sorted(numbers) if problem.values[i] in choices]
    return tuple([KeptValue(choices[v][0], short_text(v.type), size, choices[v][1]) for v, size in values])
