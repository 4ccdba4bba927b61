"""The second half of a scan's split: the scan that runs in the backward (or tangent) program."""

from __future__ import annotations

from remat import jax_compat
from remat.ir.ops import Scan
from remat.ir.program import Atom, Program, Value
from remat.ir.rewrite import Builder, prune, select
from remat.jax_compat import cotangent_type
from remat.transforms.rules.scan_residuals import ScanResiduals
from remat.transforms.rules.scan_shift import INDEX, IndexedReads, indices
from remat.transforms.walk import Step


def transposed_body(kept: ScanResiduals) -> Program:
    """(cotangents of outputs) -> (cotangents of tangent inputs), zeros where there are none; residuals are free."""
    flags = kept.op.active_outputs
    cotangents = [Value(cotangent_type(o.type)) if f else None for o, f in zip(kept.body.outputs, flags, strict=True)]
    results = kept.inner.transpose(cotangents)
    builder = Builder()
    builder.equations = kept.inner.equations_out
    outputs = [r if r is not None else None for r, t in zip(results, kept.body.tangents, strict=True) if t is not None]
    return Program([c for c in cotangents if c is not None], builder.equations, outputs)  # type: ignore[arg-type]


def transposed_step(kept: ScanResiduals, inner: Program) -> Step:
    constant, stacked, indexed = kept.split_residuals()
    n_constants, n_carry = sum(kept.op.active_constants), sum(kept.op.active_carry)
    tangents = [t for t in kept.body.tangents if t is not None]
    found = list(inner.outputs)
    sums = [Value(cotangent_type(t.type)) for t in tangents[:n_constants]]
    stacks = [Value(jax_compat.stacked_type(v.type, kept.scan.length)) for v in indexed]
    number = Value(INDEX)

    builder = Builder()
    if kept.chains:
        first, before = (kept.scan.length - 1, 1) if kept.scan.reverse else (0, -1)
        IndexedReads(kept.chains, indexed, stacks, kept.initial, number).emit(builder, first, before)
    builder.equations.extend(inner.equations)
    new_sums: list[Atom] = [
        total if part is None else builder.add(total, part)
        for total, part in zip(sums, found[:n_constants], strict=True)
    ]
    rest = [
        part if part is not None else builder.zeros(cotangent_type(t.type))
        for part, t in zip(found[n_constants:], tangents[n_constants:], strict=True)
    ]
    carry_in, slice_out = rest[:n_carry], rest[n_carry:]
    carried, given = inner.inputs[:n_carry], inner.inputs[n_carry:]
    numbers = [number] if kept.chains else []
    body = Program(
        [*constant, *stacks, *carried, *sums, *given, *stacked, *numbers],
        prune(builder.equations, [*carry_in, *new_sums, *slice_out]),
        [*carry_in, *new_sums, *slice_out],
    )
    count = len(constant) + len(stacks)
    op = Scan(body, kept.scan.length, not kept.scan.reverse, count, n_carry + n_constants, kept.scan.unroll)
    slice_types = [jax_compat.stacked_type(a.type, kept.scan.length) for a in slice_out]
    types = [*(v.type for v in carried), *(s.type for s in sums), *slice_types]
    residual_atoms = kept.residual_atoms
    counted = indices(kept.scan.length)

    def step(out: Builder, atoms: list[Atom], cotangents: list[Value | None]) -> list[Value | None]:
        values = dict(zip(residual_atoms, atoms, strict=True))
        full = [
            c if c is not None else out.zeros(cotangent_type(v.type))
            for c, v in zip(cotangents, kept.linear.outputs, strict=True)
        ]
        zero_sums = [out.zeros(s.type) for s in sums]
        order = out.instantiate(counted, []) if numbers else []
        inputs = [
            *(values[r] for r in [*constant, *indexed]),
            *full[:n_carry],
            *zero_sums,
            *full[n_carry:],
            *(values[r] for r in stacked),
            *order,
        ]
        results = out.emit(op, inputs, types)
        carry, totals = results[:n_carry], results[n_carry : n_carry + n_constants]
        slices = results[n_carry + n_constants :]
        by_input = [*totals, *carry, *slices]
        return [r for r, flag in zip(by_input, kept.linear.linear, strict=True) if flag]

    return step


def tangent_body(kept: ScanResiduals) -> Program:
    results = kept.inner.apply([t for t in kept.body.tangents])
    outputs = select(results, kept.op.active_outputs)
    tangents = [t for t in kept.body.tangents if t is not None]
    return Program(tangents, kept.inner.equations_out, outputs)  # type: ignore[arg-type]


def tangent_step(kept: ScanResiduals, inner: Program) -> Step:
    constant, stacked, _ = kept.split_residuals()
    n_constants, n_carry = sum(kept.op.active_constants), sum(kept.op.active_carry)
    builder = Builder()
    builder.equations = list(inner.equations)
    outputs = [
        o if o is not None else builder.zeros(v.type)
        for o, v in zip(
            inner.outputs,
            select(kept.body.outputs, kept.op.active_outputs),
            strict=True,
        )
    ]
    parts = inner.inputs
    body = Program([*constant, *parts, *stacked], builder.equations, outputs)
    op = Scan(body, kept.scan.length, kept.scan.reverse, len(constant) + n_constants, n_carry, kept.scan.unroll)
    types = [v.type for v in kept.linear.outputs]
    residual_atoms = kept.residual_atoms

    def step(out: Builder, atoms: list[Atom], tangents: list[Atom]) -> list[Value]:
        values = dict(zip(residual_atoms, atoms, strict=True))
        inputs = [*(values[r] for r in constant), *tangents, *(values[r] for r in stacked)]
        return out.emit(op, inputs, types)

    return step
