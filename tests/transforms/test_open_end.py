"""What comes after the last loop of a loss is alive when the backward pass begins, and is not computed again."""

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.ir.costs import dot_flops
from remat.testing import assert_trees_close

ARGS = jnp.ones((6, 64, 64)) * 0.1, jnp.ones((64, 2048)) * 0.1, jnp.ones((256, 64)), jnp.arange(256)


def loss(stack, head, x, y):
    x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, stack)
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ head), y[:, None], -1).mean()


def flops(fun):
    return dot_flops(remat.trace(fun)(*ARGS))


@pytest.mark.parametrize(
    "differentiate", [remat.grad, lambda f, n, policy: jax.grad(remat.checkpoint(f, policy=policy), n)]
)
@pytest.mark.parametrize("policy", ["nothing", "names:carried"])
def test_the_product_with_the_vocabulary_runs_once(policy, differentiate):
    def named(stack, head, x, y):
        body = lambda x, w: (jnp.tanh(remat.checkpoint_name(x, "carried") @ w), None)  # noqa: E731
        x, _ = jax.lax.scan(body, x, stack)
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ head), y[:, None], -1).mean()

    product, layer = 2 * 256 * 64 * 2048, 2 * 256 * 64 * 64
    gradient = differentiate(named, (0, 1), policy=policy)
    assert flops(gradient) <= 3 * product + 4 * 6 * layer
    assert_trees_close(gradient(*ARGS), jax.grad(named, (0, 1))(*ARGS), rtol=1e-4, atol=1e-6)


def test_it_needs_no_more_memory_than_recomputing():
    temp = lambda f: jax.jit(f).lower(*ARGS).compile().memory_analysis().temp_size_in_bytes  # noqa: E731
    ours = temp(remat.grad(loss, (0, 1), policy="nothing"))
    assert ours <= 1.01 * temp(jax.grad(loss, (0, 1)))
    assert ours <= 1.01 * temp(remat.grad(loss, (0, 1), policy="scan_body:nothing"))


def test_what_comes_after_without_a_product_is_the_policys_affair():
    def no_product(stack, x):
        x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, stack)
        return jnp.sin(jnp.exp(x)).sum()

    kept = remat.saved_residuals(remat.checkpoint(no_product, policy="nothing"), ARGS[0], ARGS[2])
    assert not any("exp" in str(r.origin.text) or "sin" in str(r.origin.text) for r in kept if r.is_new)


def test_without_a_loop_there_is_no_end():
    straight = lambda w, x: jnp.sin(x @ w).sum()  # noqa: E731
    args = ARGS[0][0], ARGS[2]
    assert not any(r.is_new for r in remat.saved_residuals(remat.checkpoint(straight, policy="nothing"), *args))


def test_a_region_that_is_no_loss_is_recomputed_as_a_whole():
    region = remat.checkpoint(lambda *a: jnp.tanh(jax.lax.scan(lambda x, w: (x @ w, None), a[2], a[0])[0] @ a[1]))
    assert not any(r.is_new and "2048" in r.type for r in remat.saved_residuals(lambda *a: region(*a).sum(), *ARGS[:3]))
