"""Which values of a program are arrays, and which are computed inside what reads them.

One pass from the last step to the first finds what runs, who reads each buffer and what is needed as an array. One pass
from the first to the last finds the sources of each value: the arrays of its size that it is computed from. A value
that several equations read is computed again inside each of them where its sources are few, since it then costs them
no more reads than the value itself would. Both passes are linear: no more than a few sources are kept in mind.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat.ir.types import element_count, size_in_bytes
from remat.simulate.flat import GIVEN, NO_BUFFER, Flat, Step
from remat.simulate.fusion import INSIDE_READERS, Reading, reads_arrays
from remat.targets.array_rules import ArrayRules

SMALL = 0.5
"""An array with less than this part of the elements of a value is none of its sources: it is repeated to make it."""

NOBODY, SEVERAL = -1, -2
"""In place of the number of the step that reads a buffer."""

COSTLY = frozenset(
    "exp exp2 expm1 log log1p tanh logistic sin cos tan pow rsqrt sqrt cbrt erf erfc erf_inv atan2".split()
)
"""Element-wise operations that XLA's `InstructionFusion` does not repeat."""

MANY = 4
"""No value with so many sources is computed again."""


@dataclass(slots=True)
class Values:
    """What is known of the buffers of a program."""

    is_needed: bytearray
    """Of each step: whether it runs."""
    is_array: bytearray
    """Of each buffer: whether something needs it to be an array."""
    sources: list[tuple[int, ...]]
    """Of each buffer: the arrays that it is computed from; of an array, itself."""
    readers: list[int]
    """Of each buffer: the one step that reads it, or inside which it is read; or `NOBODY`, or `SEVERAL`."""


def find_values(flat: Flat, rules: ArrayRules, stored: range) -> Values:
    """What is an array. `stored` are the outputs that are stored where they are wanted as soon as they are computed."""
    count = len(flat.values)
    readers, summed = [NOBODY] * count, bytearray(count)
    values = Values(bytearray(len(flat.steps)), bytearray(count), [()] * count, readers)
    for position, buffer in enumerate(flat.outputs):
        if buffer != NO_BUFFER:
            _note_read(readers, buffer, len(flat.steps))
            values.is_array[buffer] |= position not in stored
    for i in reversed(range(len(flat.steps))):
        step = flat.steps[i]
        if step.equation.op.effects or any([readers[b] != NOBODY for b in step.outputs]):
            values.is_needed[i] = True
            reader = _note_reads(i, step, rules, readers, values.is_array)
            if 0 <= reader < len(flat.steps) and flat.steps[reader].reading is Reading.COLLECTED:
                for buffer in set(step.inputs) - {NO_BUFFER}:
                    summed[buffer] = not rules.repeats_costly
    _find_sources(flat, rules, readers, values, summed)
    return values


def _note_reads(i: int, step: Step, rules: ArrayRules, readers: list[int], is_array: bytearray) -> int:
    """Note what a step reads; returns the step inside which it does so."""
    if step.reading is Reading.ALIAS:
        return SEVERAL
    whole, reader = reads_arrays(step.reading, rules), _reader(i, step, readers, is_array)
    for buffer in dict.fromkeys(step.inputs):
        if buffer != NO_BUFFER:
            _note_read(readers, buffer, reader)
            is_array[buffer] |= whole
    if step.reading is Reading.UPDATED and step.inputs[0] != NO_BUFFER:
        is_array[step.inputs[0]] = True
    return reader


def _reader(i: int, step: Step, readers: list[int], is_array: bytearray) -> int:
    """The step inside which a step is computed: itself, or the one that reads its result."""
    if step.reading not in INSIDE_READERS or any([is_array[b] for b in step.outputs]):
        return i
    found = {readers[b] for b in step.outputs} - {NOBODY}
    only = found.pop() if len(found) == 1 else SEVERAL
    return i if only == SEVERAL and step.reading is Reading.ELEMENTWISE else only


def _note_read(readers: list[int], buffer: int, reader: int) -> None:
    readers[buffer] = reader if readers[buffer] in (NOBODY, reader) else SEVERAL


def _find_sources(flat: Flat, rules: ArrayRules, readers: list[int], values: Values, once: bytearray) -> None:
    """`once` are the buffers that are not computed again inside several readers, whatever they are computed from."""
    elements = [element_count(getattr(v.type, "shape", ())) for v in flat.values]
    follows = bytearray(len(flat.values))
    """Whether a value is computed inside its readers, from what is not computed twice."""

    def costs_more(buffer: int, found: tuple[int, ...]) -> bool:
        """Whether reading those costs several times what reading the value would."""
        read = sum([size_in_bytes(flat.values[s].type) for s in found])
        return len(found) == MANY or read > rules.sources_inside * size_in_bytes(flat.values[buffer].type)

    for buffer, made in enumerate(flat.made_by):
        if made == GIVEN:
            values.sources[buffer] = (buffer,)
    for step in flat.steps:
        name = step.equation.op.name
        # A TPU makes an array of the padded gradient of logits, which two products read, though it has one source.
        fixed = name == "pad" or (name in COSTLY and not rules.repeats_costly)
        fixed = fixed or any([follows[b] for b in step.inputs if b != NO_BUFFER])
        for buffer in step.outputs:
            found = _sources_of(step, elements, buffer, values.sources)
            if step.reading is Reading.ELEMENTWISE and readers[buffer] == SEVERAL:
                values.is_array[buffer] |= fixed or once[buffer] or costs_more(buffer, found)
            inside = step.reading in INSIDE_READERS and not values.is_array[buffer]
            values.sources[buffer] = found if inside else (buffer,)
            follows[buffer] = inside and fixed


def _sources_of(step: Step, elements: list[int], buffer: int, sources: list[tuple[int, ...]]) -> tuple[int, ...]:
    least = SMALL * elements[buffer]
    found = {s: None for b in step.inputs if b != NO_BUFFER for s in sources[b] if elements[s] >= least}
    return tuple(found)[:MANY]
