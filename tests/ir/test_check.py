"""The type checker: what it refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ir_programs import SIN, VECTOR, X, unary, values
from jax.extend.core import primitives

import remat
import remat.ir.check
from remat.errors import ProgramError
from remat.ir.check import check_program
from remat.ir.ops import Call, Checkpoint, Cond, Name, Primitive, Scan, While
from remat.ir.program import Equation, Literal, Program, Value
from remat.ir.source import UNKNOWN


def test_a_good_program_passes_unchanged() -> None:
    a, b = values(VECTOR, VECTOR)
    program = Program([a], [unary(a, b)], [b])
    assert check_program(program) is program


def test_use_before_definition() -> None:
    a, b, c = values(VECTOR, VECTOR, VECTOR)
    with pytest.raises(ProgramError, match="used before its definition") as error:
        check_program(Program([a], [unary(a, b), unary(c, Value(VECTOR)), unary(b, c)], [c]))
    assert "->    1" in str(error.value)  # the equation at fault is pointed at


def test_value_defined_twice() -> None:
    a, b = values(VECTOR, VECTOR)
    with pytest.raises(ProgramError, match="defined twice"):
        check_program(Program([a], [unary(a, b), unary(a, b)], [b]))
    with pytest.raises(ProgramError, match=r"defined twice \(input\)"):
        check_program(Program([a, a], [], [a]))
    with pytest.raises(ProgramError, match="defined twice"):
        check_program(Program([a], [unary(a, a)], [a]))


def test_undefined_output() -> None:
    a, b = values(VECTOR, VECTOR)
    with pytest.raises(ProgramError, match="not defined"):
        check_program(Program([a], [], [b]))


def test_nested_programs_are_closed() -> None:
    a, b, c, out = values(VECTOR, VECTOR, VECTOR, VECTOR)
    open_body = Program([b], [unary(a, c)], [c])
    with pytest.raises(ProgramError, match="used before its definition"):
        check_program(Program([a], [Equation(Call(open_body), [a], [out], UNKNOWN)], [out]))
    with_constant = Program([b], [unary(b, c)], [c], [(Value(VECTOR), X)])
    with pytest.raises(ProgramError, match="nested program has constants"):
        check_program(Program([a], [Equation(Call(with_constant), [a], [out], UNKNOWN)], [out]))


@pytest.mark.parametrize("op", [Call, lambda p: Checkpoint(p, None)], ids=["call", "checkpoint"])
def test_calls_agree_with_what_they_call(op: Any) -> None:
    a, b, c = values(VECTOR, VECTOR, VECTOR)
    body = Program([b], [unary(b, c)], [c])
    out, small = values(VECTOR, jax.ShapeDtypeStruct((2,), np.float32))
    check_program(Program([a], [Equation(op(body), [a], [out], UNKNOWN)], [out]))
    with pytest.raises(ProgramError, match="1 values expected, 2 given"):
        check_program(Program([a], [Equation(op(body), [a, a], [out], UNKNOWN)], [out]))
    with pytest.raises(ProgramError, match="1 values expected, 0 given"):
        check_program(Program([a], [Equation(op(body), [a], [], UNKNOWN)], [a]))
    with pytest.raises(ProgramError, match="value 0 should be"):
        check_program(Program([a], [Equation(op(body), [a], [small], UNKNOWN)], [small]))


def scan_program(body: Program, carry: int, given: list[Value], produced: list[Value], constants: int = 0) -> Program:
    op = Scan(body, 4, False, constants, carry)
    return Program(given, [Equation(op, given, produced, UNKNOWN)], list(produced))


def test_scan_types() -> None:
    row = jax.typeof(jnp.float32(0))
    wrong = jax.typeof(jnp.int32(0))
    c, x, y = values(row, row, row)
    body = Program([c, x], [Equation(SIN, [c], [y], UNKNOWN)], [y, x])
    stacked = jax.typeof(jnp.ones(4))
    check_program(scan_program(body, 1, values(row, stacked), values(row, stacked)))
    with pytest.raises(ProgramError, match="scan constants and carry: value 0"):
        check_program(scan_program(body, 1, values(wrong, stacked), values(row, stacked)))
    with pytest.raises(ProgramError, match="scan final carry"):
        check_program(scan_program(body, 1, values(row, stacked), values(wrong, stacked)))
    with pytest.raises(ProgramError, match="scan slices: value 0 should be 4 x"):
        check_program(scan_program(body, 1, values(row, VECTOR), values(row, stacked)))
    with pytest.raises(ProgramError, match="scan outputs: value 0 should be 4 x"):
        check_program(scan_program(body, 1, values(row, stacked), values(row, VECTOR)))


def test_scan_carry_keeps_its_type() -> None:
    row, wrong = jax.typeof(jnp.float32(0)), jax.typeof(jnp.int32(0))
    c, i = values(row, wrong)
    op = Primitive(primitives.convert_element_type_p, {"new_dtype": np.dtype(np.int32)})
    body = Program([c], [Equation(op, [c], [i], UNKNOWN)], [i])
    with pytest.raises(ProgramError, match="scan carry: value 0 should be"):
        check_program(scan_program(body, 1, values(row), values(row)))


def test_cond_and_while_types() -> None:
    index, x, out = values(jax.typeof(jnp.int32(0)), VECTOR, VECTOR)
    one, two = values(VECTOR, VECTOR)
    same = Program([one], [], [one])
    more = Program([two, Value(VECTOR)], [], [two])
    with pytest.raises(ProgramError, match="branch 1: 2 values expected, 1 given"):
        check_program(Program([index, x], [Equation(Cond((same, more)), [index, x], [out], UNKNOWN)], [out]))
    true = Literal(True, jax.typeof(jnp.bool_(True)))
    condition = Program([Value(VECTOR)], [], [true])
    body = Program([two], [], [index])
    with pytest.raises(ProgramError, match="while body: value 0"):
        check_program(Program([x], [Equation(While(condition, body, 0, 0), [x], [out], UNKNOWN)], [out]))


def test_a_name_changes_no_type() -> None:
    a, b = values(VECTOR, jax.typeof(jnp.ones(2)))
    with pytest.raises(ProgramError, match="name: value 0 should be"):
        check_program(Program([a], [Equation(Name("n"), [a], [b], UNKNOWN)], [b]))


def test_faults_in_nested_programs_are_found() -> None:
    a, b, c, d, out = values(*[VECTOR] * 5)
    inner = Program([c], [unary(d, Value(VECTOR))], [c])
    middle = Program([b], [Equation(Checkpoint(inner, None), [b], [d], UNKNOWN)], [d])
    with pytest.raises(ProgramError, match="used before"):
        check_program(Program([a], [Equation(Call(middle), [a], [out], UNKNOWN)], [out]))


def test_nothing_is_checked_when_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remat.ir.check, "enabled", False)
    bad = Program([], [], [Value(VECTOR)])
    assert check_program(bad) is bad
