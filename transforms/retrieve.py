"""Retrieval on demand: where recomputation is scheduled.

A backward equation that needs a value which is not kept triggers its recomputation from the nearest kept or already
recomputed ancestors, in topological order, right before that equation. Each equation is computed at most once per
region and backward pass; what was recomputed stays until its last use (XLA frees it) and is shared only within its
region, so that nested regions keep the classical trade of memory for computation. The search is iterative and visits
each equation and edge once. The semantics generalise Burn's `Checkpointer::retrieve_node_output`.

XLA keeps to that order because `transforms.barriers` makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat.ir.linearized import LinearEquation
from remat.ir.ops import Zeros
from remat.ir.program import Atom, Equation, Literal, Value
from remat.ir.region import Region, common_region
from remat.ir.traits import is_memory_bound
from remat.ir.types import size_in_bytes
from remat.transforms.barriers import Barriers
from remat.transforms.steps import BackwardStep

if TYPE_CHECKING:
    from remat.transforms.walk import Level


class Retrieval:
    """Supplies the backward program of one level with values of the forward program."""

    def __init__(self, level: Level):
        self.level = level
        self.live: dict[Region | None, dict[Value, Atom]] = {}
        self.barriers = Barriers(level)
        self.recomputed: list[Equation] = []
        """The forward equations that were recomputed, in order (for inspection)."""
        self.most_at_once = 0
        """The most bytes that were recomputed for one equation of the backward program."""

    def retrieve(self, atoms: Sequence[Atom], wanted_by: LinearEquation) -> dict[Value, Atom]:
        """Make values available to the backward program; returns what stands for each of them there."""
        region = wanted_by.region
        values = [a for a in dict.fromkeys(atoms) if isinstance(a, Value)]
        chain = self._chain(values, region)
        if chain:
            self._recompute(chain, wanted_by)
        found = {value: self._lookup(value, region, wanted_by) for value in values}
        self.level.steps.append(BackwardStep(wanted_by, (), values, (), len(self.level.equations_out)))
        kept = {value: atom for value, atom in found.items() if self.level.is_kept(value, region)}
        return {**found, **self.barriers.direct(kept, wanted_by)}

    def _home(self, value: Value, region: Region | None) -> Region | None:
        """The region in which `value`, needed from `region`, is recomputed and shared."""
        return common_region(region, self.level.producer[value].region)

    def _chain(self, values: Sequence[Value], region: Region | None) -> list[tuple[Equation, Region | None]]:
        """The equations to recompute with the region each is recomputed in, ancestors first."""
        level, live = self.level, self.live
        order: list[tuple[Equation, Region | None]] = []
        seen: set[tuple[Equation, Region | None]] = set()
        stack: list[tuple[Value | Equation, Region | None]] = [(v, region) for v in reversed(values)]
        while stack:
            item, context = stack.pop()
            if isinstance(item, Equation):
                order.append((item, context))
                continue
            item = level.stand_in(item, context)
            if level.is_kept(item, context):
                continue
            home = self._home(item, context)
            if item in live.get(home, ()):
                continue
            equation = level.producer[item]
            if (equation, home) in seen:
                continue
            seen.add((equation, home))
            stack.append((equation, home))
            stack.extend((a, home) for a in reversed(equation.inputs) if isinstance(a, Value))
        return order

    def _lookup(self, atom: Atom, region: Region | None, wanted_by: LinearEquation) -> Atom:
        if isinstance(atom, Literal):
            return atom
        atom = self.level.stand_in(atom, region)
        if self.level.is_kept(atom, region):
            users = self.level.needed_by.setdefault(atom, [])
            if not users or users[-1] is not wanted_by:
                users.append(wanted_by)
            return self.level.keep(atom, region)
        return self.live[self._home(atom, region)][atom]

    def _recompute(self, chain: list[tuple[Equation, Region | None]], wanted_by: LinearEquation) -> None:
        builder = self.level.builder
        first, kept, recomputed = len(builder.equations), *self._roots(chain)
        held_back = self.barriers.needed(e for e, _ in chain)
        pinned = self._pin(kept, recomputed, chain, wanted_by) if held_back else {}
        after = self.barriers.waited_for if held_back else ()
        again = [e for e, _ in chain]
        self.level.steps.append(BackwardStep(wanted_by, again, [*kept, *recomputed], after, first))
        source = builder.source
        for equation, home in chain:
            inputs = [
                pinned[a] if a in pinned else self._lookup(a, home, wanted_by)  # type: ignore[index]
                for a in equation.inputs
            ]
            builder.source = equation.source.again()
            outputs = builder.emit(equation.op, inputs, [v.type for v in equation.outputs])
            values = self.live.setdefault(home, {})
            values.update(zip(equation.outputs, outputs, strict=True))
            self.barriers.made(outputs, held_back)
            self.recomputed.append(equation)
        builder.source = source
        bytes_made = sum(size_in_bytes(v.type) for e, _ in chain for v in e.outputs)
        self.most_at_once = max(self.most_at_once, bytes_made)

    def _pin(
        self,
        kept: dict[Value, Region | None],
        recomputed: dict[Value, Region | None],
        chain: list[tuple[Equation, Region | None]],
        wanted_by: LinearEquation,
    ) -> dict[Value, Atom]:
        """Hold back a recomputation that starts from these values, each with the region it is in; returns what it uses
        in place of the kept ones."""
        after = self.barriers.pin(
            {value: self._lookup(value, home, wanted_by) for value, home in kept.items()},
            {value: self.live[home][value] for value, home in recomputed.items()},
            wanted_by,
            heavy=not all(is_memory_bound(e.op) for e, _ in chain),
        )
        for value, home in recomputed.items():
            self.live[home][value] = after[value]
        return {value: after[value] for value in kept}

    def _roots(
        self, chain: list[tuple[Equation, Region | None]]
    ) -> tuple[dict[Value, Region | None], dict[Value, Region | None]]:
        """The kept and the already recomputed values that a recomputation starts from, with the regions they are in."""
        level, made = self.level, {v for e, _ in chain for v in e.outputs}
        kept: dict[Value, Region | None] = {}
        recomputed: dict[Value, Region | None] = {}
        for equation, home in chain:
            for atom in equation.inputs:
                if not isinstance(atom, Value) or atom in made:
                    continue
                value = level.stand_in(atom, home)
                if level.is_kept(value, home):
                    kept[atom] = home
                elif value not in made and not isinstance(level.producer[value].op, Zeros):
                    recomputed[value] = self._home(value, home)
        return kept, recomputed
