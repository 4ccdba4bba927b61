"""Mutable references (`jax.new_ref`): the equations between a reference's creation and its last use act on shared
state, so they are known only together. They become one `Block`, which is differentiated as a whole through JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remat.ir.ops import Block
from remat.ir.program import Atom, Equation, Program, Value
from remat.ir.source import Source


def is_reference(type: Any) -> bool:
    return type.__class__.__name__ == "AbstractRef"


def group_references(equations: list[Equation], outputs: Sequence[Atom]) -> list[Equation]:
    """Replace each run of equations that shares a reference made in it by one `Block` equation."""
    if not any(is_reference(v.type) for e in equations for v in e.outputs):
        return equations
    last_use: dict[Value, int] = {}
    for i, equation in enumerate(equations):
        for atom in (*equation.inputs, *equation.outputs):
            if isinstance(atom, Value):
                last_use[atom] = i
    result: list[Equation] = []
    start = 0
    while start < len(equations):
        end = _end_of_run(equations, start, last_use)
        if end is None:
            result.append(equations[start])
            start += 1
        else:
            result.append(_block(equations[start:end], equations[end:], outputs))
            start = end
    return result


def _end_of_run(equations: list[Equation], start: int, last_use: dict[Value, int]) -> int | None:
    """Where the run that begins with a new reference at `start` ends (exclusive); None if none begins there."""
    references = [v for v in equations[start].outputs if is_reference(v.type)]
    if not references:
        return None
    end, i = start + 1, start
    while i < end:
        for value in equations[i].outputs:
            if is_reference(value.type):
                end = max(end, last_use[value] + 1)
        i += 1
    return end


def _block(run: list[Equation], rest: list[Equation], outputs: Sequence[Atom]) -> Equation:
    defined = {v for e in run for v in e.outputs}
    used = dict.fromkeys(a for e in run for a in e.inputs if isinstance(a, Value) and a not in defined)
    wanted = {a for e in rest for a in e.inputs} | set(outputs)
    results = [v for e in run for v in e.outputs if v in wanted]
    inner_of = {v: Value(v.type) for v in [*used, *defined]}

    def inside(atom: Atom) -> Atom:
        return inner_of[atom] if isinstance(atom, Value) else atom

    equations = [Equation(e.op, [inside(a) for a in e.inputs], [inner_of[v] for v in e.outputs], e.source) for e in run]
    program = Program([inner_of[v] for v in used], equations, [inner_of[v] for v in results])
    source = Source(run[0].source.info)
    return Equation(Block(program), list(used), results, source)
