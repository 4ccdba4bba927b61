"""Everything about differentiating `cond` and `switch`.

Linearize: each branch is linearized with the same active operands. Split: the forward cond also returns what the
branches' backward needs; branches share outputs of one type, and a branch that has no use for one returns zeros.
Operands are not returned again (the cond's own operands serve). The backward is a cond on the same index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from remat.decisions import SAVE
from remat.ir.linearized import LinearCond, LinearEquation, Linearized
from remat.ir.ops import Cond
from remat.ir.program import Atom, Equation, Program, Value
from remat.ir.rewrite import Builder, prune, select
from remat.jax_compat import cotangent_type, tangent_type
from remat.transforms.forward import forward_equations
from remat.transforms.linearize import Linearizer, Tangent, linearize_program, linearize_rules
from remat.transforms.liveness import spread_flags
from remat.transforms.walk import Level, Resolved, StackedFrom, resolve_rules


def _linearize(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent]
) -> tuple[list[Atom], list[Tangent]]:
    op = equation.op
    assert isinstance(op, Cond)
    active = [t is not None for t in tangents[1:]]
    branches = tuple(linearize_program(b, active, state.region, True, state.copies, state.source) for b in op.branches)
    outputs = state.emit(op, inputs, [v.type for v in equation.outputs])
    returned = [any(b.tangent_outputs[i] is not None for b in branches) for i in range(len(outputs))]
    linear = LinearCond(branches, state.equations[-1], tuple(active), tuple(returned))
    given = [t for t in tangents if t is not None]
    types = [tangent_type(v.type) for v, r in zip(equation.outputs, returned, strict=True) if r]
    results = iter(state.emit_linear(linear, given, [True] * len(given), types, state.region))
    return list(outputs), [next(results) if r else None for r in returned]


linearize_rules[Cond] = _linearize


def _resolve(level: Level, equation: LinearEquation, present: tuple[bool, ...]) -> Resolved:
    op = equation.op
    assert isinstance(op, LinearCond)
    live, reached = spread_flags(present, op.active_outputs), level.live_of.reached(equation, present)
    inner = [level.nested(b) for b in op.branches]
    walked = [_walk(lvl, b, op, live, reached) for lvl, b in zip(inner, op.branches, strict=True)]

    index, *operands = op.equation.inputs
    slots = _share_slots(level, op, inner)
    _replace_forward(level, op, inner, slots)

    # The backward branches all take: what is shared, the operands that any branch needs, and the cotangents.
    both = list(zip(inner, op.branches, strict=True))
    positions = [i for i in range(len(operands)) if any(b.inputs[i] in lvl.residuals for lvl, b in both)]
    returned = [any(r is not None for r in each) for each in zip(*(results for _, results in walked), strict=True)]
    types = select(_result_types(level, op), returned)
    branches: list[Program] = []
    for lvl, branch, (arguments, results) in zip(inner, op.branches, walked, strict=True):
        builder = Builder()
        builder.equations = list(lvl.equations_out)
        chosen = select(results, returned)
        outputs = [r if r is not None else builder.zeros(t) for r, t in zip(chosen, types, strict=True)]
        shared = [own[lvl] if lvl in own else Value(v.type) for v, own in slots]
        own_inputs = [branch.inputs[i] for i in positions]
        passed = [v if v in lvl.residuals else Value(v.type) for v in own_inputs]
        given = [v for v in arguments if v is not None]
        branches.append(Program([*shared, *passed, *given], builder.equations, outputs))
    new = Cond(tuple(branches), op.equation.op.platforms)  # type: ignore[attr-defined]
    coefficients: list[Atom] = [index, *(v for v, _ in slots), *(operands[i] for i in positions)]
    parameters = walked[0][0]

    def step(out: Builder, atoms: list[Atom], tangents: list[Value | None]) -> list[Value | None]:
        full = [
            t if t is not None else out.zeros(p.type)
            for t, p in zip(tangents, parameters, strict=True)
            if p is not None
        ]
        results = iter(out.emit(new, [*atoms, *full], types))
        return [next(results) if r else None for r in returned]

    return Resolved(equation, step, coefficients)


resolve_rules[LinearCond] = _resolve


def _walk(
    level: Level, branch: Linearized, op: LinearCond, live: Sequence[bool], reached: Sequence[bool]
) -> tuple[Sequence[Value | None], Sequence[Atom | None]]:
    """Walk one branch whose flagged outputs are live, and flagged tangents of operands in any branch. Returns its
    arguments and its results, with None where nothing is live, or is zero."""
    if level.backward:
        cotangents = [Value(cotangent_type(o.type)) if f else None for o, f in zip(branch.outputs, live, strict=True)]
        results: Sequence[Any] = level.transpose(cotangents)
        found = [r for r, t in zip(results, branch.tangents, strict=True) if t is not None]
        return select(cotangents, op.active_outputs), found
    arguments = [t if r else None for t, r in zip((t for t in branch.tangents if t is not None), reached, strict=True)]
    return arguments, select(level.apply(branch.tangents, live), op.active_outputs)


def _result_types(level: Level, op: LinearCond) -> list[Any]:
    """The types of the results of a walk."""
    branch = op.branches[0]
    if level.backward:
        return [cotangent_type(t.type) for t in branch.tangents if t is not None]
    return [tangent_type(o.type) for o in select(branch.outputs, op.active_outputs)]


Slot = tuple[Value, dict[Level, Value]]


def _share_slots(level: Level, op: LinearCond, inner: list[Level]) -> list[Slot]:
    """Outer values for the branches' residuals: of each type as many as the branch with most of them needs."""
    slots: list[Slot] = []
    by_type: dict[Any, list[Slot]] = {}
    for lvl, branch in zip(inner, op.branches, strict=True):
        operands = set(branch.inputs)
        taken: Counter[Any] = Counter()
        for origin, residual in lvl.residuals.items():
            if origin in operands:
                continue
            same, place = by_type.setdefault(residual.type, []), taken[residual.type]
            taken[residual.type] += 1
            if place == len(same):
                slot: Slot = (Value(residual.type), {})
                same.append(slot)
                slots.append(slot)
                level.decisions[slot[0]] = SAVE
                level.note_origin(slot[0], StackedFrom(origin, lvl, 1))
            same[place][1][lvl] = residual
    return slots


def _replace_forward(level: Level, op: LinearCond, inner: list[Level], slots: list[Slot]) -> None:
    old = op.equation
    branches: list[Program] = []
    for lvl, branch in zip(inner, op.branches, strict=True):
        builder = Builder()
        builder.equations = forward_equations(lvl)
        extra = [own[lvl] if lvl in own else builder.zeros(v.type) for v, own in slots]
        outputs = [*branch.outputs, *extra]
        branches.append(Program(branch.inputs, prune(builder.equations, outputs), outputs))
    outputs = [*old.outputs, *(v for v, _ in slots)]
    assert isinstance(old.op, Cond)
    new = Equation(Cond(tuple(branches), old.op.platforms), old.inputs, outputs, old.source, old.region)
    level.replace(old, new, new)
