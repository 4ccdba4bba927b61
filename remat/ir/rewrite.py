"""Building and rewriting lists of equations: emit, instantiate, inline calls, prune what nothing needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

from jax import lax
from jax.extend.core.primitives import copy_p

from remat import jax_compat
from remat.ir.ops import Barrier, Block, Call, Checkpoint, Cond, CustomRule, Op, Primitive, Scan, ShardMap, While, Zeros
from remat.ir.program import Atom, Equation, Literal, Program, Value
from remat.ir.region import Region
from remat.ir.source import UNKNOWN, Source

Env = dict[Value, Atom]
ADD = Primitive(lax.add_p, {})
COPY = Primitive(copy_p, {})


def read(env: Env, atom: Atom) -> Atom:
    return atom if isinstance(atom, Literal) else env[atom]


class Builder:
    """Collects equations; every result is a new value."""

    def __init__(self, source: Source = UNKNOWN, region: Region | None = None) -> None:
        self.equations: list[Equation] = []
        self.source = source
        self.region = region

    def emit(self, op: Op, inputs: Sequence[Atom], types: Sequence[Any]) -> list[Value]:
        """Append `op inputs` and return its outputs, of the given types."""
        outputs = [Value(t) for t in types]
        self.equations.append(Equation(op, inputs, outputs, self.source, self.region))
        return outputs

    def zeros(self, type: Any) -> Value:
        return self.emit(Zeros(type), [], [type])[0]

    def add(self, a: Atom, b: Atom, context: Any = None) -> Value:
        """The sum of two cotangents of one type, in the context of the equation that it belongs to."""
        op = ADD if context is None else Primitive(lax.add_p, {}, context=context)
        return self.emit(op, [a, b], [a.type])[0]

    def define(self, program: Program, inputs: Sequence[Atom], values: Sequence[Value]) -> None:
        """Append `program` so that it defines `values`: by its last equation, or by copies where that defines others
        (a zero scalar is a literal, which no equation defines)."""
        start = len(self.equations)
        results = self.instantiate(program, inputs)
        last = self.equations[-1] if len(self.equations) > start else None
        if last is not None and list(last.outputs) == results:
            self.equations[-1] = Equation(last.op, last.inputs, values, last.source, last.region)
            return
        for atom, value in zip(results, values, strict=True):
            self.equations.append(Equation(COPY, [atom], [value], self.source, self.region))

    def instantiate(self, program: Program, inputs: Sequence[Atom]) -> list[Atom]:
        """Append the equations of `program` with its inputs replaced; return the atoms of its outputs."""
        env: Env = dict(zip(program.inputs, inputs, strict=True))
        equations, source, region = self.equations, self.source, self.region
        for value, array in program.constants:
            env[value] = Literal(array, value.type)
        for equation in program.equations:
            outputs = [Value(v.type) for v in equation.outputs]
            arguments = [a if isinstance(a, Literal) else env[a] for a in equation.inputs]
            equations.append(Equation(equation.op, arguments, outputs, source, region))
            env.update(zip(equation.outputs, outputs, strict=True))
        return [a if isinstance(a, Literal) else env[a] for a in program.outputs]


def inline_calls(program: Program) -> Program:
    """The same program with every `call` replaced by the equations of the called program."""
    if not any(isinstance(e.op, Call) for e in program.equations):
        return program
    return _copy(program, nested=False)


def inline_all(program: Program) -> Program:
    """A copy without calls at any level, in which no nested program stands twice."""
    return _copy(program, nested=True)


def _copy(program: Program, nested: bool) -> Program:
    equations: list[Equation] = []
    env: Env = {v: v if not nested else Value(v.type) for v in program.inputs}
    env.update((v, v) for v, _ in program.constants)

    def walk(body: list[Equation], env: Env, caller: Source | None = None, scopes: Any = None) -> None:
        for equation in body:
            inputs = [read(env, a) for a in equation.inputs]
            op, source = equation.op, equation.source.inlined(caller, scopes, None)
            if isinstance(op, Call):
                local: Env = dict(zip(op.program.inputs, inputs, strict=True))
                inner = scopes if source.info is None else jax_compat.scopes_of_call(source.info, op.function)
                walk(op.program.equations, local, source, inner)
                env.update(zip(equation.outputs, (read(local, a) for a in op.program.outputs), strict=True))
                continue
            if nested and op.programs:
                op = with_programs(op, [_copy(p, nested) for p in op.programs])
            outputs = [Value(v.type) for v in equation.outputs]
            equations.append(Equation(op, inputs, outputs, source, equation.region))
            env.update(zip(equation.outputs, outputs, strict=True))

    walk(program.equations, env)
    inputs = [env[v] for v in program.inputs]
    outputs = [read(env, a) for a in program.outputs]
    return Program(inputs, equations, outputs, program.constants, program.signature)  # type: ignore[arg-type]


def with_programs(op: Op, programs: Sequence[Program]) -> Op:
    """The same op over other nested programs."""
    if isinstance(op, (Scan, ShardMap)):
        return dataclasses.replace(op, body=programs[0])
    if isinstance(op, Cond):
        return dataclasses.replace(op, branches=tuple(programs))
    if isinstance(op, While):
        return dataclasses.replace(op, condition=programs[0], body=programs[1])
    if isinstance(op, (Block, Call, Checkpoint, CustomRule)):
        return dataclasses.replace(op, program=programs[0])
    return op


def prune(
    equations: Sequence[Equation],
    outputs: Sequence[Atom | None],
    given: Collection[Value] = (),
    keep_effects: bool = True,
) -> list[Equation]:
    """Dead-code elimination: the equations that `outputs` need, in order.

    Equations that only define values in `given` are left out (the caller supplies those values). Equations with
    effects stay unless `keep_effects` is off. Structured ops lose the outputs that nothing reads.
    """
    needed: set[Value] = {a for a in outputs if isinstance(a, Value)}
    needed.difference_update(given)
    kept: list[Equation] = []
    for equation in reversed(equations):
        used = [v in needed for v in equation.outputs]
        if not any(used) and not (keep_effects and equation.op.effects and not _supplied(equation, given)):
            continue
        if not all(used):
            rule = prune_rules.get(type(equation.op))
            if rule is not None:
                equation = rule(equation, used)
        kept.append(_without_given(equation, given))
        for atom in equation.inputs:
            if isinstance(atom, Value) and atom not in given:
                needed.add(atom)
    kept.reverse()
    return kept


def _without_given(equation: Equation, given: Collection[Value]) -> Equation:
    """An equation that is kept for some of its outputs must not define again those that the caller supplies."""
    if not any(v in given for v in equation.outputs):
        return equation
    outputs = [Value(v.type) if v in given else v for v in equation.outputs]
    return Equation(equation.op, equation.inputs, outputs, equation.source, equation.region)


def _supplied(equation: Equation, given: Collection[Value]) -> bool:
    return bool(equation.outputs) and all(v in given for v in equation.outputs)


def prune_program(program: Program) -> Program:
    """Dead-code elimination of a whole program; its inputs stay as they are."""
    equations = prune(program.equations, program.outputs)
    return Program(program.inputs, equations, program.outputs, program.constants, program.signature)


def without_barriers(program: Program) -> Program:
    """The same program with what comes out of optimization barriers replaced by what goes in."""
    env: Env = {}
    equations: list[Equation] = []
    for equation in program.equations:
        inputs = [env.get(a, a) if isinstance(a, Value) else a for a in equation.inputs]
        if isinstance(equation.op, Barrier):
            env.update(zip(equation.outputs, inputs, strict=True))
        else:
            equations.append(Equation(equation.op, inputs, equation.outputs, equation.source, equation.region))
    outputs = [env.get(a, a) if isinstance(a, Value) else a for a in program.outputs]
    return Program(program.inputs, equations, outputs, program.constants, program.signature)


def last_uses(equations: Sequence[Equation], outputs: Sequence[Atom] = ()) -> dict[Value, int]:
    """The position of the last equation that reads each value; the number of equations for `outputs`."""
    last = {a: i for i, e in enumerate(equations) for a in e.inputs if isinstance(a, Value)}
    last.update((a, len(equations)) for a in outputs if isinstance(a, Value))
    return last


def select(items: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """The items whose flag is set."""
    return [x for x, keep in zip(items, flags, strict=True) if keep]


def used_values(program: Program) -> set[Value]:
    """The values that a program's equations and results read."""
    used = {a for e in program.equations for a in e.inputs if isinstance(a, Value)}
    used.update(a for a in program.outputs if isinstance(a, Value))
    return used


def _used_inputs(program: Program) -> list[bool]:
    used = used_values(program)
    return [v in used for v in program.inputs]


def _prune_nested(equation: Equation, used: list[bool]) -> Equation:
    """Calls and checkpoint regions."""
    op = equation.op
    assert isinstance(op, (Call, Checkpoint))
    outputs = select(op.program.outputs, used)
    inner = Program(op.program.inputs, prune(op.program.equations, outputs), outputs)
    live = _used_inputs(inner)
    inner.inputs = select(inner.inputs, live)
    new: Op
    if isinstance(op, Call):
        new = Call(inner, op.function)
    else:
        cse = op.prevent_cse
        flags = cse if isinstance(cse, bool) else tuple(select(cse, live))
        new = Checkpoint(inner, op.policy, flags, op.function, op.derived, op.differentiated)
    inputs = select(equation.inputs, live)
    return Equation(new, inputs, select(equation.outputs, used), equation.source, equation.region)


def _prune_cond(equation: Equation, used: list[bool]) -> Equation:
    op = equation.op
    assert isinstance(op, Cond)
    branches: list[Program] = []
    for branch in op.branches:
        outputs = select(branch.outputs, used)
        branches.append(Program(branch.inputs, prune(branch.equations, outputs), outputs))
    return Equation(
        Cond(tuple(branches), op.platforms),
        equation.inputs,
        select(equation.outputs, used),
        equation.source,
        equation.region,
    )


def _prune_scan(equation: Equation, used: list[bool]) -> Equation:
    """Outputs that nothing reads go; a carried value goes when neither the result nor the body needs it."""
    op = equation.op
    assert isinstance(op, Scan)
    body, k, n = op.body, op.constant_count, op.constant_count + op.carry_count
    carry_used, stacked_used = used[: op.carry_count], used[op.carry_count :]
    while True:
        outputs = select(body.outputs, [*carry_used, *stacked_used])
        equations = prune(body.equations, outputs)
        read_values = {a for e in equations for a in e.inputs} | set(outputs)
        grown = [u or (v in read_values) for u, v in zip(carry_used, body.inputs[k:n], strict=True)]
        if grown == carry_used:
            break
        carry_used = grown
    live = [v in read_values for v in body.inputs]
    live[k:n] = carry_used
    inner = Program(select(body.inputs, live), equations, outputs)
    new = Scan(inner, op.length, op.reverse, sum(live[:k]), sum(carry_used), op.unroll)
    inputs = select(equation.inputs, live)
    results = select(equation.outputs, [*carry_used, *stacked_used])
    return Equation(new, inputs, results, equation.source, equation.region)


def _prune_shard_map(equation: Equation, used: list[bool]) -> Equation:
    op = equation.op
    assert isinstance(op, ShardMap)
    outputs = select(op.body.outputs, used)
    inner = Program(op.body.inputs, prune(op.body.equations, outputs), outputs)
    live = _used_inputs(inner)
    inner.inputs = select(inner.inputs, live)
    specs = {"in_specs": tuple(select(op.in_specs, live)), "out_specs": tuple(select(op.out_specs, used))}
    new = dataclasses.replace(op, body=inner, **specs)
    inputs = select(equation.inputs, live)
    return Equation(new, inputs, select(equation.outputs, used), equation.source, equation.region)


prune_rules: dict[type[Op], Callable[[Equation, list[bool]], Equation]] = {
    Call: _prune_nested,
    Checkpoint: _prune_nested,
    Cond: _prune_cond,
    Scan: _prune_scan,
    ShardMap: _prune_shard_map,
}
