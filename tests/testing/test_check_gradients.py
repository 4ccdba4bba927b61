"""`check_gradients` is able to fail: with a fault planted in the library it says what is wrong, and where."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from faults import (
    Plant,
    double_gradients_under_jax,
    double_tangent_of_sin,
    double_tangents_of_regions,
    keep_only_last_cotangent,
    lose_second_term_of_transposed_sums,
    lose_tangent_of_names,
    lower_names_to_another_shape,
    lower_names_to_bfloat16,
    planted,
    recompute_cosines_for_sines,
    reverse_what_loops_stack,
    shift_regions_under_jax,
    shift_sin,
)
from jax import lax

import remat
from remat.testing import assert_trees_close, check_gradients, random_cotangent

X = jnp.array([0.3, 0.7, 1.1])


# Functions to differentiate, one for each part of the library that a fault sits in.


def sines(x: Any) -> Any:
    return jnp.sin(jnp.sin(x))


def named_sines(x: Any) -> Any:
    return jnp.sin(remat.checkpoint_name(jnp.sin(x), "inner"))


def sum_of_two(tree: Any) -> Any:
    return {"out": tree["a"] * 2.0 + jnp.sin(tree["b"])}


def named_last(x: Any) -> Any:
    return remat.checkpoint_name(jnp.sin(x), "out")


def used_twice(x: Any) -> Any:
    return jnp.sin(x) * jnp.cos(x)


def loop(x: Any) -> Any:
    return lax.scan(lambda c, s: (jnp.sin(c * s), c), x[0], x)


@dataclasses.dataclass(frozen=True)
class Fault:
    plant: Plant
    function: Callable[[Any], Any]
    message: str
    argument: Any = dataclasses.field(default_factory=lambda: X)
    under_jax: bool = False


PAIR = {"a": X, "b": X + 1}

FAULTS = [
    Fault(double_tangent_of_sin, sines, r"gradient under policy nothing\[0\]"),
    Fault(double_tangents_of_regions, sines, r"gradient under policy nothing\[0\]"),
    Fault(lose_tangent_of_names, named_sines, r"gradient under policy nothing\[0\]"),
    Fault(lose_second_term_of_transposed_sums, sum_of_two, r"gradient under policy nothing\[0\]\['b'\]", PAIR),
    Fault(keep_only_last_cotangent, used_twice, r"gradient under policy nothing\[0\]"),
    Fault(shift_sin, sum_of_two, r"value under policy nothing\['out'\]", PAIR),
    Fault(lower_names_to_bfloat16, named_last, "value under policy nothing: dtype bfloat16, expected float32"),
    Fault(lower_names_to_another_shape, named_last, r"value under policy nothing: shape \(1, 3\), expected \(3,\)"),
    Fault(reverse_what_loops_stack, loop, r"value under policy nothing\[1\]"),
    Fault(recompute_cosines_for_sines, sines, r"gradient under policy nothing\[0\]"),
    Fault(shift_regions_under_jax, sines, "value by JAX under policy nothing", under_jax=True),
    Fault(double_gradients_under_jax, sines, r"gradient by JAX under policy nothing\[0\]", under_jax=True),
]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.plant.__name__)
def test_check_gradients_finds_a_fault_and_names_the_leaf(fault: Fault, compiled: bool) -> None:
    def check() -> None:
        check_gradients(fault.function, fault.argument, under_jax=fault.under_jax, compiled=compiled)

    check()
    with planted(fault.plant), pytest.raises(AssertionError, match=fault.message):
        check()
    check()


def test_a_fault_in_one_policy_passes_where_that_policy_is_not_tried() -> None:
    with planted(recompute_cosines_for_sines):
        check_gradients(sines, X, policies=(None, "everything"))
        with pytest.raises(AssertionError, match="under policy nothing"):
            check_gradients(sines, X, policies=(None, "everything", "nothing"))


def test_check_gradients_refuses_to_check_nothing() -> None:
    with pytest.raises(AssertionError, match="no policy"):
        check_gradients(sines, X, policies=())
    with pytest.raises(AssertionError, match="name argnums"):
        check_gradients(lambda i: i * 2, jnp.arange(3))


def test_check_gradients_returns_what_jax_computes() -> None:
    value, gradients = check_gradients(lambda x, n: x**2 * n, X, jnp.arange(3))
    assert_trees_close(value, X**2 * jnp.arange(3))
    assert_trees_close(gradients, (2 * X * jnp.arange(3) * random_cotangent(value),))
