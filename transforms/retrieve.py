"""Retrieval on demand: where recomputation is scheduled.

A backward equation that needs a value which is not kept triggers its recomputation from the nearest kept or already
recomputed ancestors, in topological order, right before that equation. Each equation is computed at most once per
region and backward pass; what was recomputed stays until its last use (XLA frees it) and is shared only within its
region, so that nested regions keep the classical trade of memory for computation. The search is iterative and visits
each equation and edge once. The semantics generalise Burn's `Checkpointer::retrieve_node_output`.

On straight-line code XLA would merge the recomputed values with the forward ones, or start recomputing early. An
optimization barrier ties what the recomputation starts from to the cotangents that have to exist first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat.ir.linearized import LinearEquation
from remat.ir.ops import Barrier, Zeros
from remat.ir.program import Atom, Equation, Literal, Value
from remat.ir.region import Region, common_region
from remat.ir.traits import is_view_or_cast

if TYPE_CHECKING:
    from remat.transforms.walk import Level


class Retrieval:
    """Supplies the backward program of one level with values of the forward program."""

    def __init__(self, level: Level):
        self.level = level
        self.live: dict[Region | None, dict[Value, Atom]] = {}
        self.pinned_roots: dict[Region | None, dict[Value, Atom]] = {}
        """Kept values as they came out of a barrier, by region: within a region each is pinned once."""
        self.tied: dict[Value, Atom] = {}
        """Cotangents as they came out of the last barrier they went through, by tangent."""
        self.recomputed: list[Equation] = []
        """The forward equations that were recomputed, in order (for inspection)."""

    def retrieve(self, atoms: Sequence[Atom], wanted_by: LinearEquation) -> dict[Value, Atom]:
        """Make values available to the backward program; returns what stands for each of them there."""
        region = wanted_by.region
        values = [a for a in dict.fromkeys(atoms) if isinstance(a, Value)]
        chain = self._chain(values, region)
        if chain:
            self._recompute(chain, wanted_by)
        return {value: self._lookup(value, region, wanted_by) for value in values}

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
        pinned = self._pin(chain, wanted_by)
        source = builder.source
        for equation, home in chain:
            inputs = [
                pinned[a] if a in pinned else self._lookup(a, home, wanted_by)  # type: ignore[index]
                for a in equation.inputs
            ]
            builder.source = equation.source
            outputs = builder.emit(equation.op, inputs, [v.type for v in equation.outputs])
            values = self.live.setdefault(home, {})
            for old, new in zip(equation.outputs, outputs, strict=True):
                values[old] = new
            self.recomputed.append(equation)
        builder.source = source

    def _pin(self, chain: list[tuple[Equation, Region | None]], wanted_by: LinearEquation) -> dict[Value, Atom]:
        """Tie the kept values that a recomputation starts from to the cotangents in flight."""
        level = self.level
        if level.in_loop or not level.backward or not any(_is_pinned(e.region) for e, _ in chain):
            return {}
        if all(isinstance(e.op, Zeros) or is_view_or_cast(e.op) for e, _ in chain):
            return {}
        roots = {
            a: home
            for e, home in chain
            for a in e.inputs
            if isinstance(a, Value) and level.is_kept(level.stand_in(a, home), home)
        }
        if not roots:
            return {}
        pinned = self.pinned_roots.setdefault(wanted_by.region, {})
        kept = {root: self._lookup(root, home, wanted_by) for root, home in roots.items()}
        old = {root: pinned[root] for root in kept if root in pinned}
        kept = {root: atom for root, atom in kept.items() if root not in old}
        if not kept:
            return old
        flight = self._flight(wanted_by)
        together = list(dict.fromkeys([*(level.cotangents[t] for t in flight), *kept.values()]))
        results = level.builder.emit(Barrier(), together, [a.type for a in together])
        after = dict(zip(together, results, strict=True))
        for tangent in flight:
            level.cotangents[tangent] = self.tied[tangent] = after[level.cotangents[tangent]]
        new = {root: after[atom] for root, atom in kept.items()}
        pinned.update(new)
        return {**old, **new}

    def _flight(self, wanted_by: LinearEquation) -> list[Value]:
        """The tangents whose cotangents a recomputation has to wait for: those that the needing equation consumes, and
        those that are new since the last barrier (others have been waited for, and tying them again would make the
        barriers grow with the number of parameters)."""
        cotangents = self.level.cotangents
        return [t for t, c in cotangents.items() if self.tied.get(t) is not c or t in wanted_by.outputs]


def _is_pinned(region: Region | None) -> bool:
    return region is not None and region.prevent_cse
