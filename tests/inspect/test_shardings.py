"""Bytes on one device: as far as shardings are written, and as XLA then has it."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import remat
from remat.units import bytes_text


@pytest.fixture
def mesh():
    return jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))


def of(mesh, *spec):
    return NamedSharding(mesh, PartitionSpec(*spec))


def arguments(mesh):
    w = jax.ShapeDtypeStruct((6, 64, 64), jnp.float32, sharding=of(mesh))
    return w, jax.ShapeDtypeStruct((128, 64), jnp.float32, sharding=of(mesh, "data"))


def net(mesh):
    def layer(x, w):
        h = jax.lax.with_sharding_constraint(x @ w, of(mesh, "data"))
        h = remat.checkpoint_name(h, "h")
        return jax.lax.with_sharding_constraint(jnp.tanh(h), of(mesh, "data")), None

    return lambda ws, x: jax.lax.scan(layer, x, ws)[0].sum()


@pytest.mark.parametrize("policy", ["names:h", "dots", "nothing"])
def test_written_shardings_are_what_xla_has(mesh, policy):
    """The pullback's leaves are what is kept; their shardings, once compiled, are XLA's."""
    fun, args = net(mesh), arguments(mesh)
    kept = remat.saved_residuals(fun, *args, policy=policy)
    (value,) = [r for r in kept if r.is_new]
    assert value.device_bytes == value.total_bytes // 2 == kept.device_bytes
    assert kept.unknown_shardings == 0
    compiled = jax.jit(lambda *xs: remat.vjp(fun, *xs, policy=policy)[1]).lower(*args).compile()
    types = jax.eval_shape(lambda *xs: remat.vjp(fun, *xs, policy=policy)[1], *args)
    pairs = zip(jax.tree.leaves(types), jax.tree.leaves(compiled.output_shardings), strict=True)
    shapes = [(t.shape, s.shard_shape(t.shape)) for t, s in pairs]
    assert ((6, 128, 64), (6, 64, 64)) in shapes


def test_arguments_have_their_own(mesh):
    weights, x = remat.saved_residuals(net(mesh), *arguments(mesh), policy="dots").held
    assert (weights.device_bytes, x.device_bytes) == (weights.total_bytes, x.total_bytes // 2)


def test_what_is_not_written_is_counted_whole(mesh):
    kept = remat.saved_residuals(net(mesh), *arguments(mesh))
    unknown = [r for r in kept if r.is_new and r.device_bytes is None]
    assert unknown
    assert kept.unknown_shardings == len(unknown)
    whole = sum(r.total_bytes for r in unknown)
    assert kept.device_bytes == whole + sum(r.device_bytes for r in kept if r.is_new and r.device_bytes is not None)
    text = str(kept)
    assert f"<= {bytes_text(unknown[0].total_bytes)}" in text
    assert "per device" in text
    assert f"on one device: <= {bytes_text(kept.device_bytes)}" in text


def test_explicit_axes_are_part_of_types():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x = jax.ShapeDtypeStruct((128, 64), jnp.float32, sharding=of(mesh, None, "data"))
        kept = remat.saved_residuals(lambda x: jnp.sin(jnp.sin(x)).sum(), x)
    assert [r.device_bytes for r in kept] == [128 * 64 * 4 // 2] * len(kept)


def test_without_shardings_there_is_no_column():
    kept = remat.saved_residuals(lambda x: jnp.sin(x), jnp.ones(4))
    assert kept.device_bytes is None
    assert "device" not in str(kept)
