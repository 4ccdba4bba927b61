"""What JAX's primitives are like: views, memory-bound, compute-bound. One table, by name.

*Memory-bound* primitives map element by element or move data; computing them again costs about as much as reading the
result from memory. *Views* are those that only rearrange or select elements. Everything that reduces, contracts,
sorts, gathers with run-time indices or draws random bits is *compute-bound*.
"""

from __future__ import annotations

from remat.ir.ops import Name, Op, Primitive, ToMemory, Zeros

ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type cbrt ceil clamp complex conj "
    "convert_element_type copy copy_p cos cosh div eq erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow "
    "is_finite le log log1p log2 logistic lt max min mul ne neg nextafter not one_minus_square or polynomial pow real "
    "reduce_precision rem round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh "
    "sqrt square stop_gradient sub tan tanh xor".split()
)
"""One result element from one element of each operand."""

VIEWS = frozenset(
    "broadcast_in_dim copy copy_p dynamic_slice expand_dims iota optimization_barrier real_view reshape rev "
    "sharding_constraint slice split squeeze transpose".split()
)
"""Rearrange, repeat or select elements."""

MOVES = frozenset("concatenate dynamic_update_slice pad".split())
"""Move data into a new array."""

MEMORY_BOUND = ELEMENTWISE | VIEWS | MOVES


CASTS = frozenset("bitcast_convert_type convert_element_type reduce_precision".split())
"""Change the type of elements."""


def is_view_or_cast(op: Op) -> bool:
    """Whether the result follows from one operand without arithmetic."""
    return isinstance(op, Name) or (isinstance(op, Primitive) and op.name in VIEWS | CASTS)


def is_memory_bound(op: Op) -> bool:
    """Whether computing it again costs about as much as reading its result."""
    if isinstance(op, (Name, ToMemory, Zeros)):
        return True
    return isinstance(op, Primitive) and op.name in MEMORY_BOUND
