"""Loops whose carried values are copies, delays and rotations of each other, some of them also results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import remat
from remat.testing import check_gradients

POLICIES = [None, "nothing", "dots", "balanced", "burn", "substituting:dots", "scan_body:dots", "everything"]

S, C = jnp.sin, jnp.cos
Step = Callable[[Any, Any], tuple[Any, Any]]

LOOPS: dict[str, tuple[int, Step]] = {
    "leapfrog": (2, lambda c, s: ((c[0] + 0.1 * S(c[1]) * s, c[0]), (c[0],))),
    "momentum": (2, lambda c, s: ((c[0] - 0.1 * c[1], 0.9 * c[1] + S(c[0])), (c[1], c[0]))),
    "delay by three": (4, lambda c, s: ((S(c[3]) * C(c[2]) + s, c[0], c[1], c[2]), (c[0], c[2]))),
    "rotation": (3, lambda c, s: ((c[1], c[2], S(c[0]) * S(c[1])), (c[0], c[1], c[2]))),
    "swap": (2, lambda c, s: ((S(c[1]), 0.5 * S(c[0])), (c[0], c[1]))),
    "one copied twice": (3, lambda c, s: ((S(c[1]) * S(c[2]), c[0], c[0]), (c[0],))),
    "a carry that stays": (2, lambda c, s: ((S(c[0]) * S(c[1]), c[1]), (c[1], c[0]))),
    "a slice delayed": (2, lambda c, s: ((S(c[0]) * S(c[1]), s), (c[1], s))),
    "a new value delayed": (2, lambda c, s: ((S(c[1]) * s, S(c[0])), (S(c[0]), c[0]))),
    "a result returned twice": (2, lambda c, s: ((S(c[1]), c[0]), (c[0], c[0], S(c[1])))),
    "a literal": (2, lambda c, s: ((S(c[0]) * S(c[1]), jnp.ones_like(c[1])), (c[0], c[1]))),
}


def loop(name: str, length: int, **options: Any) -> Callable[[Any, Any], Any]:
    count, step = LOOPS[name]

    def f(x: Any, slices: Any) -> Any:
        return lax.scan(step, tuple(x * (i + 1) for i in range(count)), slices, length=length, **options)

    return f


def arguments(length: int) -> tuple[Any, Any]:
    return jnp.array([0.3, -0.7]), jnp.linspace(0.5, 1.5, 2 * length).reshape(length, 2)


@pytest.mark.parametrize("name", LOOPS)
def test_carries_that_are_copies_of_each_other(name: str) -> None:
    check_gradients(loop(name, 4), *arguments(4), policies=POLICIES, under_jax=True, compiled=True)


@pytest.mark.parametrize("name", ["leapfrog", "rotation", "a slice delayed"])
@pytest.mark.parametrize("length", [0, 1, 2])
def test_short_loops(name: str, length: int) -> None:
    check_gradients(loop(name, length), *arguments(length), policies=POLICIES, compiled=True)


@pytest.mark.parametrize("options", [{"reverse": True}, {"unroll": 2}, {"reverse": True, "unroll": 3}])
@pytest.mark.parametrize("name", ["leapfrog", "rotation", "a new value delayed"])
def test_reversed_and_unrolled_loops(name: str, options: dict[str, Any]) -> None:
    check_gradients(loop(name, 5, **options), *arguments(5), policies=POLICIES, compiled=True)


@pytest.mark.parametrize("name", ["leapfrog", "rotation", "one copied twice"])
def test_inside_another_loop(name: str) -> None:
    inner = loop(name, 3)

    def f(x: Any, slices: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            carry, results = inner(x, slices)
            return S(carry[0] + 0.3 * carry[-1]), [r.sum(0) for r in results]

        return lax.scan(step, x, None, length=2)

    check_gradients(f, *arguments(3), policies=POLICIES, compiled=True)


def test_a_delayed_result_is_kept_once() -> None:
    """The state before is what the loop returned, so nothing is kept for it beside that."""

    def f(x: Any) -> Any:
        (a, b), states = lax.scan(lambda c, _: ((c[0] + 0.1 * S(c[1]), c[0]), c[0]), (x, 2 * x), None, length=4)
        return a + b + (states**2).sum(0)

    residuals = remat.saved_residuals(remat.checkpoint(f, policy="dots"), jnp.ones(3))
    assert len([r for r in residuals if r.is_new]) == 1


def random_step(seed: int) -> tuple[int, Step]:
    """A step with random equations between carried values, slices and results."""
    rng = random.Random(seed)
    count = rng.randint(2, 4)
    kinds = ["copy", "copy", "sine", "product", "slice", "mix", "literal"]
    plan = [(rng.choice(kinds), rng.randrange(count), rng.randrange(count)) for _ in range(count)]
    results = [(rng.choice(["old", "new", "slice"]), rng.randrange(count)) for _ in range(rng.randint(0, 3))]

    def step(c: Any, s: Any) -> Any:
        make = {
            "copy": lambda a, b: c[a],
            "sine": lambda a, b: S(c[a]),
            "product": lambda a, b: c[a] * S(c[b]),
            "slice": lambda a, b: s * C(c[b]),
            "mix": lambda a, b: S(c[a] + 0.1 * jnp.exp(c[b])),
            "literal": lambda a, b: jnp.ones_like(c[a]),
        }
        new = tuple(make[kind](a, b) for kind, a, b in plan)
        return new, tuple({"old": c[i], "new": new[i], "slice": s}[kind] for kind, i in results)

    return count, step


@pytest.mark.parametrize("seed", range(12))
def test_random_loops(seed: int) -> None:
    count, step = random_step(seed)

    def f(x: Any, slices: Any) -> Any:
        return lax.scan(step, tuple(x * (i + 1) for i in range(count)), slices, reverse=seed % 3 == 0)

    check_gradients(f, *arguments(4), policies=POLICIES[1:], compiled=True)


def test_gradients_of_gradients_through_delayed_states() -> None:
    f = loop("leapfrog", 3)
    x, slices = arguments(3)

    def square(grad: Any) -> Any:
        total = lambda x: sum(a.sum() for a in jax.tree.leaves(f(x, slices)))  # noqa: E731
        return lambda x: (grad(total)(x) ** 2).sum()

    expected = jax.grad(square(jax.grad))(x)
    found = jax.grad(square(lambda g: remat.grad(g, policy="dots")))(x)
    assert jnp.allclose(found, expected, rtol=1e-5)
