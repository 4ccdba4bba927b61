"""Programs as text: one equation a line, values named a, b, c... in order of definition, nested programs indented.

The text has no source positions, so that it can be compared in tests; `program_text(program, sources=True)` adds
bytes and positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
        text = _equation_text(equation, names)
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

    def typed(self, value: Value) -> str:
        return f"{self(value)}: {short_text(value.type)}"


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


def _program_lines(program: Program, names: _Names, title: str, sources: bool) -> Iterator[str]:
    yield f"{title}({', '.join(names.typed(v) for v in program.inputs)})"
    for value, _ in program.constants:
        yield f"  constant {names.typed(value)}"
    for equation in program.equations:
        text = f"  {_equation_text(equation, names)}"
        if sources:
            size = sum(size_in_bytes(v.type) for v in equation.outputs)
            text = f"{text:60s}  # {size} B  {equation.source.text}".rstrip()
        yield text
        for label, inner in _nested(equation.op):
            for line in _program_lines(inner, names, label, sources):
                yield f"    {line}"
    yield f"  return {', '.join(names(a) for a in program.outputs)}".rstrip()


def _equation_text(equation: Equation, names: _Names) -> str:
    inputs = " ".join(names(a) for a in equation.inputs)
    outputs = ", ".join(names.typed(v) for v in equation.outputs)
    call = f"{op_text(equation.op)} {inputs}".rstrip()
    return f"{outputs} = {call}" if outputs else call


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
