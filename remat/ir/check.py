"""The type checker of programs. Transformations call it on their own results; it runs only while `enabled`.

Checked: each value is defined once and before its use; structural ops agree with their nested programs; nested
programs are closed; the ops of ordinary primitives produce the types they are declared with.
"""

from __future__ import annotations

from typing import Any

from remat.errors import ProgramError
from remat.ir.ops import Barrier, Block, Call, Checkpoint, Cond, CustomRule, Name, Scan, While
from remat.ir.program import Atom, Equation, Program, Value

enabled = False
"""Set by the test suite (`tests/conftest.py`); users do not pay for the checks."""


def check_program(program: Program) -> Program:
    """Return the program if it is well typed (or if checking is off).

    **Raises** `ProgramError` that names the rule broken and prints the neighbourhood of the equation.
    """
    if enabled:
        _check(program, nested=False)
    return program


def _check(program: Program, nested: bool) -> None:
    defined: set[Value] = set()

    def define(value: Value, where: str) -> None:
        if value in defined:
            raise ProgramError(f"value defined twice ({where}): {value}")
        defined.add(value)

    for value, _ in program.constants:
        define(value, "constant")
    if nested and program.constants:
        raise ProgramError("a nested program has constants; they should be inputs")
    for value in program.inputs:
        define(value, "input")
    for index, equation in enumerate(program.equations):
        for atom in equation.inputs:
            _use(program, index, atom, defined)
        problem = _mismatch(equation)
        if problem:
            raise ProgramError(f"{problem}\n{_neighbourhood(program, index)}")
        for value in equation.outputs:
            define(value, equation.op.name)
        for inner in equation.op.programs:
            _check(inner, nested=True)
    for atom in program.outputs:
        if isinstance(atom, Value) and atom not in defined:
            raise ProgramError(f"output {atom} is not defined in the program")


def _use(program: Program, index: int, atom: Atom, defined: set[Value]) -> None:
    if isinstance(atom, Value) and atom not in defined:
        raise ProgramError(f"{atom} is used before its definition\n{_neighbourhood(program, index)}")


def _mismatch(equation: Equation) -> str:
    """What is wrong between the op and the types around it; empty if nothing."""
    op = equation.op
    given = [a.type for a in equation.inputs]
    produced = [v.type for v in equation.outputs]
    if isinstance(op, (Block, Call, Checkpoint, CustomRule)):
        return _compare(op.name, op.program.input_types, given) or _compare(op.name, op.program.output_types, produced)
    if isinstance(op, (Name, Barrier)):
        return _compare(op.name, given, produced)
    if isinstance(op, Cond):
        for k, branch in enumerate(op.branches):
            problem = _compare(f"branch {k}", branch.input_types, given[1:])
            problem = problem or _compare(f"branch {k}", branch.output_types, produced)
            if problem:
                return problem
    if isinstance(op, While):
        carry = given[op.condition_constants + op.body_constants :]
        return _compare("while body", op.body.output_types, carry) or _compare("while", carry, produced)
    if isinstance(op, Scan):
        k, n = op.constant_count, op.constant_count + op.carry_count
        carried = op.body.output_types[: op.carry_count]
        return (
            _compare("scan constants and carry", op.body.input_types[:n], given[:n])
            or _compare("scan carry", op.body.input_types[k:n], carried)
            or _compare("scan final carry", carried, produced[: op.carry_count])
            or _stacked("scan slices", op.length, op.body.input_types[n:], given[n:])
            or _stacked("scan outputs", op.length, op.body.output_types[op.carry_count :], produced[op.carry_count :])
        )
    return ""


def _compare(what: str, expected: list[Any], found: list[Any]) -> str:
    if len(expected) != len(found):
        return f"{what}: {len(expected)} values expected, {len(found)} given"
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        if _key(a) != _key(b):
            return f"{what}: value {i} should be {a}, is {b}"
    return ""


def _stacked(what: str, length: int, slices: list[Any], stacked: list[Any]) -> str:
    if len(slices) != len(stacked):
        return f"{what}: {len(slices)} values expected, {len(stacked)} given"
    for i, (a, b) in enumerate(zip(slices, stacked, strict=True)):
        if (length, *a.shape) != tuple(b.shape) or a.dtype != b.dtype:
            return f"{what}: value {i} should be {length} x {a}, is {b}"
    return ""


def _key(type: Any) -> Any:
    """What must agree between two types; weak types and shardings may differ."""
    return (getattr(type, "shape", None), str(getattr(type, "dtype", type)))


def _neighbourhood(program: Program, index: int) -> str:
    """The equations around the bad one, the bad one marked."""
    from remat.ir.printer import equation_lines

    return "\n".join(equation_lines(program, max(0, index - 5), index + 3, mark=index))
