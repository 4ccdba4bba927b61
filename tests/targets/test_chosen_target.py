"""`target=`: what a backward pass is made for, whatever JAX would run on and whenever its parts are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import remat
from remat.errors import TargetError
from remat.targets.current import use_target

W = [jnp.full((8, 8), 0.1 * (i + 1)) for i in range(6)]
X = jnp.ones((4, 8))
TPU = "tpu:v5e:2x2"


def loss(ws: list[Array], x: Array) -> Array:
    for w in ws:
        x = jnp.tanh(x @ w) * jnp.exp(-x)
    return jnp.sum(x**2)


def text(fun: Callable[..., Any]) -> str:
    """The jaxpr, without the marks of regions, which name the target."""
    jaxpr = str(jax.make_jaxpr(fun)(W, X))
    return "\n".join(line for line in jaxpr.splitlines() if "marks=" not in line)


def under(target: str, fun: Callable[..., Any]) -> str:
    with use_target(target):
        return text(fun)


CALLS = {
    "grad": lambda target: remat.grad(loss, policy="nothing", target=target),
    "value_and_grad": lambda target: remat.value_and_grad(loss, policy="nothing", target=target),
    "vjp": lambda target: lambda ws, x: remat.vjp(loss, ws, x, policy="nothing", target=target)[1](1.0),
    "linearize": lambda target: lambda ws, x: remat.linearize(loss, ws, x, policy="nothing", target=target)[1](ws, x),
    "checkpoint": lambda target: jax.grad(remat.checkpoint(loss, policy="nothing", target=target)),
    "segments": lambda target: remat.grad(loss, policy="segments:nothing", target=target),
    "hessian": lambda target: jax.grad(
        lambda ws, x: jnp.sum(remat.grad(loss, 1, policy="nothing", target=target)(ws, x) ** 2)
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_program_is_that_of_the_target(call: str) -> None:
    chosen = CALLS[call]
    assert text(chosen(TPU)) == under(TPU, chosen(None))
    assert text(chosen(remat.Target.parse(TPU))) == text(chosen(TPU))
    assert under(TPU, chosen("cpu")) == under("cpu", chosen(None))  # what is chosen counts more than what is around


def test_targets_make_a_difference_here() -> None:
    assert under(TPU, CALLS["grad"](None)) != under("cpu", CALLS["grad"](None))


def test_parts_that_are_made_late_are_for_the_target_too() -> None:
    """Of two results one has a cotangent: that backward program is made when JAX transposes."""

    def two(ws: list[Array], x: Array) -> tuple[Array, Array]:
        return loss(ws, x), jnp.sum(x)

    def fun(target: str | None) -> Callable[..., Any]:
        return lambda ws, x: jax.vjp(remat.checkpoint(two, policy="nothing", target=target), ws, x)[1]((1.0, 0.0))

    assert text(fun(TPU)) == under(TPU, fun(None))


def test_gradients_are_the_same() -> None:
    for ours, theirs in zip(
        jax.tree.leaves(remat.grad(loss, policy="nothing", target=TPU)(W, X)),
        jax.tree.leaves(jax.grad(loss)(W, X)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize("make", [lambda t: remat.grad(loss, target=t), lambda t: remat.checkpoint(loss, target=t)])
def test_a_name_that_is_no_target_is_told_at_once(make: Callable[[str], Any]) -> None:
    with pytest.raises(TargetError, match="Did you mean 'gpu:H100'"):
        make("h100")
