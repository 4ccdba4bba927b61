"""Derivative rules that users write: with loops, branches and regions on tangents, or cotangents of other types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import remat
from remat.testing import check_gradients

POLICIES = [None, "nothing", "dots", "everything", "burn"]

S = jnp.sin


def with_loop_over_carry(x: Any) -> Any:
    return lax.scan(lambda c, w: (S(c) * w, c.sum()), x, jnp.arange(1.0, 3.0))[0]


INNER: dict[str, Callable[[Any], Any]] = {
    "map": lambda x: lax.map(S, x),
    "checkpoint": jax.checkpoint(S),
    "cond": lambda x: lax.cond(x[0] > 0, S, lambda x: x * x, x),
    "switch": lambda x: lax.switch(1, [S, jnp.cos, jnp.tanh], x),
    "fori_loop": lambda x: lax.fori_loop(0, 2, lambda i, y: S(y) * (i + 1), x),
    "scan": with_loop_over_carry,
    "checkpointed scan": jax.checkpoint(with_loop_over_carry),
    "name": lambda x: remat.checkpoint_name(S(x), "s"),
    "jit": jax.jit(lambda x: S(x) * x),
    "associative scan": lambda x: lax.associative_scan(jnp.multiply, x),
    "nested rule": lambda x: jax.nn.silu(jax.nn.relu(x)),
    "solve": lambda x: jnp.linalg.solve(jnp.diag(x), x * x),
}


def rule_of(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    f = jax.custom_jvp(lambda x: inner(x))
    f.defjvp(lambda p, t: jax.jvp(inner, p, t))
    return f


@pytest.mark.parametrize("name", INNER)
def test_structure_in_a_rule_for_tangents(name: str) -> None:
    f, x = rule_of(INNER[name]), jnp.arange(1.0, 4.0)
    check_gradients(lambda x: f(x) ** 2, x, policies=POLICIES, compiled=True)
    check_gradients(
        lambda x: lax.scan(lambda c, _: (f(c) / 2, c.sum()), x, None, length=2), x, policies=POLICIES, compiled=True
    )


@pytest.mark.parametrize("name", INNER)
def test_forward_mode_through_structure_in_a_rule(name: str) -> None:
    f, x = rule_of(INNER[name]), jnp.arange(1.0, 4.0)
    _, linear = remat.linearize(f, x)
    np.testing.assert_allclose(linear(x), jax.jvp(f, (x,), (x,))[1], rtol=1e-5)


def test_a_rule_with_two_results_of_which_one_is_used() -> None:
    f = jax.custom_jvp(lambda x: (S(x), jnp.sqrt(x)))
    f.defjvp(lambda p, t: jax.jvp(lambda x: lax.map(lambda y: (S(y), jnp.sqrt(y)), x), p, t))
    np.testing.assert_allclose(remat.grad(lambda x: f(x)[0].sum())(jnp.zeros(2)), jnp.ones(2))


@pytest.mark.parametrize("policy", [None, "dots"])
@pytest.mark.parametrize(
    "before",
    [
        lambda x: x[jnp.array([1, 2, 1])],
        lambda x: jnp.pad(x, 1),
        lambda x: jnp.where(x > 0, x, 0),
        lambda x: x @ x,
        lambda x: jnp.concatenate([x, x * 2]),
        lambda x: lax.scan(lambda c, _: (c * 2, None), x, None, length=2)[0],
        lambda x: lax.cond(x[0, 0] > 0, lambda x: x * 2, lambda x: x, x),
        lambda x: x + x.astype(jnp.float32).astype(jnp.bfloat16),
    ],
)
def test_cotangents_of_another_float_type(before: Callable[[Any], Any], policy: str | None) -> None:
    @jax.custom_vjp
    def total(x: Any) -> Any:
        return x.astype(jnp.float32).sum()

    total.defvjp(lambda x: (total(x), x.shape), lambda s, g: (lax.full(s, g, np.float32),))
    x = jnp.ones((4, 4), jnp.bfloat16)
    found = remat.grad(lambda x: total(before(x)), policy=policy)(x)
    expected = jax.grad(lambda x: before(x).astype(jnp.float32).sum())(x)
    assert policy is None or found.dtype == jnp.bfloat16  # without a policy it is what JAX makes of it
    np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=1e-2)
