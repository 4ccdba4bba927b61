"""The arrays of one level of a program: its top, a loop body, a branch.

What has to be an array is found first (`remat.simulate.sources`), then when each buffer is read
(`remat.simulate.reads`); here one pass from the first step to the last gives each array its life. All are linear.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

from remat.ir.ops import Cond, Op, Scan, ShardMap, While
from remat.ir.program import Program
from remat.ir.source import UNKNOWN, Source
from remat.ir.types import element_count
from remat.simulate.copies import Copies
from remat.simulate.flat import GIVEN, NO_BUFFER, Step, flatten
from remat.simulate.fusion import WITHOUT_RESULTS, Reading, reading_of
from remat.simulate.loops import NO_LOOP, TOP, Loop, carried_inputs, devices
from remat.simulate.reads import NEVER, Reads
from remat.simulate.set_aside import set_aside
from remat.simulate.siblings import Siblings
from remat.simulate.sizes import device_bytes, padded
from remat.simulate.sources import find_values
from remat.simulate.timeline import Array, Nested, Timeline
from remat.targets.array_rules import ArrayRules

CANDIDATES = 4
"""How many arrays are kept in mind that the result of a chain of element-wise equations may take the place of."""


class Origin(NamedTuple):
    """Where what is in a buffer comes from, in words for people: see `Array`."""

    source: Source
    operation: str
    name: Any = None
    times: int = 1


class Level:
    """Buffers and steps are numbers; see `remat.simulate.flat`."""

    def __init__(self, program: Program, fused: bool, loop: Loop, rules: ArrayRules):
        self.fused = fused
        self.rules = rules
        self.loop = loop
        self.flat = flatten(program, (lambda op: reading_of(op, rules)) if fused else lambda op: Reading.OPAQUE)
        self.steps = self.flat.steps
        self.values = find_values(self.flat, rules, loop.stored if fused else range(0))
        self.reads = Reads(self.flat, self.values, rules, loop, fused)
        self.siblings = Siblings(self.flat, self.values) if fused and rules.fuses_siblings else None
        self.copies = Copies(self.flat) if fused and rules.copies_operands else None
        self.apart = set(self.flat.outputs) if loop is TOP and rules.results_apart else set[int]()
        """The results that have memory of their own."""
        self.lives: dict[int, list[int]] = {}
        """For each array of this level, the first and the last step that it is alive at."""
        self.stored: dict[int, Origin] = {}
        """For the arrays that loops store values in, where these come from."""
        self.replaceable: dict[int, list[int]] = {}
        """The buffers that one may take the place of; for those that are no arrays, what is made of it may."""
        self.nested: dict[int, Nested] = {}

    def timeline(self) -> Timeline:
        self.reads.find(self.copies, self._size)
        self._find_lives()
        arrays = self._arrays()
        change = [0] * (len(self.steps) + 1)
        for array in arrays:
            change[array.since] += array.bytes
            change[array.until + 1] -= array.bytes
        live = list(accumulate(change))[:-1]
        for i, inner in self.nested.items():
            live[i] += inner.peak
        aside = max(live, default=0)
        if self.fused and self.loop is TOP:
            aside = set_aside(arrays, self.nested, len(self.steps), not self.rules.results_apart)
        return Timeline(tuple([s.equation for s in self.steps]), tuple(live), arrays, self.nested, aside)

    # From the first step to the last: the life of each array.

    def _find_lives(self) -> None:
        for i, step in enumerate(self.steps):
            if self.siblings is not None:
                self._make_sibling_now(i, self.siblings.note(i, step, self._size))
            if step.reading in WITHOUT_RESULTS or not self.reads.is_needed(i):
                continue
            replaceable = self._replaceable(step) if self.fused else []
            self.replaceable.update(dict.fromkeys(step.outputs, replaceable))
            if self.reads.is_inside_readers(step):
                continue
            when = self.reads.when(i)
            begins = self._run_nested(i, step.equation.op) if when == i else when
            for buffer in step.outputs:
                if self._is_made(step, buffer):
                    self.lives[buffer] = [begins, max(self.reads.last[buffer], when)]
                    self._replace(i, when, buffer, replaceable)

    def _make_sibling_now(self, i: int, sibling: int | None) -> None:
        if sibling in self.lives:
            since, until = self.lives[sibling]
            since = max(self.reads.when(i), since)
            self.lives[sibling] = [since, max(since, until)]

    def _is_made(self, step: Step, buffer: int) -> bool:
        """Whether a step that is not inside its readers makes an array of this result."""
        if step.reading is Reading.MOVED and not self.rules.splits_whole and not self.values.is_array[buffer]:
            return False
        return self.copies is None or not self.copies.is_replaced(buffer)

    def _replaceable(self, step: Step) -> list[int]:
        if step.reading is Reading.UPDATED:
            return step.inputs[:1]
        if step.reading is Reading.OPAQUE:
            return [step.inputs[p] for p in carried_inputs(step.equation.op)]
        found: list[int] = []
        if step.reading is Reading.ELEMENTWISE:
            for buffer in step.inputs:
                found.extend([buffer] if buffer in self.lives else self.replaceable.get(buffer, [buffer]))
        return found[:CANDIDATES]

    def _replace(self, i: int, when: int, buffer: int, replaceable: list[int]) -> None:
        """If one of those arrays has the right size and only this step reads it last, end it one step earlier."""
        if buffer in self.apart or (self.copies is not None and self.copies.is_written_twice(buffer)):
            return
        for other in replaceable:
            life = self.lives.get(other)
            if life is None or life[1] != when or other == buffer or self._size(other) != self._size(buffer):
                continue
            if self.reads.last_reader[other] == i or not self.fused:
                life[1] = when - 1
                return

    # The result.

    def _arrays(self) -> list[Array]:
        values, found, over_carries = self.flat.values, [], self._over_carries()
        end, positions = len(self.steps) - 1, {b: p for p, b in enumerate(self.flat.outputs)}
        for buffer, (since, until) in self.lives.items():
            size, until = self._size(buffer), min(until, end)
            if size and since <= until and buffer not in over_carries:
                found.append(Array(values[buffer], size, since, until, *self.origin(buffer), positions.get(buffer)))
        copies = [] if self.copies is None else self.copies.arrays()
        return [*found, *copies, *self._slices()]

    def _slices(self) -> list[Array]:
        """The slices of arrays outside that are copied, since something reads them as arrays."""
        found = []
        for buffer in self.loop.slices if self.steps else ():
            life = (0, max(self.reads.last[buffer], 0))
            since, until = self.reads.as_array.get(buffer, (0, NEVER)) if self.fused else life
            until = min(until, len(self.steps) - 1)
            if since <= until:
                found.append(Array(self.flat.values[buffer], self._size(buffer), since, until, UNKNOWN, "slice"))
        return found

    def origin(self, buffer: int) -> Origin:
        """Where what is in a buffer comes from."""
        if buffer in self.stored:
            return self.stored[buffer]
        made, name = self.flat.made_by[buffer], self.flat.names.get(buffer)
        if made == GIVEN:
            return Origin(UNKNOWN, "carry", name)
        equation = self.steps[made].equation
        return Origin(equation.source, equation.op.name, name)

    def _size(self, buffer: int) -> int:
        type = self.flat.values[buffer].type
        return padded(device_bytes(type), type, self.rules.lanes)

    def _over_carries(self) -> set[int]:
        """The results of a loop body that are written over the carry that they follow from: nothing reads that when
        they are made, or only what makes them, element by element."""
        found = set()
        for output, given in self.loop.carries.items() if self.fused else ():
            buffer = self.flat.outputs[output]
            if buffer in self.lives:
                made, last = self.lives[buffer][0], self.reads.last[given]
                if last < made or (last == made and given in self.replaceable[buffer]):
                    found.add(buffer)
        return found

    # Loops, branches, mapped programs.

    def _run_nested(self, i: int, op: Op) -> int:
        """Simulate the programs of an op; returns the step from which on its results are counted at this level."""
        if isinstance(op, Scan):
            k, c = op.constant_count, op.carry_count
            stored, slices = range(c, len(op.body.outputs)), range(k + c, len(op.body.inputs))
            body = Level(op.body, self.fused, Loop({j: k + j for j in range(c)}, slices, stored), self.rules)
            self._nest(i, [body.timeline()])
            self._note_stored(self.steps[i], body)
            return i
        if isinstance(op, While):
            carries = {j: op.body_constants + j for j in range(len(op.body.outputs))}
            self._nest(i, [self._inner(op.body, Loop(carries)), self._inner(op.condition)])
            return i
        if isinstance(op, (Cond, ShardMap)):  # what runs inside makes the results
            self._nest(i, [self._inner(p) for p in op.programs], devices(op) if isinstance(op, ShardMap) else 1)
            return i + 1
        return i

    def _note_stored(self, step: Step, body: Level) -> None:
        length = element_count((step.equation.op.length,))  # pyright: ignore[reportAttributeAccessIssue]
        for position in body.loop.stored:
            inner = body.flat.outputs[position]
            if inner != NO_BUFFER:
                found = body.origin(inner)
                source = found.source if found.source.text else step.equation.source
                self.stored[step.outputs[position]] = found._replace(source=source, times=found.times * length)

    def _inner(self, program: Program, loop: Loop = NO_LOOP) -> Timeline:
        return Level(program, self.fused, loop, self.rules).timeline()

    def _nest(self, i: int, timelines: list[Timeline], times: int = 1) -> None:
        self.nested[i] = Nested(max(timelines, key=lambda t: t.peak), times)
