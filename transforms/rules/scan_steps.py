"""The second half of a scan's split: the scan that runs in the backward (or tangent) program.

It carries and returns only what is live (`transforms.liveness`): a constant, a carried value or a slice that no live
result depends on has no cotangent, and not one of zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remat import jax_compat
from remat.ir.ops import Scan
from remat.ir.program import Atom, Program, Value
from remat.ir.rewrite import Builder, prune, select
from remat.jax_compat import cotangent_type, tangent_type
from remat.transforms.rules.scan_residuals import ScanResiduals
from remat.transforms.rules.scan_shift import INDEX, IndexedReads, indices
from remat.transforms.walk import Step


@dataclass(frozen=True, eq=False)
class SecondBody:
    """One iteration of the backward (or tangent) loop; residuals are free. `given` and `found` stand for the body's
    outputs and inputs (in forward mode for its inputs and outputs), with None where nothing is live, or is zero."""

    given: list[Value | None]
    found: Sequence[Atom | None]
    equations: list[Any]


def transposed_body(kept: ScanResiduals) -> SecondBody:
    """Cotangents of live outputs -> cotangents of inputs."""
    flags = kept.live.outputs
    cotangents = [Value(cotangent_type(o.type)) if f else None for o, f in zip(kept.body.outputs, flags, strict=True)]
    return SecondBody(cotangents, kept.inner.transpose(cotangents), kept.inner.equations_out)


def transposed_step(kept: ScanResiduals, inner: SecondBody) -> Step:
    constant, stacked, indexed = kept.split_residuals()
    scan, live = kept.scan, kept.live
    k, n = scan.constant_count, scan.constant_count + scan.carry_count
    carry = live.outputs[: scan.carry_count]
    carried = [v for v in inner.given[: scan.carry_count] if v is not None]
    given = [v for v in inner.given[scan.carry_count :] if v is not None]
    parts = [(p, t) for p, t in zip(inner.found[:k], kept.body.tangents) if p is not None and t is not None]
    slice_out = [p for p in inner.found[n:] if p is not None]
    sums = [Value(cotangent_type(t.type)) for _, t in parts]
    stacks = [Value(jax_compat.stacked_type(v.type, scan.length)) for v in indexed]
    number = Value(INDEX)

    builder = Builder()
    if kept.chains:
        first, before = (scan.length - 1, 1) if scan.reverse else (0, -1)
        IndexedReads(kept.chains, indexed, stacks, kept.initial, number).emit(builder, first, before)
    builder.equations.extend(inner.equations)
    new_sums: list[Atom] = [builder.add(total, part) for total, (part, _) in zip(sums, parts, strict=True)]
    # A final carry that no iteration leads back to counts in the last iteration, and is zero in those before.
    before_it = select(inner.found[k:n], carry)
    carry_in = [p if p is not None else builder.zeros(v.type) for p, v in zip(before_it, carried, strict=True)]
    numbers = [number] if kept.chains else []
    outputs = [*carry_in, *new_sums, *slice_out]
    inputs = [*constant, *stacks, *carried, *sums, *given, *stacked, *numbers]
    body = Program(inputs, prune(builder.equations, outputs), outputs)
    start, end = len(carried), len(carried) + len(sums)
    op = Scan(body, scan.length, not scan.reverse, len(constant) + len(stacks), end, scan.unroll)
    slice_types = [jax_compat.stacked_type(a.type, scan.length) for a in slice_out]
    types = [*(v.type for v in carried), *(s.type for s in sums), *slice_types]
    residual_atoms = kept.residual_atoms
    counted = indices(kept.scan.length)
    returned = [*(p is not None for p in inner.found[:k]), *live.inputs[k:n], *(p is not None for p in inner.found[n:])]

    def step(out: Builder, atoms: list[Atom], cotangents: list[Value | None]) -> list[Value | None]:
        values = dict(zip(residual_atoms, atoms, strict=True))
        of_outputs = _spread(cotangents, kept.op.active_outputs)
        full = [
            c if c is not None else out.zeros(_outer_type(kept, i, v))
            for i, (c, v) in enumerate(zip(of_outputs, inner.given, strict=True))
            if v is not None
        ]
        order = out.instantiate(counted, []) if numbers else []
        arguments = [
            *(values[r] for r in [*constant, *indexed]),
            *full[:start],
            *(out.zeros(s.type) for s in sums),
            *full[start:],
            *(values[r] for r in stacked),
            *order,
        ]
        results = out.emit(op, arguments, types)
        by_input: list[Value | None] = [
            *_spread(results[start:end], returned[:k]),
            *(r if f else None for r, f in zip(_spread(results[:start], carry), returned[k:n], strict=True)),
            *_spread(results[end:], returned[n:]),
        ]
        active = (*kept.op.active_constants, *kept.op.active_carry, *kept.op.active_slices)
        return select(select(by_input, active), kept.linear.linear)

    return step


def tangent_body(kept: ScanResiduals) -> SecondBody:
    """Tangents of live inputs -> tangents of live outputs."""
    tangents = [t if f else None for t, f in zip(kept.body.tangents, kept.live.inputs, strict=True)]
    return SecondBody(tangents, kept.inner.apply(tangents, kept.live.outputs), kept.inner.equations_out)


def tangent_step(kept: ScanResiduals, inner: SecondBody) -> Step:
    constant, stacked, _ = kept.split_residuals()
    scan, live = kept.scan, kept.live
    builder = Builder()
    builder.equations = list(inner.equations)
    outputs = [
        r if r is not None else builder.zeros(tangent_type(o.type))
        for r, o, f in zip(inner.found, kept.body.outputs, live.outputs, strict=True)
        if f
    ]
    given = [v for v in inner.given if v is not None]
    of_constants = sum(v is not None for v in inner.given[: scan.constant_count])
    carry_count = sum(live.outputs[: scan.carry_count])
    body = Program([*constant, *given, *stacked], builder.equations, outputs)
    op = Scan(body, scan.length, scan.reverse, len(constant) + of_constants, carry_count, scan.unroll)
    active_outputs = [v is not None for v in inner.given]
    flags = select(live.outputs, kept.op.active_outputs)
    types = [v.type for v in select(kept.linear.outputs, flags)]
    residual_atoms = kept.residual_atoms

    def step(out: Builder, atoms: list[Atom], tangents: list[Value | None]) -> list[Value | None]:
        values = dict(zip(residual_atoms, atoms, strict=True))
        active = (*kept.op.active_constants, *kept.op.active_carry, *kept.op.active_slices)
        chosen = select(_spread(tangents, active), active_outputs)
        inputs = [*(values[r] for r in constant), *chosen, *(values[r] for r in stacked)]
        return _spread(out.emit(op, inputs, types), flags)

    return step


def _spread(items: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """The items at the places whose flag is set, None elsewhere."""
    rest = iter(items)
    return [next(rest) if f else None for f in flags]


def _outer_type(kept: ScanResiduals, position: int, inner: Value) -> Any:
    """The type of the cotangent of an output of the scan, of which `inner` stands for one iteration."""
    return inner.type if position < kept.scan.carry_count else jax_compat.stacked_type(inner.type, kept.scan.length)
