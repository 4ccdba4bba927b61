"""Pruning, inlining, naming and building programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ir_programs import VECTOR, X, names_of_ops
from jax import lax

import remat
import remat.ir.check
from remat.ir.check import check_program
from remat.ir.ops import Scan, nested_values
from remat.ir.program import Program, Value
from remat.ir.rewrite import Builder, inline_all, inline_calls, prune, prune_program
from remat.lower import evaluate

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
