"""How long equations take on a target, by its peak rates: the roofline model.

An equation takes the longer of computing and moving its operands and results. Element-wise equations are fused by every
compiler into what reads them: they take their operations, and no traffic of their own. So recomputing one is cheap, but
not free.

Source: Williams, Waterman and Patterson, Roofline (2009). The figures are those of data sheets; what a program really
takes is longer, so seconds are for comparing plans of one program and never called measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remat.errors import UnknownCostError
from remat.ir.costs import Cost, cost_of
from remat.ir.ops import Cond, Op, Scan
from remat.ir.program import Equation, Program
from remat.ir.traits import is_memory_bound, is_view_or_cast
from remat.ir.types import element_count, itemsize, size_in_bytes
from remat.targets.target import Target

CPU_FLOPS, CPU_BANDWIDTH = 1e11, 2e10
"""Of two CPU cores, since no data sheet says; measured: f32 products of 51.6 GFLOP in 0.24 s. Rounded down."""

VECTOR_PART = 1 / 16
"""Rate of element-wise operations as a part of that of products."""

TRANSCENDENTAL = 8.0
"""Operations that one value of such a function stands for."""


@dataclass(frozen=True)
class Rates:
    """What a device does in a second: operations in products of 16-bit and of wider floats, bytes to and from its
    memory. What is known of an op is remembered, since plans of one program have most of their ops in common."""

    narrow: float
    wide: float
    bandwidth: float
    _known: dict[int, tuple[Op, list[Any], float]] = field(default_factory=dict[int, Any], repr=False, compare=False)

    @classmethod
    def of(cls, target: Target) -> Rates:
        """Data sheet figures; those of a small CPU where there are none."""
        wide = target.f32_flops or CPU_FLOPS
        bandwidth = target.memory_bandwidth or CPU_BANDWIDTH
        return cls(target.bf16_flops or wide, wide, bandwidth)

    def equation(self, equation: Equation) -> float:
        """Seconds that an equation takes, with the programs in it. One of whose operations nothing is known takes what
        moving its operands and results takes.
        """
        op, types = equation.op, [a.type for a in equation.inputs]
        known = self._known.get(id(op))  # which the entry keeps alive
        if known is None or known[1] != types:
            known = self._known[id(op)] = (op, types, self._equation(equation))
        return known[2]

    def _equation(self, equation: Equation) -> float:
        op = equation.op
        if op.programs:
            inside = [self.program(p) for p in op.programs]
            times = element_count((op.length,)) if isinstance(op, Scan) else 1
            return times * (max(inside) if isinstance(op, Cond) else sum(inside))
        if is_view_or_cast(op):
            return 0.0
        try:
            cost = cost_of(equation)
        except UnknownCostError:
            return sum(size_in_bytes(a.type) for a in (*equation.inputs, *equation.outputs)) / self.bandwidth
        if is_memory_bound(op):
            return (cost.flops + TRANSCENDENTAL * cost.transcendentals) / (self.wide * VECTOR_PART)
        is_narrow = all(itemsize(v.type) <= 2 for v in equation.outputs if hasattr(v.type, "dtype"))
        return self._products(cost, self.narrow if is_narrow else self.wide)

    def program(self, program: Program) -> float:
        """Seconds that a program takes, one equation after another."""
        return sum(map(self.equation, program.equations))

    def _products(self, cost: Cost, rate: float) -> float:
        work = cost.flops / rate + TRANSCENDENTAL * cost.transcendentals / (self.wide * VECTOR_PART)
        return max(work, cost.bytes / self.bandwidth)
