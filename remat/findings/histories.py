"""Loops that carry a buffer, change a part of it in an iteration, and keep the whole of it for each."""

from __future__ import annotations

from collections.abc import Iterator

from remat.findings.case import Case, Walk
from remat.findings.codes import WORTHWHILE
from remat.findings.finding import Finding
from remat.findings.flow import values_in
from remat.findings.place import line_text, place_of
from remat.ir.ops import Name, Scan
from remat.ir.program import Atom, Equation, Value
from remat.ir.traits import is_memory_bound, is_view_or_cast
from remat.ir.types import element_count, short_text, size_in_bytes
from remat.units import bytes_text

PART = 4
"""How many times larger than what is written the buffer has to be."""


def carry_histories(case: Case) -> Iterator[Finding]:
    """Carried buffers that are kept for each iteration, as they are or after element-wise equations."""
    for walk in case.walks:
        if walk.loop is None or not any(v in case.stacked for v in walk.level.residuals):
            continue
        buffers = _buffers(walk)
        kept = _kept_of(case, walk, buffers) if buffers else {}
        for carried, values in kept.items():
            write, part = buffers[carried]
            size = sum(size_in_bytes(v.type) - part for v in values) * walk.times
            if size >= WORTHWHILE:
                yield _history(case, walk, carried, values, write, part)


def _buffers(walk: Walk) -> dict[Value, tuple[Equation, int]]:
    """Carried values of which an iteration writes a part, with the equation that does and the bytes of the part."""
    assert walk.loop is not None
    scan, body = walk.loop.equation.op, walk.level.linearized
    assert isinstance(scan, Scan)
    found: dict[Value, tuple[Equation, int]] = {}
    for carried, returned in zip(body.inputs[scan.constant_count :], body.outputs[: scan.carry_count], strict=False):
        writes = _writes(walk, carried, returned) if isinstance(returned, Value) else []
        part = sum(size_in_bytes(_written(w).type) for w in writes)
        if writes and PART * part <= size_in_bytes(carried.type):
            found[carried] = writes[-1], part
    return found


def _written(write: Equation) -> Atom:
    return write.inputs[1 if write.op.name == "dynamic_update_slice" else 2]


def _kept_of(case: Case, walk: Walk, buffers: dict[Value, tuple[Equation, int]]) -> dict[Value, list[Value]]:
    """For each buffer what is kept of it: itself, or as many elements that follow from it element by element."""
    source: dict[Value, Value] = {carried: carried for carried in buffers}
    for equation in walk.level.linearized.equations:
        origin = next((source[v] for v in values_in(equation.inputs) if v in source), None)
        if origin is not None and is_memory_bound(equation.op):
            least = element_count(origin.type.shape)
            large = [v for v in equation.outputs if element_count(v.type.shape) >= least]
            source.update(dict.fromkeys(large, origin))
    found: dict[Value, list[Value]] = {}
    for value, origin in source.items():
        if value in walk.level.residuals and value in case.stacked:
            found.setdefault(origin, []).append(value)
    return found


def _writes(walk: Walk, carried: Value, returned: Value) -> list[Equation]:
    """The equations that make the next buffer from this one by writing parts; none if it is made in another way."""
    found: list[Equation] = []
    while returned is not carried:
        equation = walk.level.producer.get(returned)
        if equation is None:
            return []
        if equation.op.name == "dynamic_update_slice" or equation.op.name.startswith("scatter"):
            found.append(equation)
        elif not isinstance(equation.op, Name) and not is_view_or_cast(equation.op):
            return []
        sources = values_in(equation.inputs[:1])
        if not sources:
            return []
        returned = sources[0]
    return found


def _history(case: Case, walk: Walk, carried: Value, values: list[Value], write: Equation, part: int) -> Finding:
    size = sum(size_in_bytes(v.type) for v in values)
    made = walk.level.producer.get(values[0])
    as_what = "the whole of it" if values[0] is carried or made is None else f"the result of {made.op.name}"
    as_what += "" if values[0] is carried or made is None else f" at {line_text(made.source)}"
    more = f" and {len(values) - 1} more like it" if len(values) > 1 else ""
    return case.finding(
        "carry-history",
        place_of(write.source),
        short_text(carried.type),
        (size - part * len(values)) * walk.times,
        f"a loop of {walk.times} iterations carries a buffer ({short_text(carried.type)}), of which an iteration "
        f"writes {bytes_text(part)}, and keeps {as_what}{more} for each iteration: {bytes_text(size * walk.times)}.",
        "Return the part from the body, which stacks it, and read the stack after the loop; or cut the loop with "
        "remat.checkpointed_scan, which keeps the buffer for some iterations only.",
    )
