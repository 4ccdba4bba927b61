"""Random programs as plain data, and their text.

    Program   ::= inputs: Var*   body: Statement*   results: Var*   aux: Var*   argnums
    Statement ::= targets: Var*  <-  kind[options] args: Var*  functions: Function*
    Function  ::= name  params: Var*  body: Statement*  results: Var*
    Var       ::= name, type

Names are unique in a program, and a function may read what stands before it outside (it closes over that). The text
is Python: it is what runs, and what a failing test prints.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from property import vocabulary


@dataclass(frozen=True)
class Type:
    dtype: str
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def is_float(self) -> bool:
        return self.dtype in ("float32", "bfloat16")

    def stacked(self, length: int) -> Type:
        return Type(self.dtype, (length, *self.shape))


@dataclass(frozen=True)
class Var:
    name: str
    type: Type

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Function:
    name: str
    params: tuple[Var, ...]
    body: tuple[Statement, ...]
    results: tuple[Var, ...]


@dataclass(frozen=True)
class Statement:
    """Kinds, with their options:

    - `op` (template): the template filled with the arguments.
    - `call` (wrapper): the wrapped function, called.
    - `scan` (number of carries, length, reverse, unroll): arguments and parameters are carries, then slices; results
      and targets are carries, then what is stacked.
    - `fori` (count): parameters are the index and the carries.
    - `while` (count): the same, with a number of iterations that JAX does not know; carries have no gradient.
    - `branch` (): the first argument chooses one of the functions for the others.
    """

    kind: str
    targets: tuple[Var, ...]
    args: tuple[Var, ...]
    options: tuple[Any, ...] = ()
    functions: tuple[Function, ...] = ()


@dataclass(frozen=True)
class Program:
    """A function of its inputs that returns a scalar made of `results`, and `aux` beside it if there is any."""

    inputs: tuple[Var, ...]
    body: tuple[Statement, ...]
    results: tuple[Var, ...]
    aux: tuple[Var, ...] = ()
    argnums: tuple[int, ...] = (0,)
    seed: int = field(default=0, compare=False)

    @property
    def has_aux(self) -> bool:
        return bool(self.aux)

    def __str__(self) -> str:
        return "\n".join(_program_lines(self))

    def function(self) -> Callable[..., Any]:
        """The text as a Python function."""
        text = str(self)
        name = f"<program {next(_numbers)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        scope = dict(vars(vocabulary))
        exec(compile(text, name, "exec"), scope)
        return scope["program"]

    def arrays(self) -> list[Any]:
        """Inputs: small numbers, a few of them zero."""
        random = np.random.default_rng(self.seed)
        return [_array(random, v.type) for v in self.inputs]


_numbers = itertools.count()


def _array(random: np.random.Generator, type: Type) -> Any:
    if type.dtype == "int32":
        return vocabulary.jnp.asarray(random.integers(0, 4, type.shape), "int32")
    if type.dtype == "bool":
        return vocabulary.jnp.asarray(random.random(type.shape) < 0.5)
    numbers = 0.7 * random.normal(size=type.shape)
    return vocabulary.jnp.asarray(np.where(random.random(type.shape) < 0.05, 0.0, numbers), type.dtype)


# Looking at programs.


def statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """All statements, those of functions included."""
    for statement in body:
        yield statement
        for function in statement.functions:
            yield from statements(function.body)


def contains(program: Program, *words: str) -> bool:
    """Whether one of the words is in the text."""
    text = str(program)
    return any(word in text for word in words)


# Text.


def _program_lines(program: Program) -> Iterator[str]:
    yield f"def program({', '.join(map(str, program.inputs))}):  # {', '.join(str(v.type) for v in program.inputs)}"
    for statement in program.body:
        yield from indented(statement_lines(statement))
    value = f"loss({', '.join(map(str, program.results))})"
    yield f"    return {value}, {pack(program.aux)}" if program.aux else f"    return {value}"


def indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def pack(values: Sequence[Any]) -> str:
    return f"({', '.join(map(str, values))}{',' if len(values) == 1 else ''})"


def _types(values: Sequence[Var]) -> str:
    return ", ".join(str(v.type) for v in values)


def function_lines(function: Function, head: str, unpack: Sequence[str], results: str) -> Iterator[str]:
    yield f"def {function.name}({head}):  # {_types(function.params)}"
    yield from indented(iter(unpack))
    for statement in function.body:
        yield from indented(statement_lines(statement))
    yield f"    return {results}"


def statement_lines(statement: Statement) -> Iterator[str]:
    yield from printers[statement.kind](statement)


def _op(s: Statement) -> Iterator[str]:
    yield f"{s.targets[0]} = {s.options[0].format(*s.args)}  # {s.targets[0].type}"


def _plain(function: Function) -> Iterator[str]:
    return function_lines(function, ", ".join(map(str, function.params)), (), pack(function.results))


def _call(s: Statement) -> Iterator[str]:
    (function,) = s.functions
    yield from _plain(function)
    call = f"{s.options[0].format(function.name)}({', '.join(map(str, s.args))})"
    yield f"{pack(s.targets)} = {call}  # {_types(s.targets)}"


def _scan(s: Statement) -> Iterator[str]:
    (function,) = s.functions
    n, length, reverse, unroll = s.options
    unpack = [f"{pack(function.params[:n])}, {pack(function.params[n:])} = carry, slices"]
    results = f"{pack(function.results[:n])}, {pack(function.results[n:])}"
    yield from function_lines(function, "carry, slices", unpack, results)
    options = f"length={length}" + (", reverse=True" if reverse else "") + (f", unroll={unroll}" if unroll > 1 else "")
    call = f"lax.scan({function.name}, {pack(s.args[:n])}, {pack(s.args[n:])}, {options})"
    yield f"{pack(s.targets[:n])}, {pack(s.targets[n:])} = {call}  # {_types(s.targets)}"


def _loop(s: Statement) -> Iterator[str]:
    (function,) = s.functions
    unpack = [f"{pack(function.params[1:])} = carry"]
    yield from function_lines(function, f"{function.params[0]}, carry", unpack, pack(function.results))
    run = "lax.fori_loop(0, {}, {}, {})" if s.kind == "fori" else "counted_loop({}, {}, {})"
    yield f"{pack(s.targets)} = {run.format(s.options[0], function.name, pack(s.args))}  # {_types(s.targets)}"


def _branch(s: Statement) -> Iterator[str]:
    for function in s.functions:
        yield from _plain(function)
    names = [f.name for f in s.functions]
    chooser, operands = str(s.args[0]), "".join(f", {a}" for a in s.args[1:])
    if len(names) == 2:
        call = f"lax.cond(truth({chooser}), {names[0]}, {names[1]}{operands})"
    else:
        call = f"lax.switch(index({chooser}, {len(names)}), [{', '.join(names)}]{operands})"
    yield f"{pack(s.targets)} = {call}  # {_types(s.targets)}"


printers: dict[str, Callable[[Statement], Iterator[str]]] = {
    "op": _op,
    "call": _call,
    "scan": _scan,
    "fori": _loop,
    "while": _loop,
    "branch": _branch,
}
