"""`remat.custom_gradient`: the derivative is a closure that the function returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from splitting import count, split

import remat
from remat.testing import assert_saved, assert_trees_close

X = jnp.linspace(0.2, 1.4, 5)


@remat.custom_gradient(remat=True)
def sine(x):
    cos_x = jnp.cos(x)

    def rem(x):
        return jnp.sin(x), lambda g: (g * cos_x,)

    return jnp.sin(x), rem


@remat.custom_gradient(remat=True)
def rebuilding_sine(x):
    def rem(x):
        cos_x = jnp.cos(x)
        return jnp.sin(x), lambda g: (g * cos_x,)

    return jnp.sin(x), rem


def test_without_remat_as_jax():
    def power(x, n=2):
        return x**n, lambda g: (g * n * x, None)

    theirs, ours = jax.custom_gradient(lambda x: (x**2, lambda g: (g * x,))), remat.custom_gradient(power)
    assert ours(3.0) == 9.0
    np.testing.assert_allclose(jax.grad(ours)(3.0), 2 * jax.grad(theirs)(3.0))
    np.testing.assert_allclose(remat.grad(ours)(3.0, n=3), 9.0)
    bare = remat.custom_gradient(lambda x: (x**2, lambda g: g * x))  # one argument needs no tuple
    for grad in (jax.grad, remat.grad):
        np.testing.assert_allclose(grad(bare)(3.0), 3.0)


@pytest.mark.parametrize("f", [sine, rebuilding_sine], ids=["keeps", "rebuilds"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: f,
        jax.jit,
        jax.vmap,
        lambda f: lambda x: jax.lax.scan(lambda c, y: (f(c) * y, f(c + y)), 1.0, x)[1],
        lambda f: lambda x: jax.lax.cond(x[0] > 0, f, lambda y: y, x),
        lambda f: lambda x: f(f(x) * 2),
    ],
)
def test_gradients(f, wrap):
    expected = jax.grad(lambda x: wrap(jnp.sin)(x).sum())(X)
    for region in (lambda g: g, remat.checkpoint):
        loss = region(lambda x: wrap(f)(x).sum())
        for grad in (jax.grad, remat.grad):
            assert_trees_close(grad(loss)(X), expected)
    nested = jax.grad(jax.grad(lambda x: wrap(jnp.sin)(X * x).sum()))(0.5)
    np.testing.assert_allclose(remat.grad(jax.grad(lambda x: wrap(f)(X * x).sum()))(0.5), nested, rtol=1e-4)


def test_what_rem_closes_over_is_kept():
    assert_saved(remat.checkpoint(lambda x: sine(sine(x) * 2).sum()), (X,), [("f32[5]", "cos"), ("f32[5]", "cos")])
    region = remat.checkpoint(lambda x: rebuilding_sine(rebuilding_sine(x) * 2).sum())
    assert_saved(region, (X,), [("f32[5]", "x")])
    made = split(region, X)
    assert count(made.forward, "cos") == 0
    assert count(made.second, "cos") == 2
    outside = split(lambda x: rebuilding_sine(x).sum(), X)
    assert count(outside.forward, "cos") == 1
    assert count(outside.second, "cos") == 0


def test_pytrees_integers_and_aux():
    @remat.custom_gradient(remat=True)
    def f(tree, n):
        scale = jnp.exp(tree["a"])

        def rem(tree, n):
            doubled = 2 * scale

            def vjp(ct):
                assert ct["n"].dtype == jax.dtypes.float0
                return {"a": ct["out"] * doubled, "b": None}, None

            return {"out": tree["a"] * n, "n": n}, vjp

        return {"out": tree["a"] * n, "n": n}, rem

    tree = {"a": X, "b": jnp.ones(2)}
    for wrap in (lambda g: g, remat.checkpoint):
        for grad in (jax.grad, remat.grad):
            found = grad(lambda t, wrap=wrap: wrap(f)(t, jnp.int32(3))["out"].sum())(tree)
            assert_trees_close(found, {"a": 2 * jnp.exp(X), "b": jnp.zeros(2)})


def test_closing_over_arrays_of_the_module():
    table = jnp.arange(5.0)
    f = remat.custom_gradient(lambda x: (x * table, lambda g: (g * table * 2,)))
    for wrap in (lambda g: g, remat.checkpoint, jax.jit, jax.vmap):
        x = jnp.stack([X, X]) if wrap is jax.vmap else X
        for grad in (jax.grad, remat.grad):
            found = grad(lambda x, wrap=wrap: wrap(f)(x).sum())(x)
            np.testing.assert_allclose(found, jnp.broadcast_to(table * 2, x.shape))
