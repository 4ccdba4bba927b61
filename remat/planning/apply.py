"""Carrying out a plan: the program of a region with the regions of the plan in its place, and their policy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from remat.decisions import SAVE, Decision, RegionView
from remat.ir.keys import Mark, program_keys
from remat.ir.ops import Checkpoint, Name
from remat.ir.program import Program, Value
from remat.ir.rewrite import inline_all
from remat.planning.naming import with_marks
from remat.planning.structures import STRUCTURES


@dataclass(frozen=True)
class KeptMarks:
    """The policy of a plan: what is marked with one of these keys is kept."""

    keys: frozenset[str]
    text: str = "plan"

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        return {e.outputs[0]: SAVE for e in view.equations if isinstance(e.op, Name) and _is_marked(e.op, self.keys)}

    def __str__(self) -> str:
        return self.text


def _is_marked(op: Name, keys: Collection[str]) -> bool:
    return isinstance(op.tag, Mark) and op.tag in keys


def regions_of(region: Checkpoint, structure: str, keys: Collection[str], text: str) -> Program:
    """The program of a region with the regions of a plan in its place."""
    program = inline_all(region.program)
    if structure == "none":
        return program
    wanted = frozenset(keys)
    known = program_keys(program)
    marked = with_marks(program, {v: key for v, key in known.items() if key in wanted})
    made = Checkpoint(marked, KeptMarks(wanted, text), region.prevent_cse, region.function, derived=True)
    return STRUCTURES[structure](made)
