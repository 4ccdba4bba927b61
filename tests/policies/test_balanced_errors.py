"""`balanced` counts plans by a trial walk. An operation without a derivative in reverse stops it, a fault is raised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat.policies import balanced as make_balanced
from remat.policies.balanced import Balanced

X = jnp.ones(3)


def unbounded(x):
    return jax.lax.while_loop(lambda s: s[1] < 3, lambda s: (jnp.sin(s[0]), s[1] + 1), (x, 0))[0]


def callback(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), jnp.float32), x)


@jax.custom_jvp
def without_transpose(x):
    return x


@without_transpose.defjvp
def _(primals, tangents):
    return primals[0], jax.lax.nextafter(tangents[0], tangents[0])


@pytest.mark.parametrize("operation", [unbounded, callback, without_transpose])
def test_an_operation_without_a_reverse_derivative_stops_nobody_else(operation):
    region = remat.checkpoint(lambda x: jnp.sin(jnp.exp(operation(x))).sum(), policy="balanced")
    np.testing.assert_allclose(region(X), jnp.sin(jnp.exp(operation(X))).sum(), rtol=1e-6)
    with pytest.raises((NotImplementedError, TypeError, ValueError)):
        remat.grad(region)(X)


@pytest.mark.parametrize("fault", [KeyError, AssertionError, AttributeError, RecursionError, KeyboardInterrupt])
def test_a_fault_in_the_count_is_not_swallowed(fault, monkeypatch):
    def broken(*_):
        raise fault("broken")

    monkeypatch.setitem(Balanced._count.__globals__, "kept_bytes", broken)
    with pytest.raises(fault):
        remat.grad(lambda x: jnp.sin(x).sum(), policy=make_balanced())(X)
