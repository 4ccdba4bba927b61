"""New functions that do what an earlier one did are neither linearized nor compiled again."""

import gc
import logging
import weakref

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.testing import assert_trees_close

P = jnp.linspace(0.1, 1.0, 16).reshape(4, 4)


@jax.jit
def loss(p, batch):
    return jnp.sum(jax.nn.relu(jnp.tanh(p @ batch)) ** 2)


def batches(count):
    return [jax.block_until_ready(jnp.full((4, 4), (i + 1) / 16)) for i in range(count)]


@pytest.fixture
def compilations(caplog):
    """The messages of JAX about what it compiles."""
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        yield lambda: [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling")]


def steps(batch):
    """One step of a training loop each, in the ways in which they are written."""
    yield "lambda", lambda: remat.value_and_grad(lambda p: loss(p, batch))(P)
    yield "policy", lambda: remat.value_and_grad(lambda p: loss(p, batch), policy="dots")(P)
    yield "checkpoint", lambda: remat.value_and_grad(lambda p: remat.checkpoint(lambda q: loss(q, batch))(p))(P)
    yield "jax", lambda: jax.value_and_grad(remat.checkpoint(lambda p: loss(p, batch)))(P)
    yield "vjp", lambda: remat.vjp(lambda p: loss(p, batch), P)[1](1.0)


@pytest.mark.parametrize("name", [name for name, _ in steps(None)])
def test_a_new_lambda_in_each_step_compiles_nothing(name, compilations):
    first, *others = [dict(steps(b))[name] for b in batches(4)]
    first()
    seen = len(compilations())
    found = [step() for step in others]
    assert compilations()[seen:] == []
    for b, result in zip(batches(4)[1:], found, strict=True):
        value, gradient = jax.value_and_grad(lambda p, b=b: loss(p, b))(P)
        got = result if name != "vjp" else (value, *result)
        assert_trees_close(got, (value, gradient), 1e-5, 1e-6)


def test_the_policy_is_asked_once():
    asked = []

    def policy(primitive, *_, **__):
        asked.append(primitive)
        return False

    counts = []
    for b in batches(3):
        remat.grad(lambda p, b=b: loss(p, b), policy=policy)(P)
        counts.append(len(asked))
    assert 0 < counts[0] == counts[-1]


def test_other_numbers_and_other_code_are_other_functions():
    def scaled(k):
        return lambda x: jnp.sum(jax.jit(jnp.sin)(x) * k)

    x = jnp.arange(3.0)
    for k in (2.0, 3.0, jnp.float32(4.0), jnp.arange(3.0), jnp.ones((2, 3))):
        assert_trees_close(remat.grad(scaled(k))(x), jax.grad(scaled(k))(x))


def test_policies_of_new_lambdas_are_kept_apart():
    for policy, expected in (("nothing", 0), ("everything", 1), ("nothing", 0)):
        f = remat.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=policy)
        pullback = jax.vjp(f, 1.0)[1]
        jaxpr = str(jax.make_jaxpr(pullback)(1.0))
        assert (" sin" not in jaxpr) == bool(expected)


def test_what_is_remembered_keeps_no_batch_and_no_function_alive():
    def step():
        batch = jnp.ones((300, 4))

        def f(p):
            return jnp.sum(p[:4] @ batch.T) + loss(p, jnp.ones((4, 4)))

        remat.grad(f)(P)
        return weakref.ref(batch), weakref.ref(f)

    references = step()
    gc.collect()
    assert [r() for r in references] == [None, None]
