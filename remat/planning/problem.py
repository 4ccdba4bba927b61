"""What could be kept and what that would save, as a graph of numbers.

Nodes are the values of a linearized program at every level, with what keeping each takes (times the iterations of the
loops around it), and the equations that make them, with what running each again takes. *Needed* are the values that the
backward pass reads: each must be kept, or made again from what is.

Values of a loop's body are nodes like others. Its constants and slices follow from values around it by equations that
cost nothing; what it carries is kept for each iteration when it is read, unless what it was made as in the iteration
before is kept anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from remat.decisions import SAVE, Decision
from remat.ir.linearized import LinearCond, Linearized, LinearScan, LinearShardMap
from remat.ir.ops import Scan, Zeros
from remat.ir.program import Atom, Value
from remat.ir.rewrite import prune
from remat.ir.types import element_count, size_in_bytes
from remat.planning.seconds import Rates
from remat.simulate.level import devices
from remat.transforms.decide import mark_last_region
from remat.transforms.rules.scan_residuals import runs_again
from remat.transforms.split import split
from remat.transforms.walk import Level

GIVEN = -1
"""What makes values that are there anyway: arguments, and what a loop carries (which is kept or not)."""


@dataclass(eq=False)
class Problem:
    """See the module docstring. Values and equations are numbered from 0.

    **Attributes**

    - `values`: of the linearized program. `bytes`: what keeping each takes.
    - `is_choice`: whether a plan can keep it. `is_carried`: whether it is what a loop carries. `is_free`: whether it is
      there anyway.
    - `made_by`: the equation that makes each, or `GIVEN`. `made_before`: for what is carried, the value that it was
      made as in the iteration before.
    - `seconds`: what running each equation again takes; nothing for one that only derivatives need, which runs once,
      in whichever pass. `inputs`: the values that each reads. `fixed`: the equations
      that never run again.
    - `needed`: the values that the backward pass reads.
    """

    values: list[Value] = field(default_factory=list[Value])
    bytes: list[int] = field(default_factory=list[int])
    is_choice: list[bool] = field(default_factory=list[bool])
    is_carried: list[bool] = field(default_factory=list[bool])
    is_free: list[bool] = field(default_factory=list[bool])
    made_by: list[int] = field(default_factory=list[int])
    made_before: dict[int, int] = field(default_factory=dict[int, int])
    seconds: list[float] = field(default_factory=list[float])
    inputs: list[list[int]] = field(default_factory=list[list[int]])
    fixed: set[int] = field(default_factory=set[int])
    needed: list[int] = field(default_factory=list[int])

    def kept_bytes(self, kept: Collection[int]) -> int:
        return sum(self.bytes[i] for i in kept)


def problem_of(linearized: Linearized, choices: Collection[Value], rates: Rates) -> Problem:
    """The graph of a program that is linearized as one region; `choices` are the values that a plan can keep.

    **Raises** `ReverseModeError` for a program that cannot be run in reverse.
    """
    mark_last_region(linearized)
    everything: dict[Value, Decision] = {v: SAVE for e in linearized.all_equations() for v in e.outputs}
    made = split(linearized, everything, warn=False)
    builder = _Builder(Problem(), choices, rates)
    for value in (*linearized.inputs, *(v for v, _ in linearized.constants)):
        builder.value(value, 0, is_free=True)
    builder.level(made.level, 1)
    return builder.problem


class _Builder:
    def __init__(self, problem: Problem, choices: Collection[Value], rates: Rates):
        self.problem, self.choices, self.rates = problem, choices, rates
        self.index: dict[Value, int] = {}

    def value(
        self, value: Value, bytes: int, made_by: int = GIVEN, is_free: bool = False, carried: bool = False
    ) -> int:
        problem = self.problem
        self.index[value] = number = len(problem.values)
        problem.values.append(value)
        problem.bytes.append(bytes)
        problem.is_choice.append(value in self.choices)
        problem.is_carried.append(carried)
        problem.is_free.append(is_free)
        problem.made_by.append(made_by)
        return number

    def equation(self, inputs: Sequence[Atom], seconds: float) -> int:
        self.problem.seconds.append(seconds)
        known = [self.index[a] for a in dict.fromkeys(inputs) if isinstance(a, Value) and a in self.index]
        self.problem.inputs.append(known)
        return len(self.problem.seconds) - 1

    def level(self, level: Level, times: int) -> None:
        """Add a level that runs so many times."""
        bodies = {e.op.equation: e.op for e in level.linearized.linear if isinstance(e.op, _STRUCTURED)}
        read_forward = {v for e in prune(level.linearized.equations, level.linearized.outputs) for v in e.outputs}
        for equation in level.linearized.equations:
            runs_forward = not read_forward.isdisjoint(equation.outputs)
            seconds = times * self.rates.equation(equation) if runs_forward else 0.0
            number = self.equation(equation.inputs, seconds)
            if equation.op.effects or (isinstance(equation.op, Scan) and not runs_again(equation, level)):
                self.problem.fixed.add(number)
            for value in equation.outputs:
                is_free = isinstance(equation.op, Zeros)
                self.value(value, times * size_in_bytes(value.type), number, is_free)
            if equation in bodies:
                self.inside(level, bodies[equation], times)
        for step in level.steps:
            if not step.recomputed:
                self.problem.needed.extend(self.index[v] for v in step.reads if v in self.index)

    def inside(self, level: Level, op: LinearScan | LinearCond | LinearShardMap, times: int) -> None:
        """Add the levels of a loop, of branches or of a mapped function."""
        outer = op.equation.inputs[1:] if isinstance(op, LinearCond) else op.equation.inputs
        carried = range(0)
        if isinstance(op, LinearScan):
            scan: Scan = op.equation.op  # type: ignore[assignment]
            carried = range(scan.constant_count, scan.constant_count + scan.carry_count)
            times *= element_count((scan.length,))
        elif isinstance(op, LinearShardMap):
            times *= devices(op.equation.op)  # type: ignore[arg-type]
        for body in op.branches if isinstance(op, LinearCond) else [op.body]:
            for inner in [c for c in level.children if c.linearized is body]:
                for i, (value, atom) in enumerate(zip(body.inputs, outer, strict=True)):
                    if i in carried:
                        self.value(value, times * size_in_bytes(value.type), carried=True)
                    else:
                        self.value(value, 0, self.equation([atom], 0.0))
                self.level(inner, times)
                for i in carried:
                    before = body.outputs[i - carried.start]
                    if isinstance(before, Value) and before in self.index:
                        self.problem.made_before[self.index[body.inputs[i]]] = self.index[before]


_STRUCTURED = (LinearScan, LinearCond, LinearShardMap)
