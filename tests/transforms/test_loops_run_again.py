"""Loops inside loops, which run again in the backward pass, do not compute again what the policy keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import remat
from remat.testing import check_gradients

S = jnp.sin
CP = jax.checkpoint_policies
X = jnp.linspace(0.0, 0.3, 16).reshape(4, 4)


def twice(step: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A loop inside a loop; the inner one's stacked results count too."""

    def f(x: Any) -> Any:
        def outer(c: Any, _: Any) -> Any:
            c, results = lax.scan(step, c, None, length=3)
            return c, sum((r.sum() for r in jax.tree.leaves(results)), 0.0)

        c, totals = lax.scan(outer, x, None, length=2)
        return c.sum() + totals.sum()

    return f


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "product then sine": lambda c, _: (S(c @ c), None),
    "carry is a product": lambda c, _: (S(c) @ X, None),
    "product that no derivative reads": lambda c, _: (c @ X + S(c), None),
    "product is a result too": lambda c, _: (S(c) + c @ X, c @ X),
    "two products in turn": lambda c, _: (S((c @ X + 0.1) @ X) + c, None),
}


def count(grad: Any, word: str) -> int:
    return jax.jit(grad).lower(X).as_text().count(word)


@pytest.mark.parametrize("policy", ["dots", "everything"])
@pytest.mark.parametrize("name", STEPS)
def test_what_is_kept_is_not_run_again(name: str, policy: str) -> None:
    f = twice(STEPS[name])
    theirs = {"dots": CP.dots_saveable, "everything": CP.everything_saveable}[policy]
    for word in ("dot_general", "stablehlo.sine") if policy == "everything" else ("dot_general",):
        expected = count(jax.grad(jax.checkpoint(f, policy=theirs)), word)
        assert count(remat.grad(f, policy=policy), word) <= expected


@pytest.mark.parametrize("name", STEPS)
def test_gradients_of_loops_that_run_again(name: str) -> None:
    policies = [None, "nothing", "dots", "everything", "burn", "substituting:dots"]
    check_gradients(twice(STEPS[name]), X, policies=policies, compiled=True)


def test_a_loop_that_runs_again_for_its_result() -> None:
    """No derivative of the inner loop reads its carry, but what comes after it reads the final value."""

    def f(x: Any) -> Any:
        def outer(c: Any, _: Any) -> Any:
            c = lax.scan(lambda c, _: (c @ X * 2, None), c, None, length=3)[0]
            return S(c), None

        return lax.scan(outer, x, None, length=2)[0].sum()

    expected = count(jax.grad(jax.checkpoint(f, policy=CP.dots_saveable)), "dot_general")
    assert count(remat.grad(f, policy="dots"), "dot_general") <= expected
    check_gradients(f, X, policies=[None, "nothing", "dots", "everything"], compiled=True)


def test_a_carry_that_the_policy_does_not_keep_is_computed_again() -> None:
    found = remat.saved_residuals(remat.checkpoint(twice(STEPS["product that no derivative reads"]), policy="dots"), X)
    assert not any(r.carried and len(r.loops) == 2 for r in found)
