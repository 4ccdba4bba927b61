"""Functions with rules in the rest of JAX: sharding, export, linear transforms, effects, lowered programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import checkify
from jax.sharding import PartitionSpec as P

import remat

X = jnp.linspace(0.2, 1.4, 6)
GRADS = pytest.mark.parametrize("grad", [jax.grad, remat.grad], ids=["jax", "remat"])


def sine():
    """With names in the function and in its rule, which JAX may hold as higher primitives."""
    f = remat.custom_vjp(lambda x: remat.checkpoint_name(jnp.sin(x), "p"))
    f.defremat(
        lambda x: (remat.checkpoint_name(jnp.sin(x), "q"), jnp.cos(x)),
        lambda c, x: (jnp.sin(x), c),
        lambda c, g: (c * g,),
    )
    return f


def test_called_in_every_way():
    f = sine()
    for call in (f, jax.jit(f), jax.vmap(f), remat.checkpoint(f), lambda x: jax.lax.map(f, x)):
        np.testing.assert_allclose(call(X), jnp.sin(X), rtol=1e-6)
    looped = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1])), (0, X))[1]
    np.testing.assert_allclose(looped, jnp.sin(jnp.sin(jnp.sin(X))), rtol=1e-6)
    assert jax.eval_shape(f, X).shape == X.shape


@GRADS
@pytest.mark.parametrize("place", ["plain", "region around", "region inside"])
def test_shard_map(grad, place):
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    f = remat.checkpoint(sine()) if place == "region inside" else sine()
    sharded = jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    loss = lambda x: sharded(x).sum()  # noqa: E731
    found = jax.jit(grad(remat.checkpoint(loss) if place == "region around" else loss))(X)
    np.testing.assert_allclose(found, jnp.cos(X), rtol=1e-6)


def test_export():
    exported = export.export(jax.jit(jax.grad(lambda x: sine()(x).sum())))(X)
    np.testing.assert_allclose(exported.call(X), jnp.cos(X), rtol=1e-6)


def test_checkify():
    error, found = checkify.checkify(jax.grad(lambda x: sine()(x).sum()), errors=checkify.float_checks)(X)
    error.throw()
    np.testing.assert_allclose(found, jnp.cos(X), rtol=1e-6)


def test_linear_functions():
    f = sine()
    pullback = jax.vjp(f, X)[1]
    np.testing.assert_allclose(jax.vjp(pullback, X)[0][0], jnp.cos(X) * X, rtol=1e-6)
    linear = jax.linearize(f, X)[1]
    two = jnp.stack([X, 2 * X])
    (found,) = jax.linear_transpose(jax.vmap(linear), two)(two)
    np.testing.assert_allclose(found, jnp.cos(X) * two, rtol=1e-6)
    np.testing.assert_allclose(jnp.diag(jax.jacrev(remat.checkpoint(f))(X)), jnp.cos(X), rtol=1e-6)


def test_inside_a_linear_solve():
    f = sine()

    def loss(b):
        return jax.lax.custom_linear_solve(lambda v: 2 * v, f(b), lambda _, y: y / 2, symmetric=True).sum()

    for grad in (jax.grad, remat.grad):
        np.testing.assert_allclose(grad(loss)(X), jnp.cos(X) / 2, rtol=1e-6)


@GRADS
def test_callbacks_in_rules(grad):
    f = remat.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jax.pure_callback(np.sin, x, x), x), lambda x, g: (g * jax.pure_callback(np.cos, x, x),))
    for wrap in (lambda f: f, remat.checkpoint):
        np.testing.assert_allclose(grad(lambda x, w=wrap: w(f)(x).sum())(X), jnp.cos(X), rtol=1e-6)


def test_prints_in_rules_come_once_and_in_order(capfd):
    f = remat.custom_vjp(jnp.sin)

    def said(word, value):
        jax.debug.print(word, ordered=True)
        return value

    f.defremat(
        lambda x: said("fwd", (jnp.sin(x), None)),
        lambda _, x: said("rem", (jnp.sin(x), jnp.cos(x))),
        lambda c, g: said("bwd", (c * g,)),
    )
    for region in (lambda f: f, remat.checkpoint):
        remat.grad(region(lambda x: f(x).sum()))(X)
        jax.effects_barrier()
        assert capfd.readouterr().out.split() == ["fwd", "rem", "bwd"]


def test_reports():
    region = remat.checkpoint(lambda x: (sine()(sine()(x)) * x).sum())
    reasons = [r.reason for r in remat.saved_residuals(region, X)]
    assert reasons.count("saved by the fwd rule of a custom_vjp function with defremat") == 2
    assert "custom_vjp_call" in str(remat.retrieval_log(region, X))
    users = [u.operation for r in remat.saved_residuals(region, X) for u in r.needed_by]
    assert "custom_vjp_call" in users
