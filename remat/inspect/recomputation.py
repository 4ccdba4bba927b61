"""What a backward pass computes again, as numbers: equations, operations, and seconds by a target's peak rates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from remat.errors import UnknownCostError
from remat.ir.costs import cost_of
from remat.ir.ops import Barrier, Cond, Name, Scan, ToMemory, Zeros, nested_programs
from remat.ir.program import Equation, Program
from remat.ir.types import element_count
from remat.planning.seconds import Rates
from remat.targets.target import Target
from remat.transforms.split import Split

NO_WORK = (Barrier, Name, ToMemory, Zeros)
"""What is in a backward program beside the equations that compute something."""


@dataclass(frozen=True)
class Recomputation:
    """What the backward pass computes again. Nothing is measured.

    **Attributes**

    - `equations`: how many equations, those of a loop once.
    - `flops`, `forward_flops`: operations in these, and in the forward pass as the user wrote it; loops multiplied. A
      transcendental function counts as one operation for each element.
    - `seconds`: what they take by the peak rates of `target`.
    - `unknown`: primitives of the program whose operations are not known. They count as none.
    """

    equations: int
    flops: float
    forward_flops: float
    seconds: float
    target: str
    unknown: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Operations as a part of those of the forward pass; over 1 where something is computed again twice."""
        return self.flops / self.forward_flops if self.forward_flops else 0.0

    def to_data(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {**asdict(self), "share": self.share}


def recomputation_of(split: Split, program: Program, target: Target) -> Recomputation:
    """What the backward pass of a split program computes again; `program` is the one that was split."""
    count = _Counter(Rates.of(target))
    equations, flops, seconds = count.again(split.second)
    forward = count.operations(program.equations)
    return Recomputation(equations, flops, forward, seconds, str(target), tuple(sorted(count.unknown)))


class _Counter:
    """Counts operations; notes the primitives that it knows nothing about."""

    def __init__(self, rates: Rates):
        self.rates = rates
        self.unknown: set[str] = set()

    def again(self, program: Program) -> tuple[int, float, float]:
        """Equations, operations and seconds of what a backward program computes again, its loops included."""
        equations, flops, seconds = 0, 0.0, 0.0
        for e in program.equations:
            if e.source.is_recomputed:
                equations += _written(e)
                flops += self.operations([e])
                seconds += self.rates.equation(e)
            elif e.op.programs:
                inside = [self.again(p) for p in e.op.programs]
                most = [max(inside, key=lambda x: x[1:])] if isinstance(e.op, Cond) else inside
                times = element_count((e.op.length,)) if isinstance(e.op, Scan) else 1
                equations += sum(x[0] for x in inside)
                flops += times * sum(x[1] for x in most)
                seconds += times * sum(x[2] for x in most)
        return equations, flops, seconds

    def operations(self, equations: Iterable[Equation]) -> float:
        """Operations of some equations, of branches those of the most expensive one."""
        total = 0.0
        for e in equations:
            try:
                cost = cost_of(e)
                total += cost.flops + cost.transcendentals
            except UnknownCostError:
                total += self._of_parts(e)
        return total

    def _of_parts(self, equation: Equation) -> float:
        """Operations of an equation in which something is not known."""
        op = equation.op
        if not op.programs:
            self.unknown.add(op.name)
            return 0.0
        inside = [self.operations(p.equations) for p in op.programs]
        times = element_count((op.length,)) if isinstance(op, Scan) else 1
        return times * (max(inside) if isinstance(op, Cond) else sum(inside))


def _written(equation: Equation) -> int:
    """How many equations one that is computed again stands for, those that hold others not counted."""
    if not equation.op.programs:
        return 0 if isinstance(equation.op, NO_WORK) else 1
    inside = (e for p in nested_programs(equation.op.programs) for e in p.equations)
    return sum(1 for e in inside if not e.op.programs and not isinstance(e.op, NO_WORK))
