"""`bounded_while_loop`: results of `jax.lax.while_loop`, gradients of the loop written out, no work after the end."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import remat
from remat.errors import ArgumentError, ArgumentTypeError
from remat.testing import assert_trees_close

OPTIONS = [{}, {"levels": 1}, {"levels": 3}, {"segments": 7}, {"slots": 12}]


def cond(state):
    return state[1].sum() < 20.0


def body(rate, state):
    i, x = state
    return i + 1, x * rate + 0.1 * jnp.sin(x)


def loop(rate, x, **options):
    step = functools.partial(body, rate)
    return remat.bounded_while_loop(cond, step, (0, x), 24, **options)


def written_out(rate, x):
    """Python's while loop, where values are at hand."""
    state = (0, x)
    for _ in range(24):
        if cond(state):
            state = body(rate, state)
    return state


@pytest.mark.parametrize("start", [0.1, 0.5, 3.0, 50.0])
@pytest.mark.parametrize("options", OPTIONS)
def test_value_and_gradient(options, start):
    args = (jnp.array([1.3, 1.4]), jnp.full(2, start))
    loss = lambda f: lambda rate, x: (f(rate, x)[1] ** 2).sum()  # noqa: E731
    count, x = jax.jit(functools.partial(loop, **options))(*args)
    expected = lax.while_loop(cond, functools.partial(body, args[0]), (0, args[1]))
    assert_trees_close((int(count), x), (int(expected[0]), expected[1]))
    wanted = jax.grad(loss(written_out), (0, 1))(*args)
    for grad in (jax.grad, remat.grad):
        found = jax.jit(grad(loss(functools.partial(loop, **options)), (0, 1)))(*args)
        assert_trees_close(found, wanted, 1e-4, 1e-5)


def test_it_ends_after_max_steps():
    f = lambda x: remat.bounded_while_loop(lambda x: x > 0, lambda x: x * 2.0, x, 10)  # noqa: E731
    assert float(f(1.0)) == 1024.0
    assert float(jax.grad(f)(1.0)) == 1024.0
    assert float(remat.bounded_while_loop(lambda x: x > 0, lambda x: x * 2.0, 3.0, 0)) == 3.0


def steep(x):
    """The square root of what is left: its derivative is infinite at the end, and NaN after it."""
    return remat.bounded_while_loop(lambda x: x > 0.5, lambda x: jnp.sqrt(x - 0.5) * 0.4, x, 12)


@pytest.mark.parametrize("grad", [jax.grad, remat.grad])
def test_no_nan_from_steps_after_the_end(grad):
    """A step after the end would be the square root of a negative number."""
    assert np.isfinite(float(grad(steep)(3.0)))
    starts = jnp.array([0.2, 0.7, 3.0, 40.0])
    one_by_one = jnp.stack([grad(steep)(s) for s in starts])
    assert np.isfinite(one_by_one).all()
    assert_trees_close(jax.vmap(grad(steep))(starts[1:]), one_by_one[1:])
    assert_trees_close(grad(lambda s: jax.vmap(steep)(s).sum())(starts[1:]), one_by_one[1:])


@pytest.mark.parametrize("options", [{}, {"levels": 3}])
def test_other_transformations(options):
    rate, x = jnp.array([1.3, 1.4]), jnp.full(2, 0.5)
    count = int(loop(rate, x)[0])

    def unrolled(rate):
        state = (0, x)
        for _ in range(count):
            state = body(rate, state)
        return (state[1] ** 2).sum()

    f = lambda rate: (loop(rate, x, **options)[1] ** 2).sum()  # noqa: E731
    for transform in (jax.hessian, jax.jacfwd):
        assert_trees_close(jax.jit(transform(f))(rate), jax.jit(transform(unrolled))(rate), 1e-4)


def counted_steps(transform, *args, max_steps=100, **options):
    """How often the body runs."""
    calls = []

    def counting(x):
        jax.debug.callback(lambda _: calls.append(1), x)
        return x * 2.0

    f = lambda x: remat.bounded_while_loop(lambda x: x < 1000.0, counting, x, max_steps, **options)  # noqa: E731
    jax.block_until_ready(jax.jit(transform(f))(*args))
    jax.effects_barrier()
    return len(calls)


@pytest.mark.parametrize("options", [{"levels": 1}, {}, {"levels": 3}])
def test_steps_run_only_until_the_end(options):
    assert counted_steps(lambda f: f, 1.0, **options) == 10
    assert counted_steps(lambda f: f, 2000.0, **options) == 0


def test_a_batch_ends_with_its_last():
    """All are mapped together until the last is done: 10 steps of 3."""
    assert counted_steps(jax.vmap, jnp.array([1.0, 100.0, 2000.0])) == 30


def test_memory_is_that_of_few_states():
    x = jnp.ones((64, 16))

    def f(**options):
        return lambda x: remat.bounded_while_loop(lambda x: x.sum() < 1e9, jnp.sin, x, 1000, **options).sum()

    bytes_of = lambda f: jax.jit(jax.grad(f)).lower(x).compile().memory_analysis().temp_size_in_bytes / x.nbytes  # noqa: E731
    all_states, few, fewer = bytes_of(f(levels=1)), bytes_of(f()), bytes_of(f(levels=3))
    assert all_states > 1000
    assert few < 80
    assert fewer < 50


def test_mistakes():
    with pytest.raises(ArgumentTypeError, match=r"carry\[1\] goes in as float32\[2\] and comes out as float32\[\]"):
        remat.bounded_while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1].sum()), (0, jnp.ones(2)), 5)
    with pytest.raises(ArgumentTypeError, match="must be one boolean"):
        remat.bounded_while_loop(lambda x: x, lambda x: x, 1.0, 5)
    with pytest.raises(ArgumentTypeError, match="must be an integer"):
        remat.bounded_while_loop(lambda x: x < 1, lambda x: x, 1.0, None)
    with pytest.raises(ArgumentError, match="segments=6"):
        remat.bounded_while_loop(lambda x: x < 1, lambda x: x, 1.0, 5, segments=6)
    with pytest.raises(ArgumentTypeError, match="takes a function"):
        remat.bounded_while_loop(True, lambda x: x, 1.0, 5)
