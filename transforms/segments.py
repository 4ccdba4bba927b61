"""Cutting a program into regions: what a user does who places checkpoints by hand, done by structure.

`segmented` puts a checkpoint region around each segment of straight-line code, between narrow cuts. The last segment
stays open, since its backward begins at once, and each iteration of a loop is a region. What follows from arguments by
cheap equations (weights that are cast or transposed before the layers) is computed inside each segment that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from remat.ir.costs import dot_flops
from remat.ir.ops import Checkpoint, Op, Scan, ShardMap
from remat.ir.primitive_table import Retrieves
from remat.ir.program import Equation, Program, Value
from remat.ir.rewrite import inline_calls, last_uses, prune_program, with_programs
from remat.ir.traits import is_loop, is_memory_bound, row_of
from remat.ir.types import element_count, is_floating, size_in_bytes
from remat.targets.current import current_target
from remat.transforms.enclose import around, as_one_equation
from remat.transforms.narrow_cuts import Item, Made, narrow_cuts

HELD_OPEN = 1.1
"""How much more the last segment holds than a recomputed one with the CPU's compiler (MLP 8 MiB, at 1.0 it is 12). With
those of accelerators no more (v5e: unrolled decoder 2252 MiB and 17.5 TFLOP; at 1.1 it is 1708, and the product with
the vocabulary runs twice, 18.6)."""

MakeRegion = Callable[[Program], Op]
"""From the program of a segment or of an iteration to the region around it."""


def segmented(program: Program, region: MakeRegion) -> Program:
    """The same program with regions around its segments and around each iteration of its loops.

    **Arguments**

    - `program`: straight-line code, with loops in it perhaps. Calls are inlined; `shard_map` is looked into.
    - `region`: makes the op of a region from the program inside.

    **Returns** the program without regions (calls inlined) where cutting does not pay.
    """
    program = inline_calls(program)
    sunk = _follows_from_inputs(program)
    producer = {v: e for e in sunk for v in e.outputs}
    equations = [_inner(e, region) for e in program.equations if e not in sunk]
    if not equations:
        return program
    starts = narrow_cuts(_items(equations, program), HELD_OPEN if current_target().platform == "cpu" else 1.0)
    last = last_uses(equations, program.outputs)
    result = list(sunk)
    for start, end in pairwise(starts):
        run = equations[start:end]
        results = [v for e in run for v in e.outputs if last.get(v, -1) >= end]
        if not results or _is_alone(run[0].op):
            result.extend(run)
        else:
            sources = sorted(_sources(run, producer), key=sunk.__getitem__)
            result.append(as_one_equation([*sources, *run], results, region))
    result.extend(equations[starts[-1] :])
    return prune_program(Program(program.inputs, result, program.outputs, program.constants, program.signature))


def parts_of(region: Checkpoint, policy: Any) -> MakeRegion:
    """What makes regions of the parts of a region, under a policy; users have been told of the whole."""
    return lambda inside: replace(region, program=inside, policy=policy, derived=True)


def _inner(equation: Equation, region: MakeRegion) -> Equation:
    """A loop with a region around each iteration; `shard_map` with segments inside."""
    op = equation.op
    if isinstance(op, ShardMap):
        op = with_programs(op, [segmented(op.body, region)])
    elif isinstance(op, Scan) and is_loop(op):
        op = with_programs(op, [around(op.body, region(op.body), equation.source)])
    return Equation(op, equation.inputs, equation.outputs, equation.source, equation.region)


def _is_alone(op: Op) -> bool:
    """Whether an operation is no part of a segment: a loop, whose iterations are regions already, and `shard_map`."""
    return isinstance(op, ShardMap) or is_loop(op)


def _follows_from_inputs(program: Program) -> dict[Equation, int]:
    """Equations that follow from arguments and literals by cheap ones, and the order in which they stand."""
    known: set[Value] = {*program.inputs, *(v for v, _ in program.constants)}
    found: dict[Equation, int] = {}
    for equation in program.equations:
        cheap = is_memory_bound(equation.op) and not equation.op.effects
        if cheap and all(a in known for a in equation.inputs if isinstance(a, Value)):
            known.update(equation.outputs)
            found[equation] = len(found)
    return found


def _sources(run: Sequence[Equation], producer: dict[Value, Equation]) -> set[Equation]:
    """The equations in `producer` that a segment's inputs follow from."""
    needed: set[Equation] = set()
    stack = [a for e in run for a in e.inputs if a in producer]
    while stack:
        equation = producer[stack.pop()]  # type: ignore[index]
        if equation not in needed:
            needed.add(equation)
            stack.extend(a for a in equation.inputs if a in producer)
    return needed


def _items(equations: Sequence[Equation], program: Program) -> list[Item]:
    last_read, last, first_read = last_uses(equations), last_uses(equations, program.outputs), _first_reads(equations)
    gradients = [0] * len(equations)
    for value in program.inputs:
        if value in last_read and is_floating(value.type):
            gradients[last_read[value]] += size_in_bytes(value.type)
    needed = _needed(equations)
    return [
        Item(
            made=tuple(Made(size_in_bytes(v.type), last[v], first_read.get(v)) for v in e.outputs if v in last),
            alone=_is_alone(e.op),
            cheap=is_memory_bound(e.op),
            inside=_inside(e.op),
            boundary=_carried(e.op),
            gradients=gradients[i],
            work=dot_flops(Program([], [e], [])),
            needed=min((needed[v] for v in e.outputs if v in needed), default=None),
        )
        for i, e in enumerate(equations)
    ]


def _backward_reads(op: Op) -> bool:
    """Whether the backward of an operation reads its operands (or its result, which is as large)."""
    return row_of(op).retrieves is not Retrieves.NOTHING


def _first_reads(equations: Sequence[Equation]) -> dict[Value, int]:
    """Where each value is first read by an equation whose backward reads it too, as an array. The compilers of
    accelerators compute what is made and read element by element inside what reads it; that of the CPU makes an array
    of what several equations read."""
    fused = current_target().platform != "cpu"
    first_read: dict[Value, int] = {}
    made_cheaply: set[Value] = set()
    for i, equation in enumerate(equations):
        cheap = is_memory_bound(equation.op)
        read = _backward_reads(equation.op)
        for atom in equation.inputs:
            if not isinstance(atom, Value) or (fused and cheap and atom in made_cheaply):
                continue
            if read and is_floating(atom.type):
                first_read.setdefault(atom, i)
        if cheap:
            made_cheaply.update(equation.outputs)
    return first_read


def _needed(equations: Sequence[Equation]) -> dict[Value, int]:
    """The first position at which a backward reads a value, or one that follows from it by equations of which the
    backward reads nothing."""
    needed: dict[Value, int] = {}
    for i in range(len(equations) - 1, -1, -1):
        equation = equations[i]
        passed_on = min((needed[v] for v in equation.outputs if v in needed), default=None)
        at = i if _backward_reads(equation.op) else passed_on
        for atom in equation.inputs:
            if isinstance(atom, Value) and at is not None:
                needed[atom] = min(at, needed.get(atom, at))
    return needed


def _inside(op: Op) -> int:
    """Bytes that the backward of one iteration of a loop holds, as far as one can say without differentiating it."""
    if not isinstance(op, Scan):
        return 0
    body = op.body
    if len(body.equations) == 1 and isinstance(body.equations[0].op, Checkpoint):  # the region around each iteration
        body = body.equations[0].op.program
    return sum(v.size for item in _items(body.equations, body) for v in item.made if v.first_read is not None)


def _carried(op: Op) -> int:
    """Bytes of what is kept of each iteration of a loop whose body is recomputed."""
    if not isinstance(op, Scan):
        return 0
    carries = op.body.inputs[op.constant_count : op.constant_count + op.carry_count]
    return element_count((op.length,)) * sum(size_in_bytes(v.type) for v in carries)
