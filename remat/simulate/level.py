"""The arrays of one level of a program: its top, a loop body, a branch.

One pass from the last step to the first finds what has to be an array and when each buffer is read last; one pass from
the first to the last gives each array its life. Both are linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from remat.ir.ops import Cond, Op, Scan, ShardMap, While
from remat.ir.program import Program
from remat.ir.source import UNKNOWN, Source
from remat.ir.types import element_count, size_in_bytes
from remat.jax_compat import is_on_host
from remat.simulate.flat import GIVEN, NO_BUFFER, Step, flatten
from remat.simulate.fusion import INSIDE_READERS, WITHOUT_RESULTS, Reading, copied_operands, reading_of
from remat.simulate.timeline import Array, Nested, Timeline

NEVER = -1

CANDIDATES = 4
"""How many arrays are kept in mind that the result of a chain of element-wise equations may take the place of."""


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


class Origin(NamedTuple):
    """Where what is in a buffer comes from, in words for people: see `Array`."""

    source: Source
    operation: str
    name: Any = None
    times: int = 1


class Level:
    """Buffers and steps are numbers; see `remat.simulate.flat`."""

    def __init__(self, program: Program, fused: bool, loop: Loop):
        self.fused = fused
        self.loop = loop
        self.flat = flatten(program, reading_of if fused else lambda op: Reading.OPAQUE)
        self.steps = self.flat.steps
        count = len(self.flat.values)
        self.is_array = bytearray(count)
        """Whether something needs the buffer to be an array."""
        self.last_read = [NEVER] * count
        """The last step that reads a buffer; for results, one after the last step."""
        self.array_reads: dict[int, tuple[int, int]] = {}
        """The first and the last step that need a buffer as an array."""
        self.lives: dict[int, list[int]] = {}
        """For each array of this level, the first and the last step that it is alive at."""
        self.stored: dict[int, Origin] = {}
        """For the arrays that loops store values in, where these come from."""
        self.replaceable: dict[int, list[int]] = {}
        """The buffers that one may take the place of; for those that are no arrays, what is made of it may."""
        self.copies: list[Array] = []
        self.nested: dict[int, Nested] = {}

    def timeline(self) -> Timeline:
        self._find_reads()
        self._find_lives()
        arrays = self._arrays()
        change = [0] * (len(self.steps) + 1)
        for array in arrays:
            change[array.since] += array.bytes
            change[array.until + 1] -= array.bytes
        live = list(accumulate(change))[:-1]
        for i, inner in self.nested.items():
            live[i] += inner.peak
        return Timeline(tuple([s.equation for s in self.steps]), tuple(live), arrays, self.nested)

    # From the last step to the first: what has to be an array, and when each buffer is read last.

    def _find_reads(self) -> None:
        end, stored = len(self.steps), set()
        for position, buffer in enumerate(self.flat.outputs):
            if self.fused and position in self.loop.stored:
                stored.add(buffer)
            elif buffer != NO_BUFFER:
                self.is_array[buffer] = True
                self.last_read[buffer] = end
        for i in reversed(range(end)):
            step = self.steps[i]
            for buffer in stored.intersection(step.outputs):
                self._note_read(buffer, i)  # it is stored as soon as it is computed
            if self._is_needed(step):
                self._read(i, step)

    def _is_needed(self, step: Step) -> bool:
        if not self.fused or step.equation.op.effects:
            return True
        return any([self.last_read[b] != NEVER for b in step.outputs])

    def _read(self, i: int, step: Step) -> None:
        when, reading = i, step.reading
        if reading is Reading.ALIAS:
            return
        if self._is_inside_readers(step):
            when = max([self.last_read[b] for b in step.outputs])
        needs_arrays = reading in (Reading.OPAQUE, Reading.BARRIER)
        for buffer in dict.fromkeys(step.inputs):
            if buffer != NO_BUFFER:
                self._note_read(buffer, when)
                if needs_arrays:
                    self.is_array[buffer] = True
                    self.array_reads[buffer] = (i, self.array_reads.get(buffer, (i, i))[1])
        if reading is Reading.UPDATED and step.inputs[0] != NO_BUFFER:
            self.is_array[step.inputs[0]] = True

    def _note_read(self, buffer: int, i: int) -> None:
        """What two steps read is an array, unless it only moves elements."""
        made = self.flat.made_by[buffer]
        if self.last_read[buffer] != NEVER and made >= 0 and self.steps[made].reading is Reading.ELEMENTWISE:
            self.is_array[buffer] = True
        self.last_read[buffer] = max(self.last_read[buffer], i)

    def _is_inside_readers(self, step: Step) -> bool:
        return step.reading in INSIDE_READERS and not any([self.is_array[b] for b in step.outputs])

    # From the first step to the last: the life of each array.

    def _find_lives(self) -> None:
        for i, step in enumerate(self.steps):
            if step.reading in WITHOUT_RESULTS or not self._is_needed(step):
                continue
            replaceable = self._replaceable(step) if self.fused else []
            self.replaceable.update(dict.fromkeys(step.outputs, replaceable))
            if self._is_inside_readers(step):
                continue
            begins = self._run_nested(i, step.equation.op)
            for buffer in step.outputs:
                self.lives[buffer] = [begins, max(self.last_read[buffer], i)]
                self._replace(i, buffer, replaceable)
            if step.reading is Reading.OPAQUE and self.fused:
                self._copy_operands(i, step)

    def _replaceable(self, step: Step) -> list[int]:
        if step.reading is Reading.UPDATED:
            return step.inputs[:1]
        if step.reading is Reading.OPAQUE:
            return [step.inputs[p] for p in _carried_inputs(step.equation.op)]
        found: list[int] = []
        if step.reading is Reading.ELEMENTWISE:
            for buffer in step.inputs:
                found.extend([buffer] if buffer in self.lives else self.replaceable.get(buffer, [buffer]))
        return found[:CANDIDATES]

    def _replace(self, i: int, buffer: int, replaceable: list[int]) -> None:
        """If one of those arrays has the right size and is read last at this step, end it one step earlier."""
        for other in replaceable:
            life = self.lives.get(other)
            if life is not None and life[1] == i and other != buffer and self._size(other) == self._size(buffer):
                life[1] = i - 1
                return

    def _copy_operands(self, i: int, step: Step) -> None:
        for position in copied_operands(step.equation):
            buffer = step.inputs[position]
            if buffer != NO_BUFFER:
                value = self.flat.values[buffer]
                self.copies.append(Array(value, self._size(buffer), i, i, step.equation.source, "copy"))

    # The result.

    def _arrays(self) -> list[Array]:
        values, found, over_carries = self.flat.values, [], self._over_carries()
        end, positions = len(self.steps) - 1, {b: p for p, b in enumerate(self.flat.outputs)}
        for buffer, (since, until) in self.lives.items():
            size, until = self._size(buffer), min(until, end)
            if size and since <= until and buffer not in over_carries:
                found.append(Array(values[buffer], size, since, until, *self.origin(buffer), positions.get(buffer)))
        return [*found, *self.copies, *self._slices()]

    def _slices(self) -> list[Array]:
        """The slices of arrays outside that are copied, since something reads them as arrays."""
        found = []
        for buffer in self.loop.slices if self.steps else ():
            life = (0, max(self.last_read[buffer], 0))
            since, until = self.array_reads.get(buffer, (0, NEVER)) if self.fused else life
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
        return device_bytes(self.flat.values[buffer].type)

    def _over_carries(self) -> set[int]:
        """The results of a loop body that are written over the carry that they follow from: nothing reads that when
        they are made, or only what makes them, element by element."""
        found = set()
        for output, given in self.loop.carries.items() if self.fused else ():
            buffer = self.flat.outputs[output]
            if buffer in self.lives:
                made, last = self.lives[buffer][0], self.last_read[given]
                if last < made or (last == made and given in self.replaceable[buffer]):
                    found.add(buffer)
        return found

    # Loops, branches, mapped programs.

    def _run_nested(self, i: int, op: Op) -> int:
        """Simulate the programs of an op; returns the step from which on its results are counted at this level."""
        if isinstance(op, Scan):
            k, c = op.constant_count, op.carry_count
            stored, slices = range(c, len(op.body.outputs)), range(k + c, len(op.body.inputs))
            body = Level(op.body, self.fused, Loop({j: k + j for j in range(c)}, slices, stored))
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
        return Level(program, self.fused, loop).timeline()

    def _nest(self, i: int, timelines: list[Timeline], times: int = 1) -> None:
        self.nested[i] = Nested(max(timelines, key=lambda t: t.peak), times)


def _carried_inputs(op: Op) -> range:
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


def device_bytes(type: Any) -> int:
    """Bytes of an array in the device's memory: none if it is in the host's."""
    return 0 if is_on_host(type) else size_in_bytes(type)
