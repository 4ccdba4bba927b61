"""For each kind of finding a program in which it is right, and one almost like it in which it would be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

import remat
from remat.findings.finding import Findings

name = remat.checkpoint_name


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


W, X, STACK = f32(512, 512), f32(512, 512), f32(6, 512, 512)
MIB = 2**20


@dataclass(frozen=True)
class Program:
    """A loss with its arguments, and the options of `remat.check`."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    policy: Any = None
    target: str = "cpu"

    def check(self) -> Findings:
        return remat.check(self.fun, *self.args, policy=self.policy, target=self.target)


@dataclass(frozen=True)
class Case:
    """What fires, with the bytes at stake and a part of what to write; and what does not."""

    code: str
    fires: Program
    bytes: int
    subject: str
    fix: str
    silent: Program
    also: tuple[str, ...] = field(default=())
    """Other kinds that are rightly told of the first program, on some versions of JAX."""


# Names.


def named(w: Any, x: Any) -> Any:
    return (jnp.tanh(name(x @ w, "product")) @ w).sum()


def scoped(w: Any, x: Any) -> Any:
    with jax.named_scope("encoder"):
        return jnp.tanh(jnp.tanh(x @ w) @ w).sum()


def named_result(w: Any, x: Any) -> Any:
    return name(jnp.tanh(x @ w) @ w, "logits").sum()


def name_on_a_copy(w: Any, x: Any) -> Any:
    y = jnp.tanh(x @ w)
    name(y, "y")
    return jnp.sin(y).sum()


def name_that_is_used(w: Any, x: Any) -> Any:
    return jnp.sin(name(jnp.tanh(x @ w), "y")).sum()


# Policies.


def experts(w: Any, x: Any) -> Any:
    return jax.vmap(lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w))(w, x).sum()


def one_for_all(w: Any, x: Any) -> Any:
    return jax.vmap(lambda x: jnp.tanh(jnp.tanh(x @ w) @ w))(x).sum()


def short(w: Any, x: Any) -> Any:
    return (jnp.exp(jnp.tanh(x @ w)) @ w).sum()


def deep(w: Any, x: Any) -> Any:
    for _ in range(16):
        x = jnp.sin(jnp.tanh(x @ w))
    return x.sum()


def layers(inner: Any) -> Callable[..., Any]:
    """A loop over layers of two products each, as checkpoints under the policy `inner`."""

    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(jnp.tanh(x @ w) @ w.T), None

    body = layer if inner == "none" else remat.checkpoint(layer, policy=inner)
    return lambda ws, x: lax.scan(body, x, ws)[0].sum()


def widened(w: Any, x: Any) -> Any:
    """The backward pass reads the mask and the product, less than half of what the name is on."""
    for _ in range(2):
        x = jnp.where(name(jnp.concatenate([x] * 2), "wide")[:512] > 0, x @ w, 0.0)
    return x.sum()


# Offload.


def carried_in(w: Any, x: Any) -> Any:
    def body(x: Any, w: Any) -> Any:
        return jnp.tanh(name(x, "x") @ w), None

    return lax.scan(body, x, w)[0].sum()


def carried_out(w: Any, x: Any) -> Any:
    def body(x: Any, w: Any) -> Any:
        return name(jnp.tanh(x @ w), "x").T, None  # a view of what has the name

    return lax.scan(body, x, w)[0].sum()


HUGE = jax.ShapeDtypeStruct((6, 16384, 16384), jnp.bfloat16), jax.ShapeDtypeStruct((65536, 16384), jnp.bfloat16)


# What is kept.


def two_names(w: Any, x: Any) -> Any:
    def body(x: Any, w: Any) -> Any:
        h = x @ w
        return jnp.tanh(name(h, "a")) * jnp.sin(name(h, "b")), None

    return lax.scan(body, x, w)[0].sum()


def casts(w: Any, x: Any) -> Any:
    def body(x: Any, w: Any) -> Any:
        h = jnp.tanh(x @ w)
        return (h.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32) * h, None

    return lax.scan(body, x, w)[0].sum()


def same_result(weights: bool) -> Callable[..., Any]:
    def loss(w: Any, x: Any) -> Any:
        def body(x: Any, _: Any) -> Any:
            x = jnp.tanh(x @ w)
            return x, w if weights else x * 2.0

        x, ys = lax.scan(body, x, None, length=6)
        return x.sum() + ys.mean()

    return loss


def differences(wide: bool) -> Callable[..., Any]:
    def loss(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            if wide:
                return jnp.tanh(c + jnp.sin(x[:, None] - c[None, :]).sum(0)), None
            return jnp.tanh(c + jnp.sin(jnp.outer(x, x) @ c)), None

        return lax.scan(body, x, None, length=6)[0].sum()

    return loss


def history(whole: bool) -> Callable[..., Any]:
    def loss(w: Any, x: Any) -> Any:
        def body(buffer: Any, i: Any) -> Any:
            read = jnp.sin(buffer).mean(0) if whole else jnp.sin(buffer[i])
            return lax.dynamic_update_slice(buffer, jnp.tanh(read @ w)[None], (i, 0)), None

        return lax.scan(body, x, jnp.arange(64))[0].sum()

    return loss


# Effects and flags.


def dropout(w: Any, x: Any, key: Any) -> Any:
    mask = name(jax.random.bernoulli(key, 0.5, x.shape), "mask")
    return jnp.sin(jnp.where(mask, jnp.tanh(x @ w), 0.0)).sum()


KEY = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)


def scaled(w: Any, x: Any) -> Any:
    h = jnp.tanh(x @ w)
    return (h * io_callback(lambda h: np.float32(h), X, lax.stop_gradient(h)) @ w).sum()


def logged(w: Any, x: Any) -> Any:
    h = jnp.tanh(x @ w)
    jax.debug.callback(lambda h: None, h)
    return (jnp.sin(h) @ w).sum()


def flagged(wrap: Any) -> Callable[..., Any]:
    inner = wrap(lambda x, flag: jnp.where(flag, jnp.sin(x), jnp.cos(x)))
    return lambda x: inner(x, True).sum()


def plain_checkpoint(policy: Any) -> Callable[..., Any]:
    return lambda w, x: jnp.sin(jax.checkpoint(lambda x: jnp.sin(x @ w), policy=policy)(x)).sum()


EVERYTHING = jax.checkpoint_policies.everything_saveable

CASES = [
    Case("unknown-name", Program(named, (W, X), "names:prodct"), MIB, "'prodct'", "Write 'product'.",
         Program(named, (W, X), "names:product")),
    Case("unknown-scope", Program(scoped, (W, X), "within:encodr:dots"), 0, "'encodr'", "Write 'encoder'.",
         Program(scoped, (W, X), "within:encoder:dots")),
    Case("name-not-kept", Program(named_result, (W, X), "names:logits"), MIB, "'logits'", "the result of tanh at",
         Program(named, (W, X), "names:product")),
    Case("dead-name", Program(name_on_a_copy, (W, X), "names:y"), MIB, "'y'", "x = remat.checkpoint_name(x, 'y')",
         Program(name_that_is_used, (W, X), "names:y")),
    Case("unmatched-products", Program(experts, (f32(3, 512, 512), f32(3, 512, 512)), "dots_no_batch"), 6 * MIB,
         "dot_general", "Write 'dots'", Program(one_for_all, (W, f32(3, 512, 512)), "dots_no_batch")),
    Case("no-lower-peak", Program(short, (W, X), "nothing"), 5 * MIB + 4, "nothing", "put checkpoints around parts",
         Program(deep, (W, X), "nothing")),
    Case("keeps-more", Program(widened, (W, X), "names:wide"), 4 * MIB - MIB - MIB // 2, "names:wide",
         "keep less", Program(widened, (W, X), "nothing"), also=("no-lower-peak",)),
    Case("kept-twice", Program(casts, (STACK, X)), 3 * MIB, "convert_element_type", "Use one of the two",
         Program(casts, (STACK, X), "everything")),
    Case("two-names", Program(two_names, (STACK, X), "names:a,b"), 6 * MIB, "'b'", "one name",
         Program(two_names, (STACK, X), "names:a")),
    Case("overridden-policy", Program(layers("nothing"), (STACK, X), "dots"), 6 * MIB, "dots", "Leave the outer policy",
         Program(layers("none"), (STACK, X), "dots")),
    Case("ignored-policy", Program(layers("dots"), (STACK, X), "nothing"), 2 * 6 * MIB, "dots", "what dots keeps",
         Program(layers("nothing"), (STACK, X), "nothing")),
    Case("region-without-policy", Program(plain_checkpoint(None), (W, X)), MIB, "checkpoint", "policy='nothing'",
         Program(plain_checkpoint(EVERYTHING), (W, X)), also=("no-lower-peak",)),
    Case("offload-in-place", Program(carried_out, (STACK, X), "offload:x", "tpu:v5e:2x2"), 6 * MIB, "'x'",
         "where the body begins", Program(carried_in, (STACK, X), "offload:x", "tpu:v5e:2x2"), also=("slow-offload",)),
    Case("offload-same-memory", Program(carried_in, (STACK, X), "offload:x"), 6 * MIB, "'x'", "names:...",
         Program(carried_in, (STACK, X), "offload:x", "tpu:v5e:2x2")),
    Case("slow-offload", Program(carried_in, (STACK, X), "offload:x", "gpu:H100"), 6 * MIB, "'x'", "offload less",
         Program(carried_in, HUGE, "offload:x", "gpu:H100")),
    Case("stacked-invariant", Program(same_result(True), (W, X)), 5 * MIB, "f32[512,512]", "after the loop",
         Program(same_result(False), (W, X))),
    Case("stacked-expansion", Program(differences(True), (f32(512),)), 6 * (MIB - 4096), "cos", "remat.checkpoint",
         Program(differences(False), (f32(512),))),
    Case("carry-history", Program(history(True), (f32(128, 128), f32(64, 128))), 63 * 64 * 512, "f32[64,128]",
         "checkpointed_scan", Program(history(False), (f32(128, 128), f32(64, 128)))),
    Case("random-recomputed", Program(dropout, (W, X, KEY), "nothing"), MIB, "random_bits", "names:mask",
         Program(dropout, (W, X, KEY), "names:mask"), also=("no-lower-peak",)),
    Case("effects-kept", Program(scaled, (W, X), "nothing"), MIB, "io_callback", "pure_callback",
         Program(logged, (W, X), "nothing")),
    Case("traced-flag", Program(flagged(jax.checkpoint), (X,)), MIB, "a checkpoint", "static_argnums",
         Program(flagged(remat.checkpoint), (X,)), also=("region-without-policy",)),
]  # fmt: skip
"""One of each kind."""
