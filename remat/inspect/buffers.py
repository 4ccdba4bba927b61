"""Which value of a function a buffer of XLA's is: candidates from the program that runs, and what a message says of it.

XLA merges and renames operations, so a buffer is known by its type first, and then by what the message has of it: the
line, the name scopes, the operation, whether it is of the forward pass. Values that are alike in all of this (one of
several layers) are one another's equals, and each is taken once. It is a guess where only the type speaks, and the
first in the program's order where several are as good; `matched` says what it rests on.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remat.inspect.planned import Planned
from remat.inspect.residuals import Residuals
from remat.ir.source import NOWHERE, RECOMPUTED, Position
from remat.ir.types import short_text
from remat.simulate.flat import step_count
from remat.simulate.level import device_bytes
from remat.simulate.live_bytes import joined
from remat.simulate.timeline import Array, Timeline
from remat.targets.out_of_memory import Buffer

BY_INDEX, BY_LINE, BY_OPERATION, BY_TYPE = "index", "line", "operation", "type"


@dataclass(frozen=True)
class Occupant:
    """Values of one kind that take memory.

    **Attributes**

    - `kind`: `kept` for the backward pass; `argument`, which the caller holds; `result`; `transient`, which is there
      for some steps of one pass; `recomputed`, a transient that the backward pass computes again; `unknown` for a
      buffer that is none of the function's values, or where no function is known.
    - `made`: in which pass, `forward` or `backward`; empty where that is not known.
    - `type`, `bytes`: of one array, and its size. `count`: how many such arrays. `total_bytes`: of all of them.
    - `name`: from `checkpoint_name`, or None. `operation`, `source`: what makes it, and the user's line; of arguments
      and results `operation` says which.
    - `reason`: why it is kept, such as `policy dots keeps it`.
    - `matched`: by what a buffer of the message was recognized: `index` (it is the argument or output of that number),
      `line`, `operation`, or nothing but its `type`; empty for what was simulated.
    """

    kind: str
    type: str
    bytes: int
    name: str | None = None
    operation: str = ""
    source: Position = NOWHERE
    reason: str = ""
    matched: str = ""
    made: str = ""
    count: int = 1

    @property
    def total_bytes(self) -> int:
        return self.bytes * self.count


@dataclass(frozen=True, eq=False)
class Candidate:
    """A value that a buffer may be. `scope`: its name scopes. `index`: which argument or output it is."""

    occupant: Occupant
    scope: str = ""
    index: int | None = None


def candidates_of(planned: Planned, simulated: Timeline, kept: Residuals) -> list[Candidate]:
    """All arrays of the program that runs: what is kept, arguments, results, and what is there for a while."""
    found = [
        Candidate(
            Occupant(
                "kept", r.stacked_type, r.total_bytes, _text(r.name), r.origin.text, r.source, r.reason, made="forward"
            ),
            r.scope,
        )
        for r in kept
        if r.is_new and r.memory == "device"
    ]
    types = planned.program.input_types
    found += [_whole("argument", i, n, t) for i, (n, t) in enumerate(zip(planned.loss.names, types, strict=True))]
    results = [atom.type for atom in joined(planned.split).outputs]
    found += [_whole("result", i, n, t) for i, (n, t) in enumerate(zip(planned.result_names, results, strict=True))]
    forward_steps = step_count(planned.split.forward)
    for array, in_forward in _arrays(simulated, forward_steps):
        if array.output is None and not (in_forward and array.until >= forward_steps):
            found.append(Candidate(_passing(array, in_forward), array.source.scope))
    return found


def at_the_peak(planned: Planned, simulated: Timeline, kept: Residuals) -> list[Occupant]:
    """What is alive at the peak of the simulation, for messages that list no buffers; arguments included."""
    forward_steps = step_count(planned.split.forward)
    reasons = {(r.stacked_type, r.source): (r.origin.text, r.reason) for r in kept}
    found = []
    for array in simulated.alive_at(simulated.peak_step):
        in_forward = array.since < forward_steps
        occupant = _passing(array, in_forward)
        if array.output is not None:
            name = planned.result_names[array.output]
            occupant = replace(occupant, kind="result", operation=name, name=None, source=NOWHERE)
        elif in_forward and array.until >= forward_steps:
            operation, reason = reasons.get((occupant.type, occupant.source), (occupant.operation, ""))
            occupant = replace(occupant, kind="kept", operation=operation, reason=reason)
        found.append(occupant)
    arguments = zip(planned.loss.names, planned.program.input_types, strict=True)
    return [*found, *(_whole("argument", i, n, t).occupant for i, (n, t) in enumerate(arguments))]


def occupants_of(buffers: Sequence[Buffer], candidates: Sequence[Candidate]) -> list[Occupant]:
    """What the buffers of a message are, one for each."""
    free = list(candidates)
    found = []
    for buffer in buffers:
        candidate = _best(buffer, free) or _best(buffer, candidates)
        if candidate is None:
            found.append(_unknown(buffer))
            continue
        if candidate.occupant.kind not in PASSING and candidate in free:  # it is there once
            free.remove(candidate)
        found.append(replace(candidate.occupant, bytes=buffer.bytes, matched=_evidence(buffer, candidate)))
    return found


def listed_only(buffers: Iterable[Buffer]) -> list[Occupant]:
    """What the message alone says of its buffers."""
    return [_unknown(buffer) for buffer in buffers]


def together(occupants: Iterable[Occupant]) -> tuple[Occupant, ...]:
    """Those that differ in nothing as one, with their number; the largest first."""
    counts: dict[Occupant, int] = {}
    for o in occupants:
        one = replace(o, count=1)
        counts[one] = counts.get(one, 0) + o.count
    return tuple(sorted((replace(o, count=n) for o, n in counts.items()), key=lambda o: -o.total_bytes))


PASSING = ("transient", "recomputed")


def _whole(kind: str, index: int, name: str, type: Any) -> Candidate:
    return Candidate(Occupant(kind, short_text(type), device_bytes(type), operation=name), index=index)


def _passing(array: Array, in_forward: bool) -> Occupant:
    kind = "recomputed" if array.source.is_recomputed and not in_forward else "transient"
    return Occupant(
        kind=kind,
        type=short_text(array.value.type),
        bytes=array.bytes,
        name=_text(array.name),
        operation=array.operation,
        source=array.source.position,
        made="forward" if in_forward else "backward",
    )


def _arrays(timeline: Timeline, forward_steps: int, in_forward: bool | None = None) -> Iterator[tuple[Array, bool]]:
    """The arrays of a simulation and of the loops in it, each with whether it is made in the forward pass."""
    for array in timeline.arrays:
        yield array, array.since < forward_steps if in_forward is None else in_forward
    for step, nested in timeline.nested.items():
        inside = step < forward_steps if in_forward is None else in_forward
        for array, where in _arrays(nested.timeline, 0, inside):
            yield array._replace(until=-1), where  # it does not leave its loop


# What speaks for a candidate.


def _best(buffer: Buffer, candidates: Iterable[Candidate]) -> Candidate | None:
    scored = [(score, c) for c in candidates if (score := _score(buffer, c)) is not None]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _score(buffer: Buffer, candidate: Candidate) -> int | None:
    """How much speaks for it; None where it cannot be."""
    occupant = candidate.occupant
    fit = _fit(buffer, occupant.type)
    if not fit or not _kinds_agree(buffer.kind, occupant.kind):
        return None
    has_line, operations, scopes = (
        _line_agrees(buffer, occupant),
        _operations(buffer),
        _scopes_shared(buffer, candidate),
    )
    evidence = 8 * has_line + 2 * (occupant.operation in operations) + min(scopes, 3)
    if fit == PERHAPS and not evidence:
        return None
    of_index = 4 * (buffer.index is not None and buffer.index == candidate.index)
    return 4 * fit + evidence + of_index + _pass_agrees(buffer, occupant)


SAME, REORDERED, PERHAPS = 3, 2, 1


def _fit(buffer: Buffer, type: str) -> int:
    """Whether a buffer holds arrays of a type: the same, with its dimensions in another order, or perhaps: reshaped, or
    the part of one device; 0 if not."""
    dtype, shape = _parsed(type)
    if not buffer.dtype or dtype != buffer.dtype:
        return 0
    if shape == buffer.shape:
        return SAME
    if sorted(n for n in shape if n > 1) == sorted(n for n in buffer.shape if n > 1):
        return REORDERED
    parts = len(shape) == len(buffer.shape) and all(b and s % b == 0 for s, b in zip(shape, buffer.shape, strict=True))
    return PERHAPS if parts or math.prod(shape) == math.prod(buffer.shape) else 0


@functools.cache
def _parsed(type: str) -> tuple[str, tuple[int, ...]]:
    """The element type and the shape in JAX's short form of a type, memory and sharding left out."""
    found = re.match(r"(\w+)(?:<[^>]*>)?\[([^\]]*)\]", type)
    if found is None:
        return "", ()
    return found[1], tuple(int(n) for n in re.findall(r"(?:^|,)(\d+)", found[2]))


def _kinds_agree(theirs: str, ours: str) -> bool:
    if theirs == "argument" or ours == "argument":
        return theirs in ("argument", "") and ours == "argument"
    return theirs != "output" or ours == "result"


def _line_agrees(buffer: Buffer, occupant: Occupant) -> bool:
    file, line = occupant.source.file, occupant.source.line
    return bool(buffer.file) and os.path.basename(buffer.file) == os.path.basename(file) and buffer.line == line


def _operations(buffer: Buffer) -> set[str]:
    """The last part of each name that XLA put together, without parameters: `dot_general`."""
    parts = {part.partition("[")[0].rpartition("/")[2] for part in buffer.operation.split(";")}
    return {part for part in parts if part}


def _scopes_shared(buffer: Buffer, candidate: Candidate) -> int:
    """How many name scopes of the user the buffer has too."""
    theirs = set(buffer.operation.split("/"))
    return len({s for s in candidate.scope.split("/") if s and not s.startswith("jit(")} & theirs)


def _pass_agrees(buffer: Buffer, occupant: Occupant) -> int:
    """What is kept is made in the forward pass; without a word of it, what is kept is the likelier."""
    if occupant.kind not in ("kept", *PASSING):
        return 0
    if not buffer.operation:
        return int(occupant.kind == "kept")
    if RECOMPUTED in buffer.operation:
        return 3 if occupant.kind == "recomputed" else -3
    if "transpose(" in buffer.operation:
        return 2 if occupant.kind in PASSING else -3
    return 3 if occupant.kind == "kept" else 0


def _evidence(buffer: Buffer, candidate: Candidate) -> str:
    if _line_agrees(buffer, candidate.occupant):
        return BY_LINE
    if buffer.index is not None and buffer.index == candidate.index:
        return BY_INDEX
    named = candidate.occupant.operation in _operations(buffer) or _scopes_shared(buffer, candidate)
    return BY_OPERATION if named else BY_TYPE


def _unknown(buffer: Buffer) -> Occupant:
    """A buffer that is none of the function's values, with what the message says of it."""
    where = Position(buffer.file, buffer.line, 0, "") if buffer.file else NOWHERE
    operation = min(_operations(buffer), default=buffer.label)
    kind = {"argument": "argument", "output": "result"}.get(buffer.kind, "unknown")
    in_backward = RECOMPUTED in buffer.operation or "transpose(" in buffer.operation
    made = "backward" if in_backward else "forward" if "jvp(" in buffer.operation else ""
    return Occupant(kind, buffer.type, buffer.bytes, operation=operation, source=where, made=made)


def _text(name: Any) -> str | None:
    return None if name is None else str(name)
