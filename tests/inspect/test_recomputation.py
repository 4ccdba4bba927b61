"""What the backward pass computes again, in numbers: against the programs, loops multiplied."""

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.ir.costs import dot_flops

W, X = jnp.ones((6, 64, 64)), jnp.ones((64, 64))
PRODUCT = 2 * 64**3


def scanned(ws, x):
    return jax.lax.scan(lambda x, w: (jnp.sin(jnp.tanh(x @ w)), None), x, ws)[0].sum()


def straight(ws, x):
    for w in ws:
        x = jnp.sin(jnp.tanh(x @ w))
    return x.sum()


def again(fun, *args, **options):
    found = remat.saved_residuals(fun, *args, **options).recomputation
    assert found is not None
    return found


def test_without_a_policy_nothing_is():
    assert (again(straight, list(W), X).equations, again(straight, list(W), X).flops) == (0, 0)
    assert again(scanned, W, X).share == 0


def test_loops_are_multiplied():
    found = again(scanned, W, X, policy="nothing")
    assert found.forward_flops == 6 * (PRODUCT + 2 * 64**2) + 64**2
    assert 6 * PRODUCT <= found.flops <= 6 * (PRODUCT + 6 * 64**2)
    assert found.equations < 10  # those of the body, once
    kept = again(scanned, W, X, policy="dots")
    assert 0 < kept.flops < PRODUCT
    assert kept.equations == found.equations - 1


def test_products_are_those_of_the_backward_program():
    """Under nothing, what the backward program has more than that of everything are the products that run again."""
    region = remat.checkpoint(straight, policy="nothing")
    program = remat.trace(jax.grad(region))(list(W), X)
    plain = remat.trace(jax.grad(straight))(list(W), X)
    more = round(dot_flops(program) - dot_flops(plain))
    found = again(straight, list(W), X, policy="nothing", argnums=0)
    assert more <= found.flops <= more * 1.1
    assert more % PRODUCT == 0


def test_time_is_by_the_rates_of_the_target():
    slow, fast = (again(straight, list(W), X, policy="nothing", target=t) for t in ("cpu", "gpu:H100"))
    assert (slow.target, fast.target) == ("cpu", "gpu:H100")
    assert slow.seconds > 100 * fast.seconds > 0
    assert slow.flops == fast.flops


def test_a_primitive_without_a_rule_is_named(monkeypatch):
    from remat.ir import flops

    monkeypatch.setattr(flops, "rule_of", lambda name: None)
    monkeypatch.setattr("remat.ir.costs.rule_of", lambda name: None if name == "tanh" else flops.each_result)
    found = again(straight, list(W[:2]), X, policy="nothing")
    assert found.unknown == ("tanh",)
    assert "not known of tanh" in str(remat.saved_residuals(straight, list(W[:2]), X, policy="nothing"))


@pytest.mark.parametrize("branch", [0, 1])
def test_of_branches_the_most_expensive_one_counts(branch):
    def fun(x, w):
        branches = [jnp.tanh, lambda x: jnp.tanh(x @ w)]
        return jax.lax.cond(x[0, 0] > 0, branches[branch], branches[1 - branch], x).sum()

    assert PRODUCT <= again(fun, X, W[0], policy="nothing").flops < 1.5 * PRODUCT
