"""Nets of the memory benchmark at training size, in bfloat16: for accelerators, whose fast memory holds small ones.

A TPU keeps up to 128 MiB of arrays in its vector memory, which is no part of the temporaries that are measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from nets import (
    DOTS,
    NO_BATCH,
    Net,
    Wrap,
    block,
    block_shapes,
    layer_norm,
    lstm,
    lstm_shapes,
    mlp_scan,
    mlp_unrolled,
    unet,
    unet_shapes,
    vit,
)

HEADS, VOCABULARY = 16, 32768


def bf16(shapes: Any) -> Any:
    """The same shapes in bfloat16."""
    return jax.tree.map(lambda t: jax.ShapeDtypeStruct(t.shape, jnp.bfloat16), shapes)


def array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def cross_entropy(params: Any, x: Any, tokens: Any) -> Any:
    """The loss of a language model: the next token, with logits in 32 bits."""
    logits = (layer_norm(x, params["norm"]) @ params["head"]).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), tokens[:, 1:, None], axis=-1).mean()


def decoder_unrolled(wrap: Wrap) -> Callable[..., Any]:
    layer = wrap(lambda x, p: block(x, p, HEADS))

    def loss(params: Any, tokens: Any) -> Any:
        x = params["embedding"][tokens]
        for p in params["blocks"]:
            x = layer(x, p)
        return cross_entropy(params, x, tokens)

    return loss


def decoder_scan(wrap: Wrap) -> Callable[..., Any]:
    body = wrap(lambda x, p: (block(x, p, HEADS), None))

    def loss(params: Any, tokens: Any) -> Any:
        x, _ = lax.scan(body, params["embedding"][tokens], params["blocks"])
        return cross_entropy(params, x, tokens)

    return loss


def decoder_shapes(width: int, blocks: Any) -> dict[str, Any]:
    return {
        "embedding": array(VOCABULARY, width),
        "blocks": bf16(blocks),
        "norm": array(width),
        "head": array(width, VOCABULARY),
    }


WIDTH = 2048
TOKENS = jax.ShapeDtypeStruct((4, 2048), jnp.int32)
VIT_SHAPES = {
    "patch": array(8, 8, 3, 1024),
    "position": array(1, 784, 1024),
    "blocks": [bf16(block_shapes(1024)) for _ in range(6)],
    "head": array(1024, 1000),
}
UNROLLED = decoder_shapes(WIDTH, [block_shapes(WIDTH)] * 4)
SCANNED = decoder_shapes(WIDTH, block_shapes(WIDTH, 8))

TRAINING_NETS = [
    Net("MLP unrolled", DOTS, "dots", mlp_unrolled, ([array(8192, 8192)] * 8, array(8192, 8192))),
    Net("MLP scan", DOTS, "dots", mlp_scan, (array(8, 8192, 8192), array(8192, 8192))),
    Net("decoder unrolled", NO_BATCH, "dots_no_batch", decoder_unrolled, (UNROLLED, TOKENS)),
    Net("decoder scan", NO_BATCH, "dots_no_batch", decoder_scan, (SCANNED, TOKENS)),
    Net("U-Net", DOTS, "dots", unet, (bf16(unet_shapes(64)), array(64, 128, 128, 3))),
    Net("LSTM 512 steps", DOTS, "dots", lstm, (bf16(lstm_shapes(1024)), array(512, 256, 1024))),
    Net("ViT", NO_BATCH, "dots_no_batch", vit, (VIT_SHAPES, array(32, 224, 224, 3), array(32, 1000))),
]

# Sharded over eight devices, parameters and batch alike ("fully sharded data parallel"): each layer's weights are
# gathered where they are used, and gathered again where they are recomputed with.

FSDP_DEVICES = 8
MESH = AbstractMesh((FSDP_DEVICES,), ("fsdp",), axis_types=(AxisType.Auto,))


def sharded(shapes: Any, dimension: int = 0) -> Any:
    """The same shapes, each sharded over the devices along one dimension where that divides it."""

    def one(t: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        axes: list[str | None] = [None] * len(t.shape)
        if len(t.shape) > dimension and t.shape[dimension] % FSDP_DEVICES == 0:
            axes[dimension] = "fsdp"
        return jax.ShapeDtypeStruct(t.shape, t.dtype, sharding=NamedSharding(MESH, PartitionSpec(*axes)))

    return jax.tree.map(one, shapes)


def stacked(shapes: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a loop over layers: these are stacked along the first dimension, and sharded along the second."""
    return {k: sharded(v, 1 if k == "blocks" else 0) for k, v in shapes.items()}


def fsdp(decoder: Callable[[Wrap], Callable[..., Any]], shapes: Any) -> Callable[[Wrap], Callable[..., Any]]:
    """A decoder told how it is sharded: activations along the batch at each layer, and gradients as parameters are."""

    def along_batch(tree: Any) -> Any:
        batch = NamedSharding(MESH, PartitionSpec("fsdp"))
        return jax.tree.map(lambda x: lax.with_sharding_constraint(x, batch), tree)

    def told(wrap: Wrap) -> Callable[..., Any]:
        loss = decoder(lambda layer: wrap(lambda x, p: along_batch(layer(along_batch(x), p))))

        def sharded_loss(params: Any, tokens: Any) -> Any:
            return loss(jax.tree.map(lambda x, t: lax.with_sharding_constraint(x, t.sharding), params, shapes), tokens)

        return sharded_loss

    return told


FSDP_TOKENS = sharded(jax.ShapeDtypeStruct((4 * FSDP_DEVICES, 2048), jnp.int32))
STACKED, LAYERS = stacked(SCANNED), sharded(UNROLLED)
FSDP_NETS = [
    Net("decoder scan, FSDP", NO_BATCH, "dots_no_batch", fsdp(decoder_scan, STACKED), (STACKED, FSDP_TOKENS)),
    Net("decoder unrolled, FSDP", NO_BATCH, "dots_no_batch", fsdp(decoder_unrolled, LAYERS), (LAYERS, FSDP_TOKENS)),
]
