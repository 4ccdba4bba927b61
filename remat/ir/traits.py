"""Questions about operations, answered from the table of primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remat import jax_compat
from remat.ir.ops import Name, Op, Primitive, Scan, ToMemory, Zeros
from remat.ir.primitive_table import BY_NAME, CHEAP_KINDS, CHEAP_NAMES, UNKNOWN, Bound, Row
from remat.ir.types import element_count


def row_of(op: Op) -> Row:
    """The row of the table for an operation. A product that sums over nothing (an outer product, or one element by
    element, written as an einsum) is what a multiplication is."""
    if isinstance(op, Primitive) and op.name == "dot_general" and not op.params["dimension_numbers"][0][0]:
        return BY_NAME["mul"]
    if isinstance(op, (Name, ToMemory, Zeros)):
        return BY_NAME["name"]
    return BY_NAME.get(op.name, UNKNOWN)


def bound_of(op: Op) -> Bound:
    """Memory-bound, compute-bound or untracked."""
    return row_of(op).bound


def is_view_or_cast(op: Op) -> bool:
    """Whether the result follows from one operand without arithmetic."""
    return isinstance(op, Name) or (isinstance(op, Primitive) and row_of(op).kind in ("view", "cast"))


def is_product(op: Op) -> bool:
    """Whether it is a dot product or a convolution."""
    return isinstance(op, Primitive) and op.name in jax_compat.dots_primitive_names


def is_batched_product(op: Op, types: Sequence[Any]) -> bool:
    """Whether it is a product, of operands of these types, with batch dimensions: not one with weights."""
    if not is_product(op) or op.name == "conv_general_dilated":
        return False
    return jax_compat.has_batch_dims(op.name, types, op.params)  # type: ignore[attr-defined]


def is_memory_bound(op: Op) -> bool:
    """Whether computing it again costs about as much as reading its result. A function with a derivative rule of its
    own, such as `jax.nn.relu`, is what it consists of."""
    return row_of(op).kind in CHEAP_KINDS or (is_function(op) and inner_names(op) <= CHEAP_NAMES)


def is_loop(op: Op) -> bool:
    """Whether it is a scan of several iterations."""
    return isinstance(op, Scan) and element_count((op.length,)) > 1


def is_function(op: Op) -> bool:
    """Whether it is a function with a derivative rule of its own, `jax.custom_jvp`."""
    return isinstance(op, Primitive) and op.name in jax_compat.CUSTOM_JVPS


def inner_names(op: Op) -> frozenset[str]:
    """The primitives that an operation consists of: itself, or what such a function does."""
    return jax_compat.inner_primitives(op.params) if is_function(op) else frozenset({op.name})  # type: ignore[attr-defined]
