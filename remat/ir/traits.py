"""Questions about operations, answered from the table of primitives."""

from __future__ import annotations

from remat import jax_compat
from remat.ir.ops import Name, Op, Primitive, ToMemory, Zeros
from remat.ir.primitive_table import BY_NAME, CHEAP_KINDS, CHEAP_NAMES, UNKNOWN, Bound, Row


def row_of(op: Op) -> Row:
    """The row of the table for an operation."""
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


def is_memory_bound(op: Op) -> bool:
    """Whether computing it again costs about as much as reading its result. A function with a derivative rule of its
    own, such as `jax.nn.relu`, is what it consists of."""
    return row_of(op).kind in CHEAP_KINDS or (is_function(op) and inner_names(op) <= CHEAP_NAMES)


def is_function(op: Op) -> bool:
    """Whether it is a function with a derivative rule of its own, `jax.custom_jvp`."""
    return isinstance(op, Primitive) and op.name in jax_compat.CUSTOM_JVPS


def inner_names(op: Op) -> frozenset[str]:
    """The primitives that an operation consists of: itself, or what such a function does."""
    return jax_compat.inner_primitives(op.params) if is_function(op) else frozenset({op.name})  # type: ignore[attr-defined]
