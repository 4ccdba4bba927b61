"""When each buffer of a level is read first and last, and when its steps run: one pass from the last step to the first.

Steps run in the order of the program, but XLA's schedulers for accelerators put off what costs memory without need:
a step is put off until its result is read or the first of the arrays dies that it is made from, whichever is first.
"""

from __future__ import annotations

from collections.abc import Callable

from remat.simulate.copies import Copies
from remat.simulate.flat import GIVEN, NO_BUFFER, Flat, Step
from remat.simulate.fusion import INSIDE_READERS, Reading, reads_arrays
from remat.simulate.loops import Loop
from remat.simulate.sources import SEVERAL, Values
from remat.targets.array_rules import ArrayRules

NEVER = -1

PUT_OFF = (Reading.ELEMENTWISE, Reading.MOVED, Reading.COLLECTED, Reading.LOOKED_UP)
"""What is put off."""


class Reads:
    """The reads of a level. In the model without fusion, no step is put off, and all of them run."""

    def __init__(self, flat: Flat, values: Values, rules: ArrayRules, loop: Loop, fused: bool):
        count = len(flat.values)
        self.flat, self.values, self.rules, self.fused = flat, values, rules, fused
        self.first, self.last = [NEVER] * count, [NEVER] * count
        """The first and the last step that reads a buffer; for results, the last is one after the last step."""
        self.last_reader = [NEVER] * count
        """The step that reads a buffer last, or `SEVERAL`."""
        self.as_array: dict[int, tuple[int, int]] = {}
        """The first and the last step that need a buffer as an array."""
        self.put_off: dict[int, int] = {}
        """When the steps run that are put off."""
        self.stored = loop.stored if fused else range(0)

    def find(self, copies: Copies | None, size: Callable[[int], int]) -> None:
        """Walk the steps."""
        end = len(self.flat.steps)
        stored = {self.flat.outputs[p] for p in self.stored}
        for position, buffer in enumerate(self.flat.outputs):
            if buffer != NO_BUFFER and position not in self.stored:
                self._note(buffer, end, end)
        for i in reversed(range(end)):
            step = self.flat.steps[i]
            for buffer in stored.intersection(step.outputs):
                self._note(buffer, i, i)  # it is stored as soon as it is computed
            if self.is_needed(i):
                self._read(i, step, set() if copies is None else copies.note(i, step, size))

    def is_needed(self, i: int) -> bool:
        """Whether a step runs."""
        return not self.fused or bool(self.values.is_needed[i])

    def is_inside_readers(self, step: Step) -> bool:
        """Whether a step is computed inside what reads its results."""
        return step.reading in INSIDE_READERS and not any([self.values.is_array[b] for b in step.outputs])

    def when(self, i: int) -> int:
        """When a step runs."""
        return self.put_off.get(i, i)

    def _read(self, i: int, step: Step, copied: set[int]) -> None:
        when, reader, reading = i, i, step.reading
        if reading is Reading.ALIAS:
            return
        if self.is_inside_readers(step):
            last = max(step.outputs, key=lambda b: self.last[b])
            when, reader = self.last[last], self.last_reader[last]
        elif self.rules.puts_off and reading in PUT_OFF and not step.equation.op.effects:
            read = min([self.first[b] for b in step.outputs])
            when = self.put_off[i] = max(min(read, self._deadline(step)), i)
        needs_arrays = reads_arrays(reading, self.rules)
        for buffer in dict.fromkeys(step.inputs):
            if buffer in copied:
                self._note(buffer, self.flat.made_by[buffer], reader)
            elif buffer != NO_BUFFER:
                self._note(buffer, when, reader)
                if needs_arrays:
                    self.as_array[buffer] = (i, self.as_array.get(buffer, (i, i))[1])

    def _deadline(self, step: Step) -> int:
        """When the first of the arrays dies that a step is made from, as far as is known yet. What elements are looked
        up in is made for that step alone, so what counts is what it is made from in turn."""
        found = len(self.flat.steps)
        for buffer in step.inputs:
            for source in self.values.sources[buffer] if buffer != NO_BUFFER else ():
                made, last = self.flat.made_by[source], self.last[source]
                if made == GIVEN:
                    continue
                if last == NEVER and step.reading is Reading.LOOKED_UP:
                    maker = self.flat.steps[made]
                    last = self._deadline(maker) if maker.reading is Reading.ELEMENTWISE else NEVER
                found = min(found, last)
        return found

    def _note(self, buffer: int, when: int, reader: int) -> None:
        if self.last[buffer] < when:
            self.last[buffer], self.last_reader[buffer] = when, reader
        elif self.last[buffer] == when and self.last_reader[buffer] != reader:
            self.last_reader[buffer] = SEVERAL
        self.first[buffer] = when if self.first[buffer] == NEVER else min(when, self.first[buffer])
