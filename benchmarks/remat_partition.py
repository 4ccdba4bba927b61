"""What remat's plans for a loss come to, in the numbers of `partition`.

Also the best set of values within a limit, where torch's measure of time counts: no plan of remat's minimizes that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from partition import Partition, Step, live_peak

import remat
from remat.inspect.planned import Loss
from remat.ir.costs import dot_flops
from remat.ir.keys import program_digests, program_keys
from remat.ir.ops import Checkpoint, Primitive
from remat.ir.program import Equation, Program, Value
from remat.ir.rewrite import inline_all
from remat.ir.types import short_text, size_in_bytes
from remat.planning.kept_set import KeptSets
from remat.planning.problem import problem_of
from remat.planning.seconds import Rates
from remat.policies.budget import planned
from remat.simulate.fusion import WITHOUT_RESULTS, reading_of
from remat.targets.array_rules import ArrayRules
from remat.targets.measure import made_for
from remat.targets.target import as_target
from remat.transforms.enclose import around
from remat.transforms.linearize import linearize_program
from remat.transforms.split import Split

TARGET = "cpu"
TORCH_VIEWS = frozenset({"broadcast_in_dim", "slice"})
"""What is a view in torch, besides what is one for XLA: both graphs are counted alike."""


@dataclass(frozen=True)
class ProductsOnly(Rates):
    """Torch's measure of time: operations in products, and one for everything else."""

    def equation(self, equation: Equation) -> float:
        return max(dot_flops(Program([], [equation], [])), 1.0)


@dataclass(frozen=True, eq=False)
class Measured:
    """A loss of trees of shapes, whose first argument is differentiated."""

    loss: Any
    shapes: tuple[Any, ...]

    @cached_property
    def flat(self) -> Loss:
        return Loss.of("torch_budget", self.loss, self.shapes, {}, 0)

    @cached_property
    def plain_flops(self) -> int:
        return _product_flops(self._split(None))

    def _split(self, policy: Any) -> Split:
        with made_for(as_target(TARGET)):
            return self.flat.under(policy).split

    def plan(self, limit: int, of: str) -> remat.Plan:
        return remat.plan(self.loss, *self.shapes, budget=limit, of=of, target=TARGET)

    def partition(self, policy: Any) -> Partition:
        """What runs under a policy."""
        made = self._split(policy)
        held = {*made.linearized.inputs, *(v for v, _ in made.linearized.constants)}
        residuals = {v: size_in_bytes(made.level.residuals[v].type) for v in made.residuals if v not in held}
        given = [residuals.get(v) for v in made.residuals]
        given += [size_in_bytes(v.type) for v in made.second.inputs[len(given) :]]
        return Partition(
            saved_bytes=sum(residuals.values()),
            recomputed_flops=_product_flops(made) - self.plain_flops,
            plain_flops=self.plain_flops,
            backward_peak=backward_peak(made.second, given),
        )

    @cached_property
    def _sets(self) -> tuple[KeptSets, dict[int, tuple[str, str, str]]]:
        """The solver for torch's measure of time, and of each value that can be kept the key, type and digest."""
        program = inline_all(self.flat.traced(None))
        copies: dict[Value, Any] = {}
        whole = around(program, Checkpoint(program, None, True, "loss", derived=True))
        linearized = linearize_program(whole, self.flat.is_active, copies=copies)
        digests = program_digests(program)
        marks = {copies[v]: (key, digests[v]) for v, key in program_keys(program).items() if v in copies}
        problem = problem_of(linearized, marks, ProductsOnly(1.0, 1.0, 1.0))
        known = {i: (marks[v][0], short_text(v.type), marks[v][1]) for i, v in enumerate(problem.values) if v in marks}
        return KeptSets(problem), known

    def best_for_torch(self, limit: int) -> Any:
        """The policy that keeps the best set within a number of bytes, where time is what torch takes it for."""
        with made_for(as_target(TARGET)):
            solver, known = self._sets
            found = solver.within(limit)
        assert found is not None, f"there is no set of values within {limit} bytes"
        return planned("plain", [known[i] for i in sorted(found.kept) if i in known])


def _product_flops(made: Split) -> int:
    return int(dot_flops(made.forward) + dot_flops(made.second))


def backward_peak(program: Program, kept: Sequence[int | None]) -> int:
    """The most bytes alive while a backward program runs. `kept` are the bytes of its inputs, None for what is the
    loss's."""
    program = inline_all(program)
    memory: dict[Value, Value] = {v: v for v in program.inputs}
    steps = list(_steps(program, memory))
    given = {v: size for v, size in zip(program.inputs, kept, strict=True) if size is not None}
    return live_peak(steps, given, [memory[v] for v in program.outputs if isinstance(v, Value)])


def _steps(program: Program, memory: dict[Value, Value]) -> Iterator[Step]:
    """A step for each equation; `memory` becomes the memory of each value."""
    rules = ArrayRules()
    memory.update({v: v for v, _ in program.constants})
    for equation in program.equations:
        read = [memory[a] for a in equation.inputs if isinstance(a, Value)]
        is_view = isinstance(equation.op, Primitive) and equation.op.name in TORCH_VIEWS
        if read and (is_view or reading_of(equation.op, rules) in WITHOUT_RESULTS):
            memory.update(zip(equation.outputs, read, strict=True))
            yield Step(tuple(read), ())
        else:
            memory.update({v: v for v in equation.outputs})
            yield Step(tuple(read), tuple((v, size_in_bytes(v.type)) for v in equation.outputs))
