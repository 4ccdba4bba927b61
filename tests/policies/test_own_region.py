"""A policy decides about the values of its own region; what it says of others is an error that names it."""

import jax
import jax.numpy as jnp
import pytest

import remat
from remat import policies
from remat.errors import PolicyError


class Greedy:
    """Decides about the whole program."""

    def __init__(self, decision):
        self.decision = decision

    def decide(self, view):
        return {v: self.decision for level in view.program.levels() for e in level.equations for v in e.outputs}

    def __repr__(self):
        return "greedy"


class OfInputs:
    def decide(self, view):
        return {v: policies.Save() for v in view.program.inputs}


class OwnValues:
    def decide(self, view):
        return {v: policies.Save() for e in view.equations for v in e.outputs}


def neighbours(policy):
    def f(x):
        own = remat.checkpoint(lambda x: jnp.cos(jnp.cos(x)), policy=policy)(x)
        return remat.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy="nothing")(own).sum()

    return f


@pytest.mark.parametrize("decision", [policies.Save(), policies.Recompute()])
def test_a_policy_cannot_decide_for_its_neighbours(decision):
    with pytest.raises(
        PolicyError, match=r"policy greedy of the checkpoint of <lambda> .*such as the result of .*test_own_region"
    ):
        remat.saved_residuals(neighbours(Greedy(decision)), jnp.ones(4))


def test_nor_for_inputs():
    with pytest.raises(PolicyError, match="such as an input"):
        remat.saved_residuals(neighbours(OfInputs()), jnp.ones(4))


def test_nor_for_a_loop_beside_it():
    def f(x):
        x = jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, length=3)[0]
        return remat.checkpoint(lambda x: jnp.cos(jnp.cos(x)), policy=Greedy(policies.Save()))(x).sum()

    with pytest.raises(PolicyError, match="greedy"):
        remat.grad(f)(jnp.ones(4))


@pytest.mark.filterwarnings("ignore::remat.OverriddenPolicyWarning")
def test_what_is_its_own_may_be_decided_about():
    """Values in loops, branches and nested regions of the region are its own."""

    def inner(x):
        x = jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, length=3)[0]
        x = jax.lax.cond(x.sum() > 0, jnp.cos, jnp.sin, x)
        return remat.checkpoint(lambda x: jnp.sin(jnp.exp(x)))(x)

    gradients = [
        remat.grad(lambda x, p=p: remat.checkpoint(inner, policy=p)(x).sum())(jnp.ones(4))
        for p in (OwnValues(), "everything")
    ]
    assert jnp.allclose(*gradients)
