"""The type checker on linearized programs, with faults of each kind planted in good ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from ir_programs import X
from jax import lax

import remat
import remat.ir.check
from remat.errors import ProgramError
from remat.ir.check import check_linearized
from remat.ir.linearized import LinearCond, LinearEquation, Linearized, LinearScan
from remat.ir.program import Literal, Program, Value
from remat.ir.types import is_differentiable
from remat.transforms.linearize import linearize_program

SCALAR = jax.typeof(jnp.float32(0))
INTEGER = jax.typeof(jnp.int32(0))


def linearized(fun: Callable[..., Any], *args: Any) -> Linearized:
    program = remat.trace(fun)(*args)
    return linearize_program(program, [is_differentiable(t) for t in program.input_types])


def chain() -> Linearized:
    return linearized(lambda x, n: jnp.sin(jnp.sin(x)) * n, X, jnp.arange(3))


def replaced(equation: LinearEquation, **changes: Any) -> LinearEquation:
    names = ("op", "inputs", "outputs", "source", "region", "linear")
    return LinearEquation(**{name: changes.get(name, getattr(equation, name)) for name in names})


def in_wrong_order(found: Linearized) -> None:
    found.linear.reverse()


def defined_twice(found: Linearized) -> None:
    found.linear.append(found.linear[0])


def tangent_with_the_place_of_a_primal(found: Linearized) -> None:
    first = found.linear[0]
    found.linear[0] = replaced(first, outputs=[found.equations[0].outputs[0]])


def linear_in_a_primal(found: Linearized) -> None:
    first = found.linear[0]
    inputs = [found.inputs[0] if marked else a for a, marked in zip(first.inputs, first.linear, strict=True)]
    found.linear[0] = replaced(first, inputs=inputs)


def coefficient_that_is_a_tangent(found: Linearized) -> None:
    first = found.linear[0]
    inputs = [a if marked else found.tangents[0] for a, marked in zip(first.inputs, first.linear, strict=True)]
    found.linear[0] = replaced(first, inputs=inputs)


def coefficient_lost(found: Linearized) -> None:
    needed = {v for e in found.linear for v in e.coefficients}
    lost = next(e for e in reversed(found.equations) if needed & set(e.outputs) and not _read(found, e))
    found.equations.remove(lost)


def _read(found: Linearized, equation: Any) -> bool:
    """Whether the primal part reads what it defines."""
    used = {a for e in found.equations for a in e.inputs} | set(found.outputs)
    return bool(used & set(equation.outputs))


def linear_in_nothing(found: Linearized) -> None:
    first = found.linear[0]
    found.linear[0] = replaced(first, linear=[False] * len(first.inputs), inputs=[found.inputs[0]] * len(first.inputs))


def marks_lost(found: Linearized) -> None:
    found.linear[0] = replaced(found.linear[0], linear=())


def tangent_of_another_type(found: Linearized) -> None:
    found.linear[0] = replaced(found.linear[0], outputs=[Value(SCALAR)])


def tangent_input_of_another_type(found: Linearized) -> None:
    found.tangents[0] = Value(SCALAR)


def tangent_input_lost(found: Linearized) -> None:
    found.tangents.pop()


def tangent_of_an_integer(found: Linearized) -> None:
    found.tangents[1] = Value(found.inputs[1].type)


def tangent_output_of_another_type(found: Linearized) -> None:
    found.outputs[0] = Literal(1.0, SCALAR)


def tangent_output_undefined(found: Linearized) -> None:
    found.tangent_outputs[0] = Value(X.aval)


def primal_used_before(found: Linearized) -> None:
    found.equations.reverse()


FAULTS: dict[Callable[[Linearized], None], str] = {
    in_wrong_order: "which is no tangent that is defined before it",
    defined_twice: r"value defined twice \(mul\)",
    tangent_with_the_place_of_a_primal: r"value defined twice \(mul\)",
    linear_in_a_primal: "mul is linear in .*, which is no tangent",
    coefficient_that_is_a_tangent: "the coefficient .* of mul is no value of the primal part",
    coefficient_lost: "the coefficient .* of mul is no value of the primal part",
    linear_in_nothing: "mul is linear in nothing",
    marks_lost: "mul: 2 inputs, 0 marks",
    tangent_of_another_type: r"mul: value 0 should be float32\[3\], is float32\[\]",
    tangent_input_of_another_type: r"tangent of input 0 should be float32\[3\], is float32\[\]",
    tangent_input_lost: "tangent of inputs: 2 values, 1 tangents",
    tangent_of_an_integer: r"tangent of input 1 should be float0\[3\], is int32\[3\]",
    tangent_output_of_another_type: r"tangent of output 0 should be float32\[\], is float32\[3\]",
    tangent_output_undefined: "tangent output .* is not defined in the linear part",
    primal_used_before: "used before its definition",
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_faults_in_linearized_programs(plant: Callable[[Linearized], None]) -> None:
    found = chain()
    assert check_linearized(found) is found
    plant(found)
    with pytest.raises(ProgramError, match=FAULTS[plant]):
        check_linearized(found)


def test_faults_point_at_the_linear_equation() -> None:
    found = chain()
    tangent_of_another_type(found)
    with pytest.raises(ProgramError, match="->    0"):
        check_linearized(found)


def loop(x: Any) -> Any:
    return lax.scan(lambda c, s: (jnp.sin(c * s), c), x[0], x)


def branch(x: Any) -> Any:
    return lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)


@pytest.mark.parametrize("fun", [loop, branch])
def test_linear_structures_agree_with_the_equations_they_belong_to(fun: Callable[[Any], Any]) -> None:
    found = linearized(fun, X)
    place, equation = next((i, e) for i, e in enumerate(found.linear) if isinstance(e.op, (LinearScan, LinearCond)))
    field = "active_carry" if fun is loop else "active_operands"
    for wrong, message in (((), "marks of active ones"), ((False,), "values expected")):
        op = dataclasses.replace(equation.op, **{field: wrong})  # type: ignore[type-var]
        found.linear[place] = replaced(equation, op=op)
        with pytest.raises(ProgramError, match=message):
            check_linearized(found)
    found.linear[place] = replaced(equation, outputs=[Value(INTEGER) for _ in equation.outputs])
    with pytest.raises(ProgramError, match="results: value 0 should be"):
        check_linearized(found)


def test_linearization_checks_what_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every linearized program, those of loop bodies included, is checked."""
    checked: list[Program] = []
    monkeypatch.setattr(remat.ir.check, "_check_tangents", lambda found, values: checked.append(found))
    linearized(loop, X)
    assert len(checked) >= 2


def test_linearized_programs_are_not_checked_when_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remat.ir.check, "enabled", False)
    found = chain()
    in_wrong_order(found)
    assert check_linearized(found) is found
