"""Tangents that no result depends on are no inputs of a region's derivative: what they come from costs nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

import remat

X = jnp.linspace(0.1, 1.0, 3)


def looped(region: Any) -> Any:
    """What the loop stacks goes into a region that does not use it (JAX 0.10's loops fail on a zero for that)."""

    def fun(x: Array) -> Array:
        def step(carry: Any, _: None) -> Any:
            a, b = carry
            b = jnp.sin(b)
            return (a, b), b

        _, stacked = lax.scan(step, (x, x), None, length=2)
        return jnp.sum(jnp.sin(region(x, stacked)))

    return fun


@pytest.mark.parametrize(
    "fun",
    [
        lambda x, s: 2 * x,
        lambda x, s: (2 * x, jnp.sin(s))[0],
        lambda x, s: 2 * x + lax.stop_gradient(s[0]),
    ],
    ids=["not used", "result not used", "stopped"],
)
def test_results_that_do_not_depend_on_a_loop(fun: Any) -> None:
    ours = jax.jit(jax.value_and_grad(looped(remat.checkpoint(fun))))(X)
    theirs = jax.value_and_grad(looped(fun))(X)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def linear_equations(jaxpr: Any) -> list[Any]:
    return [e for e in jaxpr.eqns if e.primitive.name == "remat_linear"]


def test_the_linear_equation_takes_only_tangents_that_are_read() -> None:
    region = remat.checkpoint(lambda x, y, z: (jnp.sin(x) * y, jnp.cos(z)))
    primals = (X, X, X)
    jaxpr = jax.make_jaxpr(jax.linearize(lambda *xs: region(*xs)[0], *primals)[1])(*primals)
    (equation,) = linear_equations(jaxpr)
    residuals = equation.params["linear"].residual_count
    assert len(equation.invars) - residuals == 2
    assert "z" not in str(jaxpr)


def test_other_transformations_of_such_regions() -> None:
    def plain(x: Array, y: Array) -> tuple[Array, Array]:
        return x * jnp.sin(x), lax.stop_gradient(y)

    region = remat.checkpoint(plain)
    for run in (
        lambda f: jax.jvp(f, (X, X), (X, X)),
        lambda f: jax.vmap(jax.grad(lambda x, y: f(x, y)[0].sum(), (0, 1)))(X[None], X[None]),
        lambda f: jax.hessian(lambda x: f(x, x)[0].sum())(X),
        lambda f: jax.vjp(f, X, X)[1]((X, X)),
        lambda f: jax.linearize(f, X, X)[1](X, X),
    ):
        for a, b in zip(jax.tree.leaves(run(region)), jax.tree.leaves(run(plain)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_nothing_is_kept_where_no_cotangent_goes_anywhere() -> None:
    def stopped(x: Array) -> Array:
        def step(_: Any, s: Array) -> Any:
            return jnp.full(3, 0.4), s

        carry, _ = lax.scan(step, x, jnp.ones(4))
        return jnp.sum(jnp.sin(carry))

    region = remat.checkpoint(stopped, policy="dots")
    assert jax.tree.leaves(remat.vjp(region, X)[1]) == []
    assert list(remat.saved_residuals(region, X)) == []
    np.testing.assert_array_equal(remat.grad(region)(X), jnp.zeros(3))
