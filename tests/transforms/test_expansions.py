"""The small values that a large one follows from, and what barriers tie of a cotangent."""

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.ir.program import Program
from remat.ir.rewrite import Builder, inline_calls
from remat.lower import evaluate
from remat.testing import check_gradients
from remat.transforms.expansions import emit_again, origin_of

NEWEST = jax.__version_info__ >= (0, 12)


def traced(f, *args):
    program = inline_calls(remat.trace(f)(*args))
    return program, {v: e for e in program.equations for v in e.outputs}


ROW, FULL = jnp.ones(8), jnp.ones((64, 8))

SPREAD = {
    "broadcast": (lambda r: jnp.broadcast_to(r, (64, 8)), (ROW,), [(8,)]),
    "scaled broadcast": (lambda r: -2 * jnp.broadcast_to(r, (64, 8)) + 1, (ROW,), [(8,)]),
    "upcast": (lambda x: x.astype(jnp.float32), (FULL.astype(jnp.bfloat16),), [(64, 8)]),
    "two small ones": (lambda r, c: r[None] * c[:, None], (ROW, jnp.ones(64)), [(8,), (64,)]),
    "labels": (lambda i: (i[:, None] == jnp.arange(8)).astype(jnp.float32), (jnp.arange(64),), [(64,)]),
    "scattered": (lambda v: jnp.zeros((64, 8)).at[:, 0].add(v), (jnp.ones(64),), [(64,)]),
    "constant": (lambda x: jnp.zeros((64, 8)) + 1, (ROW,), []),
}


@pytest.mark.parametrize("name", SPREAD)
def test_small_origins_are_found_and_give_the_same_value(name):
    f, args, shapes = SPREAD[name]
    program, producer = traced(f, *args)
    origin = origin_of(program.outputs[0], producer)
    assert origin is not None
    assert sorted(r.type.shape for r in origin.roots) == sorted(shapes)
    builder = Builder()
    env = {r: r for r in origin.roots}
    emit_again(builder, origin, env)
    again = Program(list(origin.roots), builder.equations, [env[program.outputs[0]]])
    known = dict(zip(program.inputs, args, strict=True))
    assert set(origin.roots) <= set(known), "these all start from the arguments"
    (found,) = evaluate(again, [known[r] for r in origin.roots])
    assert (found == f(*args)).all()


STAYING = {
    "as large": (lambda x: jnp.exp(x) + 1, (FULL,)),
    "a product": (lambda a, b: jnp.einsum("i,j->ij", a, b), (jnp.ones(64), ROW)),
    "of one large operand": (lambda x, r: x * r, (FULL, ROW)),
    "a sum of many": (lambda x: jnp.cumsum(x, 0), (FULL,)),
    "held back": (lambda r: jax.lax.optimization_barrier(jnp.broadcast_to(r, (64, 8))) * 2, (ROW,)),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_follows_from_nothing_smaller_stays(name):
    f, args = STAYING[name]
    program, producer = traced(f, *args)
    assert origin_of(program.outputs[0], producer) is None


def test_arrays_that_are_read_elsewhere_are_not_defined_twice():
    def f(w, x):
        for _ in range(3):
            x = jnp.sin(x @ w) + x.sum(1, keepdims=True)
        return x.sum()

    check_gradients(f, jnp.ones((8, 8)) * 0.1, FULL, policies=["nothing", "dots"])


@pytest.mark.skipif(not NEWEST, reason="older compilers do not order by barriers")
@pytest.mark.parametrize("policy", ["nothing", "dots"])
def test_labels_of_a_large_vocabulary_are_no_array_in_a_barrier(policy):
    def loss(w, h, y):
        return -(jax.nn.one_hot(y, w.shape[1]) * jax.nn.log_softmax(h @ w)).sum(-1).mean()

    args = jnp.ones((32, 4096)) * 0.01, jnp.ones((128, 32)), jnp.arange(128)
    temp = lambda f: jax.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes  # noqa: E731
    assert temp(remat.grad(loss, (0, 1), policy=policy)) <= 1.05 * temp(jax.grad(loss, (0, 1)))
