"""The forward and the backward program as lines with parts: which values each defines and reads, which of them are kept
from one to the other, and which lines compute something again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remat.inspect.samples import TextTable
from remat.ir.printer import Line, paired_lines
from remat.ir.types import size_in_bytes
from remat.transforms.split import Split

LIMIT = 3000
"""How many lines of each program are written as data; of a longer one the first and the last."""


@dataclass(frozen=True)
class ProgramLines:
    """Both programs; a value has the same name in both. `kept` are the names of the residuals, in their order."""

    forward: tuple[Line, ...]
    backward: tuple[Line, ...]
    kept: tuple[str, ...]

    @property
    def recomputed(self) -> int:
        """How many lines of the backward program compute something of the forward pass again."""
        return sum(map(is_recomputed, self.backward))


def is_recomputed(line: Line) -> bool:
    return line.equation is not None and line.equation.source.is_recomputed


def program_lines(split: Split) -> ProgramLines:
    """The lines of a function that is split for differentiation."""
    first, second, names = paired_lines(split.forward, split.second)
    return ProgramLines(tuple(first), tuple(second), tuple([names[v] for v in split.residuals]))


def programs_data(programs: ProgramLines, texts: TextTable, limit: int = LIMIT) -> dict[str, Any]:
    """Both programs as plain data. Texts are numbers in the table; a line has the columns that are named."""
    return {
        "columns": ("depth", "outputs", "text", "inputs", "recomputed", "bytes", "place", "title"),
        "kept": programs.kept,
        "recomputed": programs.recomputed,
        "forward": _side(programs.forward, texts, limit),
        "backward": _side(programs.backward, texts, limit),
    }


def _side(lines: Sequence[Line], texts: TextTable, limit: int) -> dict[str, Any]:
    """The lines of a program, and after how many of them how many are left out."""
    if len(lines) <= limit:
        return {"count": len(lines), "left_out_after": 0, "left_out": 0, "lines": [_row(x, texts) for x in lines]}
    begin = limit // 2
    shown = [*lines[:begin], *lines[len(lines) - (limit - begin) :]]
    left_out = len(lines) - len(shown)
    rows = [_row(x, texts) for x in shown]
    return {"count": len(lines), "left_out_after": begin, "left_out": left_out, "lines": rows}


MOST = 400
"""How many values of one line are written; a program that returns thousands of gradients has them in one line."""


def _row(line: Line, texts: TextTable) -> list[Any]:
    outputs = [[name, texts(type)] for name, type in line.outputs[:MOST]]
    inputs = list(line.inputs[:MOST])
    if len(line.inputs) > MOST:
        inputs.append(f"and {len(line.inputs) - MOST} more")
    if len(line.outputs) > MOST:
        outputs.append([f"and {len(line.outputs) - MOST} more", texts("")])
    equation = line.equation
    made = 0 if equation is None else sum(size_in_bytes(v.type) for v in equation.outputs)
    place = texts("" if equation is None else equation.source.position.short)
    return [line.depth, outputs, texts(line.text), inputs, int(is_recomputed(line)), made, place, int(line.is_title)]
