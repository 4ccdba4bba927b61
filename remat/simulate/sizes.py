"""How many bytes an array takes in the memory of a device."""

from __future__ import annotations

from typing import Any

from remat.ir.program import Program
from remat.ir.types import size_in_bytes
from remat.jax_compat import is_on_host

SHORT = 0.25
"""A last dimension below this part of the lanes is not put along them: a TPU keeps images of three channels unpadded,
with the batch or the width along its lanes."""


def held_bytes(program: Program) -> int:
    """What the caller of a program holds in the device's memory: arguments, and arrays that it closes over."""
    return sum(map(device_bytes, [*program.input_types, *(v.type for v, _ in program.constants)]))


def device_bytes(type: Any) -> int:
    """Bytes of an array in the device's memory: none if it is in the host's."""
    return 0 if is_on_host(type) else size_in_bytes(type)


def padded(size: int, type: Any, lanes: int) -> int:
    """The bytes of an array of `size` bytes once its last dimension is padded to whole lanes."""
    if lanes == 1 or not size or not type.shape or not isinstance(type.shape[-1], int):
        return size
    last = type.shape[-1]
    return size if last < SHORT * lanes else size // last * (-(-last // lanes) * lanes)
