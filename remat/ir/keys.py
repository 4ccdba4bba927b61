"""Keys: a name for every value of a linearized program that stays the same from one trace to the next.

    key     ::= place '/' what                        of a result of an equation
              | place '/' word '#' number             of an input: argument, constant, carried, slice...
    place   ::= (loop '/')* scope                     loops and branches around, then the `jax.named_scope` path
    what    ::= operation '#' ordinal ['.' output]    a value with a name is `name[resid]`
    part    ::= what '~' operation                    of what only the derivative of that equation needs

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

from remat import jax_compat
from remat.ir.linearized import Derivation, LinearCond, LinearEquation, Linearized, LinearScan, LinearShardMap
from remat.ir.ops import Call, Checkpoint, Cond, Name, Op, Primitive, Scan, ShardMap
from remat.ir.program import Equation, Literal, Program, Value
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
        self.of.update(_given(program, argument_names, "argument "))
        self._parts: Counter[str] = Counter()
        self._number(program, "")

    @cached_property
    def values(self) -> dict[str, Value]:
        """The value of each key."""
        return {key: value for value, key in self.of.items()}

    def _number(self, level: Linearized, place: str) -> None:
        """Give keys to the results of a level and of the loops and branches in it."""
        counts: Counter[str] = Counter()
        bodies = _bodies(level)
        derivation_of = {e: d for d in level.derivations for e in d.made}
        begun: dict[Derivation, str] = {}
        for equation in level.equations:
            derivation = derivation_of.get(equation)
            op = equation.op if derivation is None else derivation.op
            if derivation is None or derivation not in begun:
                what = _numbered(f"{_joined(place, equation.source.own_scope)}{operation_text(op)}", counts)
                if derivation is not None:
                    begun[derivation] = what
                    self._name([v for v in derivation.outputs if isinstance(v, Value)], _plain(op) or what)
            else:
                what = begun[derivation]
            self._name(equation.outputs, _plain(op) or what if derivation is None else f"{what}~{equation.op.name}")
            for part, body in bodies.get(equation, ()):
                inside = f"{what}{part}"
                self.of.update((v, f"{inside}/input #{i}") for i, v in enumerate(body.inputs))
                self._number(body, inside)

    def _name(self, values: Sequence[Value], what: str) -> None:
        """Give keys to the results of an equation that have none yet; those that only its derivative needs are
        `what~operation`, numbered where there are several."""
        for i, value in enumerate(values):
            if value in self.of:
                continue
            key = f"{what}.{i}" if len(values) > 1 else what
            if "~" in what.rpartition("/")[2]:
                key = _numbered(key, self._parts) if key in self._parts else key
                self._parts[key] += 1
            self.of[value] = key

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


def program_keys(program: Program, argument_names: Sequence[str] = ()) -> dict[Value, str]:
    """The keys of the values of a program that is not linearized, those of its loops, branches and regions included.

    Calls and regions are no places of their own. A called program that stands in it several times has to be copied
    first (`inline_all`), as its values would be the same ones.
    """
    found = _given(program, argument_names, "argument ")
    _number_program(program, "", Counter(), found)
    return found


def _given(program: Program | Linearized, argument_names: Sequence[str], word: str) -> dict[Value, str]:
    """What inputs and constants are called: `word` with the name of an argument, or with its number if it has none."""
    names = [argument_names[i] if i < len(argument_names) else f"#{i}" for i in range(len(program.inputs))]
    found = {v: f"{word}{n}" for v, n in zip(program.inputs, names, strict=True)}
    return found | {v: f"constant #{i}" for i, (v, _) in enumerate(program.constants)}


def _number_program(
    program: Program, place: str, counts: Counter[str], found: dict[Value, str], scopes: Any = None
) -> None:
    """Give keys to the results of a program; `scopes` are those of the call that it is inlined from."""
    for equation in program.equations:
        op, source = equation.op, equation.source
        if scopes is not None:
            source = source.inlined(source, scopes, None)
        if isinstance(op, (Call, Checkpoint)):
            function = op.function if isinstance(op, Call) else ""
            inner = scopes if source.info is None else jax_compat.scopes_of_call(source.info, function)
            _number_program(op.program, place, counts, found, inner)
            continue
        what = _numbered(f"{_joined(place, source.own_scope)}{operation_text(op)}", counts)
        several = len(equation.outputs) > 1
        found.update((v, f"{what}.{i}" if several else what) for i, v in enumerate(equation.outputs))
        if isinstance(op, (Scan, Cond, ShardMap)):
            for i, inner in enumerate(op.programs):
                inside = f"{what}[{i}]" if isinstance(op, Cond) else what
                found.update((v, f"{inside}/input #{j}") for j, v in enumerate(inner.inputs))
                _number_program(inner, inside, Counter(), found)


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


def _numbered(what: str, counts: Counter[str]) -> str:
    counts[what] += 1
    return f"{what}#{counts[what] - 1}"


def _plain(op: Op) -> str:
    """The key that a mark of a plan stands for; a marked value is the value itself."""
    return str(op.tag) if isinstance(op, Name) and isinstance(op.tag, Mark) else ""


class Mark(str):
    """The name of a value that a plan speaks of: its key."""

    __slots__ = ()


def operation_text(op: Op) -> str:
    """What an equation does, in a key."""
    return f"name[{op.tag}]" if isinstance(op, Name) else op.name


def program_digests(program: Program, argument_names: Sequence[str] = ()) -> dict[Value, str]:
    """What each value of a program is computed by, as a hash: down to the arguments, whatever the order of lines."""
    found = _given(program, argument_names, "")
    _digest(program, found)
    return found


def _digest(program: Program, found: dict[Value, str]) -> None:
    for equation in program.equations:
        op = equation.op
        inputs = [_atom_digest(a, found) for a in equation.inputs]
        if isinstance(op, (Call, Checkpoint)):
            found.update(zip(op.program.inputs, inputs, strict=True))
            _digest(op.program, found)
            results = [_atom_digest(a, found) for a in op.program.outputs]
            found.update(zip(equation.outputs, results, strict=True))
            continue
        made = hashed([_op_digest(op), *inputs, *(short_text(v.type) for v in equation.outputs)])
        found.update((v, f"{made}.{i}") for i, v in enumerate(equation.outputs))
        if isinstance(op, (Scan, Cond, ShardMap)):
            for j, inner in enumerate(op.programs):
                found.update((v, f"{made}/{j}/{i}") for i, v in enumerate(inner.inputs))
                _digest(inner, found)


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
