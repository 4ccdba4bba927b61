"""What else makes a finding right or wrong: other ways to make each mistake, and programs that only look like it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from findings.finding_cases import MIB, STACK, W, X, carried_out, f32, named_result, two_names
from jax import lax
from jax.sharding import PartitionSpec as P

import remat

name = remat.checkpoint_name
JAX = jax.checkpoint_policies


def codes(fun, *args, policy=None, target="cpu"):
    return remat.check(fun, *args, policy=policy, target=target).codes


def one(code, fun, *args, policy=None, target="cpu"):
    (found,) = [f for f in remat.check(fun, *args, policy=policy, target=target) if f.code == code]
    return found


# Names.


def test_a_name_may_be_in_one_of_several_checkpoints_with_one_policy():
    policy = remat.policies.save_only_these_names("first")
    named = remat.checkpoint(lambda w, x: jnp.sin(name(jnp.sin(x @ w), "first") @ w), policy=policy)
    other = remat.checkpoint(lambda w, x: jnp.sin(x @ w), policy=policy)
    assert "unknown-name" not in codes(lambda w, x: jnp.sin(other(w, named(w, x))).sum(), W, X)
    assert "unknown-name" in codes(lambda w, x: jnp.sin(other(w, x)).sum(), W, X)


def test_bytes_of_a_misspelt_name_count_iterations():
    def loss(ws, x):
        return lax.scan(lambda x, w: (jnp.sin(name(x @ w, "product")), None), x, ws)[0].sum()

    assert one("unknown-name", loss, STACK, X, policy="names:produkt").bytes == 6 * MIB


def test_a_name_that_is_moved_away_and_not_read():
    found = one("name-not-kept", named_result, W, X, policy="offload:logits", target="gpu:H100")
    assert "moves 'logits' away" in found.message
    assert "nothing is moved" in found.message


@pytest.mark.parametrize("policy", ["names:x", "dots|names:x"])
def test_a_name_on_what_a_loop_carries_on_is_kept_as_that(policy):
    assert "name-not-kept" not in codes(carried_out, STACK, X, policy=policy)


def test_a_name_on_a_view_of_what_is_there_anyway_is_no_mistake():
    def loss(w, x):
        return jnp.sin(name(x.T, "transposed") @ w).sum()

    assert "name-not-kept" not in codes(loss, W, X, policy="names:transposed")
    assert "name-not-kept" not in codes(two_names, STACK, X, policy="names:a,b")


def test_a_name_in_whose_place_another_one_is_kept():
    def loss(w, x):
        return jnp.sin(name(name(x @ w, "product") + 1.0, "sum")).sum()

    found = one("name-not-kept", loss, W, X, policy="names:product,sum")
    assert found.subject == "'product'"
    assert found.fix.startswith("Take 'product' out of the policy: 'sum' at ")
    assert found.fix.endswith("which follows from it, is kept in its place.")
    assert "name-not-kept" not in codes(loss, W, X, policy="names:product")


def test_a_name_in_code_without_gradient_is_not_asked_about():
    def loss(w, x):
        mean = lax.stop_gradient(lax.scan(lambda c, y: (c + name(y, "y"), None), jnp.zeros(512), x)[0])
        return jnp.sin(x @ w + mean).sum()

    assert "name-not-kept" not in codes(loss, W, X, policy="names:y")


# Products.


@jax.custom_jvp
def own(x, w):
    return x @ w


own.defjvp(lambda primals, tangents: (own(*primals), tangents[0] @ primals[1] + primals[0] @ tangents[1]))


def test_products_in_functions_with_a_derivative_of_their_own():
    def loss(w, x):
        return jnp.sin(name(own(jnp.sin(name(own(x, w), "y")), w), "y")).sum()

    found = one("unmatched-products", loss, W, X, policy="dots")
    assert "none of the 2 products" in found.message
    assert (found.subject, found.bytes) == ("custom_jvp_call", 2 * MIB)
    assert "unmatched-products" not in codes(loss, W, X, policy="dots|names:y")


def test_ragged_products_under_the_policy_of_jax():
    def loss(w, x):
        sizes = jnp.array([256, 256], jnp.int32)
        return jnp.sin(lax.ragged_dot(jnp.sin(lax.ragged_dot(x, w, sizes)), w, sizes)).sum()

    args = f32(2, 512, 512), X
    assert (
        "does not know (ragged_dot_general)" in one("unmatched-products", loss, *args, policy=JAX.dots_saveable).message
    )
    assert "unmatched-products" not in codes(loss, *args, policy="dots")


def test_products_inside_shard_map():
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

    def loss(w, x):
        def local(w, x):
            return jax.vmap(lambda w, x: jnp.sin(jnp.sin(x @ w) @ w))(w, x)

        return jax.shard_map(local, mesh=mesh, in_specs=(P("d"), P("d")), out_specs=P("d"))(w, x).sum()

    args = f32(4, 256, 256), f32(4, 256, 256)
    assert "unmatched-products" in codes(loss, *args, policy="dots_no_batch")
    assert "unmatched-products" not in codes(loss, *args, policy="dots")


# Peaks.


def test_a_policy_around_checkpoints_is_not_blamed_for_what_they_recompute():
    layer = remat.checkpoint(lambda x, w: (jnp.sin(jnp.sin(x @ w) @ w), None), policy="nothing")
    loss = lambda ws, x: lax.scan(layer, x, ws)[0].sum()  # noqa: E731
    assert codes(loss, STACK, X, policy="nothing") == ()


def test_checkpoints_that_lower_nothing():
    def loss(w, x):
        return jnp.sin(remat.checkpoint(lambda x: jnp.exp(jnp.sin(x @ w)) @ w, policy="nothing")(x)).sum()

    found = one("no-lower-peak", loss, W, X)
    assert found.message.startswith("The checkpoint of <lambda> does not lower the peak")


# Flags.


def choose(x, flag):
    return jnp.where(flag, jnp.sin(x), jnp.cos(x)).sum()


def test_flags_among_the_arguments():
    assert one("traced-flag", choose, X, np.bool_(True)).subject == "flag"
    assert codes(choose, X, True) == ()
    assert codes(choose, X, jnp.array(True)) == ()  # it may change from step to step


def test_numbers_that_choose_a_branch():
    region = jax.checkpoint(lambda x, i: lax.switch(i, [jnp.sin, jnp.cos], x))
    assert "(here 1)" in one("traced-flag", lambda x: region(x, 1).sum(), X).message


def test_numbers_that_are_computed_with_are_no_flags():
    region = jax.checkpoint(lambda x, n: jnp.where(n > 1, jnp.sin(x), x) * n)
    assert "traced-flag" not in codes(lambda x: region(x, 2).sum(), X)
    assert "traced-flag" not in codes(lambda x: jnp.where(x > 0, jnp.remainder(x, 3), jnp.clip(x, 0, 1)).sum(), X)


# Places.


def test_places_are_lines_of_the_user_and_not_of_libraries():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.5, deterministic=False)(jnp.sin(nn.Dense(512)(x)))

    net, key = Net(), jax.random.key(0)
    variables = jax.eval_shape(net.init, {"params": key, "dropout": key}, X)
    loss = lambda v, x: jnp.sin(net.apply(v, x, rngs={"dropout": key})).sum()  # noqa: E731
    found = one("random-recomputed", loss, variables, X, policy="nothing")
    assert found.source.file == __file__
    assert found.source.function.endswith("__call__")
