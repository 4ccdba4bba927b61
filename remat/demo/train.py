"""Training: Adam by hand, and one jitted step whose gradient `remat` computes under a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import remat
from remat.demo.text import sample_batch
from remat.demo.transformer import Parameters, Sizes, initialize, loss

LEARNING_RATE, WARM_UP = 7e-3, 10


def learning_rate(done: jax.Array, steps: int) -> jax.Array:
    """Up over the first steps, then level, and down to zero over the last 70 %."""
    rising, falling = (done + 1) / WARM_UP, (steps - done) / (0.7 * steps)
    return LEARNING_RATE * jnp.minimum(1.0, jnp.minimum(rising, falling))


def adam_start(parameters: Parameters) -> dict[str, Any]:
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    return {"mean": zeros, "square": zeros, "count": jnp.zeros((), jnp.int32)}


def adam_step(
    parameters: Parameters, gradients: Parameters, state: dict[str, Any], rate: jax.Array
) -> tuple[Parameters, dict[str, Any]]:
    """One step of Adam."""
    fast, slow = 0.9, 0.95
    count = state["count"] + 1
    mean = jax.tree.map(lambda m, g: fast * m + (1 - fast) * g, state["mean"], gradients)
    square = jax.tree.map(lambda s, g: slow * s + (1 - slow) * g * g, state["square"], gradients)

    def move(p: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
        return p - rate * (m / (1 - fast**count)) / (jnp.sqrt(s / (1 - slow**count)) + 1e-8)

    return jax.tree.map(move, parameters, mean, square), {"mean": mean, "square": square, "count": count}


def make_step(policy: Any, steps: int) -> Callable[..., tuple[Parameters, dict[str, Any], jax.Array]]:
    """A jitted training step. The policy is around the whole loss; the model is not touched."""
    value_and_grad = remat.value_and_grad(remat.checkpoint(loss, policy=policy))

    @jax.jit
    def step(parameters: Parameters, state: dict[str, Any], tokens: jax.Array) -> Any:
        value, gradients = value_and_grad(parameters, tokens)
        parameters, state = adam_step(parameters, gradients, state, learning_rate(state["count"], steps))
        return parameters, state, value

    return step


def train(tokens: np.ndarray, sizes: Sizes, steps: int, policy: Any, seed: int) -> Iterator[tuple[Parameters, float]]:
    """Train from random parameters; yields the parameters after each step and the loss before it."""
    random = np.random.default_rng(seed)
    parameters = initialize(jax.random.key(seed), sizes)
    state = adam_start(parameters)
    step = make_step(policy, steps)
    for _ in range(steps):
        batch = sample_batch(random, tokens, sizes.batch, sizes.context + 1)
        parameters, state, value = step(parameters, state, batch)
        yield parameters, float(value)
