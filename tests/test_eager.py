"""Outside jit, what came from a jitted function runs as one compiled unit, as in JAX."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import remat
from remat import eager, jax_compat

X = jnp.linspace(-2.0, 2.0, 12).reshape(3, 4)


@jax.jit
def inner(x: Array) -> Array:
    for _ in range(5):
        x = jnp.sin(x) * jnp.cos(x) + x
    return x


def loss(x: Array) -> Array:
    return jnp.sum(jnp.tanh(inner(jnp.exp(x) * x)) * jax.nn.silu(x))


def units(fun: Any, *args: Any) -> list[list[str]]:
    """The primitives of each unit of the programs that run when a function is called outside jit."""
    found: list[list[str]] = []
    known = eager._units_of

    def noted(opened: Any) -> Any:
        made = known(opened)
        by_output = {v: e.primitive.name for e in opened.equations for v in e.outvars}
        found.extend([by_output[v] for v in unit.outputs] for unit in made)
        return made

    eager._units_of = noted
    try:
        fun(*args)
    finally:
        eager._units_of = known
    return found


@pytest.mark.parametrize("policy", ["nothing", "dots", "everything"])
def test_gradients_equal_those_of_jax_to_the_last_bit(policy: str) -> None:
    """The gradient of a normalization is a small difference of large numbers: bits show what ran together."""

    def normalized(x: Array) -> Array:
        y = (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5)
        return jnp.mean(jax.nn.silu(y) ** 2)

    x = 100 * jax.random.normal(jax.random.key(0), (4, 8))
    theirs = jax.grad(jax.checkpoint(normalized, policy=jax.checkpoint_policies.nothing_saveable))(x)
    np.testing.assert_array_equal(remat.grad(normalized, policy=policy)(x), theirs)


def test_a_jitted_function_is_one_unit_forward_and_two_backward() -> None:
    found = units(remat.grad(loss, policy="nothing"), X)
    long = [unit for unit in found if len(unit) > 1]
    assert not any("exp" in unit or "tanh" in unit for unit in long)  # of the function itself, one by one
    sines = [unit for unit in found if "sin" in unit or "cos" in unit]
    assert len(sines) <= 2  # recomputed at once (the forward pass hands on one result)


def test_what_is_recomputed_does_not_run_with_what_has_cotangents() -> None:
    """As in JAX: compiled together, the same operations would round differently."""
    parts: list[set[bool]] = []
    jaxpr = jax.make_jaxpr(remat.grad(loss, policy="nothing"))(X)
    for region in (e for e in jaxpr.eqns if e.primitive.name == "remat_region"):
        opened = jax_compat.unwrap(region.params["jaxpr"])
        for _, group in itertools.groupby(opened.equations, eager._unit_key()):
            for part in eager._recomputed_first(list(group)):
                parts.append({"rematted_computation" in str(e.source_info.name_stack) for e in part})
    assert any(len(part) == 1 and True in part for part in parts)
    assert all(len(part) == 1 for part in parts)


def test_arrays_are_freed_after_their_last_use() -> None:
    jaxpr = jax.make_jaxpr(remat.grad(loss, policy="nothing"))(X)
    for region in (e for e in jaxpr.eqns if e.primitive.name == "remat_region"):
        opened = jax_compat.unwrap(region.params["jaxpr"])
        left = set(opened.inputs)
        for unit in eager._units_of(opened):
            assert left.issuperset(unit.inputs)  # nothing is freed too early
            left.update(unit.outputs)
            left.difference_update(unit.last_uses)
        results = {a for a in opened.outputs if not isinstance(a, jax_compat.Literal)}
        assert left - set(opened.inputs) <= results


def test_a_second_call_makes_no_units_again() -> None:
    gradient = remat.grad(loss, policy="dots")
    gradient(X)
    assert units(gradient, X) == []
