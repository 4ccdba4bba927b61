"""Everything about differentiating `shard_map`.

Linearize: the body is linearized, where the mesh axes are known. Split: the forward shard_map also returns what the
body's backward needs, the parts of all devices joined along their first dimension. Inputs and results of the body are
not returned again. The backward is a shard_map over the same axes, with the transposed body.

Where types tell over which axes values vary (`check_vma`), the sum over devices that the cotangent of a replicated
value needs comes out of the transposed body. Without, it is taken at the edge, as JAX does: a cotangent that comes in
is divided among the devices that share it, and one that goes out is summed over those.
"""

# JAX's functions are partly untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from remat import jax_compat
from remat.decisions import SAVE
from remat.ir.linearized import LinearEquation, Linearized, LinearShardMap
from remat.ir.ops import Primitive, ShardMap
from remat.ir.program import Atom, Equation, Program, Value
from remat.ir.rewrite import Builder, prune, select
from remat.jax_compat import cotangent_type, tangent_type
from remat.transforms.derivative import make_program, read_coefficients
from remat.transforms.forward import forward_equations
from remat.transforms.linearize import Linearizer, Tangent, linearize_program, linearize_rules
from remat.transforms.liveness import spread_flags
from remat.transforms.walk import Level, Resolved, StackedFrom, resolve_rules


def _linearize(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent]
) -> tuple[list[Atom], list[Tangent]]:
    op = equation.op
    assert isinstance(op, ShardMap)
    active = [t is not None for t in tangents]

    def linearized() -> Linearized:
        body = linearize_program(op.body, active, state.region, state.in_loop, state.copies, state.source)
        for level in body.levels():
            for each in level.linear:
                _note_reads(each)
        return body

    body = jax_compat.inside_shard_map(op, linearized)
    outputs = state.emit(op, inputs, [v.type for v in equation.outputs])
    returned = [t is not None for t in body.tangent_outputs]
    linear = LinearShardMap(body, state.equations[-1], tuple(returned))
    given = [t for t in tangents if t is not None]
    types = [tangent_type(v.type) for v in select(equation.outputs, returned)]
    results = iter(state.emit_linear(linear, given, [True] * len(given), types, state.region))
    return list(outputs), [next(results) if r else None for r in returned]


def _note_reads(equation: LinearEquation) -> None:
    """Policies ask what an equation's transpose reads when the mesh axes are not known any more."""
    if isinstance(equation.op, Primitive):
        try:
            read_coefficients(equation)
        except Exception:  # raised again when a derivative goes through it
            equation.reads = [a for a in equation.coefficients if isinstance(a, Value)]


linearize_rules[ShardMap] = _linearize


def _resolve(level: Level, equation: LinearEquation, present: tuple[bool, ...]) -> Resolved:
    split = _Split(level, equation, present)
    jax_compat.inside_shard_map(split.shard, split.walk)
    split.replace_forward()
    return Resolved(equation, split.backward_step() if level.backward else split.tangent_step(), split.atoms)


resolve_rules[LinearShardMap] = _resolve


class _Split:
    """One shard_map on its way to two."""

    def __init__(self, level: Level, equation: LinearEquation, present: tuple[bool, ...]):
        op = equation.op
        assert isinstance(op, LinearShardMap)
        self.taken = spread_flags(present, op.active_outputs)
        """Which results of the body are live: only these have cotangents, or are asked for tangents."""
        reached = level.live_of.reached(equation, present)
        self.reached = spread_flags(reached, [t is not None for t in op.body.tangents])
        """Which inputs of the body have tangents that these lead back to."""
        self.level, self.equation, self.op = level, equation, op
        self.shard: ShardMap = op.equation.op  # type: ignore[assignment]
        self.body = op.body
        self.inner = level.nested(op.body, in_loop=level.in_loop)
        self.prologue = Builder()
        self.parameters: list[Value] = []
        """What the second body takes for the residuals, with the outer `atoms` and the `specs` that cut these."""
        self.atoms: list[Atom] = []
        self.specs: list[Any] = []
        self.extra: list[tuple[Value, Value, Any, Program | None]] = []
        """What the forward body returns besides: a value, that outside, the spec, and how to make it no scalar."""
        self.axes = self.shard.axes if self.shard.check_vma else _axes_of(self.shard)

    def walk(self) -> None:
        """Walk the body (inside the mesh axes), and settle where each residual is kept."""
        if self.level.backward:
            self.transpose_body()
        else:
            tangents = [t if r else None for t, r in zip(self.body.tangents, self.reached, strict=True)]
            self.arguments = [t for t in tangents if t is not None]
            self.results: Sequence[Any] = select(self.inner.apply(tangents, self.taken), self.taken)
        inputs, outputs = self.body.inputs, self.body.outputs
        for origin, residual in self.inner.residuals.items():
            if origin is residual and origin in inputs:
                i = inputs.index(origin)
                self.add(origin, self.op.equation.inputs[i], self.shard.in_specs[i])
            elif origin is residual and origin in outputs:
                i = outputs.index(origin)
                self.level.decisions[self.op.equation.outputs[i]] = SAVE
                self.add(origin, self.op.equation.outputs[i], self.shard.out_specs[i])
            else:
                self.keep(origin, residual)

    def add(self, parameter: Value, atom: Atom, spec: Any) -> None:
        self.parameters.append(parameter)
        self.atoms.append(atom)
        self.specs.append(spec)

    def keep(self, origin: Value, residual: Value) -> None:
        """Return a residual from the forward body. A scalar that varies over devices gets a dimension to be joined
        along."""
        spec = jax_compat.spec_of_parts(self.shard, self.axes, residual.type)
        widen, parameter = None, residual
        if residual.type.shape == () and spec != type(spec)():

            def widened(x: Any) -> list[Any]:
                return [lax.expand_dims(x, (0,))]

            def narrowed(x: Any) -> list[Any]:
                return [lax.squeeze(x, (0,))]

            widen = make_program(widened, [residual.type])
            parameter = Value(widen.outputs[0].type)
            narrow = make_program(narrowed, [parameter.type])
            self.prologue.define(narrow, [parameter], [residual])
        outer = Value(jax_compat.joined_type(self.shard, parameter.type, spec))
        self.level.decisions[outer] = SAVE
        self.level.note_origin(outer, StackedFrom(origin, self.inner, 1))
        self.extra.append((residual, outer, spec, widen))
        self.add(parameter, outer, spec)

    def transpose_body(self) -> None:
        cotangents = [
            Value(cotangent_type(o.type)) if t else None for o, t in zip(self.body.outputs, self.taken, strict=True)
        ]
        self.arguments = [c for c in cotangents if c is not None]
        found = self.inner.transpose(cotangents)
        flags = [t is not None for t in self.body.tangents]
        self.given_specs = [s.to_ct_spec() for s in select(self.shard.in_specs, flags)]
        self.results = select(found, flags)
        self.shared_out = [1] * len(self.arguments)
        if not self.shard.check_vma:
            specs = select(self.shard.out_specs, self.taken)
            self.shared_out = [math.prod(self.shard.mesh.shape[a] for a in self.shared(s)) for s in specs]
            pairs = zip(self.results, self.given_specs, strict=True)
            self.results = [r if r is None else self.sum_over(r, self.shared(s)) for r, s in pairs]

    def shared(self, spec: Any) -> tuple[Any, ...]:
        """The axes whose devices all hold the same part."""
        return tuple(a for a in self.shard.mesh.axis_names if a in self.axes and a not in _mentioned(spec))

    def sum_over(self, result: Atom, axes: tuple[Any, ...]) -> Atom:
        if not axes:
            return result

        def summed(x: Any) -> list[Any]:
            return [lax.psum(x, axes)]

        return self.inner.builder.instantiate(make_program(summed, [result.type]), [result])[0]

    def replace_forward(self) -> None:
        old, shard = self.op.equation, self.shard
        builder = Builder()
        builder.equations = forward_equations(self.inner)
        extra = [v if widen is None else builder.instantiate(widen, [v])[0] for v, _, _, widen in self.extra]
        outputs = [*self.body.outputs, *extra]
        body = Program(self.body.inputs, prune(builder.equations, outputs), outputs)
        op = dataclasses.replace(shard, body=body, out_specs=(*shard.out_specs, *(s for _, _, s, _ in self.extra)))
        new = Equation(op, old.inputs, [*old.outputs, *(v for _, v, _, _ in self.extra)], old.source, old.region)
        self.level.replace(old, new, self.recompute_equation(new))

    def recompute_equation(self, forward: Equation) -> Equation:
        """The forward shard_map again, reading what was kept in place of computing it."""
        if not self.extra:
            return forward
        kept = {residual for residual, *_ in self.extra}
        places = [self.atoms.index(outer) for _, outer, _, _ in self.extra]
        outputs = self.body.outputs
        equations = [*self.prologue.equations, *prune(forward_equations(self.inner), outputs, given=kept)]
        inputs = [*self.body.inputs, *(self.parameters[i] for i in places)]
        in_specs = (*self.shard.in_specs, *(self.specs[i] for i in places))
        op = dataclasses.replace(self.shard, body=Program(inputs, equations, outputs), in_specs=in_specs)
        old = self.op.equation
        return Equation(op, [*old.inputs, *(v for _, v, _, _ in self.extra)], old.outputs, old.source, old.region)

    def second(self, given_specs: Sequence[Any], results: Sequence[Atom], result_specs: Sequence[Any]) -> ShardMap:
        equations = prune([*self.prologue.equations, *self.inner.equations_out], results)
        body = Program([*self.parameters, *self.arguments], equations, list(results))
        specs = {"in_specs": (*self.specs, *given_specs), "out_specs": tuple(result_specs)}
        return dataclasses.replace(self.shard, body=body, **specs)

    def backward_step(self) -> Any:
        present = [r is not None for r in self.results]
        out_specs = [s.to_ct_spec() for s in select(self.shard.out_specs, self.taken)]
        op = self.second(out_specs, select(self.results, present), select(self.given_specs, present))
        types = [cotangent_type(t.type) for t in select(self.equation.tangents, present)]
        taken = select(self.taken, self.op.active_outputs)
        outer = [cotangent_type(v.type) for v in select(self.equation.outputs, taken)]

        def step(out: Builder, atoms: list[Atom], cotangents: list[Value | None]) -> list[Value | None]:
            given = select(cotangents, taken)
            full = [c if c is not None else out.zeros(t) for c, t in zip(given, outer, strict=True)]
            shares = [c if n == 1 else _divided(out, c, n) for c, n in zip(full, self.shared_out, strict=True)]
            results = iter(out.emit(op, [*atoms, *shares], types)) if any(present) else iter(())
            return [next(results) if p else None for p in present]

        return step

    def tangent_step(self) -> Any:
        results = [r for r in self.results if r is not None]
        out_specs = [s for s, r in zip(select(self.shard.out_specs, self.taken), self.results, strict=True) if r]
        op = self.second(select(self.shard.in_specs, self.reached), results, out_specs)
        chosen = select(self.reached, [t is not None for t in self.body.tangents])
        flags = select(self.taken, self.op.active_outputs)
        present = spread_flags([r is not None for r in self.results], flags)
        types = [v.type for v in select(self.equation.outputs, present)]

        def step(out: Builder, atoms: list[Atom], tangents: list[Atom]) -> list[Value | None]:
            found = iter(out.emit(op, [*atoms, *select(tangents, chosen)], types))
            return [next(found) if p else None for p in present]

        return step


def _divided(builder: Builder, cotangent: Atom, count: int) -> Atom:
    def divided(x: Any) -> list[Any]:
        return [x / count]

    return builder.instantiate(make_program(divided, [cotangent.type]), [cotangent])[0]


def _mentioned(spec: Any) -> set[Any]:
    """The mesh axes in a spec."""
    entries = getattr(spec, "partitions", spec)
    parts: list[tuple[Any, ...]] = [p if isinstance(p, tuple) else (p,) for p in entries if p is not None]
    return {a for part in parts for a in part} | set(getattr(spec, "unreduced", ()))


def _axes_of(op: ShardMap) -> frozenset[Any]:
    """The axes of a shard_map without `check_vma` but for those that a `vmap` around it takes for itself
    (`spmd_axis_name`). Those that JAX sums over for the identity tell which."""
    spec = jax.sharding.PartitionSpec()

    def tupled(x: Any) -> tuple[Any]:
        return (x,)

    def transposed(x: Any) -> list[Any]:
        return list(jax.linear_transpose(same, scalar)((x,)))  # pyright: ignore[reportUnknownArgumentType]

    same = jax_compat.shard_map(tupled, dataclasses.replace(op, in_specs=(spec,), out_specs=(spec,)))
    scalar = jax.ShapeDtypeStruct((), "float32")
    turned = make_program(transposed, [scalar])
    inner = [e for outer in turned.equations for p in outer.op.programs for e in p.equations]
    named = {a for e in inner if isinstance(e.op, Primitive) for a in e.op.params.get("axes", ())}
    return frozenset(a for a in op.axes if a in named)
