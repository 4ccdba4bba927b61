"""Marks on values of a program, which last through every transformation: plans keep values by them.

A mark is a name as `checkpoint_name` gives it, so that what is known of named values (a name is on the result, code
that reads the value from before does not undo it) holds for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from remat.ir.keys import Mark
from remat.ir.ops import Name
from remat.ir.program import Equation, Program, Value
from remat.ir.rewrite import with_programs


def with_marks(program: Program, marks: Mapping[Value, str]) -> Program:
    """The same program with marks on some of its values, those of loop bodies and branches included."""
    equations: list[Equation] = []
    for equation in program.equations:
        op = equation.op
        if op.programs:
            op = with_programs(op, [with_marks(p, marks) for p in op.programs])
        outputs = [Value(v.type) if v in marks else v for v in equation.outputs]
        equations.append(Equation(op, equation.inputs, outputs, equation.source, equation.region))
        for before, value in zip(outputs, equation.outputs, strict=True):
            if before is not value:
                mark = Name(Mark(marks[value]))
                equations.append(Equation(mark, [before], [value], equation.source, equation.region))
    return Program(program.inputs, equations, program.outputs, program.constants, program.signature)
