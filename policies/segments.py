"""Regions that remat places by itself: what a policy keeps, and the boundaries between segments of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remat.decisions import Decision, Policy, RegionView
from remat.errors import PolicyTypeError
from remat.ir.ops import Checkpoint
from remat.ir.program import Program, Value
from remat.policies.algebra import Combinable, inner_text
from remat.policies.parse import WITH_ARGUMENT, parse
from remat.transforms.decide import warn_of_unknown_names
from remat.transforms.segments import parts_of, segmented


@dataclass(frozen=True)
class Segments(Combinable):
    """Each segment of a program is a region of its own under `policy`; what later segments read of it is kept."""

    policy: Policy

    def regions_of(self, op: Checkpoint, active: Sequence[bool]) -> Program:
        """The program of a region with regions around its segments, in place of the one around the whole."""
        if not op.derived:
            warn_of_unknown_names(self, op.program.equations, f"of {op.function}" if op.function else "")
        return segmented(op.program, parts_of(op, self.policy))

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        raise PolicyTypeError(
            f"the policy {self} makes regions and cannot be part of another policy. Put segments around the whole: "
            "segments:(dots|names:a)."
        )

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return getattr(self.policy, "mentioned_names", frozenset())

    def __str__(self) -> str:
        return f"segments:{inner_text(self.policy)}"


def segments(policy: Any = "nothing") -> Segments:
    """Place checkpoint regions in an unmodified model, as one would by hand around its layers.

    The program is cut where little crosses from one part to the next, so that what is kept at the cuts and what one
    segment holds while it is differentiated are small together. Each segment is recomputed once, the last one not at
    all. Loops become regions as under `scan_body`.

    **Arguments**: what is kept inside the segments besides; any policy or its string form.

    **Source**: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), generalised to cuts that several
    values cross and to layers of different sizes.

    >>> from remat import policies
    >>> print(policies.segments("dots"))
    segments:dots
    """
    return Segments(parse(policy))


WITH_ARGUMENT["segments"] = (lambda reader: segments(reader.single()), "nothing")
