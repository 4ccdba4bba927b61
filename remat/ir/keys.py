"""Keys: a name for every value of a linearized program that stays the same from one trace to the next.

    key     ::= place '/' what                        of a result of an equation
              | place '/' word '#' number             of an input: argument, constant, carried, slice...
    place   ::= (loop '/')* scope                     loops and branches around, then the `jax.named_scope` path
    what    ::= operation '#' ordinal ['.' output]    a value with a name is `name[resid]`

The ordinal counts equations of the same place and operation, in the order of the program. Neither lines nor files are
in a key, so comments and moved code change nothing. Reports, schedules and plan files speak of keys.

Code that is reordered moves ordinals. For that there are *digests*: a hash of what computes a value, down to the
arguments, whatever the order. Two values with one digest are the same computation.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from remat.ir.linearized import LinearCond, LinearEquation, Linearized, LinearScan, LinearShardMap
from remat.ir.ops import Name, Op, Primitive
from remat.ir.program import Equation, Literal, Value
from remat.ir.types import short_text


class Keys:
    """The keys of the values of one linearized program, at every level.

    **Arguments**

    - `program`: the program, as it is linearized.
    - `argument_names`: what its inputs are called, such as `params['w']`; numbers where there are none.
    """

    def __init__(self, program: Linearized, argument_names: Sequence[str] = ()):
        self.program = program
        self.of: dict[Value, str] = {}
        """The key of each value."""
        names = [argument_names[i] if i < len(argument_names) else f"#{i}" for i in range(len(program.inputs))]
        self.of.update((v, f"argument {n}") for v, n in zip(program.inputs, names, strict=True))
        self.of.update((v, f"constant #{i}") for i, (v, _) in enumerate(program.constants))
        self._number(program, "")

    @cached_property
    def values(self) -> dict[str, Value]:
        """The value of each key."""
        return {key: value for value, key in self.of.items()}

    def _number(self, level: Linearized, place: str) -> None:
        """Give keys to the results of a level and of the loops and branches in it."""
        counts: Counter[str] = Counter()
        bodies = _bodies(level)
        for equation in level.equations:
            what = f"{_joined(place, equation.source.scope)}{operation_text(equation.op)}"
            what = f"{what}#{counts.setdefault(what, 0)}"
            counts[what.rpartition("#")[0]] += 1
            several = len(equation.outputs) > 1
            self.of.update((v, f"{what}.{i}" if several else what) for i, v in enumerate(equation.outputs))
            for part, body in bodies.get(equation, ()):
                inside = f"{what}{part}"
                self.of.update((v, f"{inside}/input #{i}") for i, v in enumerate(body.inputs))
                self._number(body, inside)

    @cached_property
    def digests(self) -> dict[Value, str]:
        """What each value is computed by, as a hash."""
        found = {v: self.of[v] for v in (*self.program.inputs, *(v for v, _ in self.program.constants))}
        _digest(self.program, found)
        return found

    def equation(self, equation: Equation) -> str:
        """What stands for an equation: the key of its first result without its number."""
        if not equation.outputs:
            return operation_text(equation.op)
        key = self.of[equation.outputs[0]]
        return key.rpartition(".")[0] if len(equation.outputs) > 1 else key

    @cached_property
    def linear(self) -> dict[LinearEquation, str]:
        """The equation whose derivative each linear equation is part of; some are of no equation."""
        found: dict[LinearEquation, str] = {}
        for level in self.program.levels():
            for derivation in level.derivations:
                made = next((self.of[v] for v in derivation.outputs if isinstance(v, Value) and v in self.of), "")
                if made:
                    found.update(dict.fromkeys(derivation.linear, made))
            for equation in level.linear:
                if isinstance(equation.op, (LinearScan, LinearCond, LinearShardMap)):
                    found[equation] = self.equation(equation.op.equation)
        return found


def _bodies(level: Linearized) -> dict[Equation, list[tuple[str, Linearized]]]:
    """The linearized bodies of the loops, branches and mapped functions of a level, by equation."""
    found: dict[Equation, list[tuple[str, Linearized]]] = {}
    for equation in level.linear:
        op = equation.op
        if isinstance(op, (LinearScan, LinearShardMap)):
            found.setdefault(op.equation, [("", op.body)])
        elif isinstance(op, LinearCond):
            found.setdefault(op.equation, [(f"[{i}]", b) for i, b in enumerate(op.branches)])
    return found


def _joined(place: str, scope: str) -> str:
    return "".join(f"{part}/" for part in (place, scope) if part)


def operation_text(op: Op) -> str:
    """What an equation does, in a key."""
    return f"name[{op.tag}]" if isinstance(op, Name) else op.name


def _digest(level: Linearized, found: dict[Value, str]) -> None:
    bodies = _bodies(level)
    for equation in level.equations:
        inputs = [_atom_digest(a, found) for a in equation.inputs]
        made = hashed([_op_digest(equation.op), *inputs, *(short_text(v.type) for v in equation.outputs)])
        found.update((v, f"{made}.{i}") for i, v in enumerate(equation.outputs))
        for part, body in bodies.get(equation, ()):
            found.update((v, f"{made}{part}/{i}") for i, v in enumerate(body.inputs))
            _digest(body, found)


def _atom_digest(atom: Any, found: Mapping[Value, str]) -> str:
    if isinstance(atom, Literal):
        return f"{atom.value!r}:{short_text(atom.type)}"
    return found.get(atom, "?")


def _op_digest(op: Op) -> str:
    """An op with those of its parameters that are plain data."""
    params = op.params if isinstance(op, Primitive) else {}
    plain = [f"{k}={v!r}" for k, v in sorted(params.items()) if _is_plain(v)]
    inner = [_op_digest(e.op) for p in op.programs for e in p.equations]
    return "|".join([operation_text(op), *plain, *inner])


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))  # pyright: ignore[reportUnknownArgumentType]
    return value is None or isinstance(value, (bool, int, float, str))


def hashed(parts: Iterable[str]) -> str:
    """A short hash of some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
