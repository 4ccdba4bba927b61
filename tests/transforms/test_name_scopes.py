"""Inlining a call keeps the name scopes around it, for profilers, policies and reports."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name

import remat

X = jnp.ones((4, 4))


def layer(x: Array, w: Array) -> Array:
    with jax.named_scope("attention"):
        y = jax.nn.silu(x @ w)  # a jitted function of JAX
    with jax.named_scope("mlp"):

        @jax.jit
        def mlp(y: Array) -> Array:
            with jax.named_scope("up"):
                y = jnp.sin(y @ w)
            return y @ w

        y = mlp(y)
    return y


def loss(x: Array, w: Array) -> Array:
    return jnp.sum(layer(x, w) ** 2)


def names_in_program(fun: Any, *args: Any) -> set[str]:
    text = jax.jit(fun).lower(*args).as_text(debug_info=True)
    return set(re.findall(r'loc\("([^"]*/[^"/.]+)"', text))


@pytest.mark.parametrize("policy", ["nothing", "dots"])
def test_equations_of_jitted_functions_stand_in_the_scopes_of_their_calls(policy: str) -> None:
    found = names_in_program(remat.grad(loss, policy=policy), X, X)
    assert any(n.endswith("attention/jit(silu)/mul") for n in found)
    assert any("mlp/jit(mlp)/up/" in n for n in found)
    assert not any(n.startswith(("jit(silu)", "up/")) for n in found)


def test_what_is_recomputed_is_marked_outside_of_the_scopes() -> None:
    found = names_in_program(remat.grad(loss, policy="nothing"), X, X)
    assert any("rematted_computation/mlp/jit(mlp)/up/" in n for n in found)


def test_a_lowered_program_has_the_scopes_of_the_function() -> None:
    def scopes(names: set[str]) -> set[str]:
        return {n.split("/", 1)[1] if n.startswith("jit(") and "/" in n else n for n in names}

    found = scopes(names_in_program(remat.lower(remat.trace(loss)(X, X)), X, X))
    assert any("attention/jit(silu)" in n for n in found)
    assert any("mlp/jit(mlp)/up" in n for n in found)


def kept(fun: Any, policy: Any, *args: Any) -> list[str]:
    found = remat.saved_residuals(remat.checkpoint(fun, policy=policy), *args)
    return [f"{r.scope} {r.origin.text}" for r in found if r.is_new]


def test_within_reaches_into_jitted_functions() -> None:
    (product,) = kept(loss, "within:up:dots", X, X)
    assert product.startswith("mlp/jit(mlp)/up ")
    assert len(kept(loss, "within:mlp:dots", X, X)) == 2
    assert len(kept(loss, "within:attention:dots", X, X)) == 1


def test_within_reaches_into_loops_and_branches() -> None:
    def looped(x: Array, w: Array) -> Array:
        def body(c: Array, _: None) -> Any:
            return lax.cond(c[0, 0] > 0, lambda c: jnp.sin(checkpoint_name(c @ w, "product")), jnp.cos, c), None

        with jax.named_scope("layers"):
            y, _ = lax.scan(body, x, None, length=3)
        return jnp.sum(y**2)

    inside = [k for k in kept(looped, "within:layers:dots", X, X) if "product" in k or "dot_general" in k]
    assert inside
    assert all(k.startswith("layers") for k in inside)
    assert not [k for k in kept(looped, "within:elsewhere:dots", X, X) if "product" in k or "dot_general" in k]
