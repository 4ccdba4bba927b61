"""Regions where JAX compiles nothing: people switch that off to look for a fault."""

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.testing import assert_trees_close


def body(x):
    return jnp.sum(jnp.sin(jax.jit(jnp.cos)(x)))


def loop(x):
    return jax.lax.scan(lambda c, _: (remat.checkpoint(jnp.sin)(c * x), None), x, None, length=3)[0].sum()


@pytest.mark.parametrize("fun", [body, loop])
def test_gradients_without_jit(fun):
    x = jnp.linspace(0.1, 1.0, 3)
    expected = jax.grad(fun)(x)
    with jax.disable_jit():
        for gradient in (remat.grad(fun), remat.grad(fun, policy="nothing"), jax.grad(remat.checkpoint(fun))):
            assert_trees_close(gradient(x), expected)
