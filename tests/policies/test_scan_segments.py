"""Long loops in segments by a policy: few carries kept, the same gradients, whatever loops there are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat import policies

X = jnp.linspace(0.1, 1.0, 64)


def loops(x, reverse=False, length=50):
    """Two loops, one inside a jitted function, with outputs and constants."""
    w = jnp.sin(x)

    def step(c, t):
        c = jnp.sin(c + w * t)
        return c, c.sum()

    @jax.jit
    def inner(x):
        return jax.lax.scan(step, x, jnp.arange(1.0 * length), reverse=reverse)

    c, ys = inner(x)
    c, _ = jax.lax.scan(lambda c, _: (jnp.tanh(c * 1.1), None), c, None, length=4)
    return (c * c).sum() + (ys * ys).mean()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 3, 7, 10, 50, 64])
def test_gradients(count, reverse):
    expected = jax.grad(loops)(X, reverse)
    policy = policies.scan_segments(count)
    for gradient in (
        remat.grad(loops, policy=policy),
        jax.grad(remat.checkpoint(loops, policy=policy, static_argnums=1)),
    ):
        np.testing.assert_allclose(gradient(X, reverse), expected, rtol=2e-5, atol=1e-7)


def test_few_carries_are_kept():
    def kept(policy):
        return remat.saved_residuals(loops, X, policy=policy).new_bytes

    carry = X.nbytes
    assert kept("nothing") >= 50 * carry
    assert kept("scan_segments:7") <= 16 * carry


def test_the_peak_falls_in_the_compiled_program():
    shape = jax.ShapeDtypeStruct((256, 1024), jnp.float32)

    def loss(x):
        return jax.lax.scan(lambda c, _: (jnp.tanh(1.1 * jnp.sin(c)), None), x, None, length=100)[0].sum()

    plain, cut = (
        remat.measure(loss, shape, policy=p, target="cpu").live_bytes for p in ("nothing", "scan_segments:10")
    )
    assert plain > 100 * 2**20
    assert cut < 30 * 2**20


def test_with_a_policy_beside():
    policy = policies.parse("scan_segments:5:names:h")

    def loss(x):
        def step(c, _):
            return jnp.sin(remat.checkpoint_name(jnp.sin(c), "h")), None

        return jax.lax.scan(step, x, None, length=20)[0].sum()

    kept = remat.saved_residuals(loss, X, policy=policy)
    assert sum(r.times for r in kept if r.name == "h") == 20
    np.testing.assert_allclose(remat.grad(loss, policy=policy)(X), jax.grad(loss)(X), rtol=1e-5)


@pytest.mark.parametrize("text", ["scan_segments:16", "scan_segments:3:dots", "scan_segments:2:(dots|names:a)"])
def test_strings(text):
    assert str(policies.parse(text)) == text
    assert policies.parse(text) == eval(repr(policies.parse(text)), vars(policies))


@pytest.mark.parametrize("text", ["scan_segments:", "scan_segments:x", "scan_segments:0"])
def test_what_is_no_number(text):
    with pytest.raises(remat.RematError, match="scan_segments:16"):
        policies.parse(text)
