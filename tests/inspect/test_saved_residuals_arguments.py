"""`policy=` and `argnums=` of the report: what `remat.grad` with the same would keep."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.errors import ArgumentError, PolicyError

W = {"a": jnp.ones((4, 4)), "b": jnp.ones((4, 4))}
X = jnp.ones((3, 4))


def loss(w: Any, x: Any, n: int = 2) -> Any:
    return jnp.sum(jnp.tanh(x @ w["a"]) @ w["b"] * n)


@pytest.mark.parametrize("policy", ["nothing", "dots", "everything", "balanced"])
@pytest.mark.parametrize("argnums", [None, 0, 1, (0, 1), -2])
def test_the_report_is_that_of_the_gradient(policy: str, argnums: Any) -> None:
    reported = remat.saved_residuals(loss, W, X, policy=policy, argnums=argnums)
    chosen = {None: (0, 1), 0: (0,), 1: (1,), (0, 1): (0, 1), -2: (0,)}[argnums]

    def partial(*parts: Any) -> Any:
        full = [W, X]
        for i, part in zip(chosen, parts, strict=True):
            full[i] = part
        return loss(*full)

    held = jax.eval_shape(lambda *parts: remat.vjp(partial, *parts, policy=policy)[1], *([W, X][i] for i in chosen))
    kept = jax.tree.leaves(held)
    assert sum(r.total_bytes for r in reported) == sum(k.size * k.dtype.itemsize for k in kept)


def test_what_is_not_differentiated_needs_less() -> None:
    of_both = remat.saved_residuals(loss, W, X, policy="everything")
    of_x = remat.saved_residuals(loss, W, X, policy="everything", argnums=1)
    assert {r.origin.text for r in of_x} < {r.origin.text for r in of_both}
    assert "w['a']" in {r.origin.text for r in of_x}
    assert "x" not in {r.origin.text for r in of_x}


def test_a_policy_is_a_region_around_the_function() -> None:
    around = remat.saved_residuals(remat.checkpoint(loss, policy="dots"), W, X)
    assert remat.saved_residuals(loss, W, X, policy="dots") == around
    assert remat.saved_residuals(loss, W, X).new_bytes > remat.saved_residuals(loss, W, X, policy="nothing").new_bytes


def test_printed_too(capsys: pytest.CaptureFixture[str]) -> None:
    remat.print_saved_residuals(loss, W, X, policy="nothing", argnums=1)
    printed = capsys.readouterr().out
    assert "0 B kept" in printed
    assert "from the argument w['b']" in printed


def test_mistakes() -> None:
    with pytest.raises(ArgumentError, match="argnums=5 is out of range"):
        remat.saved_residuals(loss, W, X, argnums=5)
    with pytest.raises(PolicyError):
        remat.saved_residuals(loss, W, X, policy="notting")
