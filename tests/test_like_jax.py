"""Where `remat.grad` and `remat.checkpoint` behave as JAX's in less common surroundings."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import remat
from remat.testing import assert_trees_close


@jax.custom_vjp
def stash(reference, x):
    return x


stash.defvjp(lambda reference, x: (x, reference), lambda reference, g: (reference.__setitem__(..., g), (None, g))[1])


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("region", [lambda f: f, remat.checkpoint])
def test_a_rule_may_write_to_a_reference_that_is_closed_over(jitted, region):
    reference = jax.new_ref(jnp.float32(0.0))
    f = region(lambda x: jnp.sin(stash(reference, jnp.sin(x))))
    gradient = remat.grad(jax.jit(f) if jitted else f)(1.0)
    assert_trees_close(reference[...], jnp.cos(jnp.sin(1.0)))
    assert_trees_close(gradient, jax.grad(lambda x: jnp.sin(jnp.sin(x)))(1.0))


def test_references_made_inside():
    def f(x):
        total = jax.new_ref(jnp.zeros(5))
        total[1:4] += x**2
        return jnp.sum(total[...])

    x = jnp.arange(1.0, 4.0)
    assert_trees_close(remat.grad(f)(x), 2 * x)


@pytest.mark.parametrize("x", [1.0, 3.0])
def test_second_derivative_of_a_branch_that_is_constant(x):
    def f(x):
        return lax.cond(x < 2, lambda x: 3.0 * x, lambda x: jnp.sin(x), x)

    assert_trees_close(remat.grad(remat.grad(f))(x), jax.grad(jax.grad(f))(x))


def test_without_jit():
    seen = []

    @jax.jit
    def f(x):
        seen.append(float(x) if not isinstance(x, jax.core.Tracer) else x)
        return jnp.sin(x) if x > 0 else x

    g = remat.checkpoint(lambda x: jnp.sin(x), policy="everything")
    with jax.disable_jit():
        assert_trees_close(remat.grad(f)(1.0), jnp.cos(1.0))
        assert_trees_close(remat.grad(lambda x: g(g(x)))(1.0), jax.grad(lambda x: jnp.sin(jnp.sin(x)))(1.0))
        assert_trees_close(g(1.0), jnp.sin(1.0))
    assert len(seen) == 1


def test_booleans_have_gradients_where_integers_have():
    def f(flag, x):
        return x if flag else 2 * x

    flag, x = remat.grad(f, argnums=(0, 1), allow_int=True)(True, 2.0)
    assert flag.dtype == jax.dtypes.float0
    assert np.shape(flag) == ()
    assert x == 1.0
    flag, x = remat.vjp(f, False, 2.0)[1](1.0)
    assert flag.dtype == jax.dtypes.float0
    assert x == 2.0


def test_argument_that_was_not_passed():
    with pytest.raises(TypeError, match="passed by position"):
        remat.grad(lambda x: x)(x=1.0)
    with pytest.raises(ValueError, match="out of range"):
        remat.grad(lambda x: x, argnums=-2)(1.0)


def test_results_without_derivative_beside_others():
    x = jnp.array([0.5, 3.0])
    assert_trees_close(remat.vjp(lambda x: jnp.frexp(x)[0], x)[1](x), jax.vjp(lambda x: jnp.frexp(x)[0], x)[1](x))


def test_pullbacks_name_the_function():
    def cube(x):
        return x**3

    with pytest.raises(TypeError, match="cube"):
        remat.vjp(cube, 1.0)[1](1.0, 2.0)


def test_threads_may_trace_one_function():
    def f(x, n):
        for _ in range(100):
            x = jnp.sin(x)
        return x.sum(), n

    def gradient(n):
        return remat.grad(lambda x: f(x, n)[0])(1.0), remat.grad(f, has_aux=True)(jnp.ones(n), n)[0].shape

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(gradient, [1, 1, 1, 1, 2, 2, 2, 2]))
    assert [shape for _, shape in found] == [(1,)] * 4 + [(2,)] * 4
    assert len({float(g) for g, _ in found}) == 1
