"""Programs as text: one equation a line, values named a, b, c... in order of definition, nested programs indented.

The text has no source positions, so that it can be compared in tests; `program_text(program, sources=True)` adds
bytes and positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from remat.ir.ops import (
    Block,
    Call,
    Checkpoint,
    Cond,
    CustomRule,
    Name,
    Op,
    Primitive,
    Scan,
    ShardMap,
    ToMemory,
    While,
    Zeros,
)
from remat.ir.program import Atom, Equation, Literal, Program, Value
from remat.ir.types import short_text, size_in_bytes

HIDDEN_PARAMETERS = frozenset({"sharding", "out_sharding", "weak_type", "accuracy", "precision", "ctx_mesh"})


def program_text(program: Program, sources: bool = False) -> str:
    """The whole program as text; with `sources`, each line ends with its bytes and source position."""
    return "\n".join(_program_lines(program, _Names(), "program", sources))


def equation_lines(program: Program, start: int, stop: int, mark: int = -1) -> list[str]:
    """The lines of some equations, numbered; the one at `mark` is pointed at."""
    names = _Names()
    lines: list[str] = []
    for i, equation in enumerate(program.equations):
        text = str(_equation_line(equation, names))
        if start <= i < stop:
            lines.append(f"{'->' if i == mark else '  '} {i:4d}  {text}")
    return lines


class _Names:
    """Gives values short names as they come."""

    def __init__(self) -> None:
        self.known: dict[Value, str] = {}

    def __call__(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return _literal(atom)
        if atom not in self.known:
            self.known[atom] = _letters(len(self.known))
        return self.known[atom]

    def all_typed(self, values: Sequence[Value]) -> tuple[tuple[str, str], ...]:
        return tuple([(self(v), short_text(v.type)) for v in values])


def _letters(n: int) -> str:
    text = ""
    n += 1
    while n:
        n, digit = divmod(n - 1, 26)
        text = chr(ord("a") + digit) + text
    return text


def _literal(atom: Literal) -> str:
    if getattr(atom.type, "shape", ()) == ():
        return str(np.asarray(atom.value))  # JAX's typed literals print as what they are in NumPy
    return f"<{short_text(atom.type)}>"


class Line(NamedTuple):
    """A line of a program: the values that it defines, each with its name and type, what it does, and the names of
    those that it reads. The first line of a program has a title and no equation, the last one returns."""

    depth: int
    outputs: tuple[tuple[str, str], ...]
    text: str
    inputs: tuple[str, ...]
    equation: Equation | None = None
    is_title: bool = False

    def __str__(self) -> str:
        defined = ", ".join(f"{name}: {type}" for name, type in self.outputs)
        if self.is_title:
            return f"{self.text}({defined})"
        call = " ".join([self.text, *self.inputs] if self.equation is not None else [self.text, ", ".join(self.inputs)])
        if self.text == "constant":
            return f"{self.text} {defined}"
        return f"{defined} = {call}".rstrip() if defined else call.rstrip()


def _lines(program: Program, names: _Names, title: str, depth: int = 0) -> Iterator[Line]:
    yield Line(depth, names.all_typed(program.inputs), title, (), is_title=True)
    for value, _ in program.constants:
        yield Line(depth, names.all_typed([value]), "constant", ())
    for equation in program.equations:
        yield _equation_line(equation, names, depth)
        for label, inner in _nested(equation.op):
            yield from _lines(inner, names, label, depth + 1)
    yield Line(depth, (), "return", tuple(map(names, program.outputs)))


def _equation_line(equation: Equation, names: _Names, depth: int = 0) -> Line:
    inputs = tuple(map(names, equation.inputs))
    return Line(depth, names.all_typed(equation.outputs), op_text(equation.op), inputs, equation)


def _program_lines(program: Program, names: _Names, title: str, sources: bool) -> Iterator[str]:
    for line in _lines(program, names, title):
        text = str(line) if line.is_title else f"  {line}"
        if sources and line.equation is not None:
            size = sum(size_in_bytes(v.type) for v in line.equation.outputs)
            text = f"{text:60s}  # {size} B  {line.equation.source.text}".rstrip()
        yield f"{'    ' * line.depth}{text}"


def _nested(op: Op) -> list[tuple[str, Program]]:
    if isinstance(op, (Scan, ShardMap)):
        return [("body", op.body)]
    if isinstance(op, Cond):
        return [(f"branch {k}", branch) for k, branch in enumerate(op.branches)]
    if isinstance(op, While):
        return [("condition", op.condition), ("body", op.body)]
    if isinstance(op, (Block, Call, Checkpoint, CustomRule)):
        return [(op.name, op.program)]
    return []


def op_text(op: Op) -> str:
    """An op with the parameters that matter to a reader."""
    if isinstance(op, Name):
        return f"name[{op.tag}]"
    if isinstance(op, ToMemory):
        return f"to_memory[{op.kind}]"
    if isinstance(op, Zeros):
        return "zeros"
    if isinstance(op, Scan):
        return f"scan[length={op.length}{', reverse' if op.reverse else ''}]"
    if isinstance(op, ShardMap):
        cut, joined = (", ".join(str(s) for s in specs) for specs in (op.in_specs, op.out_specs))
        return f"shard_map[({cut}) -> ({joined})]"
    if isinstance(op, Call):
        return f"call[{op.function}]"
    if isinstance(op, CustomRule):
        return f"custom_vjp[{op.rules.name}]"
    if isinstance(op, Checkpoint):
        return f"checkpoint[{_parameter(op.policy)}]" if op.policy is not None else "checkpoint"
    if isinstance(op, Primitive):
        shown = ", ".join(f"{k}={_parameter(v)}" for k, v in sorted(op.params.items()) if _is_shown(k, v))
        return f"{op.name}[{shown}]" if shown else op.name
    return op.name


def _is_shown(key: str, value: Any) -> bool:
    return key not in HIDDEN_PARAMETERS and value is not None


def _parameter(value: Any) -> str:
    text = getattr(value, "__name__", None) or str(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def paired_texts(first: Program, second: Program) -> tuple[list[str], list[str]]:
    """The lines of two programs that share values, each value with one name in both."""
    names = _Names()
    return list(_program_lines(first, names, "program", False)), list(_program_lines(second, names, "program", False))


def paired_lines(first: Program, second: Program) -> tuple[list[Line], list[Line], Mapping[Value, str]]:
    """The same with the parts of each line, and the names of all values."""
    names = _Names()
    return list(_lines(first, names, "program")), list(_lines(second, names, "program")), names.known
