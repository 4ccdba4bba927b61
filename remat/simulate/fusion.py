"""What a compiler that fuses makes arrays of: a model of XLA, simple enough to run on every candidate schedule.

Each op is of one class, by how it reads and what it makes (`Reading`). A result that is computed element by element is
an array only where something needs one, or where several equations read it that would pay for computing it again
(`remat.simulate.sources`). Checked against XLA's compilers: `benchmarks/simulation.py`.
"""

from __future__ import annotations

from enum import Enum, auto

from remat.ir.ops import Barrier, Name, Op, Primitive, Zeros
from remat.ir.primitive_table import CHEAP_KINDS
from remat.ir.traits import is_function, is_memory_bound, is_product, row_of
from remat.targets.array_rules import ArrayRules


class Reading(Enum):
    """How an op reads its operands and makes its results."""

    ALIAS = auto()
    """The results are the operands under other types: no arrays of their own."""
    BARRIER = auto()
    """An alias that needs its operands as arrays."""
    ELEMENTWISE = auto()
    """Computed inside what reads it; a result that is an array may take the place of an operand of its size."""
    MOVED = auto()
    """Computed inside whatever reads it, however often: repeated, cut out, reversed or constant elements."""
    COLLECTED = auto()
    """The result is an array; what the operands are made of is computed meanwhile: reductions, concatenations."""
    LOOKED_UP = auto()
    """The same, but the operands are arrays: elements at places that are computed."""
    UPDATED = auto()
    """The result is the first operand changed in place, if nothing reads that any more."""
    PRODUCT = auto()
    """A product or convolution: the result is an array, and so are the operands, unless the compiler computes them
    meanwhile."""
    OPAQUE = auto()
    """Operands and results are arrays: loops, branches, sorting, communication."""


WHOLE = frozenset({Reading.OPAQUE, Reading.BARRIER, Reading.LOOKED_UP})
"""The classes whose operands are arrays, whatever the compiler."""

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


def reading_of(op: Op, rules: ArrayRules) -> Reading:
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
        return Reading.ELEMENTWISE if is_memory_bound(op) else Reading.OPAQUE if is_function(op) else Reading.PRODUCT
    if rules.looks_up_arrays and op.name == "gather":
        return Reading.LOOKED_UP
    if rules.looks_up_arrays and op.name.startswith("scatter") and _is_one_hot(op):
        return Reading.ELEMENTWISE
    known = _by_name.get(op.name)
    if known is None:
        known = _by_name[op.name] = _of_primitive(op)
    return known


def reads_arrays(reading: Reading, rules: ArrayRules) -> bool:
    """Whether the operands have to be arrays."""
    return reading in WHOLE or (reading is Reading.PRODUCT and not rules.products_fuse)


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
    if is_product(op):
        return Reading.PRODUCT
    if kind in ("elementwise", "cast"):
        return Reading.ELEMENTWISE
    return Reading.MOVED if kind in CHEAP_KINDS else Reading.OPAQUE


def _is_one_hot(op: Primitive) -> bool:
    """Whether a scatter changes one element of each row: the derivative of `take_along_axis`."""
    numbers = op.params["dimension_numbers"]
    return bool(numbers.operand_batching_dims) and not numbers.update_window_dims
