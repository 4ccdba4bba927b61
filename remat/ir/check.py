"""The type checker of programs. Transformations call it on their own results; it runs only while `enabled`.

Checked: each value is defined once and before its use; nested programs are closed; each op is well typed, by the rule
of its class (`remat.ir.type_rules`). In a linearized program also: what a linear equation is linear in are tangents,
its coefficients are no tangents, and a tangent has the tangent type of what it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remat import jax_compat
from remat.errors import ProgramError
from remat.ir.linearized import LinearEquation, Linearized
from remat.ir.ops import ShardMap
from remat.ir.printer import equation_lines
from remat.ir.program import Atom, Program, Value
from remat.ir.type_rules import compare, key, mismatch
from remat.jax_compat import tangent_type

enabled = False
"""Set by the test suite (`tests/conftest.py`); users do not pay for the checks."""


def check_program(program: Program) -> Program:
    """Return the program if it is well typed (or if checking is off).

    **Raises** `ProgramError` that names the rule broken and prints the neighbourhood of the equation.
    """
    if enabled:
        _check(program, nested=False)
    return program


def check_linearized(linearized: Linearized) -> Linearized:
    """Return the linearized program if it is well typed (or if checking is off). Bodies of its loops and branches were
    checked when they were linearized.

    **Raises** `ProgramError`, as `check_program` does.
    """
    if enabled:
        values = _check_equations(_primal_part(linearized), _Scope(linearized.constants, linearized.inputs))
        _check_tangents(linearized, values)
    return linearized


class _Scope:
    """The values that are defined so far."""

    def __init__(self, constants: Iterable[tuple[Value, Any]], inputs: Iterable[Value]):
        self.defined: set[Value] = set()
        for value, _ in constants:
            self.define(value, "constant")
        for value in inputs:
            self.define(value, "input")

    def define(self, value: Value, where: str) -> None:
        if value in self.defined:
            raise ProgramError(f"value defined twice ({where}): {value}")
        self.defined.add(value)

    def has(self, atom: Atom) -> bool:
        return not isinstance(atom, Value) or atom in self.defined


def _check(program: Program, nested: bool) -> None:
    if nested and program.constants:
        raise ProgramError("a nested program has constants; they should be inputs")
    for value, array in program.constants:
        problem = compare("constant", [value.type], [array]) if hasattr(array, "dtype") else ""
        if problem:
            raise ProgramError(problem)
    _check_equations(program, _Scope(program.constants, program.inputs))


def _check_equations(program: Program, scope: _Scope) -> _Scope:
    for index, equation in enumerate(program.equations):
        for atom in equation.inputs:
            if not scope.has(atom):
                raise ProgramError(f"{atom} is used before its definition\n{_neighbourhood(program, index)}")
        problem = mismatch(equation)
        if problem:
            raise ProgramError(f"{problem}\n{_neighbourhood(program, index)}")
        for value in equation.outputs:
            scope.define(value, equation.op.name)
        for inner in equation.op.programs:
            if isinstance(equation.op, ShardMap):  # collectives have types only where the mesh axes are known
                jax_compat.inside_shard_map(equation.op, lambda inner=inner: _check(inner, nested=True))
            else:
                _check(inner, nested=True)
    for atom in program.outputs:
        if not scope.has(atom):
            raise ProgramError(f"output {atom} is not defined in the program")
    return scope


def _primal_part(linearized: Linearized) -> Program:
    return Program(linearized.inputs, linearized.equations, linearized.outputs, linearized.constants)


def _check_tangents(linearized: Linearized, values: _Scope) -> None:
    """The linear part, after the primal one: the values of the latter are its coefficients."""
    _belong("tangent of input", linearized.inputs, linearized.tangents)
    tangents = _Scope((), [t for t in linearized.tangents if t is not None])
    lines = _linear_part(linearized)
    for index, equation in enumerate(linearized.linear):
        problem = _linear_mismatch(equation, values, tangents) or mismatch(equation)
        if problem:
            raise ProgramError(f"{problem}\n{_neighbourhood(lines, index)}")
        for value in equation.outputs:
            if value in values.defined:
                raise ProgramError(f"value defined twice ({equation.op.name}): {value}")
            tangents.define(value, equation.op.name)
    for tangent in linearized.tangent_outputs:
        if tangent is not None and not tangents.has(tangent):
            raise ProgramError(f"tangent output {tangent} is not defined in the linear part")
    _belong("tangent of output", linearized.outputs, linearized.tangent_outputs)


def _linear_part(linearized: Linearized) -> Program:
    outputs: list[Atom] = [t for t in linearized.tangent_outputs if t is not None]
    return Program([t for t in linearized.tangents if t is not None], list(linearized.linear), outputs)


def _linear_mismatch(equation: LinearEquation, values: _Scope, tangents: _Scope) -> str:
    if len(equation.linear) != len(equation.inputs):
        return f"{equation.op.name}: {len(equation.inputs)} inputs, {len(equation.linear)} marks of linear ones"
    if not any(equation.linear):
        return f"{equation.op.name} is linear in nothing, so it is no linear equation"
    for atom, is_linear in zip(equation.inputs, equation.linear, strict=True):
        if is_linear and not (isinstance(atom, Value) and tangents.has(atom)):
            return f"{equation.op.name} is linear in {atom}, which is no tangent that is defined before it"
        if not is_linear and not values.has(atom):
            return f"the coefficient {atom} of {equation.op.name} is no value of the primal part"
    return ""


def _belong(what: str, primals: Sequence[Atom], tangents: Sequence[Value | None]) -> None:
    """Tangents have the tangent types of the values they belong to."""
    if len(primals) != len(tangents):
        raise ProgramError(f"{what}s: {len(primals)} values, {len(tangents)} tangents")
    for i, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
        if tangent is not None and key(tangent.type) != key(tangent_type(primal.type)):
            raise ProgramError(f"{what} {i} should be {tangent_type(primal.type)}, is {tangent.type}")


def _neighbourhood(program: Program, index: int) -> str:
    """The equations around the bad one, the bad one marked."""
    return "\n".join(equation_lines(program, max(0, index - 5), index + 3, mark=index))


__all__ = ["check_linearized", "check_program", "enabled"]
