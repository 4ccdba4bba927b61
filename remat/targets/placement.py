"""Putting the types of a function's arguments on the devices of a target, sharded as they were."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from remat.errors import TargetError
from remat.targets.target import Target


def place(leaves: Sequence[Any], devices: Sequence[Any], target: Target) -> list[Any]:
    """The types of arrays, on these devices.

    A sharding over a mesh of other devices (or an abstract mesh) becomes the same over the first of these, with the
    same axis names. Without any such sharding everything is on the first device; beside one, what has none is left to
    the compiler, as JAX leaves it.
    """
    shardings = [getattr(leaf, "sharding", None) for leaf in leaves]
    one_device = not any(isinstance(s, NamedSharding) for s in shardings)
    return [_typed(leaf, _moved(s, devices, target, one_device)) for leaf, s in zip(leaves, shardings, strict=True)]


def mesh_on(mesh: Any, devices: Sequence[Any], target: Target) -> Mesh:
    """A mesh with the same axes on the first of these devices; a mesh of these devices stays.

    **Raises** `TargetError` if there are too few.
    """
    if isinstance(mesh, Mesh) and set(mesh.devices.flat) <= set(devices):
        return mesh
    sizes = dict(mesh.shape)
    if math.prod(sizes.values()) > len(devices):
        axes = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise TargetError(
            f"the arguments are sharded over a mesh of {math.prod(sizes.values())} devices ({axes}), and {target} has "
            f"{len(devices)}. Name a larger target, such as {_larger(target, math.prod(sizes.values()))}, or give "
            "types with shardings over a smaller mesh."
        )
    taken = np.array(devices[: math.prod(sizes.values())], dtype=object).reshape(tuple(sizes.values()))
    return Mesh(taken, tuple(sizes), axis_types=mesh.axis_types)


def _moved(sharding: Any, devices: Sequence[Any], target: Target, one_device: bool) -> Any:
    kind = getattr(sharding, "memory_kind", None)
    kind = kind if kind == "pinned_host" else None  # others are that platform's names of ordinary memory
    if isinstance(sharding, NamedSharding):
        return NamedSharding(mesh_on(sharding.mesh, devices, target), sharding.spec, memory_kind=kind)
    return SingleDeviceSharding(devices[0], memory_kind=kind) if one_device else None


def _typed(leaf: Any, sharding: Any) -> Any:
    type = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
    weak = bool(getattr(type, "weak_type", False))
    return jax.ShapeDtypeStruct(type.shape, type.dtype, sharding=sharding, weak_type=weak)


def _larger(target: Target, count: int) -> str:
    if target.platform != "tpu":
        return f"{target.name.split(':')[0]}{f':{target.chip}' if target.chip else ''}:{count}"
    numbers = list(map(int, target.topology.split("x")))
    total = target.devices
    while total < count:
        numbers[numbers.index(min(numbers))] *= 2
        total *= 2
    return f"tpu:{target.chip}:{'x'.join(map(str, sorted(numbers)))}"
