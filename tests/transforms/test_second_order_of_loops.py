"""Derivatives of derivatives of loops that carry constants: zeros of no dimensions, and carries without a tangent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import remat
from remat.ir.check import check_program
from remat.ir.ops import Primitive
from remat.ir.program import Program, Value
from remat.ir.rewrite import Builder
from remat.testing import assert_trees_close

X, Y = jnp.float32(0.3), jnp.float32(0.5)


def carry_kept(x: Any, y: Any) -> Any:
    return lax.scan(lambda c, _: (c, jnp.sin(y)), x, None, length=2)[1].sum()


def carry_constant(x: Any, y: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.full((), 0.4), jnp.sin(y)), jnp.sin(x), None, length=2)[1].sum()


def carries_constant(x: Any, y: Any) -> Any:
    def body(c: Any, _: Any) -> Any:
        constant = jnp.full((), 0.4)
        return (constant, constant, c[2]), y

    start = jnp.full((), 0.1), jnp.full((), 0.2), x
    return jnp.sin(lax.scan(body, start, None, length=1)[1]).sum()


@pytest.mark.parametrize("policy", [None, "nothing", "burn_no_checkpointing", "scan_body:dots"])
@pytest.mark.parametrize("fun", [carry_kept, carry_constant, carries_constant])
def test_reverse_over_reverse(fun: Callable[[Any, Any], Any], policy: str | None) -> None:
    def twice(grad: Callable[..., Any]) -> Any:
        gradient = grad(fun, (0, 1))
        return grad(lambda *xs: sum(jnp.sin(g).sum() for g in gradient(*xs)), (0, 1))(X, Y)

    assert_trees_close(twice(lambda f, argnums: remat.grad(f, argnums, policy=policy)), twice(jax.grad))


@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
def test_forward_over_reverse_where_only_some_results_are_used(policy: str | None) -> None:
    """JAX drops what nobody uses of a linear map before it is applied; what it computed for all results is no use."""
    gradient = remat.grad(carries_constant, (0, 1), policy=policy)
    expected = jax.jvp(jax.grad(carries_constant, (0, 1)), (X, Y), (X, Y))
    assert_trees_close(jax.jvp(gradient, (X, Y), (X, Y)), expected)
    assert_trees_close(jax.jit(lambda: jax.jvp(gradient, (X, Y), (X, Y)))(), expected)


def test_a_program_without_equations_defines_values_too() -> None:
    """A builder does not touch equations that were there before."""
    (a, b, c) = (Value(X.aval) for _ in range(3))
    builder = Builder()
    builder.equations.append(remat.trace(jnp.sin)(X).equations[0])
    before = builder.equations[0]
    builder.define(Program([a], [], [a]), [b], [c])
    assert builder.equations[0] is before
    (copy,) = builder.equations[1:]
    assert isinstance(copy.op, Primitive)
    assert (copy.op.name, copy.inputs, copy.outputs) == ("copy", (b,), (c,))
    check_program(Program([b], [copy], [c]))
