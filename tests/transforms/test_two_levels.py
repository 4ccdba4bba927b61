"""A policy that keeps next to nothing of a long chain: its region is recomputed in two levels."""

import functools

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.errors import ReverseModeError
from remat.testing import assert_trees_close
from remat.transforms.two_levels import split_program

NEWEST = jax.__version_info__ >= (0, 12)


def feed_forward(w, x):
    return x + jax.nn.silu(x @ w["up"]) @ w["down"]


def layers(n, d=64):
    normal = lambda i, *shape: jax.random.normal(jax.random.key(i), shape) * 0.03  # noqa: E731
    return [{"up": normal(2 * i, d, 4 * d), "down": normal(2 * i + 1, 4 * d, d)} for i in range(n)]


def loss(ws, x):
    for w in ws:
        x = feed_forward(w, x)
    return (x**2).sum()


ARGS = layers(12), jnp.ones((256, 64))


def count(fun, *args, name="logistic"):
    return str(jax.make_jaxpr(fun)(*args)).count(name)


def temp(fun, *args):
    return jax.jit(fun).lower(*args).compile().memory_analysis().temp_size_in_bytes


def both_ways(policy, loss=loss):
    return [remat.grad(loss, policy=policy), jax.grad(remat.checkpoint(loss, policy=policy))]


@pytest.mark.parametrize("way", [0, 1])
@pytest.mark.parametrize("policy", ["nothing", "names:absent_in_most"])
def test_gradients_are_those_of_jax(way, policy):
    def named(ws, x):
        for i, w in enumerate(ws):
            x = feed_forward(w, x)
            x = remat.checkpoint_name(x, "absent_in_most") if i == 1 else x
        return (x**2).sum()

    assert count(both_ways(policy, named)[way], *ARGS) > 24  # recomputed, and the inside of segments once more
    assert_trees_close(both_ways(policy, named)[way](*ARGS), jax.grad(named)(*ARGS), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("way", [0, 1])
def test_the_forward_pass_runs_at_most_once_more(way):
    products = count(both_ways("nothing")[way], *ARGS, name="dot_general[")
    assert products <= 4 * 24 + 24  # forward, backward (twice that), and recomputed


@pytest.mark.skipif(not NEWEST, reason="older compilers do not order by barriers")
@pytest.mark.parametrize("way", [0, 1])
def test_it_needs_about_the_square_root(way):
    plain = temp(jax.grad(loss), *ARGS)
    assert temp(both_ways("nothing")[way], *ARGS) < 0.25 * plain


def test_what_is_kept_is_what_the_policy_says():
    kept = remat.saved_residuals(remat.checkpoint(loss, policy="nothing"), *ARGS)
    assert not any(r.is_new for r in kept)


def test_small_programs_and_layers_are_recomputed_as_they_stand():
    small = layers(12, 4), jnp.ones((4, 4))
    assert count(remat.grad(loss, policy="nothing"), *small) == 24
    stack = remat.checkpoint(lambda ws, x: jnp.sin(functools.reduce(lambda x, w: feed_forward(w, x), ws, x)))
    assert count(jax.grad(lambda ws, x: stack(ws, x).sum()), *ARGS) == 24


def test_what_is_kept_is_enough_where_it_is():
    """With the products kept, recomputation is cheap and happens where it is needed."""
    assert count(remat.grad(loss, policy="dots"), *ARGS) == 24


def test_metrics_beside_the_loss_are_no_hindrance():
    def with_metrics(ws, x):
        hidden = x
        for w in ws:
            hidden = feed_forward(w, hidden)
        return (hidden**2).sum(), hidden

    gradient = remat.grad(with_metrics, policy="nothing", has_aux=True)
    assert count(gradient, *ARGS) > 24
    assert_trees_close(gradient(*ARGS)[0], jax.grad(loss)(*ARGS), rtol=1e-3, atol=1e-3)


def test_second_derivatives():
    ws, x = layers(6), jnp.ones((256, 64)) * 0.01
    inner = lambda grad: lambda x: (grad(x) ** 2).sum()  # noqa: E731
    ours = jax.grad(inner(lambda x: remat.grad(loss, 1, policy="nothing")(ws, x)))(x)
    assert_trees_close(ours, jax.grad(inner(lambda x: jax.grad(loss, 1)(ws, x)))(x), rtol=1e-3, atol=1e-3)


def test_loops_in_reverse_only_are_still_refused_where_they_are_transposed():
    program = remat.trace(remat.checkpoint(lambda x: jax.lax.while_loop(lambda c: c.sum() < 3, lambda c: c * 2, x)))(
        jnp.ones(2)
    )
    with pytest.raises(ReverseModeError):
        split_program(program, [True])
