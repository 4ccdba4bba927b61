"""Smaller programs that still fail: statements replaced by constants or by their bodies, loops and results cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from property.bodies import constant_template
from property.programs import Function, Program, Statement, Var, statements


def shrink(program: Program, fails: Callable[[Program], bool], seconds: float = 60) -> Program:
    """The smallest program found that still fails. Stops after about `seconds`."""
    deadline = time.monotonic() + seconds
    tried: set[str] = set()

    def still_fails(candidate: Program) -> bool:
        text = str(candidate)
        if text in tried:
            return False
        tried.add(text)
        return fails(candidate)

    progress = True
    while progress:
        progress = False
        for candidate in candidates(program):
            if time.monotonic() > deadline:
                return program
            if size(candidate) < size(program) and still_fails(candidate):
                program, progress = candidate, True
                break
    return program


def size(program: Program) -> tuple[int, int]:
    """How much there is to read: statements that are no constants, then everything."""
    every = list(statements(program.body))
    return sum(bool(s.args) for s in every), len(str(program))


def candidates(program: Program) -> Iterator[Program]:
    """Programs a step smaller, large steps first."""
    every = list(statements(program.body))
    for statement in every:
        yield without(program, statement)
    for statement in every:
        for smaller in simpler(statement):
            yield exchange(program, statement, smaller)
    for name in ("results", "aux"):
        values = getattr(program, name)
        for i in range(len(values)):
            fewer = values[:i] + values[i + 1 :]
            if fewer or name == "aux":
                yield replace(program, **{name: fewer})
    for i in range(len(program.argnums)):
        if len(program.argnums) > 1:
            yield replace(program, argnums=program.argnums[:i] + program.argnums[i + 1 :])
    for i in range(len(program.inputs)):
        if i not in program.argnums and len(program.inputs) > 1:
            constant = _constant(program.inputs[i])
            argnums = tuple(n - (n > i) for n in program.argnums)
            inputs = program.inputs[:i] + program.inputs[i + 1 :]
            yield replace(program, inputs=inputs, argnums=argnums, body=(constant, *program.body))
    for statement in every:
        for other in statement.args:
            for target in statement.targets:
                if other.type == target.type:
                    yield _renamed_program(without(program, statement, drop=target), {target: other})


def _constant(value: Var) -> Statement:
    return Statement("op", (value,), (), (constant_template(value.type),))


def without(program: Program, statement: Statement, drop: Var | None = None) -> Program:
    """Constants in place of a statement's results, where these are used."""
    constants = [_constant(t) for t in statement.targets if t is not drop]
    return pruned(exchange(program, statement, constants))


def pruned(program: Program) -> Program:
    """Without constants that nobody reads."""
    text = str(program)
    words = text.replace("(", " ").replace(")", " ").replace(",", " ").replace("[", " ").replace(".", " ").split()

    def keep(body: Sequence[Statement]) -> tuple[Statement, ...]:
        kept = []
        for s in body:
            if s.kind == "op" and not s.args and words.count(s.targets[0].name) == 1:
                continue
            kept.append(replace(s, functions=tuple(replace(f, body=keep(f.body)) for f in s.functions)))
        return tuple(kept)

    return replace(program, body=keep(program.body))


def exchange(program: Program, old: Statement, new: Sequence[Statement]) -> Program:
    """Other statements in place of one."""

    def changed(body: Sequence[Statement]) -> tuple[Statement, ...]:
        made: list[Statement] = []
        for s in body:
            if s is old:
                made.extend(new)
            else:
                made.append(replace(s, functions=tuple(replace(f, body=changed(f.body)) for f in s.functions)))
        return tuple(made)

    return replace(program, body=changed(program.body))


def simpler(statement: Statement) -> Iterator[list[Statement]]:
    """What may stand in place of a statement."""
    kind, options = statement.kind, statement.options
    if kind == "op" and len(statement.args) > 0 and statement.args[0].type == statement.targets[0].type:
        if options[0] != "jnp.sin({0})":
            yield [replace(statement, options=("jnp.sin({0})",), args=statement.args[:1])]
    if kind == "call" and "vmap" not in options[0] and "inner_" not in options[0]:
        yield inlined(statement.functions[0], statement)
    if kind == "branch":
        yield from (inlined(f, replace(statement, args=statement.args[1:])) for f in statement.functions)
        if len(statement.functions) > 2:
            yield [replace(statement, functions=statement.functions[:2])]
    if kind in ("call", "branch"):
        count = len(statement.targets)
        yield from ([_without_result(statement, i)] for i in range(count) if count > 1)
    if kind == "scan":
        carries, length, reverse, unroll = options
        if reverse or unroll > 1:
            yield [replace(statement, options=(carries, length, False, 1))]
        for i in range(carries, len(statement.targets)):
            yield [_without_result(statement, i)]
        for i in range(carries):
            yield _without_carry(statement, i)
        for i in range(carries, len(statement.args)):
            yield _without_slices(statement, i)
    if kind in ("fori", "while") and options[0] > 1:
        yield [replace(statement, options=(options[0] - 1,))]


def inlined(function: Function, statement: Statement) -> list[Statement]:
    """A function's body in place of its call."""
    names = dict(zip(function.params, statement.args, strict=True))
    body = [_renamed(s, names) for s in function.body]
    pairs = zip(statement.targets, function.results, strict=True)
    ends = [Statement("op", (target,), (names.get(result, result),), ("{0}",)) for target, result in pairs]
    return [*body, *ends]


def _cut(values: Sequence[Var], i: int) -> tuple[Var, ...]:
    return (*values[:i], *values[i + 1 :])


def _without_result(statement: Statement, i: int) -> Statement:
    functions = tuple(replace(f, results=_cut(f.results, i)) for f in statement.functions)
    return replace(statement, targets=_cut(statement.targets, i), functions=functions)


def _without_carry(statement: Statement, i: int) -> list[Statement]:
    """The initial value in place of what is carried."""
    (f,) = statement.functions
    function = replace(f, params=_cut(f.params, i), results=_cut(f.results, i))
    carries, *rest = statement.options
    cut = replace(
        statement,
        targets=_cut(statement.targets, i),
        args=_cut(statement.args, i),
        options=(carries - 1, *rest),
        functions=(function,),
    )
    names = {f.params[i]: statement.args[i]}
    end = Statement("op", (statement.targets[i],), (statement.args[i],), ("{0}",))
    return [_renamed(cut, names), end]


def _without_slices(statement: Statement, i: int) -> list[Statement]:
    (f,) = statement.functions
    body = (_constant(f.params[i]), *f.body)
    function = replace(f, params=_cut(f.params, i), body=body)
    return [replace(statement, args=_cut(statement.args, i), functions=(function,))]


# Other names.


def _renamed(statement: Statement, names: dict[Var, Var]) -> Statement:
    def values(found: Sequence[Var]) -> tuple[Var, ...]:
        return tuple(names.get(v, v) for v in found)

    def function(f: Function) -> Function:
        return replace(f, body=tuple(_renamed(s, names) for s in f.body), results=values(f.results))

    return replace(statement, args=values(statement.args), functions=tuple(map(function, statement.functions)))


def _renamed_program(program: Program, names: dict[Var, Var]) -> Program:
    def values(found: Sequence[Var]) -> tuple[Var, ...]:
        return tuple(names.get(v, v) for v in found)

    body = tuple(_renamed(s, names) for s in program.body)
    return replace(program, body=body, results=values(program.results), aux=values(program.aux))
