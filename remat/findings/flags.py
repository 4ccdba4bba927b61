"""Flags of Python's that were traced as arrays, and only choose between things that are all computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from remat.findings.case import Case
from remat.findings.finding import Finding
from remat.findings.place import place_of
from remat.ir.ops import Call, Checkpoint, Cond
from remat.ir.program import Atom, Equation, Literal, Program, Value
from remat.ir.types import size_in_bytes

FOLLOWED = frozenset({"convert_element_type", "not", "broadcast_in_dim", "reshape", "squeeze", "clamp", "eq", "ne"})
"""What may become of a flag before it chooses. Of comparisons the other side has to be a literal."""


def traced_flags(case: Case) -> Iterator[Finding]:
    """Literal flags that are handed to a checkpoint or a jitted function, and NumPy flags among the arguments."""
    steered = _Steered()
    top = case.program
    for leaf, name, value in zip(case.loss.leaves, case.loss.names, top.inputs, strict=True):
        if isinstance(leaf, (np.bool_, np.ndarray)) and _is_flag(value.type):
            chosen = steered.by(top, value)
            if chosen:
                yield _flag(case, chosen[0], f"the argument {name} of {case.loss.function}", name, _size(chosen), True)
    for program in case.programs:
        for equation in program.equations:
            op = equation.op
            if isinstance(op, (Call, Checkpoint)) and not _is_of_jax(op):
                yield from _of_call(case, equation, op, steered)


def _of_call(case: Case, equation: Equation, op: Call | Checkpoint, steered: _Steered) -> Iterator[Finding]:
    for position, (given, inner) in enumerate(zip(equation.inputs, op.program.inputs, strict=True)):
        if isinstance(given, Literal) and _is_flag(given.type):
            chosen = steered.by(op.program, inner)
            if chosen:
                function = op.function or ("a checkpoint" if isinstance(op, Checkpoint) else "a jitted function")
                value = bool(given.value) if given.type.dtype == bool else int(given.value)
                what = f"argument {position} of {function} (here {value})"
                yield _flag(case, equation, what, function, _size(chosen), False)


def _flag(case: Case, equation: Equation, what: str, subject: str, size: int, is_argument: bool) -> Finding:
    advice = (
        "Hand in a Python bool, which stays what it is."
        if is_argument
        else "Declare it with static_argnums or static_argnames, or bind it with functools.partial, and write `if`."
    )
    return case.finding(
        "traced-flag",
        place_of(equation.source),
        subject,
        size,
        f"{what} was traced as an array, and does nothing but choose in a where, cond or switch: both sides are in the "
        "program, in both passes.",
        advice,
    )


def _size(chosen: list[Equation]) -> int:
    return sum(size_in_bytes(v.type) for e in chosen for v in e.outputs)


def _is_flag(type: Any) -> bool:
    """Whether it is the type of a Python bool or int."""
    dtype = getattr(type, "dtype", None)
    return getattr(type, "shape", None) == () and dtype is not None and np.dtype(dtype).kind in "bi"


def _is_of_jax(op: Call | Checkpoint) -> bool:
    """Whether it is a call of one of JAX's own jitted functions, which hand flags to each other."""
    name = op.function
    return isinstance(op, Call) and (name.startswith("_") or any(hasattr(m, name) for m in (jnp, jax.nn, jax.lax)))


class _Steered:
    """What a value chooses: the equations of `where`, `cond` and `switch` that it is the condition of."""

    def __init__(self) -> None:
        self.readers: dict[int, dict[Atom, list[tuple[Equation, int]]]] = {}

    def by(self, program: Program, value: Value) -> list[Equation]:
        """Those that a value of a program chooses in; none if it is read for anything else."""
        found: list[Equation] = []
        stack = [(program, value)]
        while stack:
            around, at = stack.pop()
            if at in around.outputs:
                return []
            for equation, position in self._readers(around).get(at, ()):
                op, name = equation.op, equation.op.name
                if (isinstance(op, Cond) or name == "select_n") and position == 0:
                    found.append(equation)
                elif isinstance(op, (Call, Checkpoint)):
                    stack.append((op.program, op.program.inputs[position]))
                elif name in FOLLOWED and all(isinstance(a, Literal) or a is at for a in equation.inputs):
                    stack.append((around, equation.outputs[0]))
                else:
                    return []
        return found

    def _readers(self, program: Program) -> dict[Atom, list[tuple[Equation, int]]]:
        if id(program) not in self.readers:
            found: dict[Atom, list[tuple[Equation, int]]] = {}
            for equation in program.equations:
                for position, atom in enumerate(equation.inputs):
                    if isinstance(atom, Value):
                        found.setdefault(atom, []).append((equation, position))
            self.readers[id(program)] = found
        return self.readers[id(program)]
