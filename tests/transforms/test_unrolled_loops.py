"""Regions in the body of an unrolled loop: several iterations are straight-line code, so recomputation has to wait."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import remat
from remat.ir.ops import Barrier, Scan
from remat.transforms.two_levels import split_program

WEIGHTS, X = jnp.linspace(-0.5, 0.5, 6 * 9).reshape(6, 3, 3), jnp.linspace(0.0, 1.0, 6).reshape(2, 3)


def loss(region, unroll, weights, x):
    body = region(lambda x, w: (jnp.tanh(x @ w) + jnp.sin(x), None))
    return (lax.scan(body, x, weights, unroll=unroll)[0] ** 2).mean()


def barriers_in_the_backward_loop(unroll) -> int:
    program = remat.trace(lambda w, x: loss(remat.checkpoint, unroll, w, x))(WEIGHTS, X)
    backward = split_program(program, [True, True]).second
    (loop,) = [e for e in backward.equations if isinstance(e.op, Scan)]
    return sum(isinstance(e.op, Barrier) for e in loop.op.programs[0].equations)


def test_barriers_stand_where_iterations_are_unrolled():
    assert barriers_in_the_backward_loop(1) == 0
    assert barriers_in_the_backward_loop(2) > 0
    assert barriers_in_the_backward_loop(True) > 0
    assert barriers_in_the_backward_loop(False) == 0


@pytest.mark.parametrize("unroll", [1, 2, 4, True])
def test_gradients(unroll):
    expected = jax.grad(lambda w: loss(lambda f: f, unroll, w, X))(WEIGHTS)
    for gradient in (remat.grad, jax.grad):
        found = gradient(lambda w: loss(remat.checkpoint, unroll, w, X))(WEIGHTS)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="older compilers do not order by barriers")
def test_the_peak_is_that_of_jax():
    def temporary_bytes(region, gradient):
        weights, x = jnp.full((16, 32, 32), 0.01), jnp.ones((128, 32))
        compiled = jax.jit(gradient(lambda w, x: loss(region, 8, w, x))).lower(weights, x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    theirs = temporary_bytes(jax.checkpoint, jax.grad)
    assert temporary_bytes(remat.checkpoint, remat.grad) <= 1.05 * theirs
    assert temporary_bytes(remat.checkpoint, jax.grad) <= 1.05 * theirs
