"""Loops that carry a buffer of earlier states: what an iteration reads of it is kept, not the buffer of each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import remat

STEPS, LENGTH, SIZE = 12, 5, 3
WEIGHTS, STATE = jnp.linspace(-0.4, 0.5, SIZE * SIZE).reshape(SIZE, SIZE), jnp.array([0.3, -0.2, 0.9])


def delayed(weights, state):
    def step(carry, t):
        history, x = carry
        past = lax.dynamic_index_in_dim(history, jnp.mod(t + 1, LENGTH), keepdims=False)
        x = x + 0.1 * (jnp.tanh(weights @ past) - x)
        return (lax.dynamic_update_index_in_dim(history, x, jnp.mod(t, LENGTH), 0), x), x.mean()

    history = jnp.outer(jnp.linspace(0.5, 1.0, LENGTH), state)
    return (lax.scan(step, (history, state), jnp.arange(STEPS))[1] ** 2).sum()


POLICIES = ["dots", "nothing", "scan_body:dots", "balanced", "burn"]


@pytest.mark.parametrize("policy", POLICIES)
def test_gradients(policy):
    expected = jax.grad(delayed, (0, 1))(WEIGHTS, STATE)
    for found in (
        remat.grad(delayed, (0, 1), policy=policy)(WEIGHTS, STATE),
        jax.grad(remat.checkpoint(delayed, policy=policy), (0, 1))(WEIGHTS, STATE),
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_buffer_is_not_kept_for_each_iteration(policy):
    kept = remat.saved_residuals(remat.checkpoint(delayed, policy=policy), WEIGHTS, STATE)
    assert not [r for r in kept if r.loops and r.type == f"f32[{LENGTH},{SIZE}]"]
    assert kept.new_bytes < STEPS * LENGTH * SIZE * 4


def test_a_buffer_that_the_derivative_reads_as_a_whole_is_kept():
    def summed(weights, state):
        def step(history, t):
            x = jnp.tanh(weights @ history.sum(0))
            return lax.dynamic_update_index_in_dim(jnp.sin(history), x, jnp.mod(t, LENGTH), 0), x.mean()

        return lax.scan(step, jnp.outer(jnp.ones(LENGTH), state), jnp.arange(STEPS))[1].sum()

    expected = jax.grad(summed)(WEIGHTS, STATE)
    found = remat.grad(summed, policy="dots")(WEIGHTS, STATE)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
