"""`segments:p`: regions that remat places in an unmodified model."""

import jax
import jax.numpy as jnp
import pytest

import remat
from remat import policies
from remat.errors import PolicyTypeError
from remat.ir.ops import Checkpoint, Scan
from remat.testing import assert_trees_close, check_gradients

NEWEST = jax.__version_info__ >= (0, 12)


def feed_forward(w, x):
    return x + jax.nn.silu(remat.checkpoint_name(x @ w["up"], "a")) @ w["down"]


def layers(n, d=16):
    keys = jax.random.split(jax.random.key(0), 2 * n)
    normal = lambda key, *shape: jax.random.normal(key, shape) * 0.1  # noqa: E731
    return [{"up": normal(keys[2 * i], d, 4 * d), "down": normal(keys[2 * i + 1], 4 * d, d)} for i in range(n)]


def loss(ws, x):
    for w in ws:
        x = feed_forward(w, x)
    return (x**2).sum()


def by_hand(ws, x):
    for w in ws:
        x = jax.checkpoint(feed_forward)(w, x)
    return (x**2).sum()


def temp(fun, *args):
    return jax.jit(fun).lower(*args).compile().memory_analysis().temp_size_in_bytes


def cut(fun, *args):
    program = remat.trace(fun)(*args)
    return policies.segments("nothing").regions_of(Checkpoint(program, None), [True] * len(program.inputs))


@pytest.mark.parametrize("policy", ["segments:nothing", "segments:dots", "segments:(dots|names:a)"])
def test_gradients(policy):
    check_gradients(loss, layers(5), jnp.ones((8, 16)), policies=[policy])


def test_boundaries_are_what_is_kept():
    kept = remat.saved_residuals(remat.checkpoint(loss, policy="segments:nothing"), layers(8), jnp.ones((64, 16)))
    new = [r for r in kept if r.is_new]
    assert 2 <= sum(r.type == "f32[64,16]" for r in new) <= 8
    assert sum(r.type == "f32[64,64]" for r in new) <= 4  # the last segment's own


def test_what_the_inner_policy_keeps_is_kept():
    def named(ws, x):
        for w in ws:
            x = x + remat.checkpoint_name(jnp.sin(x @ w["up"]), "hidden") @ w["down"]
        return (x**2).sum()

    args = layers(8), jnp.ones((64, 16))
    kept = remat.saved_residuals(remat.checkpoint(named, policy="segments:names:hidden"), *args)
    assert sum(r.type == "f32[64,64]" and r.is_new for r in kept) >= 8
    with pytest.warns(remat.UnknownNameWarning, match="hiden"):
        remat.saved_residuals(remat.checkpoint(named, policy="segments:names:hiden"), *args)


@pytest.mark.skipif(not NEWEST, reason="older compilers do not order by barriers")
@pytest.mark.parametrize("differentiate", [remat.grad, lambda f, policy: jax.grad(remat.checkpoint(f, policy=policy))])
def test_an_unmodified_model_needs_no_more_than_one_with_regions_by_hand(differentiate):
    args = layers(8, 64), jnp.ones((256, 64))
    assert temp(differentiate(loss, policy="segments:nothing"), *args) <= temp(jax.grad(by_hand), *args)


def test_the_last_segment_is_not_recomputed():
    count = lambda f: str(jax.make_jaxpr(f)(layers(8), jnp.ones((64, 16)))).count("logistic")  # noqa: E731
    assert 12 <= count(remat.grad(loss, policy="segments:nothing")) <= 15


def test_casts_of_weights_are_made_in_each_segment():
    """Weights that are cast before the layers are not kept in their new type."""

    def cast_first(ws, x):
        ws = jax.tree.map(lambda a: a.astype(jnp.bfloat16), ws)
        return loss(ws, x.astype(jnp.bfloat16)).astype(jnp.float32)

    args = layers(8), jnp.ones((64, 16))
    kept = remat.saved_residuals(remat.checkpoint(cast_first, policy="segments:nothing"), *args)
    assert sum(r.is_new and r.type == "bf16[16,64]" for r in kept) <= 2, "besides those of the last segment"


def test_calls_are_looked_into():
    jitted = jax.jit(feed_forward)

    def through_jit(ws, x):
        for w in ws:
            x = jitted(w, x)
        return (x**2).sum()

    args = layers(6), jnp.ones((64, 16))
    count = lambda f: sum(isinstance(e.op, Checkpoint) for e in cut(f, *args).equations)  # noqa: E731
    assert count(through_jit) == count(loss) >= 2


def test_loops_are_regions_whose_carries_are_kept():
    def net(stack, x):
        x, _ = jax.lax.scan(lambda x, w: (jnp.sin(x @ w), None), x, stack)
        x = jnp.tanh(x)
        x, _ = jax.lax.scan(lambda x, w: (jnp.cos(x @ w), None), x, stack)
        return (x**2).sum()

    args = jnp.ones((4, 16, 16)) * 0.1, jnp.ones((8, 16))
    loops = [e.op for e in cut(net, *args).equations if isinstance(e.op, Scan)]
    assert all(isinstance(loop.body.equations[0].op, Checkpoint) for loop in loops)
    assert len(loops) == 2
    check_gradients(net, *args, policies=["segments:nothing"])
    scans = str(jax.make_jaxpr(remat.grad(net, policy="segments:nothing"))(*args)).count("scan[")
    assert scans == 4  # none runs a third time


def test_second_derivatives_keep_the_segments():
    ws, x = layers(4), jnp.ones((8, 16)) * 0.1

    def inner(policy):
        return lambda ws: sum(jnp.vdot(g, g) for g in jax.tree.leaves(remat.grad(loss, policy=policy)(ws, x)))

    assert_trees_close(jax.grad(inner("segments:nothing"))(ws), jax.grad(inner(None))(ws))


def test_a_program_without_narrow_places_stays_whole():
    f = lambda x: jnp.sin(x).sum()  # noqa: E731
    assert not any(isinstance(e.op, Checkpoint) for e in cut(f, jnp.ones(4)).equations)
    check_gradients(f, jnp.ones(4), policies=["segments:nothing"])


def test_it_stands_around_other_policies():
    both = policies.parse("segments:nothing|dots")
    with pytest.raises(PolicyTypeError, match="Put segments around the whole"):
        remat.grad(loss, policy=both)(layers(2), jnp.ones((4, 16)))


def test_loops_inside_loops():
    def net(stack, x):
        def outer(x, w):
            x, _ = jax.lax.scan(lambda x, _: (jnp.sin(x @ w), None), x, None, length=3)
            return jnp.tanh(x), x.sum()

        x, sums = jax.lax.scan(outer, x, stack)
        return (x**2).sum() + (jnp.cos(x) * sums[0]).sum()

    check_gradients(net, jnp.ones((4, 16, 16)) * 0.1, jnp.ones((8, 16)), policies=["segments:nothing", "segments:dots"])


def test_loops_that_carry_nothing():
    def net(x):
        jax.lax.scan(
            lambda c, _: (jax.lax.scan(lambda c, _: (c, None), c, None, length=2)[0], None), (), None, length=3
        )
        return jnp.sin(x).sum()

    check_gradients(net, jnp.ones(4), policies=["segments:nothing"])
