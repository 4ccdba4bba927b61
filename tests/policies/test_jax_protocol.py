"""Policies where JAX's own checkpoint, or a wrapper around it, asks about one equation at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat import policies

X = jnp.linspace(0.1, 1.0, 9).reshape(3, 3)
A, B = policies.save_only_these_names("a"), policies.save_only_these_names("b")


def fun(x):
    a = remat.checkpoint_name(jnp.sin(x @ x), "a")
    b = remat.checkpoint_name(jnp.cos(a @ x), "b")
    return jnp.sum(jnp.sin(b))


def operations(policy):
    """How often each operation is in the gradient of a region of JAX's own."""
    text = str(jax.make_jaxpr(jax.grad(jax.checkpoint(fun, policy=policy)))(X))
    return {name: text.count(f" {name}") for name in ("dot_general", "cos", "sin")}


@pytest.mark.parametrize(
    ("combined", "same"),
    [
        (A | policies.nothing_saveable, A),
        (A | B, policies.save_only_these_names("a", "b")),
        (A & policies.everything_saveable, A),
        (A & B, policies.nothing_saveable),
        (policies.nothing_saveable | jax.checkpoint_policies.dots_saveable, policies.dots_saveable),
        ((A | B) & (policies.dots_saveable | B), B),
    ],
    ids=str,
)
def test_combinations_answer_jax(combined, same):
    assert operations(combined) == operations(same)
    np.testing.assert_allclose(jax.grad(jax.checkpoint(fun, policy=combined))(X), jax.grad(fun)(X), rtol=1e-5)


def test_combinations_say_where_to():
    moved = policies.parse("offload:a")
    answer = (moved | policies.nothing_saveable)(jax_name(), jax.typeof(X), name="a")
    assert (answer.src, answer.dst) == ("device", "pinned_host")
    assert (moved & policies.everything_saveable)(jax_name(), jax.typeof(X), name="a") == answer
    assert (moved | A)(jax_name(), jax.typeof(X), name="a") == policies_saveable()


def jax_name():
    (equation,) = jax.make_jaxpr(lambda x: remat.checkpoint_name(x, "a"))(X).eqns
    return equation.primitive


def policies_saveable():
    from jax.ad_checkpoint import Saveable

    return Saveable


@pytest.mark.parametrize("text", ["balanced", "burn", "scan_body:dots", "substituting:dots", "balanced|dots"])
def test_policies_that_look_at_a_region_say_so(text):
    policy = policies.parse(text)
    region = jax.checkpoint(fun, policy=policy)
    with pytest.raises(remat.errors.PolicyTypeError, match=r"looks at a whole region.*remat\.checkpoint.*remat\.grad"):
        jax.grad(region)(X)
    np.testing.assert_allclose(remat.grad(region)(X), jax.grad(fun)(X), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(remat.checkpoint(fun, policy=policy))(X), jax.grad(fun)(X), rtol=1e-5)
