"""Derivatives of derivatives of functions that run on several devices."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import remat
from remat.testing import assert_trees_close


def mapped(region):
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)

    def f(x, y):
        return jnp.sin(x) + jnp.cos(x) * y

    return jax.jit(jax.shard_map(region(f), mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x")))


@pytest.mark.parametrize("region", [lambda f: f, remat.checkpoint])
def test_forward_over_reverse(region):
    x, y = jnp.arange(8.0) / 10, jnp.arange(4.0) / 10
    f = mapped(region)

    def pulled(vjp):
        return lambda x, y: vjp(f, x, y)[1](jnp.ones(8))

    found = jax.jvp(pulled(remat.vjp), (x, y), (x, y))
    assert_trees_close(found, jax.jvp(pulled(jax.vjp), (x, y), (x, y)))
