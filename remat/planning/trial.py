"""Plans as they would run: differentiated, and simulated for the current target."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from remat.decisions import RECOMPUTE, Decision
from remat.ir.keys import Mark
from remat.ir.linearized import Linearized
from remat.ir.ops import Checkpoint, Name
from remat.ir.program import Program, Value
from remat.ir.types import size_in_bytes
from remat.planning.apply import regions_of
from remat.planning.choice import Choice, KeptValue
from remat.planning.devices import Spread
from remat.planning.seconds import Rates
from remat.simulate.live_bytes import simulate_split
from remat.transforms.decide import decide
from remat.transforms.linearize import linearize_program
from remat.transforms.split import Split, split


@dataclass(frozen=True, eq=False)
class Arranged:
    """A region in the structure of a plan, linearized once for all sets; `marks` are the keys of what they may keep."""

    structure: str
    linearized: Linearized
    decisions: dict[Value, Decision]
    marks: dict[Value, Mark]


@dataclass(frozen=True, eq=False)
class Trial:
    """Tries plans of one region."""

    region: Checkpoint
    active: Sequence[bool]
    rates: Rates
    spread: Spread

    def without(self, program: Program) -> Choice:
        """The program without a plan."""
        linearized = linearize_program(program, self.active)
        return self._choice("none", (), split(linearized, decide(linearized, False), warn=False))

    def arranged(self, structure: str, keys: Collection[str]) -> Arranged:
        """A structure, for sets of values that have these keys."""
        linearized = linearize_program(regions_of(self.region, structure, keys, "plan"), self.active)
        names = [(e.outputs[0], e.op.tag) for e in linearized.all_equations() if isinstance(e.op, Name)]
        marks = {v: tag for v, tag in names if isinstance(tag, Mark)}
        return Arranged(structure, linearized, decide(linearized, False), marks)

    def keeping(self, arranged: Arranged, kept: tuple[KeptValue, ...]) -> Choice:
        """The plan that keeps a set."""
        wanted = {v.key for v in kept}
        left_out = {v: RECOMPUTE for v, key in arranged.marks.items() if key not in wanted}
        made = split(arranged.linearized, {**arranged.decisions, **left_out}, warn=False)
        return self._choice(arranged.structure, kept, made)

    def _choice(self, structure: str, kept: tuple[KeptValue, ...], made: Split) -> Choice:
        held = {*made.linearized.inputs, *(v for v, _ in made.linearized.constants)}
        bytes_kept = sum(size_in_bytes(made.level.residuals[v].type) for v in made.residuals if v not in held)
        seconds = self.rates.program(made.forward) + self.rates.program(made.second)
        peak, spread = simulate_split(made).set_aside, self.spread
        return Choice(structure, kept, spread.kept(bytes_kept), spread.peak(peak), seconds / spread.parts)
