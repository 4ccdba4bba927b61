"""What a compiler that fuses makes arrays of: a model of XLA, simple enough to run on every candidate schedule.

Each op is of one class, by how it reads and what it makes (`Reading`). A result that is computed element by element is
an array only where something needs one, or where several equations read it. Checked against XLA's CPU compiler:
`benchmarks/simulation.py`.
"""

from __future__ import annotations

from enum import Enum, auto

from remat.ir.ops import Barrier, Name, Op, Primitive, Zeros
from remat.ir.primitive_table import CHEAP_KINDS
from remat.ir.program import Equation
from remat.ir.traits import is_function, is_memory_bound, row_of


class Reading(Enum):
    """How an op reads its operands and makes its results."""

    ALIAS = auto()
    """The results are the operands under other types: no arrays of their own."""
    BARRIER = auto()
    """An alias that needs its operands as arrays."""
    ELEMENTWISE = auto()
    """Computed inside the one equation that reads it; a result may take the place of an operand of its size."""
    MOVED = auto()
    """Computed inside whatever reads it, however often: repeated, cut out, reversed or constant elements."""
    COLLECTED = auto()
    """The result is an array; what the operands are made of is computed meanwhile: reductions, concatenations."""
    UPDATED = auto()
    """The result is the first operand changed in place, if nothing reads that any more."""
    OPAQUE = auto()
    """Operands and results are arrays: products, convolutions, loops, branches, sorting, communication."""


INSIDE_READERS = frozenset({Reading.ELEMENTWISE, Reading.MOVED})
"""The classes whose results need not be arrays."""

WITHOUT_RESULTS = frozenset({Reading.ALIAS, Reading.BARRIER})
"""The classes whose results are their operands."""

ALIASES = frozenset(
    "reshape squeeze expand_dims transpose copy copy_p name sharding_constraint layout_constraint "
    "reshard pvary relayout reduced_vary_cast vary_unreduced_cast".split()
)
UPDATES = frozenset("dynamic_update_slice scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max".split())
COLLECTED = frozenset({"concatenate", "stack", "gather"})

_by_name: dict[str, Reading] = {}
"""The classes of primitives, worked out once each."""


def reading_of(op: Op) -> Reading:
    """The class of an op."""
    if isinstance(op, Barrier):
        return Reading.BARRIER
    if isinstance(op, Name):
        return Reading.ALIAS
    if isinstance(op, Zeros):
        return Reading.MOVED
    if not isinstance(op, Primitive):
        return Reading.OPAQUE
    if op.name == "dot_general" or is_function(op):  # these depend on more than the name
        return Reading.ELEMENTWISE if is_memory_bound(op) else Reading.OPAQUE
    known = _by_name.get(op.name)
    if known is None:
        known = _by_name[op.name] = _of_primitive(op)
    return known


def _of_primitive(op: Primitive) -> Reading:
    kind = row_of(op).kind
    if op.name == "optimization_barrier":
        return Reading.BARRIER
    if op.name in ALIASES:
        return Reading.ALIAS
    if op.name in UPDATES:
        return Reading.UPDATED
    if op.name in COLLECTED or kind == "reduction":
        return Reading.COLLECTED
    if kind in ("elementwise", "cast"):
        return Reading.ELEMENTWISE
    return Reading.MOVED if kind in CHEAP_KINDS else Reading.OPAQUE


def copied_operands(equation: Equation) -> list[int]:
    """The operands of a product that are copied to another layout first: those of a convolution that do not have their
    dimensions in the usual order, and those of a dot product whose batch dimensions stand behind others."""
    op = equation.op
    if not isinstance(op, Primitive):
        return []
    if op.name == "conv_general_dilated":
        numbers, last = op.params["dimension_numbers"], len(op.params["window_strides"]) + 1
        spatial = tuple(range(1, last))
        plain = [tuple(numbers.lhs_spec) == (0, last, *spatial)]
        plain.append(tuple(numbers.rhs_spec) == (last, last - 1, *range(last - 1)))
        return [i for i in (0, 1) if not plain[i]]
    if op.name == "dot_general":
        contracted, batch = op.params["dimension_numbers"]
        ranks = [len(a.type.shape) for a in equation.inputs]
        return [i for i in (0, 1) if not _are_matrices(ranks[i], tuple(contracted[i]), tuple(batch[i]))]
    return []


def _are_matrices(rank: int, contracted: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Whether the batch dimensions come first, and those that are summed over are next or last."""
    first, k = len(batch), len(contracted)
    return batch == tuple(range(first)) and contracted in (tuple(range(first, first + k)), tuple(range(rank - k, rank)))
