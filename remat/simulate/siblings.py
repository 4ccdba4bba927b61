"""Element-wise arrays that one fusion makes together, since they are made from the same array.

XLA reads that array once ("multi-output fusion"). So the earlier of the two is made as late as the later one, unless
that follows from it. A barrier that the array passes through keeps them apart.
"""

from __future__ import annotations

from collections.abc import Callable

from remat.simulate.flat import GIVEN, NO_BUFFER, Flat, Step
from remat.simulate.fusion import WITHOUT_RESULTS, Reading
from remat.simulate.sources import Values


class Siblings:
    """What is known while the steps are walked in order."""

    def __init__(self, flat: Flat, values: Values):
        self.made_by, self.values = flat.made_by, values
        self.follows = [-1] * len(flat.values)
        """For each buffer, the last of the first arrays made of something that it follows from, by step."""
        self.barriers = [0] * len(flat.values)
        """How many barriers a buffer has passed through."""
        self.first: dict[tuple[int, int], tuple[int, int]] = {}
        """The first element-wise array that is made of a buffer after that many barriers, and the step that does so."""

    def note(self, i: int, step: Step, size: Callable[[int], int]) -> int | None:
        """Take a step into account; returns the array made earlier that is made at this step now, if any."""
        if step.reading is Reading.BARRIER:
            for buffer in step.inputs:
                if buffer != NO_BUFFER:
                    self.barriers[buffer] += 1
        if step.reading in WITHOUT_RESULTS:
            return None
        follows = max([self.follows[b] for b in step.inputs if b != NO_BUFFER], default=-1)
        made_of, sibling = self._made_of(step, size), None
        if made_of in self.first:
            array, made_by = self.first[made_of]
            sibling = array if follows < made_by else None
        elif made_of is not None:
            self.first[made_of] = step.outputs[0], i
            follows = i
        for buffer in step.outputs:
            self.follows[buffer] = follows
        return sibling

    def _made_of(self, step: Step, size: Callable[[int], int]) -> tuple[int, int] | None:
        """The largest array that an element-wise array is made of, which is no larger, and the barriers it passed."""
        if step.reading is not Reading.ELEMENTWISE or not self.values.is_array[step.outputs[0]]:
            return None
        sources = self.values.sources
        found = {s for b in step.inputs if b != NO_BUFFER for s in sources[b] if self.made_by[s] != GIVEN}
        largest = max(found, key=size, default=NO_BUFFER)
        if largest == NO_BUFFER or size(step.outputs[0]) < size(largest):
            return None
        return largest, self.barriers[largest]
