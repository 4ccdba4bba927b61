"""An outer policy that keeps more than the checkpoints inside it would is told, with bytes; others are not."""

import warnings

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import remat
from remat import policies
from remat.testing import check_gradients
from remat.units import bytes_text

STACK, X = jnp.full((4, 8, 8), 1 / 8), jnp.ones((16, 8))


def block(x, w):
    return jax.nn.gelu(x @ w) @ w.T + x, None


def loss(body):
    return lambda weights, x: jnp.mean(lax.scan(body, x, weights)[0] ** 2)


def unrolled(body):
    def fun(weights, x):
        for w in weights:
            x, _ = body(x, w)
        return jnp.mean(x**2)

    return fun


def told(fun, policy):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        residuals = remat.saved_residuals(remat.checkpoint(fun, policy=policy), STACK, X)
    assert all(w.filename == __file__ for w in found)
    assert all(w.category is remat.OverriddenPolicyWarning for w in found)
    return [str(w.message) for w in found], residuals.new_bytes


@pytest.mark.parametrize("wrap", [loss, unrolled])
@pytest.mark.parametrize("inner", [None, "nothing"])
@pytest.mark.parametrize("policy", ["dots", "everything"])
def test_an_outer_policy_that_keeps_more(wrap, inner, policy):
    make = jax.checkpoint if inner is None else lambda f: remat.checkpoint(f, policy=inner)
    fun = wrap(make(block))
    (text,), kept = told(fun, policy)
    least = remat.saved_residuals(fun, STACK, X).new_bytes
    assert f"the policy {policy} of the checkpoint" in text
    assert f"{bytes_text(kept - least)} more than without the outer policy" in text
    assert "Leave the outer policy out" in text


@pytest.mark.parametrize(
    ("inner", "policy"),
    [
        ("dots", "dots"),  # the same policy
        ("dots", "nothing"),  # keeps less
        ("everything", "dots"),
        (None, "nothing"),
        (None, policies.save_only_these_names("a")),  # keeps nothing of the inside
        (policies.balanced(), "dots"),  # plans, and is not asked again
    ],
)
@pytest.mark.parametrize("wrap", [loss, unrolled])
def test_no_false_alarms(inner, policy, wrap):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", remat.UnknownNameWarning)
        fun = wrap(remat.checkpoint(block, policy=inner))
        with warnings.catch_warnings():
            warnings.simplefilter("error", remat.OverriddenPolicyWarning)
            remat.saved_residuals(remat.checkpoint(fun, policy=policy), STACK, X)


def test_a_name_asked_for_is_no_surprise():
    named = jax.checkpoint(lambda x, w: (remat.checkpoint_name(jnp.sin(x @ w), "a") @ w + x, None))
    assert told(loss(named), "names:a")[0] == []


def test_a_region_without_regions_inside_is_walked_once(monkeypatch):
    from remat.transforms import override

    monkeypatch.setattr(override, "_without", None)
    assert told(loss(block), "dots")[0] == []
    assert told(loss(jax.checkpoint(block)), "nothing")[0] == []


def test_the_count_leaves_the_program_as_it_was():
    fun = loss(jax.checkpoint(block))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_gradients(fun, STACK, X, policies=["dots", "everything"])
        before = told(fun, "dots")
    assert told(fun, "dots") == before


def test_inner_regions_of_several_policies_are_counted_together():
    def fun(weights, x):
        for w, policy in zip(weights, ["nothing", "dots", "nothing", "nothing"], strict=True):
            x, _ = remat.checkpoint(block, policy=policy)(x, w)
        return jnp.mean(x**2)

    (text,), kept = told(fun, "dots")
    least = remat.saved_residuals(fun, STACK, X).new_bytes
    assert f"{bytes_text(kept - least)} more" in text
    assert "those of 3 checkpoints inside it (nothing, of block)" in text
