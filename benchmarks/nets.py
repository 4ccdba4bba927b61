"""The nets of the memory benchmark: losses in plain JAX, each with a place to wrap its layers by hand.

A net's `loss(wrap)` gives the loss function with `wrap` applied to each layer (or loop body, or iteration), which is
how people place `jax.checkpoint` today. The identity leaves the model untouched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Net:
    """`shapes` are the types of the loss's arguments; the first argument is differentiated. `policy` is the name of
    one of JAX's policies, `short` remat's word for it."""

    name: str
    policy: str
    short: str
    loss: Callable[[Wrap], Callable[..., Any]]
    shapes: tuple[Any, ...]


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def random_arguments(shapes: Any, seed: int = 0) -> Any:
    """Arrays for a net: normal, scaled by the square root of the second to last dimension."""
    leaves, tree = jax.tree.flatten(shapes)
    keys = jax.random.split(jax.random.key(seed), len(leaves))

    def one(key: Any, leaf: Any) -> Any:
        scale = leaf.shape[-2] ** -0.5 if len(leaf.shape) > 1 else 1.0
        return jax.random.normal(key, leaf.shape, leaf.dtype) * scale

    return jax.tree.unflatten(tree, [one(k, leaf) for k, leaf in zip(keys, leaves, strict=True)])


# MLP


def silu_layer(x: Any, w: Any) -> Any:
    h = x @ w
    return h * jax.nn.sigmoid(h)


def mlp_unrolled(wrap: Wrap) -> Callable[..., Any]:
    layer = wrap(silu_layer)

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = layer(x, w)
        return x.sum()

    return loss


def mlp_scan(wrap: Wrap) -> Callable[..., Any]:
    body = wrap(lambda x, w: (silu_layer(x, w), None))
    return lambda weights, x: lax.scan(body, x, weights)[0].sum()


# Transformers


def layer_norm(x: Any, gain: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * gain


def block(x: Any, p: dict[str, Any], heads: int = 4, causal: bool = True) -> Any:
    """A pre-norm transformer block: softmax attention and a gelu MLP."""
    batch, length, width = x.shape
    y = layer_norm(x, p["norm_1"])
    q, k, v = (a.reshape(batch, length, heads, -1) for a in jnp.split(y @ p["qkv"], 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(width / heads)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(batch, length, width)
    x = x + mixed @ p["out"]
    return x + jax.nn.gelu(layer_norm(x, p["norm_2"]) @ p["up"]) @ p["down"]


def block_shapes(width: int, *leading: int) -> dict[str, Any]:
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    return {
        **{name: f32(*leading, *shape) for name, shape in shapes.items()},
        "norm_1": f32(*leading, width),
        "norm_2": f32(*leading, width),
    }


def decoder_unrolled(wrap: Wrap) -> Callable[..., Any]:
    layer = wrap(block)

    def loss(blocks: Any, x: Any) -> Any:
        for p in blocks:
            x = layer(x, p)
        return (x**2).mean()

    return loss


def decoder_scan(wrap: Wrap) -> Callable[..., Any]:
    body = wrap(lambda x, p: (block(x, p), None))
    return lambda blocks, x: (lax.scan(body, x, blocks)[0] ** 2).mean()


def vit(wrap: Wrap) -> Callable[..., Any]:
    """A vision transformer: patches by a convolution, blocks without a mask, mean pooling and a classifier."""
    layer = wrap(lambda x, p: block(x, p, causal=False))

    def loss(params: Any, images: Any, labels: Any) -> Any:
        x = lax.conv_general_dilated(
            images, params["patch"], (8, 8), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = x.reshape(x.shape[0], -1, x.shape[-1]) + params["position"]
        for p in params["blocks"]:
            x = layer(x, p)
        return ((x.mean(1) @ params["head"] - labels) ** 2).mean()

    return loss


# U-Net


def convolution(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def conv_block(x: Any, p: Any) -> Any:
    return jax.nn.silu(convolution(jax.nn.silu(convolution(x, p["a"])), p["b"]))


def unet(wrap: Wrap) -> Callable[..., Any]:
    layer = wrap(conv_block)

    def halve(x: Any) -> Any:
        b, h, w, c = x.shape
        return x.reshape(b, h // 2, 2, w // 2, 2, c).mean((2, 4))

    def double(x: Any) -> Any:
        return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)

    def loss(params: Any, images: Any) -> Any:
        x, skips = images, []
        for p in params["down"]:
            x = layer(x, p)
            skips.append(x)
            x = halve(x)
        x = layer(x, params["middle"])
        for p, skip in zip(params["up"], reversed(skips), strict=True):
            x = layer(jnp.concatenate([double(x), skip], -1), p)
        return (x**2).mean()

    return loss


def unet_shapes(width: int = 16, levels: int = 3) -> dict[str, Any]:
    def pair(inputs: int, outputs: int) -> dict[str, Any]:
        return {"a": f32(3, 3, inputs, outputs), "b": f32(3, 3, outputs, outputs)}

    widths = [width * 2**i for i in range(levels + 1)]
    inputs = [3, *widths[:-1]]
    return {
        "down": [pair(inputs[i], widths[i]) for i in range(levels)],
        "middle": pair(widths[levels - 1], widths[levels]),
        "up": [pair(widths[i + 1] + widths[i], widths[i]) for i in reversed(range(levels))],
    }


# LSTM


def lstm(wrap: Wrap) -> Callable[..., Any]:
    def loss(params: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, c = carry
            gates = x @ params["input"] + h @ params["hidden"] + params["bias"]
            i, f, g, o = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((xs.shape[1], params["hidden"].shape[0]), xs.dtype)
        _, hs = lax.scan(wrap(step), (start, start), xs)
        return (hs**2).mean()

    return loss


def lstm_shapes(width: int = 256) -> dict[str, Any]:
    return {"input": f32(width, 4 * width), "hidden": f32(width, 4 * width), "bias": f32(4 * width)}


VIT_SHAPES = {
    "patch": f32(8, 8, 3, 192),
    "position": f32(1, 144, 192),
    "blocks": [block_shapes(192) for _ in range(6)],
    "head": f32(192, 10),
}
DOTS, NO_BATCH, NOTHING = "dots_saveable", "dots_with_no_batch_dims_saveable", "nothing_saveable"

NETS = [
    Net("MLP unrolled", DOTS, "dots", mlp_unrolled, ([f32(1024, 1024)] * 8, f32(1024, 1024))),
    Net("MLP scan", DOTS, "dots", mlp_scan, (f32(8, 1024, 1024), f32(1024, 1024))),
    Net("MLP scan", NOTHING, "nothing", mlp_scan, (f32(8, 1024, 1024), f32(1024, 1024))),
    Net("decoder unrolled", NO_BATCH, "dots_no_batch", decoder_unrolled, ([block_shapes(256)] * 6, f32(4, 256, 256))),
    Net("decoder scan", NO_BATCH, "dots_no_batch", decoder_scan, (block_shapes(256, 6), f32(4, 256, 256))),
    Net("decoder scan", NOTHING, "nothing", decoder_scan, (block_shapes(256, 6), f32(4, 256, 256))),
    Net("U-Net", DOTS, "dots", unet, (unet_shapes(), f32(4, 64, 64, 3))),
    Net("LSTM 200 steps", DOTS, "dots", lstm, (lstm_shapes(), f32(200, 16, 256))),
    Net("LSTM 200 steps", NOTHING, "nothing", lstm, (lstm_shapes(), f32(200, 16, 256))),
    Net("ViT", NO_BATCH, "dots_no_batch", vit, (VIT_SHAPES, f32(8, 96, 96, 3), f32(8, 10))),
]


def all_nets() -> list[Net]:
    """`NETS`, and FlaxGPT2 where transformers is installed."""
    try:
        from gpt2 import GPT2
    except ImportError:
        return NETS
    return [*NETS, GPT2]
