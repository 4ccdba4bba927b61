"""Regions as programs again: the inverse of inlining them, for a program that is differentiated once more.

Linearization inlines regions and leaves marks on their equations. Forward and backward programs run as they are; but
when one of them is differentiated, for a second derivative, each run of equations that belong to one region becomes a
region again, so that the second derivative keeps and recomputes as the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from remat.ir.ops import Checkpoint, Op
from remat.ir.program import Equation, Program, Value
from remat.ir.region import Region
from remat.ir.rewrite import Builder, last_uses, with_programs
from remat.ir.source import UNKNOWN, Source
from remat.transforms.derivative import bind_op, make_program
from remat.transforms.linearize import no_tangent_ops


def enclosed(program: Program) -> Program:
    """The same program with a checkpoint region around each run of equations marked with one, at every level."""
    last_use = last_uses(program.equations, program.outputs)
    equations: list[Equation] = []
    done = 0
    for region, group in groupby(program.equations, key=_outermost):
        marked = list(group)
        done += len(marked)
        run = [plain for e in marked for plain in _plain(e)]
        if region is None:
            equations.extend(run)
        else:
            results = [v for e in run for v in e.outputs if last_use.get(v, -1) >= done]
            equations.append(as_one_equation(run, results, partial(_derived_region, region)))
    return Program(program.inputs, equations, program.outputs, program.constants, program.signature)


def _outermost(equation: Equation) -> Region | None:
    return None if equation.region is None else equation.region.outermost


def _plain(equation: Equation) -> list[Equation]:
    """The equation without its mark; regions inside it are enclosed where it is in none itself, and ops that only
    transformations make are turned into JAX's primitives, which have derivatives."""
    op = equation.op
    if type(op) in no_tangent_ops:
        builder = Builder(equation.source)
        made = make_program(lambda *xs: bind_op(op, xs), [a.type for a in equation.inputs])
        builder.define(made, equation.inputs, equation.outputs)
        return builder.equations
    if op.programs and equation.region is None:
        op = with_programs(op, [enclosed(p) for p in op.programs])
    return [Equation(op, equation.inputs, equation.outputs, equation.source)]


def _derived_region(region: Region, body: Program) -> Op:
    return Checkpoint(body, region.policy, region.prevent_cse, region.function, derived=True)


def around(program: Program, op: Op, source: Source = UNKNOWN) -> Program:
    """A program of one equation, whose op holds the given one: the same inputs, the same results."""
    outputs = [Value(t) for t in program.output_types]
    return Program(list(program.inputs), [Equation(op, program.inputs, outputs, source)], list(outputs))


def as_one_equation(run: Sequence[Equation], results: Sequence[Value], op: Callable[[Program], Op]) -> Equation:
    """One equation for a run of them, which defines `results`; `op` makes its op from the program of the run."""
    made = {v for e in run for v in e.outputs}
    read = list(dict.fromkeys(a for e in run for a in e.inputs if isinstance(a, Value) and a not in made))
    inner = {v: Value(v.type) for v in [*read, *made]}

    def inside(equation: Equation) -> Equation:
        inputs = [inner[a] if isinstance(a, Value) else a for a in equation.inputs]
        return Equation(equation.op, inputs, [inner[v] for v in equation.outputs], equation.source)

    equations = [inside(e) for e in run]
    body = Program([inner[v] for v in read], equations, [inner[v] for v in results])
    return Equation(op(body), read, results, UNKNOWN)
