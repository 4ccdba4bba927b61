"""Types of values: sizes in bytes, short text, and the questions that differentiation asks of a type."""

# JAX's functions are partly untyped, and not all are marked as exported.
# pyright: reportUnknownMemberType=false, reportPrivateImportUsage=false

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import numpy as np
from jax import dtypes


def itemsize(type: Any) -> int:
    """Bytes of one element. A typed random key counts with the bytes of its key data."""
    return _itemsize(type.dtype)


@functools.lru_cache(maxsize=1024)
def _itemsize(dtype: Any) -> int:
    if dtypes.issubdtype(dtype, jax.dtypes.extended):
        data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct((), dtype))
        return math.prod(data.shape) * data.dtype.itemsize
    if dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn"):
        return 1  # XLA's CPU buffers hold one sub-byte element a byte
    return np.dtype(dtype).itemsize


def size_in_bytes(type: Any) -> int:
    """Bytes of a whole array of this type; 0 for values that are not arrays (tokens)."""
    shape = getattr(type, "shape", None)
    if shape is None or not hasattr(type, "dtype") or type.dtype == dtypes.float0:
        return 0
    return element_count(shape) * itemsize(type)


def element_count(shape: Any) -> int:
    """How many elements an array of this shape has; see `SYMBOLIC_SIZE`."""
    return _element_count(tuple(shape))


@functools.lru_cache(maxsize=4096)
def _element_count(shape: tuple[Any, ...]) -> int:
    return math.prod([d if isinstance(d, int) else SYMBOLIC_SIZE for d in shape])


SYMBOLIC_SIZE = 1024
"""What a symbolic dimension (`jax.export.symbolic_shape`) counts as where sizes are compared: a batch, most likely,
which is larger than what is not one. Its real size is only known when the exported function is called."""


def short_text(type: Any) -> str:
    """The short form that JAX prints: `f32[5,4]`, `bool[4]`, `key<fry>[]`, `f32<host>[4]`, `f32[4@i]`."""
    if hasattr(type, "str_short"):
        return type.str_short(short_dtypes=True)
    return str(type)


def is_differentiable(type: Any) -> bool:
    """Whether values of this type carry tangents: floating point and complex arrays."""
    dtype = getattr(type, "dtype", None)
    return dtype is not None and dtypes.issubdtype(dtype, np.inexact)


def is_floating(type: Any) -> bool:
    dtype = getattr(type, "dtype", None)
    return dtype is not None and dtypes.issubdtype(dtype, np.floating)
