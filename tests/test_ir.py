"""The intermediate representation: text, type checker, rewriting, sources, and sizes of types."""

from __future__ import annotations

import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import primitives

import remat
import remat.ir.check
from remat.errors import ProgramError
from remat.ir.check import check_program
from remat.ir.ops import Call, Checkpoint, Cond, Name, Primitive, Scan, While, nested_values
from remat.ir.printer import equation_lines, paired_texts, program_text
from remat.ir.program import Equation, Literal, Program, Value
from remat.ir.rewrite import Builder, inline_all, inline_calls, insert_names, prune, prune_program
from remat.ir.source import NOWHERE, UNKNOWN
from remat.ir.types import is_differentiable, itemsize, short_text, size_in_bytes
from remat.lower import evaluate

X = jnp.arange(3.0)
VECTOR = jax.typeof(X)
SIN = Primitive(primitives.sin_p, {"accuracy": None})


def assert_text(program: Program, expected: str) -> None:
    assert str(program) == textwrap.dedent(expected).strip()


def names_of_ops(program: Program) -> list[str]:
    return [e.op.name for e in program.equations]


# Text.


def test_text_names_values_in_order_and_shows_types_and_literals() -> None:
    def f(w: Any, x: Any) -> Any:
        return {"twice": 2.0 * jnp.sin(w @ x), "same": x}

    assert_text(
        remat.trace(f)(jnp.ones((2, 3)), X),
        """
        program(a: f32[2,3], b: f32[3])
          c: f32[2] = dot_general[dimension_numbers=(((1,), (0,)), ((), ())), preferred_element_type=float32] a b
          d: f32[2] = sin c
          e: f32[2] = mul 2.0 d
          return b, e
        """,
    )


def test_text_shows_constants_and_keys() -> None:
    table = jnp.arange(3)
    assert_text(
        remat.trace(lambda key: (jax.random.key_data(key), table))(jax.random.key(0)),
        """
        program(a: key<fry>[])
          constant b: i32[3]
          c: u32[2] = random_unwrap a
          return c, b
        """,
    )


def test_text_of_calls_names_and_regions_is_nested() -> None:
    @jax.jit
    def inner(v: Any) -> Any:
        return jnp.sin(v)

    region = jax.checkpoint(lambda x: remat.name(inner(x), "kept"))
    assert_text(
        remat.trace(region)(X),
        """
        program(a: f32[3])
          b: f32[3] = checkpoint a
            checkpoint(c: f32[3])
              d: f32[3] = call[inner] c
                call(e: f32[3])
                  f: f32[3] = sin e
                  return f
              g: f32[3] = name[kept] d
              return g
          return b
        """,
    )


def test_text_of_a_scan() -> None:
    program = remat.trace(lambda w, c, xs: lax.scan(lambda c, x: (c * w, c + x), c, xs, reverse=True))
    assert_text(
        program(X, X, jnp.ones((4, 3))),
        """
        program(a: f32[3], b: f32[3], c: f32[4,3])
          d: f32[3], e: f32[4,3] = scan[length=4, reverse] a b c
            body(f: f32[3], g: f32[3], h: f32[3])
              i: f32[3] = mul g f
              j: f32[3] = add g h
              return i, j
          return d, e
        """,
    )


def test_text_of_a_branch() -> None:
    assert_text(
        remat.trace(lambda i, x: lax.switch(i, [jnp.sin, lambda v: v], x))(jnp.int32(0), X),
        """
        program(a: i32[], b: f32[3])
          c: i32[] = clamp 0 a 1
          d: f32[3] = cond c b
            branch 0(e: f32[3])
              f: f32[3] = sin e
              return f
            branch 1(g: f32[3])
              return g
          return d
        """,
    )


def test_text_of_a_while_loop_prints_integers_as_they_are() -> None:
    assert_text(
        remat.trace(lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, -c[1]), (0, x)))(X),
        """
        program(a: f32[3])
          b: i32[], c: f32[3] = while 0 a
            condition(d: i32[], e: f32[3])
              f: bool[] = lt d 5
              return f
            body(g: i32[], h: f32[3])
              i: i32[] = add g 1
              j: f32[3] = neg h
              return i, j
          return b, c
        """,
    )


def test_text_has_no_addresses() -> None:
    @jax.custom_jvp
    def f(x: Any) -> Any:
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    region = jax.checkpoint(f, policy=jax.checkpoint_policies.dots_saveable)
    text = str(remat.trace(region)(X))
    assert "checkpoint[" in text
    assert " at 0x" not in text


def test_text_goes_on_with_two_letters() -> None:
    def f(x: Any) -> Any:
        for _ in range(27):
            x = jnp.sin(x)
        return x

    lines = str(remat.trace(f)(X)).splitlines()
    assert lines[-3:] == ["  aa: f32[3] = sin z", "  ab: f32[3] = sin aa", "  return ab"]


def test_text_with_sources_has_bytes_and_lines() -> None:
    text = program_text(remat.trace(lambda x: jnp.sin(x))(X), sources=True)
    line = text.splitlines()[1]
    before, after = line.split("#")
    assert before.strip() == "b: f32[3] = sin a"
    assert after.startswith(" 12 B  ")
    assert "test_ir.py:" in after


def test_equation_lines_mark_one_and_paired_texts_share_names() -> None:
    program = remat.trace(lambda x: jnp.cos(jnp.sin(x)))(X)
    assert equation_lines(program, 0, 2, mark=1) == [
        "      0  b: f32[3] = sin a",
        "->    1  c: f32[3] = cos b",
    ]
    second = Program([program.equations[0].outputs[0]], [], [program.outputs[0]])
    _, lines = paired_texts(program, second)
    assert lines == ["program(b: f32[3])", "  return c"]


# The type checker.


def unary(x: Value, out: Value) -> Equation:
    return Equation(SIN, [x], [out], UNKNOWN)


def values(*types: Any) -> list[Value]:
    return [Value(t) for t in types]


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


# Pruning.


def test_prune_drops_dead_equations_in_chains() -> None:
    program = remat.trace(lambda x: (jnp.cos(jnp.exp(x)), jnp.sin(x))[1])(X)
    assert names_of_ops(program) == ["exp", "cos", "sin"]
    pruned = prune_program(program)
    assert names_of_ops(pruned) == ["sin"]
    assert pruned.inputs == program.inputs
    assert pruned.outputs == program.outputs


def test_prune_stops_at_given_values() -> None:
    program = remat.trace(lambda x: jnp.cos(jnp.exp(jnp.sin(x))))(X)
    _, exp, _ = program.equations
    kept = prune(program.equations, program.outputs, given={exp.outputs[0]})
    assert [e.op.name for e in kept] == ["cos"]


def test_prune_does_not_define_given_values_again() -> None:
    program = remat.trace(lambda x: lax.optimization_barrier((jnp.sin(x), jnp.cos(x))))(X)
    first, second = program.equations[-1].outputs
    kept = prune(program.equations, [first, second], given={first})
    check_program(Program([*program.inputs, first], kept, [first, second]))


def test_prune_keeps_effects_unless_told() -> None:
    def f(x: Any) -> Any:
        jax.debug.print("{}", jnp.exp(x))
        return jnp.sin(x)

    program = remat.trace(f)(X)
    kept = [e.op.name for e in prune(program.equations, program.outputs)]
    assert len(kept) == 3
    assert {"exp", "sin"} < set(kept)
    assert [e.op.name for e in prune(program.equations, program.outputs, keep_effects=False)] == ["sin"]


def test_prune_keeps_nested_effects() -> None:
    def body(c: Any, x: Any) -> Any:
        jax.debug.print("{}", x)
        return c, jnp.sin(x)

    program = prune_program(remat.trace(lambda xs: (lax.scan(body, 1.0, xs), xs)[1])(X))
    (scan,) = program.equations
    assert scan.outputs == ()
    assert scan.op.effects
    assert not any(e.op.name == "sin" for e in scan.op.programs[0].equations)


def test_prune_takes_outputs_and_inputs_off_calls_and_regions() -> None:
    for wrap in (jax.jit, jax.checkpoint):
        two = wrap(lambda x, y: (jnp.sin(x), jnp.cos(y)))
        program = prune_program(remat.trace(lambda x, y, two=two: two(x, y)[1])(X, X))
        (equation,) = program.equations
        assert equation.inputs == (program.inputs[1],)
        assert names_of_ops(equation.op.programs[0]) == ["cos"]
        check_program(program)


def test_prune_scan_drops_outputs_and_carry_that_nothing_needs() -> None:
    def f(w: Any, x: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            used, unused, feeder = carry
            return (used + feeder * row, unused * w, jnp.sin(feeder)), (jnp.cos(used), jnp.exp(unused))

        return lax.scan(body, (x, x, x), jnp.ones((4, 3)))[0][0]

    program = remat.trace(f)(X, X)
    pruned = prune_program(program)
    scan = pruned.equations[-1]
    assert isinstance(scan.op, Scan)
    assert scan.op.carry_count == 2  # what is asked for, and the carry that feeds it
    assert scan.op.constant_count == 0  # w is only for the unused one
    assert len(scan.outputs) == 2
    assert sorted(names_of_ops(scan.op.body)) == ["add", "mul", "sin"]
    check_program(pruned)
    np.testing.assert_array_equal(evaluate(pruned, [X, X])[0], f(X, X))


def test_prune_scan_keeps_slices_only_where_read() -> None:
    def f(xs: Any, ys: Any) -> Any:
        return lax.scan(lambda c, xy: (c + xy[1], jnp.sin(xy[0])), 0.0, (xs, ys))[1]

    pruned = prune_program(remat.trace(f)(X, X))
    (scan,) = pruned.equations
    assert scan.inputs == (pruned.inputs[0],)
    assert scan.op.carry_count == 0
    np.testing.assert_array_equal(evaluate(check_program(pruned), [X, X])[0], jnp.sin(X))


def test_prune_cond_drops_outputs_in_every_branch() -> None:
    def f(i: Any, x: Any) -> Any:
        return lax.cond(i > 0, lambda v: (jnp.sin(v), jnp.exp(v)), lambda v: (jnp.cos(v), v), x)[0]

    pruned = prune_program(remat.trace(f)(1, X))
    cond = pruned.equations[-1]
    assert [names_of_ops(b) for b in cond.op.programs] == [["cos"], ["sin"]]
    np.testing.assert_array_equal(evaluate(check_program(pruned), [jnp.int32(1), X])[0], jnp.sin(X))


# Inlining.


def nested_calls(x: Any) -> Any:
    @jax.jit
    def inner(v: Any) -> Any:
        return jnp.sin(v) * 2.0

    @jax.jit
    def outer(v: Any) -> Any:
        return inner(inner(v)), v

    first, second = outer(x)
    return lax.scan(lambda c, _: (inner(c), None), first, None, length=2)[0] + second


def test_inline_calls_replaces_calls_at_the_top() -> None:
    program = remat.trace(nested_calls)(X)
    inlined = check_program(inline_calls(program))
    assert names_of_ops(inlined) == ["sin", "mul", "sin", "mul", "scan", "add"]
    assert names_of_ops(inlined.equations[4].op.programs[0]) == ["call"]
    np.testing.assert_allclose(evaluate(inlined, [X])[0], nested_calls(X), rtol=1e-6)


def test_inline_all_replaces_calls_everywhere_with_values_of_its_own() -> None:
    program = remat.trace(nested_calls)(X)
    inlined = check_program(inline_all(program))
    assert names_of_ops(inlined.equations[4].op.programs[0]) == ["sin", "mul"]
    defined = nested_values(inlined)
    assert len(set(defined)) == len(defined)
    assert not set(defined) & set(nested_values(program))
    np.testing.assert_allclose(evaluate(inlined, [X])[0], nested_calls(X), rtol=1e-6)


def test_inline_calls_leaves_other_programs_alone() -> None:
    plain = remat.trace(lambda x: jnp.sin(x))(X)
    assert inline_calls(plain) is plain


# Names.


def test_insert_names_redirects_later_uses() -> None:
    def f(x: Any) -> Any:
        y = jnp.sin(x)
        return jnp.cos(y), y

    program = remat.trace(f)(X)
    sin = program.equations[0]
    named = check_program(insert_names(program, {sin.outputs[0]: "kept"}, lambda reason: f"{reason}!"))
    assert_text(
        named,
        """
        program(a: f32[3])
          b: f32[3] = sin a
          c: f32[3] = name[kept!] b
          d: f32[3] = cos c
          return d, c
        """,
    )


def test_insert_names_reaches_into_nested_programs() -> None:
    program = remat.trace(lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=2)[0])(X)
    (scan,) = program.equations
    (sin,) = scan.op.programs[0].equations
    named = check_program(insert_names(program, {sin.outputs[0]: "s"}, str))
    inner = named.equations[0].op.programs[0]
    assert names_of_ops(inner) == ["sin", "name"]
    assert inner.outputs[0] is inner.equations[1].outputs[0]
    assert names_of_ops(program.equations[0].op.programs[0]) == ["sin"]  # the original is as it was


# Building.


def test_builder_emits_and_instantiates() -> None:
    program = remat.trace(lambda x, y: (jnp.sin(x) + y, y))(X, X)
    builder = Builder()
    a = Value(VECTOR)
    zero = builder.zeros(VECTOR)
    first, second = builder.instantiate(program, [a, zero])
    assert second is zero
    total = builder.add(first, second)
    built = check_program(Program([a], builder.equations, [total]))
    assert names_of_ops(built) == ["zeros", "sin", "add", "add"]
    np.testing.assert_array_equal(evaluate(built, [X])[0], jnp.sin(X))


def test_zeros_of_random_keys() -> None:
    keys = jax.random.split(jax.random.key(0, impl="rbg"), 3)
    builder = Builder()
    program = Program([], builder.equations, [builder.zeros(jax.typeof(keys))])
    (zeros,) = evaluate(check_program(program), [])
    assert zeros.dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.key_data(zeros), np.zeros((3, 4), np.uint32))


def test_while_loops_with_a_condition_for_each_example() -> None:
    def halve(x: Any) -> Any:
        return lax.while_loop(lambda v: v.sum() > 1, lambda v: 0.5 * v, x)

    batch = jnp.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [0.1, 0.2, 0.3]])
    program = remat.trace(jax.vmap(halve))(batch)
    assert program.equations[0].op.programs[0].output_types[0].shape == (3,)
    np.testing.assert_array_equal(evaluate(program, [batch])[0], jnp.stack([halve(x) for x in batch]))


# Sources and scopes.


def test_equations_know_file_line_and_function() -> None:
    def sums(x: Any) -> Any:
        return jnp.sin(x) + 1.0

    first = sums.__code__.co_firstlineno
    program = remat.trace(sums)(X)
    for equation in program.equations:
        position = equation.source.position
        assert position.file.endswith("test_ir.py")
        assert position.line == first + 1
        assert position.column > 0
        assert position.function.endswith("sums")
        assert equation.source.text.endswith(f":{first + 1}:{position.column} ({position.function})")


def test_sources_inside_nested_programs_are_the_inner_lines() -> None:
    def body(c: Any, _: Any) -> Any:
        return jnp.sin(c), None

    program = remat.trace(lambda x: lax.scan(body, x, None, length=2)[0])(X)
    (sin,) = program.equations[0].op.programs[0].equations
    assert sin.source.position.line == body.__code__.co_firstlineno + 1


def test_scopes_are_paths() -> None:
    def f(x: Any) -> Any:
        with jax.named_scope("encoder"):
            x = jnp.sin(x)
            with jax.named_scope("layer_0"):
                x = jnp.exp(x)
        return jnp.cos(x)

    program = remat.trace(f)(X)
    assert [e.source.scope for e in program.equations] == ["encoder", "encoder/layer_0", ""]


def test_sources_survive_lowering_and_inlining() -> None:
    def f(x: Any) -> Any:
        with jax.named_scope("deep"):
            return jax.jit(jnp.sin)(x) * 2.0

    again = remat.trace(remat.lower(inline_calls(remat.trace(f)(X))))(X)
    position = again.equations[-1].source.position
    assert position.line == f.__code__.co_firstlineno + 2
    assert again.equations[-1].source.scope == "deep"


def test_unknown_sources_are_empty() -> None:
    assert (UNKNOWN.text, UNKNOWN.scope, UNKNOWN.position) == ("", "", NOWHERE)


# Types.


@pytest.mark.parametrize(
    ("make", "bytes", "text"),
    [
        (lambda: jnp.ones((5, 4)), 80, "f32[5,4]"),
        (lambda: jnp.ones((5, 4), jnp.bfloat16), 40, "bf16[5,4]"),
        (lambda: jnp.ones(3, bool), 3, "bool[3]"),
        (lambda: jnp.ones((), jnp.int8), 1, "i8[]"),
        (lambda: jnp.ones((0, 7)), 0, "f32[0,7]"),
        (lambda: jnp.ones(2, jnp.complex64), 16, "c64[2]"),
        (lambda: jax.random.key(0), 8, "key<fry>[]"),
        (lambda: jax.random.split(jax.random.key(0), 5), 40, "key<fry>[5]"),
        (lambda: jax.random.key(0, impl="rbg"), 16, "key<rbg>[]"),
        (lambda: jnp.ones(6, jnp.int4), 6, "i4[6]"),
        (lambda: jnp.ones(6, jnp.float8_e4m3fn), 6, "f8_e4m3fn[6]"),
    ],
)
def test_bytes_and_text_of_types(make: Any, bytes: int, text: str) -> None:
    type = jax.typeof(make())
    assert size_in_bytes(type) == bytes
    assert short_text(type) == text


def test_bytes_of_double_precision() -> None:
    with jax.enable_x64(True):
        type = jax.typeof(jnp.ones(3))
    assert (itemsize(type), size_in_bytes(type), short_text(type)) == (8, 24, "f64[3]")


def test_what_has_no_bytes() -> None:
    assert size_in_bytes(object()) == 0
    assert size_in_bytes(jax.ShapeDtypeStruct((3,), jax.dtypes.float0)) == 0


def test_what_carries_tangents() -> None:
    def differentiable(x: Any) -> bool:
        return is_differentiable(jax.typeof(x))

    assert differentiable(jnp.ones(2, jnp.bfloat16))
    assert differentiable(jnp.ones(2, jnp.complex64))
    assert not differentiable(jnp.ones(2, jnp.int32))
    assert not differentiable(jnp.ones(2, bool))
    assert not differentiable(jax.random.key(0))
    assert not is_differentiable(object())
