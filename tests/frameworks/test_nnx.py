"""Flax nnx: state and random number counts are left as nnx leaves them, or an error says so."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat.testing import assert_trees_close

nnx = pytest.importorskip("flax.nnx")

from remat.frameworks.nnx import grad, value_and_grad  # noqa: E402


class Net(nnx.Module):
    def __init__(self, rngs: Any):
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.calls = nnx.Variable(jnp.zeros((), jnp.int32))

    def __call__(self, x: jax.Array) -> jax.Array:
        self.calls[...] += 1
        return self.drop(nnx.silu(self.norm(self.first(x))))


X = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)


def net() -> Net:
    return Net(nnx.Rngs(0))


def loss(net: Any, x: jax.Array) -> jax.Array:
    return jnp.mean(net(x) ** 2)


def numbers(tree: Any) -> Any:
    """The state of modules (or gradients) as plain arrays, keys as their data."""
    leaves = jax.tree.leaves(nnx.state(tree))
    return [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]


def steps(both: Any, model: Any, *args: Any) -> list[Any]:
    found = []
    for _ in range(3):
        value, gradient = both(model, *args)
        found.append((value, numbers(gradient), numbers(model)))
    return found


WAYS = {
    "nothing": value_and_grad(loss, policy="nothing"),
    "balanced": value_and_grad(loss, policy="balanced"),
    "none": value_and_grad(loss),
    "region": nnx.value_and_grad(remat.checkpoint(loss, policy="dots")),
    "module": nnx.value_and_grad(lambda net, x: jnp.mean(remat.checkpoint(net)(x) ** 2)),
    "method": nnx.value_and_grad(lambda net, x: jnp.mean(remat.checkpoint(net.__call__)(x) ** 2)),
    "nested": nnx.value_and_grad(remat.checkpoint(lambda net, x: jnp.mean(remat.checkpoint(net)(x) ** 2))),
    "both": value_and_grad(lambda net, x: jnp.mean(remat.checkpoint(net)(x) ** 2), policy="nothing"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("jit", [nnx.jit, lambda f: f], ids=["jit", "eager"])
def test_values_gradients_and_state_are_those_of_nnx(way, jit):
    expected = steps(nnx.jit(nnx.value_and_grad(loss)), net(), X)
    found = steps(jit(WAYS[way]), net(), X)
    assert_trees_close(found, expected, 1e-4, 1e-5)


def test_state_is_updated_without_a_gradient():
    one, two = net(), net()
    remat.checkpoint(lambda net, x, *, factor: net(x) * factor)(one, X, factor=2.0)
    two(X)
    assert_trees_close(numbers(one), numbers(two), 1e-5, 1e-6)


def test_grad_and_decorators():
    @grad(policy="nothing")
    def gradient(net: Any, x: jax.Array) -> jax.Array:
        return loss(net, x)

    @value_and_grad(has_aux=True, policy="nothing")
    def with_aux(net: Any, x: jax.Array) -> Any:
        return loss(net, x), {"x": x, "n": 3, "text": "a"}

    expected = numbers(nnx.grad(loss)(net(), X))
    assert_trees_close(numbers(gradient(net(), X)), expected, 1e-4, 1e-5)
    (_, aux), found = with_aux(net(), X)
    assert_trees_close(numbers(found), expected, 1e-4, 1e-5)
    assert (aux["n"], type(aux["n"]), aux["text"]) == (3, int, "a")
    found, aux = grad(lambda net, x: (loss(net, x), x), has_aux=True, policy="nothing")(net(), X)
    assert_trees_close(numbers(found), expected, 1e-4, 1e-5)
    assert aux.tolist() == X.tolist()


@pytest.mark.parametrize(
    "argnums", [1, (0, 1), nnx.DiffState(0, nnx.BatchStat), (nnx.DiffState(0, nnx.PathContains("kernel")), 1)], ids=str
)
def test_argnums(argnums):
    def loss(net: Any, x: jax.Array) -> jax.Array:
        net.norm.use_running_average = True
        return jnp.sum(net.norm(net.first(x)) ** 2)

    expected = nnx.value_and_grad(loss, argnums=argnums)(net(), X)
    found = value_and_grad(loss, argnums=argnums, policy="nothing")(net(), X)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert_trees_close(jax.tree.leaves(found), jax.tree.leaves(expected), 1e-4, 1e-4)


def test_shared_modules_stay_shared():
    class Pair(nnx.Module):
        def __init__(self, rngs: Any):
            self.first = nnx.Linear(4, 4, rngs=rngs)
            self.second = self.first

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.second(jnp.tanh(self.first(x)))

    def step(both: Any) -> Any:
        pair = Pair(nnx.Rngs(0))
        alone = nnx.Linear(4, 4, rngs=nnx.Rngs(1))
        value, gradient = both(lambda pair, alone, same: jnp.sum(same(pair(X)) + alone(X)))(pair, alone, alone)
        assert pair.first is pair.second
        return value, numbers(gradient)

    found, expected = step(functools.partial(value_and_grad, policy="nothing")), step(nnx.value_and_grad)
    assert len(found[1]) == 2
    assert_trees_close(found, expected, 1e-4, 1e-5)


def test_new_variables_and_static_attributes_come_back():
    def loss(net: Any, x: jax.Array) -> jax.Array:
        y = net(x)
        net.seen = nnx.Variable(jnp.max(y))
        net.kind = "seen"
        return jnp.mean(y**2)

    one, two = net(), net()
    nnx.value_and_grad(loss)(one, X)
    value_and_grad(loss, policy="nothing")(two, X)
    assert two.kind == "seen"
    assert_trees_close(numbers(two), numbers(one), 1e-4, 1e-5)
    three = net()
    nnx.grad(remat.checkpoint(loss))(three, X)
    assert_trees_close(numbers(three), numbers(one), 1e-4, 1e-5)


def test_numbers_are_what_they_are():
    def loss(net: Any, x: jax.Array, times: int, factor: float) -> jax.Array:
        assert type(factor) is float
        return sum(jnp.mean(net.first(x)) for _ in range(times)) * factor

    assert value_and_grad(loss, policy="nothing")(net(), X, 2, 0.5)[0].shape == ()


def test_a_module_that_is_called_again_has_its_new_weights():
    model = nnx.Linear(4, 1, rngs=nnx.Rngs(0))
    for region in (remat.checkpoint(model), remat.checkpoint(model.__call__)):
        first = region(X)
        model.kernel[...] = 2 * model.kernel[...]
        assert_trees_close(region(X), 2 * first)


def test_training_with_an_optimizer():
    optax = pytest.importorskip("optax")

    def train(both: Any) -> Any:
        model = net()
        optimizer = nnx.Optimizer(model, optax.adam(1e-2, eps=1e-2), wrt=nnx.Param)

        @nnx.jit
        def step(model: Any, optimizer: Any, x: jax.Array) -> jax.Array:
            value, gradient = both(model, x)
            optimizer.update(model, gradient)
            return value

        return [step(model, optimizer, X) for _ in range(3)], numbers(model)

    assert_trees_close(train(value_and_grad(loss, policy="balanced")), train(nnx.value_and_grad(loss)), 1e-4, 1e-5)


class Norm(nnx.Module):
    """All its state is of floats, so JAX's own grad would take it, and lose what changes."""

    def __init__(self, rngs: Any):
        self.norm = nnx.BatchNorm(4, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(x)


@pytest.mark.parametrize("policy", [None, "nothing"])
def test_lost_state_is_an_error(policy):
    model = Norm(nnx.Rngs(0))
    for call in (
        lambda: remat.grad(loss, policy=policy)(model, X),
        lambda: remat.grad(lambda x, net: loss(net, x), policy=policy)(X, model),
        lambda: remat.vjp(loss, model, X, policy=policy),
    ):
        with pytest.raises(remat.RematError, match=r"norm\.mean.*remat\.frameworks\.nnx.*nnx\.split"):
            call()
    model.eval()
    assert jnp.any(remat.grad(loss, policy=policy)(model, X).norm.scale[...])


def test_integers_of_a_module_have_no_gradient():
    with pytest.raises(remat.RematError, match=r"remat\.frameworks\.nnx.*nnx\.split\(module, nnx\.Param"):
        remat.grad(loss)(net(), X)


def test_a_module_that_a_transformation_closes_over_is_not_half_changed():
    model = net()
    before = numbers(model)
    region = remat.checkpoint(lambda net, x: net(x))
    with pytest.raises(remat.RematError, match=r"closes over.*remat\.frameworks\.nnx"):
        jax.jit(lambda x: region(model, x))(X)
    assert_trees_close(numbers(model), before)
    model.first(X)
    first = remat.checkpoint(lambda net, x: net.first(x))  # which changes nothing
    assert_trees_close(jax.jit(lambda x: first(model, x))(X), model.first(X), 1e-5, 1e-6)


def test_a_module_that_a_region_closes_over_is_explained():
    model = net()
    with pytest.raises(Exception, match="trace level") as caught:
        remat.checkpoint(lambda x: model(x))(X)
    assert "as an argument" in "\n".join(caught.value.__notes__)


def test_functional_style_is_pure():
    """Variables in a State are data: the caller's State is not changed behind its back."""
    graph, params, rest = nnx.split(net(), nnx.Param, ...)

    def loss(params: Any, rest: Any, x: jax.Array) -> Any:
        model = nnx.merge(graph, params, rest, copy=True)
        return jnp.mean(model(x) ** 2), nnx.state(model, nnx.BatchStat)

    before = numbers(rest)
    for both in (
        remat.value_and_grad(loss, has_aux=True, policy="nothing"),
        jax.value_and_grad(remat.checkpoint(loss), has_aux=True),
    ):
        (_, statistics), _ = both(params, rest, X)
        assert_trees_close(numbers(rest), before)
        assert jnp.any(jax.tree.leaves(statistics)[0] != 0)


def test_bound_methods_are_refused_as_by_nnx():
    model = net()
    for f in (nnx.value_and_grad, functools.partial(value_and_grad, policy="nothing")):
        with pytest.raises(ValueError, match=r"[Bb]ound method"):
            f(model.__call__)
