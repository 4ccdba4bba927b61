"""Differentiating `scan`.

Linearize: the body is linearized, with the carried values that have tangents found by iteration to a fixed point.

Split: the forward scan also emits what each iteration's backward needs, stacked (`scan_residuals`). The backward is a
scan in the other direction whose body recomputes what its iteration needs (`scan_steps`); what the loop carries may be
rebuilt from the iteration before (`scan_shift`).
"""

from __future__ import annotations

from remat import jax_compat
from remat.ir.linearized import LinearEquation, LinearScan
from remat.ir.ops import Scan
from remat.ir.program import Atom, Equation
from remat.jax_compat import tangent_type
from remat.transforms.linearize import Linearizer, Tangent, linearize_program, linearize_rules
from remat.transforms.rules.scan_residuals import ScanResiduals
from remat.transforms.rules.scan_steps import SecondBody, tangent_body, tangent_step, transposed_body, transposed_step
from remat.transforms.walk import Level, Resolved, resolve_rules


def _linearize(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent]
) -> tuple[list[Atom], list[Tangent]]:
    op = equation.op
    assert isinstance(op, Scan)
    k, n = op.constant_count, op.constant_count + op.carry_count
    active = [t is not None for t in tangents]
    constants, carry, slices = active[:k], active[k:n], active[n:]
    while True:
        body = linearize_program(op.body, [*constants, *carry, *slices], state.region, True, state.copies, state.source)
        grown = [c or t is not None for c, t in zip(carry, body.tangent_outputs, strict=False)]
        if grown == carry:
            break
        carry = grown
    outputs = state.emit(op, inputs, [v.type for v in equation.outputs])
    primal = state.equations[-1]
    returned = [*carry, *(t is not None for t in body.tangent_outputs[op.carry_count :])]

    given: list[Atom] = []
    flags: list[bool] = []
    for atom, tangent, is_active in zip(inputs, tangents, [*constants, *carry, *slices], strict=True):
        if is_active:
            given.append(tangent if tangent is not None else state.zeros(tangent_type(atom.type)))
            flags.append(tangent is not None)
    linear = LinearScan(body, primal, tuple(constants), tuple(carry), tuple(slices), tuple(returned))
    types = [tangent_type(v.type) for v, r in zip(equation.outputs, returned, strict=True) if r]
    results = iter(state.emit_linear(linear, given, flags, types, state.region))
    return list(outputs), [next(results) if r else None for r in returned]


linearize_rules[Scan] = _linearize


def _resolve(level: Level, equation: LinearEquation, present: tuple[bool, ...]) -> Resolved:
    """Decide what the forward scan stacks, and how one step of the outer backward (or tangent) program runs."""
    kept, second = _walk(level, equation, present)
    if kept.keep_what_is_read_of_histories():
        level.children.remove(kept.inner)
        kept, second = _walk(level, equation, present)
    kept.sort_residuals()
    forward = kept.forward_equation()
    level.replace(kept.op.equation, forward, kept.recompute_equation(forward))
    with jax_compat.on_mesh_of(v.type for v in equation.outputs):
        step = transposed_step(kept, second) if level.backward else tangent_step(kept, second)
    return Resolved(equation, step, list(kept.residual_atoms.values()))


resolve_rules[LinearScan] = _resolve


def _walk(level: Level, equation: LinearEquation, present: tuple[bool, ...]) -> tuple[ScanResiduals, SecondBody]:
    kept = ScanResiduals(level, equation, level.live_of.scan(equation, present))
    kept.keep_results()
    return kept, transposed_body(kept) if level.backward else tangent_body(kept)
