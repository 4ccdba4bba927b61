"""Regions that are recomputed in two levels, where recomputing them at once would hold everything.

A policy that keeps next to nothing of a long chain (`nothing` around an unrolled loss) makes the backward pass start
with the whole forward pass, all of which then stays until it is used. So the region is cut into segments, each a region
inside it: the backward pass first recomputes what crosses the cuts, and then the inside of one segment at a time. That
runs the forward pass once more and holds about the square root of it. What is kept between the passes stays what the
policy says.

`transforms.differentiate_program` says when it is done.
"""

from __future__ import annotations

from dataclasses import replace

from remat.ir.ops import Checkpoint
from remat.ir.types import size_in_bytes
from remat.transforms.segments import parts_of, segmented
from remat.transforms.split import Split

AT_ONCE = 0.25
"""Two levels are tried where at least this part of the bytes of a program is recomputed for one equation."""

WORTHWHILE = 2**18
"""And at least so many bytes: nobody runs out of memory for less."""


def recomputes_much_at_once(made: Split) -> bool:
    """Whether a large part of the program is recomputed for one equation of the backward pass."""
    level = made.level
    whole = sum(size_in_bytes(v.type) for e in level.linearized.equations for v in e.outputs)
    return level.retrieval.most_at_once > max(AT_ONCE * whole, WORTHWHILE)


def in_two_levels(region: Checkpoint) -> Checkpoint:
    """The same region with segments inside."""
    return replace(region, program=segmented(region.program, parts_of(region, region.policy)))
