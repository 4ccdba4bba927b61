"""A timeline for a chart of so many columns: of the steps that share a column the one with the most bytes, and all
arrays with when they live, so that what is alive at a step can be looked up without the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remat.inspect.timeline import Alive, Step, Timeline

COLUMNS = 800
"""How many columns a chart has at most."""

INSIDE = 24
"""How many arrays inside a loop or branch are listed for a step, the largest."""


@dataclass(frozen=True)
class Sample:
    """The step with the most bytes among those from `first` to `last`, and what is alive inside what it runs."""

    first: int
    last: int
    bytes: int
    step: Step
    inside: tuple[Alive, ...]


def samples_of(timeline: Timeline, columns: int = COLUMNS) -> tuple[Sample, ...]:
    """The samples of a timeline, one for each step where there are few. The peak is one of them, and no sample has
    steps of both passes."""
    forward, steps = timeline.forward_steps, len(timeline.bytes)
    if steps <= columns:
        starts = list(range(steps))
    else:
        first = max(1, round(columns * forward / steps)) if forward else 0
        starts = [*_starts(0, forward, first), *_starts(forward, steps, columns - first)]
    ends = [*starts[1:], steps]
    return tuple([_sample(timeline, a, b) for a, b in zip(starts, ends, strict=False)])


def _starts(begin: int, end: int, columns: int) -> list[int]:
    """Where so many columns begin that are about equally wide."""
    columns = min(columns, end - begin)
    return [begin + (end - begin) * i // columns for i in range(columns)]


def _sample(timeline: Timeline, first: int, end: int) -> Sample:
    live = timeline.bytes
    most = max(range(first, end), key=live.__getitem__)
    return Sample(first, end - 1, live[most], timeline.step(most), timeline.inside(most))


class TextTable:
    """Texts that are written once and spoken of by number, since most of them come again and again."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.number.setdefault(text, len(self.number))

    @property
    def texts(self) -> list[str]:
        return list(self.number)


ARRAY_COLUMNS = ("bytes", "since", "until", "times", "what", "type", "made", "operation", "place")


def timeline_data(timeline: Timeline, texts: TextTable) -> dict[str, Any]:
    """The chart as plain data. Texts are numbers in the table; arrays are rows with the columns that are named."""
    return {
        "steps": len(timeline.bytes),
        "forward_steps": timeline.forward_steps,
        "peak_bytes": timeline.peak,
        "peak_step": timeline.peak_step,
        "samples": [_sample_data(s, texts) for s in samples_of(timeline)],
        "columns": ARRAY_COLUMNS,
        "arrays": [_row(a, texts) for a in timeline.arrays],
    }


def _sample_data(sample: Sample, texts: TextTable) -> dict[str, Any]:
    step, shown, rest = sample.step, sample.inside[:INSIDE], sample.inside[INSIDE:]
    data: dict[str, Any] = {
        "first": sample.first,
        "last": sample.last,
        "bytes": sample.bytes,
        "step": step.number,
        "made": texts(step.made),
        "operation": texts(" in ".join([step.operation, *reversed(step.inside)])),
        "place": texts(step.source.short),
    }
    if sample.inside:
        data["inside"] = [_row(a, texts) for a in shown]
        data["inside_rest"] = [len(rest), sum(a.bytes for a in rest)]
    return data


def _row(array: Alive, texts: TextTable) -> list[int]:
    what = array.result or (f"'{array.name}'" if array.name is not None else array.operation)
    words = [texts(t) for t in (what, array.type, array.made, array.operation)]
    return [array.bytes, array.since, array.until, array.times, *words, texts(array.source.short)]
