"""The type checker on primitives, whose types are JAX's, and on ops that hold no programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ir_programs import SIN, VECTOR, X, values
from jax import lax

import remat
from remat.errors import ProgramError
from remat.ir import type_rules
from remat.ir.check import check_program
from remat.ir.ops import Barrier, Cond, Op, Primitive, ToMemory, While, Zeros
from remat.ir.program import Equation, Literal, Program, Value
from remat.ir.source import UNKNOWN
from remat.lower import lower_rules
from remat.transforms.linearize import linearize_rules, no_tangent_ops

INDEX = jax.typeof(jnp.int32(0))
FLAG = jax.typeof(jnp.bool_(True))


def type_of(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return jax.typeof(jnp.zeros(shape, dtype))


def check(op: Op, given: list[Any], produced: list[Any]) -> None:
    inputs, outputs = values(*given), values(*produced)
    check_program(Program(inputs, [Equation(op, inputs, outputs, UNKNOWN)], list(outputs)))


@pytest.mark.parametrize("wrong", [type_of((4,)), type_of(()), type_of((3,), np.int32), type_of((1, 3))], ids=str)
def test_results_of_primitives_have_the_types_that_jax_gives_them(wrong: Any) -> None:
    check(SIN, [VECTOR], [VECTOR])
    with pytest.raises(ProgramError, match=r"sin: value 0 should be float32\[3\], is ") as error:
        check(SIN, [VECTOR], [wrong])
    assert "->    0" in str(error.value)
    with pytest.raises(ProgramError, match="sin: 1 values expected, 2 given"):
        check(SIN, [VECTOR], [VECTOR, VECTOR])
    with pytest.raises(ProgramError, match="sin: 1 values expected, 0 given"):
        check(SIN, [VECTOR], [])


def test_primitives_that_jax_refuses() -> None:
    add = Primitive(lax.add_p, {})
    check(add, [VECTOR, VECTOR], [VECTOR])
    with pytest.raises(ProgramError, match=r"add of f32\[3\], f32\[4\]: .*shape"):
        check(add, [VECTOR, type_of((4,))], [VECTOR])
    with pytest.raises(ProgramError, match=r"add of f32\[3\], i32\[3\]: .*dtype"):
        check(add, [VECTOR, type_of((3,), np.int32)], [VECTOR])
    with pytest.raises(ProgramError, match=r"sin of i32\[3\]: "):
        check(SIN, [type_of((3,), np.int32)], [type_of((3,), np.int32)])


def with_type(program: Program, name: str, type: Any) -> Program:
    """The program with another type for the first result of an op, in whatever program it stands."""

    def changed(p: Program) -> Program:
        new = {e.outputs[0]: Value(type) for e in p.equations if e.op.name == name}
        equations = [
            Equation(
                remat.ir.rewrite.with_programs(e.op, [changed(inner) for inner in e.op.programs]),
                [new.get(a, a) for a in e.inputs],  # type: ignore[call-overload]
                [new.get(v, v) for v in e.outputs],
                e.source,
            )
            for e in p.equations
        ]
        return Program(p.inputs, equations, [new.get(a, a) for a in p.outputs], p.constants)  # type: ignore[call-overload]

    return changed(program)


PROGRAMS: dict[str, tuple[Any, str]] = {
    "dot_general": (lambda x: (jnp.outer(x, x) @ x).sum(), "dot_general"),
    "a cast": (lambda x: x.astype(jnp.bfloat16), "convert_element_type"),
    "a reduction": (lambda x: jnp.max(x), "reduce_max"),
    "a gather": (lambda x: x[jnp.array([0, 2])], "gather"),
    "in a loop": (lambda x: lax.scan(lambda c, _: (jnp.cos(jnp.sin(c)), None), x, None, length=2)[0], "sin"),
    "in a branch": (lambda x: lax.cond(x[0] > 0, jnp.sin, lambda v: jnp.exp(jnp.cos(v)), x), "cos"),
    "in a while loop": (lambda x: lax.while_loop(lambda c: c[0] < 1, lambda c: jnp.sin(jnp.exp(c)), x), "exp"),
    "in a region": (lambda x: remat.checkpoint(lambda v: jnp.cos(jnp.sin(v)))(x), "sin"),
    "with rules of its own": (lambda x: jax.nn.relu(x), "custom_jvp_call"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_wrong_types_are_found_wherever_they_stand(name: str) -> None:
    fun, op = PROGRAMS[name]
    program = remat.trace(fun)(X)
    while op == "custom_jvp_call" and program.equations[0].op.name == "call":
        program = program.equations[0].op.programs[0]
    check_program(program)
    with pytest.raises(ProgramError, match=f"{op}: value 0 should be"):
        check_program(with_type(program, op, type_of((7,), np.int32)))


def test_random_keys_and_double_precision() -> None:
    program = remat.trace(lambda k: jax.random.normal(jax.random.split(k)[0], (3,)))(jax.random.key(0))
    check_program(program)
    with pytest.raises(ProgramError, match="random_split: value 0 should be"):
        check_program(with_type(remat.trace(lambda k: jax.random.split(k))(jax.random.key(0)), "random_split", VECTOR))
    with jax.enable_x64(True):
        wide = type_of((3,), np.float64)
        check(SIN, [wide], [wide])
        with pytest.raises(ProgramError, match=r"sin: value 0 should be float64\[3\]"):
            check(SIN, [wide], [VECTOR])


def test_what_a_primitive_gives_is_asked_once() -> None:
    type_rules._cache.clear()
    check(SIN, [type_of((5,))], [type_of((5,))])
    before = len(type_rules._cache)
    check(SIN, [type_of((5,))], [type_of((5,))])
    assert len(type_rules._cache) == before
    check(SIN, [type_of((6,))], [type_of((6,))])
    assert len(type_rules._cache) == before + 1


def test_nothing_of_the_user_is_cached() -> None:
    type_rules._cache.clear()
    check_program(remat.trace(lambda x: jax.nn.relu(x))(X))
    assert not any("custom_jvp_call" in str(known) for known in type_rules._cache)


# Other ops.


def test_ops_of_transformations() -> None:
    check(Zeros(VECTOR), [], [VECTOR])
    check(ToMemory("pinned_host"), [VECTOR], [VECTOR])
    check(Barrier(), [VECTOR, INDEX], [VECTOR, INDEX])
    wrong = type_of((4,))
    for op, given in ((Zeros(VECTOR), []), (ToMemory("device"), [VECTOR]), (Barrier(), [VECTOR])):
        with pytest.raises(ProgramError, match="value 0 should be"):
            check(op, given, [wrong])
    with pytest.raises(ProgramError, match="zeros: 0 values expected, 1 given"):
        check(Zeros(VECTOR), [VECTOR], [VECTOR])


def test_what_chooses_a_branch_is_an_integer() -> None:
    (x,) = values(VECTOR)
    branch = Program([x], [], [x])
    check(Cond((branch, branch)), [INDEX, VECTOR], [VECTOR])
    with pytest.raises(ProgramError, match=r"the index should be i32\[\] or bool\[\], is f32\[3\]"):
        check(Cond((branch, branch)), [VECTOR, VECTOR], [VECTOR])


def test_conditions_of_while_loops() -> None:
    c, b = values(VECTOR, VECTOR)
    body = Program([b], [], [b])
    check(While(Program([c], [], [Literal(True, FLAG)]), body, 0, 0), [VECTOR], [VECTOR])
    with pytest.raises(ProgramError, match=r"while condition: one boolean expected, is i32\[\]"):
        check(While(Program([c], [], [Literal(1, INDEX)]), body, 0, 0), [VECTOR], [VECTOR])
    with pytest.raises(ProgramError, match="while condition: 0 values expected, 1 given"):
        check(While(Program([], [], [Literal(True, FLAG)]), body, 0, 0), [VECTOR], [VECTOR])
    more = Program([b, Value(INDEX)], [], [b])
    with pytest.raises(ProgramError, match="while constants and carry: 2 values expected, 1 given"):
        check(While(Program([c], [], [Literal(True, FLAG)]), more, 0, 0), [VECTOR], [VECTOR])


def test_every_op_has_a_rule() -> None:
    known = {*lower_rules, *linearize_rules, *no_tangent_ops}
    assert known <= set(type_rules.type_rules)

    class New(Op):
        name = "new"

    with pytest.raises(ProgramError, match="no rule for New"):
        check(New(), [VECTOR], [VECTOR])
