"""Meshes, `shard_map` and mapped axes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Any

import jax


def spmd_axis(axis: Any) -> Any:
    """The `spmd_axis_name` of a mapped axis."""
    return axis.spmd_name


def on_mesh_of(types: Iterable[Any], mapped: Collection[Any] = ()) -> Any:
    """A context in which values of these types may be computed: code that is inlined out of `jax.sharding.auto_axes`
    has types on another mesh than its surroundings. A type that knows one of the `mapped` axes as manual comes from
    inside the `shard_map` over these, and says nothing about what is around it."""
    meshes = (getattr(getattr(type, "sharding", None), "mesh", None) for type in types)
    outside = (m for m in meshes if m is not None and not m.empty and set(m.manual_axes).isdisjoint(mapped))
    mesh = next(outside, None)
    if mesh is None:
        return contextlib.nullcontext()
    current = jax.sharding.get_abstract_mesh()
    if mesh == current or (mesh.are_all_axes_auto and (current.empty or current.are_all_axes_auto)):
        return contextlib.nullcontext()
    return jax.sharding.use_abstract_mesh(mesh)


def shard_map(fun: Callable[..., Any], op: Any) -> Callable[..., Any]:
    """The function on every device, as a `ShardMap` says; it returns a tuple."""

    def called(*inputs: Any) -> tuple[Any, ...]:
        mapped = jax.shard_map(
            fun,
            mesh=op.mesh,
            in_specs=op.in_specs,
            out_specs=op.out_specs,
            axis_names=op.axes,
            check_vma=op.check_vma,
        )
        with contextlib.nullcontext() if op.context is None else op.context.manager:
            return mapped(*inputs)

    return called


def inside_shard_map(op: Any, fun: Callable[[], Any]) -> Any:
    """What `fun` returns when it is called where the mesh axes of a `ShardMap` are known, as rules of collectives need
    it."""
    results: list[Any] = []

    def body() -> tuple[()]:
        results.append(fun())
        return ()

    jax.eval_shape(shard_map(body, dataclasses.replace(op, in_specs=(), out_specs=())))
    return results[0]


def spec_of_parts(op: Any, axes: Collection[Any], type: Any) -> Any:
    """The spec that joins values of the body of a `ShardMap` over these axes along their first dimension; of devices
    that are known to hold the same one (`check_vma`), it takes one."""
    kind = type.manual_axis_type
    axes = tuple(a for a in op.mesh.axis_names if a in axes and (not op.check_vma or a in kind.varying))
    reductions = {"unreduced": kind.unreduced, "reduced": kind.reduced} if op.check_vma else {}
    reductions = {k: v for k, v in reductions.items() if v}
    return jax.sharding.PartitionSpec(*((axes,) if axes else ()), **reductions)


def joined_type(op: Any, type: Any, spec: Any) -> Any:
    """The type, outside a `ShardMap`, of what its body returns with this type and spec."""
    with contextlib.nullcontext() if op.context is None else op.context.manager:
        return type.unshard(op.mesh, op.check_vma, spec)
