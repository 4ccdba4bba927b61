"""Policies that do nothing of what they are for are told, with counts, place and what to write; others are not."""

import warnings

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

import remat
from remat import policies

P = jax.checkpoint_policies
W, X = jnp.ones((3, 8, 8)), jnp.ones((3, 4, 8))


def caught(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert all(w.filename == __file__ for w in found), [(w.filename, w.lineno) for w in found]
    return [(w.category, str(w.message)) for w in found]


def stages(w, x):
    return jax.vmap(lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w))(w, x).sum()


def one_useless(call):
    ((category, text),) = caught(call)
    assert issubclass(category, remat.UselessPolicyWarning)
    assert issubclass(category, remat.RematWarning)
    return text


@pytest.mark.parametrize(
    "policy",
    [
        "dots_no_batch",
        "offload_dots:pinned_host",
        "within:<lambda>:dots_no_batch",
        "substituting:dots_no_batch",
        "dots_no_batch|names:()",
        P.dots_with_no_batch_dims_saveable,
    ],
    ids=lambda p: getattr(p, "__name__", p),
)
def test_a_policy_that_matches_no_product(policy):
    def run():
        remat.grad(lambda w, x: remat.checkpoint(stages, policy=policy)(w, x))(W, X)

    text = one_useless(run)
    assert "none of the 2 products" in text
    assert "again, such as dot_general from" in text
    assert __file__ in text
    assert "Write 'dots'" in text


def test_in_a_report_and_around_a_whole_loss():
    one_useless(lambda: remat.saved_residuals(remat.checkpoint(stages, policy="dots_no_batch"), W, X))
    one_useless(lambda: remat.value_and_grad(stages, policy="dots_no_batch")(W, X))


def test_many_regions_of_one_line_are_told_once():
    layer = remat.checkpoint(jax.vmap(lambda w, x: jnp.tanh(x @ w)), policy="dots_no_batch")

    def net(w, x):
        for _ in range(4):
            x = layer(w, x)
        return x.sum()

    assert "none of the 1 products" in one_useless(lambda: remat.grad(net)(W, X))


@pytest.mark.parametrize(
    ("function", "policy"),
    [
        (stages, "dots"),
        (stages, "nothing"),
        (stages, "dots_no_batch|dots"),
        (lambda w, x: jnp.tanh(x[0] @ w[0]).sum() + stages(w, x), "dots_no_batch"),  # matches one of three
        (lambda w, x: jnp.sin(w).sum(), "dots_no_batch"),  # no products
        (lambda w, x: jax.vmap(jnp.matmul)(x, w).sum(), "dots_no_batch"),  # the backward needs no result of it
        (lambda w, x: w.sum() + stages(jax.lax.stop_gradient(w), jax.lax.stop_gradient(x)), "dots_no_batch"),
    ],
)
def test_no_false_alarms(function, policy):
    assert not caught(lambda: remat.grad(function, policy=policy)(W, X))


def test_linear_functions_keep_residuals_too():
    assert len(caught(lambda: remat.linearize(remat.checkpoint(stages, policy="dots_no_batch"), W, X))) == 1


def stream(where, cast=False):
    def block(x, w):
        x = checkpoint_name(x, "stream") if where == "input" else x
        x = x + jnp.tanh(x @ w)
        x = checkpoint_name(x, "stream") if where == "output" else x
        return (x.reshape(-1).reshape(x.shape) if cast else x), None

    return lambda w, x: jax.lax.scan(block, x, w)[0].sum()


OFFLOAD = policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[],
    names_which_can_be_offloaded=["stream"],
    offload_src="device",
    offload_dst="pinned_host",
)


ALL = 3 * 4 * 8 * 4


@pytest.mark.parametrize("policy", ["offload:stream", "offload:stream|names:()", OFFLOAD])
@pytest.mark.parametrize("where", ["input", "output"])
def test_a_named_carry_is_moved_and_not_told(policy, where):
    fun = remat.checkpoint(stream(where), policy=policy)
    kept = []
    assert not caught(lambda: kept.append(remat.saved_residuals(fun, W, X[0])))
    assert kept[0].offloaded_bytes == kept[0].new_bytes == ALL
    assert not caught(lambda: remat.grad(stream("output"), policy="names:stream")(W, X[0]))


def test_a_named_carry_of_an_inner_loop_is_moved():
    twice = lambda w, x: jax.lax.scan(lambda x, _: (stream("output")(w, x) * x, None), x, None, length=2)[0].sum()  # noqa: E731
    kept = []
    assert not caught(lambda: kept.append(remat.saved_residuals(remat.checkpoint(twice, policy=OFFLOAD), W, X[0])))
    assert kept[0].offloaded_bytes == 2 * ALL


def test_a_carry_that_is_a_view_of_a_named_value_is_told():
    fun = remat.checkpoint(stream("output", cast=True), policy="offload:stream")
    text = one_useless(lambda: remat.saved_residuals(fun, W, X[0]))
    assert "'stream'" in text
    assert "a loop of 3 iterations carries on" in text
    assert "384 B" in text
    assert "remat.checkpoint_name(x, 'stream')" in text


def test_a_named_carry_that_is_a_result_too_is_told():
    def block(x, w):
        x = checkpoint_name(x + jnp.tanh(x @ w), "stream")
        return x, x

    def fun(w, x):
        return (jax.lax.scan(block, x, w)[1] ** 2).sum()

    text = one_useless(lambda: remat.grad(fun, policy="offload:stream")(W, X[0]))
    assert "a loop of 3 iterations returns, stacked" in text
    assert "384 B" in text
