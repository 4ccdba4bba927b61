"""Sources are lines of the user: of the code that calls remat or that remat calls, never of remat itself."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import remat
from remat.demo import transformer


def sources(fun, *args):
    return [r.source.file for r in remat.saved_residuals(fun, *args) if r.is_new]


@jax.custom_vjp
def with_rule(x):
    return jnp.sin(x)


with_rule.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda c, g: (c * g,))

FUNCTIONS = {
    "a function of JAX": jnp.sin,
    "a jitted one": jax.nn.softmax,
    "in a region": remat.checkpoint(jnp.tanh, policy="everything"),
    "in a region of JAX": jax.checkpoint(jnp.tanh, policy=jax.checkpoint_policies.everything_saveable),
    "in a loop": lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, length=3)[0],
    "with a rule": with_rule,
    "named": remat.checkpoint(lambda x: jnp.sin(remat.checkpoint_name(jnp.exp(x), "e")), policy="names:e"),
    "a gradient": lambda x: remat.grad(lambda x: jnp.sin(x).sum(), policy="everything")(x),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_sources_are_the_users(case):
    found = sources(FUNCTIONS[case], jnp.ones(3))
    assert found
    assert set(found) <= {__file__, ""}


def test_the_demo_is_a_user():
    equations = remat.trace(transformer.normalize)(jnp.ones((2, 3)), jnp.ones(3)).equations
    assert {e.source.position.file for e in equations if e.source.position.file} == {transformer.__file__}
