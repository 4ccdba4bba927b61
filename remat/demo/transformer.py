"""A small decoder-only transformer over characters, in plain JAX.

The model knows nothing of remat: it contains no checkpoint, and its names are JAX's own `checkpoint_name`. Policies are
put around the whole loss from outside.

Axes: batch `b`, time `t` (and `s` for the attended time), width `w`, heads `h`, head width `d`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

Parameters = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model and of a batch."""

    vocabulary: int = 96
    context: int = 64
    width: int = 64
    heads: int = 4
    layers: int = 4
    hidden: int = 256
    batch: int = 16


def initialize(key: jax.Array, sizes: Sizes) -> Parameters:
    """Random parameters; those of the layers are stacked along a leading axis, for `scan`."""
    n, w, f = sizes.layers, sizes.width, sizes.hidden
    heads = (sizes.heads, w // sizes.heads)
    keys = iter(jax.random.split(key, 7))

    def normal(shape: tuple[int, ...], inputs: int) -> jax.Array:
        return jax.random.normal(next(keys), shape) / math.sqrt(inputs)

    return {
        "embedding": normal((sizes.vocabulary, w), 1),
        "position": normal((sizes.context, w), w),
        "layers": {
            "attention_scale": jnp.ones((n, w)),
            "qkv": normal((n, w, 3, *heads), w),
            "project": normal((n, *heads, w), w * n),
            "mlp_scale": jnp.ones((n, w)),
            "up": normal((n, w, f), w),
            "down": normal((n, f, w), f * n),
        },
        "output_scale": jnp.ones(w),
        "unembedding": normal((w, sizes.vocabulary), w) * 0.1,
    }


def loss(parameters: Parameters, tokens: jax.Array) -> jax.Array:
    """Mean cross entropy, in nats per character, of the next characters in `tokens[batch, time + 1]`."""
    logits = predict(parameters, tokens[:, :-1])
    log_probabilities = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(log_probabilities, tokens[:, 1:, None], axis=-1).mean()


def predict(parameters: Parameters, tokens: jax.Array) -> jax.Array:
    """Logits of the next character after each of `tokens[batch, time]`."""
    x = parameters["embedding"][tokens] + parameters["position"][: tokens.shape[1]]
    x, _ = jax.lax.scan(lambda x, layer: (block(x, layer), None), x, parameters["layers"])
    return normalize(x, parameters["output_scale"]) @ parameters["unembedding"]


def block(x: jax.Array, layer: Parameters) -> jax.Array:
    """One pre-norm layer on `x[batch, time, width]`."""
    x = x + attention(normalize(x, layer["attention_scale"]), layer)
    return x + mlp(normalize(x, layer["mlp_scale"]), layer)


def attention(x: jax.Array, layer: Parameters) -> jax.Array:
    """Causal self-attention."""
    q, k, v = jnp.einsum("btw,wchd->cbhtd", x, layer["qkv"])
    scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[-1])
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(past, scores, -jnp.inf))
    mixed = checkpoint_name(jnp.einsum("bhts,bhsd->bthd", weights, v), "mixed")
    return jnp.einsum("bthd,hdw->btw", mixed, layer["project"])


def mlp(x: jax.Array, layer: Parameters) -> jax.Array:
    hidden = checkpoint_name(x @ layer["up"], "hidden")
    return jax.nn.gelu(hidden) @ layer["down"]


def normalize(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Divide by the root mean square over the width."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale
