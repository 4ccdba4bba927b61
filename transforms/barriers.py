"""Barriers: how XLA is kept from undoing the schedule of recomputation.

On straight-line code XLA would merge recomputed values with the forward ones, start recomputing early, or leave the
gradient that something was recomputed for until later. Optimization barriers stand against all three:

- what a recomputation starts from goes through a barrier together with the cotangents that have to exist first;
- so does, again, what was recomputed longer ago, as else all the heavy work that depends on it could start at once;
- and when a recomputation served the cotangent of an input (typically the gradient of a weight, which nothing waits
  for), that cotangent goes through a barrier together with those that the backward program goes on with.

A cotangent is tied when it is new, and not again: barriers must not grow with the number of parameters. Loop bodies and
branches need none (they are computations of their own, with nothing to merge), unless several iterations of a loop are
unrolled into one; and `prevent_cse=False` asks for none.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from remat.ir.linearized import LinearEquation
from remat.ir.ops import Barrier, Zeros
from remat.ir.program import Atom, Equation, Value
from remat.ir.region import Region
from remat.ir.traits import is_memory_bound, is_view_or_cast
from remat.ir.types import element_count, size_in_bytes
from remat.targets.current import current_target
from remat.transforms.expansions import Origin, emit_again, origin_of

if TYPE_CHECKING:
    from remat.transforms.walk import Level


NOT_HELD_BACK = -1
"""The round of views that were recomputed without a barrier."""

AHEAD = 4
"""How many cotangents wait for the gradient of an input."""

FAR = 2
"""After how many heavy equations of the backward pass (two for each layer of a chain) cheap recomputation from a value
waits too. At 0, fusions inside a layer are cut (a feed-forward layer with biases takes 1.25 times JAX's bytes, here
0.75); never, and the whole chain `x + sin(x) @ w` under `dots` is expanded at once (16 MiB against 11)."""


def _expands(equation: Equation) -> bool:
    """Whether the result of an equation is larger than what it is made from."""
    given = sum(size_in_bytes(a.type) for a in equation.inputs)
    return sum(size_in_bytes(v.type) for v in equation.outputs) > given


def _repeats(equation: LinearEquation, value: Value) -> bool:
    """Whether an element-wise equation repeats the elements of a smaller array."""
    size = element_count(value.type.shape)
    return is_memory_bound(equation.op) and 1 < size < element_count(equation.outputs[0].type.shape)


class Barriers:
    """The barriers in the backward program of one level."""

    def __init__(self, level: Level):
        self.level = level
        self.inputs = {t for t in level.linearized.tangents if t is not None}
        self.retie_after = current_target().retie_after
        self.pinned: dict[Region | None, dict[Value, Atom]] = {}
        """Kept values as they came out of a barrier, by region: within a region each is pinned once."""
        self.untied: dict[Value, None] = {}
        """The tangents whose cotangents are new since the last barrier."""
        self.settled: dict[Value, None] = {}
        """Tangents of inputs that others were made to wait for, but that no recomputation has waited for yet."""
        self.next: list[Value] = []
        """Of the tangents whose cotangents went through the last barrier, those that are consumed next."""
        self.served: LinearEquation | None = None
        """The last linear equation for which something was recomputed behind a barrier."""
        self.waited_for: Sequence[Value] = ()
        """The tangents whose cotangents the last recomputation waits for."""
        self.rounds = 0
        """How many times something had to be recomputed."""
        self.made_in: dict[Atom, int] = {}
        """The round in which a value of the backward program was recomputed, or last went through a barrier."""
        self.heavy = 0
        """How many heavy linear equations were transposed."""
        self.heavy_before: dict[Atom, int] = {}
        """And how many before a value was recomputed, or last went through a barrier."""
        self._producer: dict[Value, Equation] = {}
        """The equations of the backward program so far, of which the first `_known` are in here."""
        self._known = 0

    @cached_property
    def position(self) -> dict[Value, int]:
        """Where the linear equation of each tangent stands."""
        return {t: i for i, e in enumerate(self.level.linearized.linear) for t in e.outputs}

    def _stand_in(self, region: Region | None) -> bool:
        """Whether there are barriers in a region at all."""
        straight = self.level.backward and (not self.level.in_loop or self.level.unrolled)
        return straight and region is not None and bool(region.prevent_cse)

    def needed(self, equations: Iterable[Equation]) -> bool:
        """Whether the recomputation of `equations` has to be held back."""
        equations = list(equations)
        if not any(self._stand_in(e.region) for e in equations):
            return False
        made = {v for e in equations for v in e.outputs}
        return not all(isinstance(e.op, Zeros) or self._is_plain_view(e, made) for e in equations)

    def _is_plain_view(self, equation: Equation, made: Collection[Value]) -> bool:
        """Whether it only looks at an argument or at the result of a heavy operation in another way. A view of what was
        made element by element is fused with that, and then shared between the forward and the backward pass."""
        if not is_view_or_cast(equation.op) or _expands(equation):
            return False
        producers = (self.level.producer.get(a) for a in equation.inputs if isinstance(a, Value) and a not in made)
        return not any(p is not None and is_memory_bound(p.op) for p in producers)

    def direct(self, kept: dict[Value, Atom], equation: LinearEquation) -> dict[Value, Atom]:
        """What stands for kept values that a linear equation reads directly, for those of them that have to wait.

        XLA fuses an element-wise operation that made one with its use in the backward pass, and then what it was made
        from stays too; so it is read as it came out of a barrier, if it went through one. And one that an element-wise
        equation repeats over a larger shape may be repeated as soon as it is there, as an array of its own.
        """
        region = equation.region
        if not self._stand_in(region):
            return {}
        pinned, producer = self.pinned.get(region, {}), self.level.producer
        known = {v: pinned[v] for v in kept if v in pinned and v in producer and is_memory_bound(producer[v].op)}
        spread = {v: atom for v, atom in kept.items() if v not in pinned and _repeats(equation, v)}
        return {**known, **self.pin(spread, {}, equation, heavy=False)} if spread else known

    def pin(
        self, kept: dict[Value, Atom], recomputed: dict[Value, Atom], wanted_by: LinearEquation, heavy: bool
    ) -> dict[Value, Atom]:
        """Hold back a recomputation that starts from these values; returns what stands for each of them from now on.

        What was recomputed in the round before is left alone, and if what follows is cheap (not `heavy`), also what was
        recomputed in the same layer: barriers would keep XLA from fusing it.
        """
        self.rounds += 1
        self.served = wanted_by
        self.waited_for = ()
        pinned = self.pinned.setdefault(wanted_by.region, {})
        new = {value: atom for value, atom in kept.items() if value not in pinned}
        stale = {value: atom for value, atom in recomputed.items() if self._is_stale(atom, heavy)}
        if new or stale:
            flight = {**self.settled, **self.untied, **dict.fromkeys(wanted_by.outputs)}
            self.waited_for = [t for t in flight if t in self.level.cotangents]
            after = self._tie(self.waited_for, [*new.values(), *stale.values()])
            self.untied, self.settled = {}, {}
            pinned.update((value, after[atom]) for value, atom in new.items())
            stale = {value: after[atom] for value, atom in stale.items()}
            self.made(stale.values())
        return {**{value: pinned[value] for value in kept}, **recomputed, **stale}

    def _is_stale(self, atom: Atom, heavy: bool) -> bool:
        """Whether a recomputed value is so old that what follows from it has to wait again, or never waited."""
        made_in = self.made_in[atom]
        if not heavy and self.heavy - self.heavy_before[atom] <= FAR:
            return False
        old = self.retie_after is not None and made_in < self.rounds - self.retie_after
        return old or made_in == NOT_HELD_BACK

    def made(self, atoms: Iterable[Atom], held_back: bool = True) -> None:
        """Note what was recomputed in this round; or at any time, if it was not held back."""
        atoms = list(atoms)
        self.made_in.update(dict.fromkeys(atoms, self.rounds if held_back else NOT_HELD_BACK))
        self.heavy_before.update(dict.fromkeys(atoms, self.heavy))

    def changed(self, tangent: Value) -> None:
        """Note that there is a cotangent for `tangent`, or a new one."""
        self.untied[tangent] = None

    def settle(self, equation: LinearEquation) -> None:
        """Called after each linear equation: if it gave a cotangent of an input from something that was recomputed,
        what the backward program goes on with waits for it. The cotangent itself waits for nothing."""
        self.heavy += not is_memory_bound(equation.op)
        if self.served is not equation or self.inputs.isdisjoint(equation.inputs):
            return
        cotangents = self.level.cotangents
        gradients = [t for t in self.untied if t in self.inputs and t in cotangents]
        inner = [t for t in {**dict.fromkeys(self.next), **self.untied} if t in cotangents and t not in self.inputs]
        going_on = self._consumed_next(inner)
        if going_on and gradients:
            self._tie(going_on, [cotangents[t] for t in gradients])
            done = {*going_on, *gradients}
            self.untied = {t: None for t in self.untied if t not in done}
            self.settled.update(dict.fromkeys(gradients))

    def _origin(self, cotangent: Value) -> Origin | None:
        """The smaller values that a cotangent follows from."""
        equations = self.level.builder.equations
        self._producer.update((v, e) for e in equations[self._known :] for v in e.outputs)
        self._known = len(equations)
        return origin_of(cotangent, self._producer)

    def _consumed_next(self, tangents: Sequence[Value]) -> list[Value]:
        """Those that belong to the latest linear equations. Only a few: all in flight would make barriers grow."""
        return heapq.nlargest(AHEAD, tangents, key=lambda t: self.position.get(t, -1))

    def _tie(self, tangents: Sequence[Value], atoms: Sequence[Atom]) -> dict[Atom, Atom]:
        """Put the tangents' cotangents and the atoms through one barrier; returns what came out, by what went in."""
        cotangents, builder = self.level.cotangents, self.level.builder
        given = [cotangents[t] for t in tangents]
        origins = {c: origin for c in given if (origin := self._origin(c)) is not None}
        roots = [r for c in given for r in (origins[c].roots if c in origins else [c])]
        together = list(dict.fromkeys([*roots, *atoms]))
        results = builder.emit(Barrier(), together, [a.type for a in together])
        after: dict[Atom, Atom] = dict(zip(together, results, strict=True))
        for origin in origins.values():
            emit_again(builder, origin, after)
        for tangent in tangents:
            cotangents[tangent] = after[cotangents[tangent]]  # type: ignore[assignment]
        self.next = self._consumed_next(tangents)
        return after
