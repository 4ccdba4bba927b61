"""Types of values, zeros of a type, memories, and the names in the policies of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters.ad import zeros_like_aval

from remat.jax_compat.sharding import on_mesh_of


def zeros_of(type: Any) -> Any:
    """Zeros of a whole type: shape, dtype, weak type, sharding, memory, and how they vary over the mesh axes that are
    manual (those of `shard_map`)."""
    with on_mesh_of([type]):
        zeros = zeros_like_aval(type)
        kind = getattr(type, "manual_axis_type", None)
        if kind is not None and kind.reduced:
            zeros = jax.lax.pcast(zeros, tuple(kind.reduced), to="reduced")
        if kind is not None and kind.unreduced:
            axes = tuple(kind.unreduced)
            zeros = jax.lax.pcast(jax.lax.pcast(zeros, axes, to="varying"), axes, to="unreduced")
        space = getattr(type, "memory_space", None)
        return zeros if space == jax.typeof(zeros).memory_space else move(zeros, space)


def tangent_type(type: Any) -> Any:
    """The type of tangents of values of this type."""
    return type.to_tangent_aval() if hasattr(type, "to_tangent_aval") else type


def cotangent_type(type: Any) -> Any:
    """The type of cotangents of values of this type, or of their tangents: what is `reduced` over mesh axes has a
    cotangent that is still to be reduced over them."""
    return type.to_ct_aval() if hasattr(type, "to_ct_aval") else tangent_type(type)


HOST_KINDS = ("pinned_host", "unpinned_host")
MEMORY_KINDS = ("device", *HOST_KINDS)


def to_memory(x: Any, kind: str) -> Any:
    """Move an array to the memory space of that kind."""
    space = jax.memory.Space.Host if kind in HOST_KINDS else jax.memory.Space.Device
    return move(x, space)


def move(x: Any, space: Any) -> Any:
    """Move an array to a memory space. JAX transposes a move right only if it is told where the array comes from."""
    return jax.device_put(x, space, src=jax.typeof(x).memory_space)


def is_move(primitive: Any, params: dict[str, Any]) -> bool:
    """Whether a primitive moves arrays between memory spaces."""
    return primitive.name == "device_put" and all(isinstance(d, jax.memory.Space) for d in params["devices"])


def memory_type(type: Any, kind: str) -> Any:
    """`type` as it is in the memory of that kind."""
    space = jax.memory.Space.Host if kind in HOST_KINDS else jax.memory.Space.Device
    return type.update(memory_space=space)


def is_on_host(type: Any) -> bool:
    """Whether values of this type are in the host's memory."""
    return getattr(type, "memory_space", None) == jax.memory.Space.Host


def policy_names(policy: Callable[..., Any]) -> tuple[frozenset[Any], frozenset[Any]] | None:
    """The names that one of JAX's own name policies allows: (saved, offloaded). None for any other callable.

    jax 0.10 has frozen dataclasses for these, jax 0.12 closures; both keep the names where they can be read.
    """
    if hasattr(policy, "saveable_names"):
        return frozenset(policy.saveable_names), frozenset(getattr(policy, "offloadable_names", ()))
    code, cells = getattr(policy, "__code__", None), getattr(policy, "__closure__", None)
    if code is None or not getattr(policy, "__module__", "").startswith("jax"):
        return None
    closed = {k: c.cell_contents for k, c in zip(code.co_freevars, cells or (), strict=False)}
    saved = closed.get("names_which_can_be_saved")
    if saved is None:
        return None
    return frozenset(saved), frozenset(closed.get("names_which_can_be_offloaded", ()))


def stacked_type(type: Any, length: int) -> Any:
    """The type of `length` values of this type along a new leading axis."""
    return type.inc_rank(length, 0).update(weak_type=False)
