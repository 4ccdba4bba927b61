"""Which products `balanced` keeps: none that sum over nothing, no batched ones larger than their operands."""

import jax.numpy as jnp
import pytest

import remat
from remat.ir.traits import bound_of, is_memory_bound
from remat.testing import check_gradients


def kept(fun, *args, policy="balanced"):
    return [
        (r.origin.text, r.type) for r in remat.saved_residuals(remat.checkpoint(fun, policy=policy), *args) if r.is_new
    ]


@pytest.mark.parametrize("form", ["i,j->ij", "ij,ij->ij", "bi,bj->bij", "bi,b->bi"])
def test_products_that_sum_over_nothing_are_element_wise(form):
    operands = [jnp.ones((4,) * len(part)) for part in form.split("->")[0].split(",")]
    (equation,) = [
        e
        for e in remat.trace(lambda a, b: jnp.einsum(form, a, b))(*operands).equations
        if e.op.name in ("dot_general", "mul")
    ]
    assert is_memory_bound(equation.op)
    assert bound_of(equation.op) == "memory-bound"

    def fun(a, b):
        return jnp.sin(jnp.einsum(form, jnp.sin(a), jnp.sin(b))).sum()

    assert kept(fun, *operands) == []
    check_gradients(fun, *operands, argnums=(0, 1), policies=["balanced"])


def test_products_that_sum_are_kept():
    (equation,) = remat.trace(jnp.matmul)(jnp.ones((2, 3)), jnp.ones((3, 2))).equations
    assert not is_memory_bound(equation.op)
    assert kept(lambda a, b: jnp.sin(jnp.sin(a) @ b).sum(), jnp.ones((2, 3)), jnp.ones((3, 2))) != []


def scores(q, k):
    return jnp.sin(jnp.einsum("bqd,bkd->bqk", q, k)).sum()


@pytest.mark.parametrize(("length", "expected"), [(4, [("dot_general", "f32[2,4,4]")]), (5, [])])
def test_batched_products_larger_than_their_operands(length, expected):
    """With heads of size 2, the scores are larger than both operands together from length 5 on."""
    q = jnp.ones((2, length, 2))
    assert kept(scores, q, q) == expected
    check_gradients(scores, q, q, argnums=(0, 1), policies=["balanced"])


def test_products_with_weights_are_kept_however_large():
    x, w = jnp.ones((64, 2)), jnp.ones((2, 64))
    assert kept(lambda w, x: jnp.sin(x @ w).sum(), w, x) == [("dot_general", "f32[64,64]")]


def test_the_user_may_ask_for_them():
    q = jnp.ones((2, 32, 2))
    assert kept(scores, q, q, policy="balanced:compute_bound=dot_general") == [("dot_general", "f32[2,32,32]")]
