"""Equinox: its own transformations around regions, and the filtered transformations with a policy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import remat
from remat.testing import assert_trees_close

eqx = pytest.importorskip("equinox")

from remat.frameworks.equinox import filter_checkpoint, filter_grad, filter_value_and_grad  # noqa: E402

POLICIES = [None, "nothing", "balanced"]


class Net(eqx.Module):
    """A module with leaves of every kind: arrays, a number of steps, a factor, a flag and a name."""

    mlp: eqx.nn.MLP
    drop: eqx.nn.Dropout
    steps: int
    scale: float
    flag: bool
    name: str

    def __call__(self, x: jax.Array) -> jax.Array:
        assert self.flag is True
        assert self.name == "net"
        for _ in range(self.steps):
            x = self.drop(self.mlp(x)) * self.scale  # this dropout needs no key, which it knows from its number
        return jnp.sum(x**2) if self.scale > 0.5 else jnp.zeros(())


NET = Net(eqx.nn.MLP(3, 3, 8, 1, key=jax.random.key(0)), eqx.nn.Dropout(0.0), 2, 0.7, True, "net")
X = jnp.linspace(0.5, 1.5, 3)


def loss(net: Net, x: jax.Array, factor: float = 1.0) -> jax.Array:
    return net(x) * factor


def assert_same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert_trees_close(eqx.filter(found, eqx.is_array), eqx.filter(expected, eqx.is_array), 2e-5, 1e-6)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("jit", [eqx.filter_jit, lambda f: f])
def test_gradients_are_those_of_equinox(policy, jit):
    expected = eqx.filter_value_and_grad(loss)(NET, X, 3.0)
    assert expected[1].steps is None
    assert_same(jit(filter_value_and_grad(loss, policy=policy))(NET, X, 3.0), expected)
    assert_same(jit(filter_grad(loss, policy=policy))(NET, X, factor=3.0), expected[1])
    assert_same(jit(eqx.filter_value_and_grad(filter_checkpoint(loss, policy=policy)))(NET, X, 3.0), expected)
    assert_same(jit(eqx.filter_value_and_grad(remat.checkpoint(loss, policy=policy)))(NET, X, 3.0), expected)


@pytest.mark.parametrize("policy", POLICIES)
def test_auxiliary_data_is_handed_through(policy):
    def with_aux(net: Net, x: jax.Array) -> Any:
        return net(x), {"x": x, "n": 3, "text": "a"}

    (_, aux), gradient = filter_value_and_grad(with_aux, has_aux=True, policy=policy)(NET, X)
    assert (aux["n"], aux["text"]) == (3, "a")
    assert type(aux["n"]) is int
    assert_same(gradient, eqx.filter_grad(loss)(NET, X))
    gradient, aux = filter_grad(with_aux, has_aux=True, policy=policy)(NET, X)
    assert_same(gradient, eqx.filter_grad(loss)(NET, X))
    assert aux["x"].tolist() == X.tolist()


def test_the_policy_decides_what_is_kept():
    def lines(policy: Any) -> int:
        gradient = filter_grad(lambda net, x: jnp.sum(jnp.sin(jnp.sin(net.layers[0](x)))), policy=policy)
        text = str(jax.make_jaxpr(lambda x: eqx.filter(gradient(NET.mlp, x), eqx.is_array))(X))
        return text.count(" sin ")

    assert lines("everything") == 2 < lines("nothing")


def test_gradient_of_a_module_that_is_called():
    """The arrays of a module that is wrapped are inputs of a jit, not constants of it."""

    class Line(eqx.Module):
        w: jax.Array

        def __call__(self, x: jax.Array) -> jax.Array:
            return jnp.sum(self.w * x)

    traced = []

    @eqx.filter_jit
    def run(gradient: Any, x: jax.Array) -> Any:
        traced.append(1)
        return gradient(x)

    for w in (1.0, 2.0):
        assert run(filter_grad(Line(jnp.full(3, w)), policy="dots"), X).tolist() == [w, w, w]
    assert len(traced) == 1


def test_decorating_a_method():
    class Line(eqx.Module):
        w: jax.Array

        @filter_value_and_grad(policy="nothing")
        def both(self, x: jax.Array) -> jax.Array:
            return jnp.sum(self.w * x)

    _, gradient = Line(jnp.ones(3)).both(X)
    assert gradient.w.tolist() == X.tolist()


def test_a_plain_function_is_traced_once_for_each_signature():
    traced = []

    def loss(w: jax.Array) -> jax.Array:
        traced.append(1)
        return jnp.sum(jnp.sin(w))

    gradient = filter_grad(loss, policy="nothing")
    for _ in range(3):
        gradient(X)
    assert len(traced) == 1


def test_recurrent_cell_keeps_less_in_a_region():
    cell = eqx.nn.GRUCell(4, 32, key=jax.random.key(0))

    def loss(cell: eqx.nn.GRUCell, xs: jax.Array) -> jax.Array:
        h, _ = lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(32), xs)
        return jnp.sum(h)

    def temporary(gradient: Any) -> int:
        params, static = eqx.partition(cell, eqx.is_inexact_array)
        run = jax.jit(lambda params, xs: eqx.filter(gradient(eqx.combine(params, static), xs), eqx.is_array))
        return run.lower(params, jnp.ones((200, 4))).compile().memory_analysis().temp_size_in_bytes

    plain = temporary(eqx.filter_grad(loss))
    assert temporary(filter_grad(loss, policy="nothing")) < 0.6 * plain
    assert temporary(eqx.filter_grad(remat.checkpoint(loss, policy="nothing"))) < 0.6 * plain


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: remat.grad(loss)(NET, X), ["net.steps is i32[]", "remat.frameworks.equinox", "eqx.partition"]),
        (lambda: filter_grad(loss)(net=NET), ["without a positional argument"]),
        (lambda: filter_grad(loss, argnums=1), ["argnums", "tuple"]),
        (lambda: filter_grad(3), ["takes a function", "3"]),
        (lambda: filter_grad(loss, policy="dotty"), ["dotty"]),
        (lambda: filter_checkpoint(loss, policy=3), ["3", "no policy"]),
    ],
)
def test_messages(call, words):
    with pytest.raises(remat.RematError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_a_value_of_a_module_in_an_inspected_function_is_explained():
    with pytest.raises(jax.errors.TracerIntegerConversionError) as caught:
        remat.saved_residuals(loss, NET, X)
    assert "remat.frameworks.equinox" in "\n".join(caught.value.__notes__)


def test_static_leaves_are_static_in_every_function():
    """Flags, names and functions reach the function as they are."""
    tree = {"w": jnp.ones(3), "flag": True, "name": "n", "activation": jnp.tanh}

    def loss(tree: Any) -> jax.Array:
        assert tree["flag"] is True
        assert tree["name"] == "n"
        return jnp.sum(tree["activation"](tree["w"] * 2.0))

    for policy in POLICIES:
        gradient = remat.grad(loss, policy=policy)(tree)
        assert (gradient["name"], gradient["activation"]) == (None, None)
        (cotangent,) = remat.vjp(loss, tree, policy=policy)[1](1.0)
        assert (cotangent["name"], cotangent["activation"]) == (None, None)
        tangent = remat.linearize(loss, tree, policy=policy)[1](tree)
        assert_trees_close(tangent, jnp.sum(gradient["w"]))
        assert_trees_close(cotangent["w"], gradient["w"])
    remat.checkpoint(loss)(tree)
    assert {residual.type for residual in remat.saved_residuals(loss, tree)} == {"f32[3]"}
    assert "tanh" in str(remat.requirements(loss, tree))
    assert "tanh" in str(remat.retrieval_log(loss, tree))


def test_not_imported_and_missing():
    code = """
import sys
import remat
assert not {"flax", "equinox"} & set(sys.modules)
sys.modules["equinox"] = sys.modules["flax"] = None
for name, package in (("equinox", "equinox"), ("nnx", "flax")):
    try:
        __import__(f"remat.frameworks.{name}")
    except ImportError as error:
        assert f"pip install {package}" in str(error), error
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
