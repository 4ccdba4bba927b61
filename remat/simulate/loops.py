"""What is special about loop bodies, and about the programs that several devices run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from remat.ir.ops import Op, Scan, ShardMap, While


@dataclass(frozen=True)
class Loop:
    """What is special about the inputs and outputs of a loop body."""

    carries: dict[int, int] = field(default_factory=dict)
    """From the position of an output to that of the input that it is in the next iteration."""
    slices: range = range(0)
    """The inputs that are slices of arrays outside."""
    stored: range = range(0)
    """The outputs that become slices of arrays outside."""


NO_LOOP = Loop()
TOP = Loop()
"""In place of a loop: the whole program."""


def carried_inputs(op: Op) -> range:
    """The positions of the inputs that a loop starts from, which its results take the place of."""
    if isinstance(op, Scan):
        return range(op.constant_count, op.constant_count + op.carry_count)
    if isinstance(op, While):
        first = op.condition_constants + op.body_constants
        return range(first, first + len(op.body.outputs))
    return range(0)


def devices(op: ShardMap) -> int:
    """How many devices run the program of a `shard_map`, each on its own part."""
    return math.prod(dict(op.mesh.shape)[axis] for axis in op.axes)
