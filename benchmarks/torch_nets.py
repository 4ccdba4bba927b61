"""Nets written twice, in JAX and in torch: the same operations on the same shapes, one after the other.

Softmax, norms and rotations are written out in both, since what each library would do inside differs. What is no
weight (inputs, masks, tables of a rotation) is an argument, so that neither side can keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax
from nets import f32, mlp_unrolled

JaxLayer = TorchLayer = Callable[..., Any]


@dataclass(frozen=True)
class Twin:
    """`in_jax(weights, *others)` and `in_torch` of the same are losses; `shapes` are the types of their arguments. The
    weights are differentiated."""

    name: str
    in_jax: Callable[..., Any]
    in_torch: Callable[..., Any]
    shapes: tuple[Any, ...]

    def tensors(self) -> tuple[Any, ...]:
        """Arguments for torch, in the same trees. No value of them is ever looked at."""
        weights, *others = self.shapes
        return (
            jax.tree.map(lambda s: torch.empty(s.shape, requires_grad=True), weights),
            *jax.tree.map(lambda s: torch.empty(s.shape), others),
        )


# MLP: h = x w, x = h sigmoid(h)


def torch_mlp(weights: Any, x: Any) -> Any:
    for w in weights:
        h = x @ w
        x = h * torch.sigmoid(h)
    return x.sum()


def mlp(layers: int = 8, width: int = 1024) -> Twin:
    shapes = ([f32(width, width)] * layers, f32(width, width))
    return Twin(f"MLP, {layers} layers", mlp_unrolled(lambda layer: layer), torch_mlp, shapes)


# GPT: layer norm, masked attention, layer norm, tanh gelu


def jax_layer_norm(x: Any, gain: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt((centered * centered).mean(-1, keepdims=True) + 1e-5) * gain


def torch_layer_norm(x: Any, gain: Any) -> Any:
    centered = x - x.mean(-1, keepdim=True)
    return centered * torch.rsqrt((centered * centered).mean(-1, keepdim=True) + 1e-5) * gain


def jax_attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Of arrays (batch, heads, length, width of a head); `mask` is 0 where something is seen, else very negative."""
    scores = q @ k.transpose(0, 1, 3, 2) * q.shape[-1] ** -0.5 + mask
    exponentials = jnp.exp(scores - lax.stop_gradient(scores.max(-1, keepdims=True)))
    return (exponentials / exponentials.sum(-1, keepdims=True)) @ v


def torch_attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = q @ k.permute(0, 1, 3, 2) * q.shape[-1] ** -0.5 + mask
    exponentials = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
    return (exponentials / exponentials.sum(-1, keepdim=True)) @ v


def jax_heads(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def torch_heads(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:2], heads, -1).permute(0, 2, 1, 3)


def jax_gpt_block(x: Any, p: dict[str, Any], mask: Any, heads: int) -> Any:
    y = jax_layer_norm(x, p["norm_1"])
    q, k, v = (jax_heads(y @ p[name], heads) for name in "qkv")
    mixed = jax_attention(q, k, v, mask).transpose(0, 2, 1, 3).reshape(x.shape)
    x = x + mixed @ p["out"]
    h = jax_layer_norm(x, p["norm_2"]) @ p["up"]
    return x + (0.5 * h * (1 + jnp.tanh(0.7978845608 * (h + 0.044715 * (h * h * h))))) @ p["down"]


def torch_gpt_block(x: Any, p: dict[str, Any], mask: Any, heads: int) -> Any:
    y = torch_layer_norm(x, p["norm_1"])
    q, k, v = (torch_heads(y @ p[name], heads) for name in "qkv")
    mixed = torch_attention(q, k, v, mask).permute(0, 2, 1, 3).reshape(x.shape)
    x = x + mixed @ p["out"]
    h = torch_layer_norm(x, p["norm_2"]) @ p["up"]
    return x + (0.5 * h * (1 + torch.tanh(0.7978845608 * (h + 0.044715 * (h * h * h))))) @ p["down"]


def gpt(blocks: int = 2, width: int = 256, heads: int = 4, length: int = 128, batch: int = 8) -> Twin:
    matrices = {"q": (width, width), "k": (width, width), "v": (width, width), "out": (width, width)}
    matrices |= {"up": (width, 4 * width), "down": (4 * width, width)}
    one = {name: f32(*shape) for name, shape in matrices.items()} | {"norm_1": f32(width), "norm_2": f32(width)}

    def in_jax(weights: Any, x: Any, mask: Any) -> Any:
        for p in weights:
            x = jax_gpt_block(x, p, mask, heads)
        return (x * x).mean()

    def in_torch(weights: Any, x: Any, mask: Any) -> Any:
        for p in weights:
            x = torch_gpt_block(x, p, mask, heads)
        return (x * x).mean()

    return Twin(
        f"GPT, {blocks} blocks", in_jax, in_torch, ([one] * blocks, f32(batch, length, width), f32(length, length))
    )


# Llama: RMS norm, rotated queries and keys, masked attention, gated silu


def jax_rms_norm(x: Any, gain: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


def torch_rms_norm(x: Any, gain: Any) -> Any:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * gain


def jax_rotated(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cos + jnp.concatenate([-x[..., half:], x[..., :half]], -1) * sin


def torch_rotated(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def jax_llama_block(x: Any, p: dict[str, Any], mask: Any, cos: Any, sin: Any, heads: int) -> Any:
    y = jax_rms_norm(x, p["norm_1"])
    q, k, v = (jax_heads(y @ p[name], heads) for name in "qkv")
    mixed = jax_attention(jax_rotated(q, cos, sin), jax_rotated(k, cos, sin), v, mask)
    x = x + mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ p["out"]
    y = jax_rms_norm(x, p["norm_2"])
    gate = y @ p["gate"]
    return x + (gate * jax.nn.sigmoid(gate) * (y @ p["up"])) @ p["down"]


def torch_llama_block(x: Any, p: dict[str, Any], mask: Any, cos: Any, sin: Any, heads: int) -> Any:
    y = torch_rms_norm(x, p["norm_1"])
    q, k, v = (torch_heads(y @ p[name], heads) for name in "qkv")
    mixed = torch_attention(torch_rotated(q, cos, sin), torch_rotated(k, cos, sin), v, mask)
    x = x + mixed.permute(0, 2, 1, 3).reshape(x.shape) @ p["out"]
    y = torch_rms_norm(x, p["norm_2"])
    gate = y @ p["gate"]
    return x + (gate * torch.sigmoid(gate) * (y @ p["up"])) @ p["down"]


def llama(
    blocks: int = 8, width: int = 256, inner: int = 688, heads: int = 4, length: int = 128, batch: int = 8
) -> Twin:
    matrices = {"q": (width, width), "k": (width, width), "v": (width, width), "out": (width, width)}
    matrices |= {"gate": (width, inner), "up": (width, inner), "down": (inner, width)}
    one = {name: f32(*shape) for name, shape in matrices.items()} | {"norm_1": f32(width), "norm_2": f32(width)}
    table = f32(length, width // heads)

    def in_jax(weights: Any, x: Any, mask: Any, cos: Any, sin: Any) -> Any:
        for p in weights:
            x = jax_llama_block(x, p, mask, cos, sin, heads)
        return (x * x).mean()

    def in_torch(weights: Any, x: Any, mask: Any, cos: Any, sin: Any) -> Any:
        for p in weights:
            x = torch_llama_block(x, p, mask, cos, sin, heads)
        return (x * x).mean()

    shapes = ([one] * blocks, f32(batch, length, width), f32(length, length), table, table)
    return Twin(f"llama, {blocks} blocks", in_jax, in_torch, shapes)


TWINS = [mlp(), gpt(), llama()]
