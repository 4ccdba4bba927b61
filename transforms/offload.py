"""When offloaded values move: to the other memory at their last use in the forward pass, and back one step early.

A policy that answers `Offload` trades memory of the device for transfers. The trade is good only if the device's copy
is gone while the forward pass goes on, and if transfers run while something is computed. A compiler that is free to
choose starts the stores when the forward pass ends, and then fetches all values at once. So in straight-line code:

- the store stands right after the last use of the value, and is tied to the next array that the forward pass makes
  from what that use gave (another value that is kept, an operand of heavy work): nothing goes on from there before the
  store is done;
- the fetch stands before the heavy step that comes before its use, or before as many as it takes to hide the transfer
  (`LEAD`) but not before the fetch that is used earlier, and is tied to what that step starts from.

Which arrays there are is the model of `remat.simulate.fusion`: a barrier makes an array of what it ties, and fusion
stops there. Loops and branches are left alone: what they move, they move in each iteration. Nothing is tied in regions
with `prevent_cse=False`, and nothing at all is placed in programs of tangents.

Not optimal: a fetch for the first step of a backward program has no step before it to hide behind, and is left to the
compiler. So it is in regions that JAX differentiates one by one. The body of a `shard_map` is left alone too.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from remat.errors import UnknownCostError
from remat.ir.costs import cost_of
from remat.ir.ops import Barrier, ToMemory
from remat.ir.program import Atom, Equation, Value
from remat.ir.types import size_in_bytes
from remat.simulate.fusion import Reading, reading_of
from remat.targets.current import current_target

LEAD = 16384
"""How many operations hide the transfer of one byte: what an accelerator does meanwhile (v5e 13000, H100 15500 by their
data sheets, in 16 bits). A product of activations with a matrix does one for each of its columns."""


@dataclass(frozen=True, eq=False)
class Ties:
    """Values that pass a barrier right after they are made, each with the moved values that pass it too."""

    together: dict[Value, list[Value]] = field(default_factory=dict[Value, list[Value]])

    def add(self, value: Value, moved: Value) -> None:
        self.together.setdefault(value, []).append(moved)


# Stores.


def place_stores(equations: Sequence[Equation], outputs: Iterable[Atom | None]) -> list[Equation]:
    """The equations of a forward program, with each move to another memory right after the last use of what it moves.

    **Arguments**

    - `equations`: of straight-line code, pruned.
    - `outputs`: the results of the program, kept values among them.
    """
    stores = [e for e in equations if isinstance(e.op, ToMemory)]
    if not stores:
        return list(equations)
    rest = [e for e in equations if not isinstance(e.op, ToMemory)]
    arrays = _Arrays(rest, {a for a in outputs if isinstance(a, Value)}, {a for e in stores for a in e.inputs})
    ties = Ties()
    placed: dict[int, list[Equation]] = {}
    for store in sorted(stores, key=arrays.made):
        (value,) = store.inputs
        last = arrays.last_use(value)
        placed.setdefault(last, []).append(store)
        anchor = arrays.next_after(last) if _is_tied(store) and not arrays.is_returned(value) else None
        if anchor is not None:
            ties.add(anchor, store.outputs[0])
    result = [*placed.get(-1, ())]
    for position, equation in enumerate(rest):
        result.append(equation)
        result.extend(placed.get(position, ()))
    return _tied(result, ties)


def _is_tied(move: Equation) -> bool:
    """Whether barriers hold a move in its place."""
    return move.region is not None and bool(move.region.prevent_cse)


class _Arrays:
    """Which values of a forward program are arrays anyway, and where each is used for the last time."""

    def __init__(self, equations: Sequence[Equation], returned: Set[Value], stored: Set[Atom]):
        self.equations = equations
        self._same: dict[Atom, Value] = {}
        """From a view to what it is a view of: the array that stays while the view is used."""
        self._last: dict[Value, int] = {}
        self._position: dict[Atom, int] = {v: i for i, e in enumerate(equations) for v in e.outputs}
        self._heavy: set[Value] = set()
        """What heavy work reads."""
        for position, equation in enumerate(equations):
            if _is_same_array(equation):
                self._same[equation.outputs[0]] = self._array(equation.inputs[0])  # type: ignore[arg-type]
                continue
            read = [self._array(a) for a in equation.inputs if isinstance(a, Value)]
            self._last.update(dict.fromkeys(read, position))
            if _is_heavy(equation):
                self._heavy.update(read)
        self._returned = {self._array(v) for v in returned}
        self._stored = {self._array(v) for v in stored if isinstance(v, Value)}

    def _array(self, value: Value) -> Value:
        return self._same.get(value, value)

    def made(self, store: Equation) -> int:
        """The position of the equation that makes what is stored."""
        (value,) = store.inputs
        return self._position.get(value, -1)

    def is_returned(self, value: Atom) -> bool:
        """Whether the forward program hands the array on, so that a store frees nothing in it."""
        return isinstance(value, Value) and self._array(value) in self._returned

    def last_use(self, value: Atom) -> int:
        """The position of the last equation that reads a value, as it is or as a view, or that makes a view of it."""
        assert isinstance(value, Value)
        array = self._array(value)
        return max(self._position.get(value, -1), self._last.get(array, -1))

    def next_after(self, position: int) -> Value | None:
        """The first array from there on that follows from what the equation at `position` gives."""
        reached: set[Atom] = set(self.equations[position].outputs) if position >= 0 else set()
        for equation in self.equations[max(position, 0) :]:
            if position >= 0 and reached.isdisjoint([*equation.inputs, *equation.outputs]):
                continue
            reached.update(equation.outputs)
            for value in equation.outputs:
                if value not in self._same and self._is_array(value):
                    return value
        return None

    def _is_array(self, value: Value) -> bool:
        return value in self._heavy or value in self._returned or value in self._stored


def _is_same_array(equation: Equation) -> bool:
    """Whether the result is the operand, under another type or name, or rounded to the digits that it has."""
    same = _reading(equation) is Reading.ALIAS or equation.op.name == "reduce_precision"
    return same and len(equation.outputs) == 1 and isinstance(equation.inputs[0], Value)


def _is_heavy(equation: Equation) -> bool:
    """Whether it is work that transfers hide behind: products, convolutions, loops, branches."""
    return _reading(equation) in (Reading.OPAQUE, Reading.PRODUCT) and not isinstance(equation.op, ToMemory)


def _reading(equation: Equation) -> Reading:
    return reading_of(equation.op, current_target().array_rules)


# Fetches.


def place_fetches(
    equations: Sequence[Equation], cotangents: Sequence[Value], kinds: Mapping[Atom, str]
) -> list[Equation]:
    """The equations of a backward program, with each move back issued before the heavy steps that precede its use.

    **Arguments**

    - `equations`: of straight-line code, pruned; fetches stand just before their first use.
    - `cotangents`: those of the program's inputs that are not kept values.
    - `kinds`: the memory that each offloaded value is in.
    """
    made = {v: i for i, e in enumerate(equations) for v in e.outputs}
    fetches = {i: e for i, e in enumerate(equations) if isinstance(e.op, ToMemory) and e.inputs[0] not in made}
    if not fetches:
        return list(equations)
    given = dict.fromkeys(cotangents, -1)
    ties = Ties()
    placed: dict[int, list[Equation]] = {}
    for i, step in _steps_before(equations, fetches).items():
        fetch, (moved,) = fetches[i], fetches[i].inputs
        group = placed.setdefault(i if step is None else step, [])
        if not _is_tied(fetch) or not isinstance(moved, Value):
            group.append(fetch)
            continue
        group.extend(_held(fetch, kinds[moved]))
        anchor = None if step is None else _made_last(equations[step], {**given, **made}, equations)
        if anchor is not None:
            ties.add(anchor, moved)
    result: list[Equation] = []
    for i, equation in enumerate(equations):
        result.extend(placed.get(i, ()))
        if i not in fetches:
            result.append(equation)
    return _tied(result, ties)


def _held(fetch: Equation, kind: str) -> list[Equation]:
    """A fetch that XLA does not move in front of the barriers that its operand went through: the operand is moved first
    to the memory that it is in, which costs nothing."""
    again = Value(fetch.inputs[0].type)
    stay = Equation(ToMemory(kind), fetch.inputs, [again], fetch.source, fetch.region)
    return [stay, Equation(fetch.op, [again], fetch.outputs, fetch.source, fetch.region)]


def _steps_before(equations: Sequence[Equation], fetches: Mapping[int, Equation]) -> dict[int, int | None]:
    """For each fetch, the heavy step that it has to be issued before; None if there is no heavy step before its use."""
    heavy = [i for i, e in enumerate(equations) if _is_heavy(e)]
    done = list(itertools.accumulate((_operations(equations[i]) for i in heavy), initial=0.0))
    result: dict[int, int | None] = {}
    earliest = 0
    for before, group in itertools.groupby(fetches, lambda i: bisect.bisect_left(heavy, i)):
        together, size = list(group), 0
        for i in together:
            size += size_in_bytes(fetches[i].outputs[0].type)  # one after the other
            enough = bisect.bisect_right(done, done[before] - LEAD * size, 0, before) - 1
            result[i] = heavy[max(enough, earliest)] if before else None
        earliest = before
    return result


def _operations(equation: Equation) -> float:
    try:
        return cost_of(equation).flops
    except UnknownCostError:
        return 0.0


def _made_last(step: Equation, made: Mapping[Value, int], equations: Sequence[Equation]) -> Value | None:
    """Of what a step of the backward pass reads, the value that was made last; fetched and kept values do not count."""
    found = [
        a
        for a in step.inputs
        if isinstance(a, Value) and a in made and not (made[a] >= 0 and isinstance(equations[made[a]].op, ToMemory))
    ]
    return max(found, key=made.__getitem__, default=None)


# Barriers.


def _tied(equations: Sequence[Equation], ties: Ties) -> list[Equation]:
    """The equations with the barriers of `ties`. Values that they define keep their identity: what is read of them is
    what came out of the barrier."""
    tied = {*ties.together, *(m for values in ties.together.values() for m in values)}
    made = {v: i for i, e in enumerate(equations) for v in e.outputs}
    before = {v: Value(v.type) if v in made else v for v in tied}
    after: dict[Atom, Value] = {v: v if v in made else Value(v.type) for v in tied}
    result: list[Equation] = []
    read: dict[Atom, Value] = {}

    def pass_together(values: Sequence[Value], at: Equation) -> None:
        given, taken = [before[v] for v in values], [after[v] for v in values]
        result.append(Equation(Barrier(), given, taken, at.source, at.region))
        read.update((v, after[v]) for v in values)

    complete: dict[Value, Value] = {}
    """From the value that is made last of those that pass a barrier together to the one that the others are tied to."""
    for anchor, moved in ties.together.items():
        if anchor not in made:
            pass_together([*moved, anchor], equations[0])
        else:
            complete[max([anchor, *(m for m in moved if m in made)], key=made.__getitem__)] = anchor
    for equation in equations:
        anchors = [complete[v] for v in equation.outputs if v in complete]
        moved = [m for v in anchors for m in ties.together[v]]
        inputs = [read.get(a, a) for a in equation.inputs]
        if anchors and isinstance(equation.op, Barrier) and not any(m in made for m in moved):
            outputs = [*equation.outputs, *(after[m] for m in moved)]
            result.append(Equation(equation.op, [*inputs, *moved], outputs, equation.source, equation.region))
            read.update((m, after[m]) for m in moved)
            continue
        outputs = [before.get(v, v) for v in equation.outputs]
        result.append(Equation(equation.op, inputs, outputs, equation.source, equation.region))
        if anchors:
            pass_together([*moved, *anchors], equation)
    return result
