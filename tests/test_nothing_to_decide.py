"""Without a policy and without regions inside, the derivative is JAX's own, to the text of the program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

import remat

X = jnp.linspace(0.1, 1.0, 4)


def plain(x: Array) -> Array:
    return jnp.sum(jax.nn.silu(lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=3)[0]))


def with_region(x: Array) -> Array:
    return jnp.sum(jax.checkpoint(jnp.sin)(x))


def with_region_in_a_loop(x: Array) -> Array:
    return jnp.sum(lax.scan(lambda c, _: (remat.checkpoint(jnp.sin)(c), None), x, None, length=3)[0])


def primitives(jaxpr: Any) -> set[str]:
    return {e.primitive.name for e in jaxpr.eqns}


def test_no_region_is_made() -> None:
    ours = jax.make_jaxpr(remat.value_and_grad(plain))(X)
    assert str(ours) == str(jax.make_jaxpr(jax.value_and_grad(plain))(X))
    assert primitives(jax.make_jaxpr(lambda x: remat.vjp(plain, x)[1](1.0))(X)).isdisjoint({"remat_region"})


@pytest.mark.parametrize("fun", [with_region, with_region_in_a_loop])
def test_regions_inside_are_ours_to_decide(fun: Any) -> None:
    assert "remat_region" in primitives(jax.make_jaxpr(remat.grad(fun))(X))
    np.testing.assert_allclose(remat.grad(fun)(X), jax.grad(fun)(X), rtol=1e-6)


def test_a_policy_makes_a_region() -> None:
    assert "remat_region" in primitives(jax.make_jaxpr(remat.grad(plain, policy="everything"))(X))


def test_the_function_runs_once() -> None:
    calls = []

    def counted(x: Array) -> Array:
        calls.append(1)
        return plain(x)

    gradient = remat.grad(counted)
    for _ in range(3):
        gradient(X)
    assert len(calls) == 1


def test_errors_of_jax_tell_the_line() -> None:
    def loop(x: Array) -> Array:
        return lax.while_loop(lambda c: c < 10.0, lambda c: 2 * c, x)

    with pytest.raises(ValueError, match="Reverse-mode") as caught:
        remat.grad(loop)(1.0)
    assert any(__file__ in note and "(test_errors_of_jax_tell_the_line" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("fun", [jnp.arcsinh, jnp.sin, lambda x: x**3, lambda x: jnp.where(x > 0, x * x, -x)])
def test_python_numbers_are_arrays_for_the_rules_of_primitives(fun: Any) -> None:
    for run in (
        lambda grad: jax.jvp(grad(fun), (1.0,), (1.0,)),
        lambda grad: jax.jvp(grad(grad(fun)), (1.0,), (1.0,)),
        lambda grad: jax.linearize(grad(fun), 1.0)[1](1.0),
        lambda grad: jax.vjp(grad(fun), 1.0)[1](1.0),
        lambda grad: jax.hessian(lambda x: grad(fun)(x))(1.0),
    ):
        np.testing.assert_allclose(run(remat.grad), run(jax.grad), rtol=1e-6)


@pytest.mark.parametrize("error", [TypeError, ValueError, AttributeError, NotImplementedError])
def test_an_error_of_the_function_is_raised_once(error: type[Exception]) -> None:
    calls = []

    def wrong(x: Array) -> Array:
        calls.append(1)
        raise error("mine")

    with pytest.raises(error, match="mine"):
        remat.grad(wrong)(X)
    assert len(calls) == 1


def test_where_rules_of_jax_fail_ours_are_tried() -> None:
    """A cotangent in 32 bits for an argument in 16 meets a product."""

    @jax.custom_vjp
    def total(x: Array) -> Array:
        return x.astype(jnp.float32).sum()

    total.defvjp(lambda x: (total(x), x), lambda x, g: (jnp.full(x.shape, g, jnp.float32),))
    x = X.astype(jnp.bfloat16)
    with pytest.raises(TypeError):
        jax.grad(lambda x: total(x * 2))(x)
    np.testing.assert_array_equal(remat.grad(lambda x: total(x * 2))(x).astype(np.float32), np.full(4, 2.0))
