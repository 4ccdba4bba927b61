"""A schedule as text of at most 80 columns: what is kept, and the numbered steps of the backward pass."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from remat.report.width import WIDTH, wrapped
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.schedule import Kept, Schedule, Step

NUMBER = 6
"""Columns of the number of a step."""


def schedule_text(schedule: Schedule) -> str:
    """All of it: what is kept, then the steps."""
    title = f"{schedule.function}, value and gradient, policy {schedule.policy}, for {schedule.target}"
    count = len(schedule.forward)
    lines = [*wrapped(title), "", f"forward: {_counted(count, 'equation')}"]
    new = [k for k in schedule.kept if k.is_new]
    lines += [f"kept: {bytes_text(schedule.kept_bytes)} in {_counted(sum(k.times for k in new), 'value')}"]
    for kept in new:
        lines += _kept(kept)
    held = [k.key.removeprefix("argument ") for k in schedule.kept if not k.is_new]
    if held:
        lines += wrapped(f"  and read, though the caller holds them anyway: {', '.join(held)}")
    return "\n".join([*lines, "", "backward:", *_steps(schedule.steps, 0)])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _kept(kept: Kept) -> list[str]:
    times = f" x {kept.times}" if kept.times > 1 else ""
    where = "" if kept.memory == "device" else f", in {kept.memory}"
    text = f"{kept.key}  {kept.type}{times}  {bytes_text(kept.bytes * kept.times)}{where}: {kept.why}"
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _steps(steps: Sequence[Step], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for i, step in enumerate(steps, 1):
        number = f"{indent}{i:>{NUMBER - 2}}  "
        yield from textwrap.wrap(
            _sentence(step), WIDTH, initial_indent=number, subsequent_indent=" " * (len(number) + 2),
            break_on_hyphens=False,
        )  # fmt: skip
        for j, inside in enumerate(step.inside):
            if len(step.inside) > 1:
                yield f"{indent}{'':{NUMBER}}  branch {j}:"
            yield from _steps(inside, depth + 2)


def _sentence(step: Step) -> str:
    text = f"{step.does} {_listed(step.what)}"
    if step.does == "recomputes":
        text += f" from {_listed(step.reads)}" if step.reads else ""
        text += f", for {step.because_of}"
        text += f", once there are the cotangents of {_listed(step.after)}" if step.after else ""
        text += f"; keeps {_listed(step.stays)}" if step.stays and step.stays != step.what else ""
    elif step.reads:
        text += f" with {_listed(step.reads)}"
    made = [key for key in step.frees if not key.startswith(("argument ", "constant "))]
    return text + (f"; frees {_listed(made)}" if made else "")


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(key.removeprefix("argument ") for key in keys)
