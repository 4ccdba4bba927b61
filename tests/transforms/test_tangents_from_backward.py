"""Tangents of a region whose residuals are those of its backward pass, which recomputes values in the carries of loops.

They are not linear in the cotangents, and JAX's transpose of a loop takes every carry for linear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name

import remat

C = jnp.float32(0.3)


def delayed(x: Array) -> Array:
    """An inner loop over a carry of the outer one that arrives two steps late, and a branch that reads both."""

    def outer(carry: Any, _: None) -> Any:
        c, _, late, later = carry

        def inner(v: Array, s: Array) -> Any:
            return checkpoint_name(jnp.where(c > v, jnp.sin(c), 0.5 * v), "late"), ()

        v, _ = lax.scan(inner, later, jnp.ones(1), reverse=True, unroll=2)
        return (v, c, jnp.float32(0.4), late), ()

    (_, second, *_), _ = lax.scan(outer, (x, C, x, jnp.float32(0.4)), None, length=4)
    return second * second


def rotated(x: Array) -> Array:
    """Carries that change places, each read by a product."""

    def step(carry: Any, _: None) -> Any:
        a, b, c = carry
        return (b, c, checkpoint_name(jnp.sin(a), "late") * b), ()

    (a, b, c), _ = lax.scan(step, (x, 2 * x, C), None, length=5)
    return a + b * c


def counted(x: Array) -> Array:
    """A carry that nothing differentiated flows through, read by the one that it does."""

    def step(carry: Any, _: None) -> Any:
        x, t = carry

        def inner(v: Array, _: None) -> Any:
            return checkpoint_name(jnp.sin(v * t), "late"), ()

        return (lax.scan(inner, x, None, length=2)[0], t * 1.1), ()

    return lax.scan(step, (x, C), None, length=3)[0][0]


@pytest.mark.parametrize("policy", ["scan_body:names:late", "nothing", "dots", "scan_body:nothing", "everything"])
@pytest.mark.parametrize("fun", [delayed, rotated, counted])
def test_tangents_of_a_region_agree_with_jax(fun: Callable[[Array], Array], policy: str) -> None:
    region = remat.checkpoint(fun, policy=policy)

    def both(x: Array, t: Array) -> Any:
        return remat.linearize(region, x)[1](t), jax.linearize(region, x)[1](t), jax.linearize(fun, x)[1](t)

    ours, theirs, expected = jax.jit(both)(jnp.float32(1.0), jnp.float32(0.7))
    np.testing.assert_allclose(ours, expected, rtol=1e-5)
    np.testing.assert_allclose(theirs, expected, rtol=1e-5)
