"""The policy `balanced`: what it keeps, that it has none of Burn's limits, and what users can move."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat import policies
from remat.errors import PolicyError, PolicyTypeError
from remat.testing import check_gradients

M = np.array([[0.5, 1.5], [2.0, 0.25]], np.float32)
N = np.array([[1.0, -0.5], [0.75, 2.0]], np.float32)


def kept(function, *args, policy="balanced"):
    residuals = remat.saved_residuals(remat.checkpoint(function, policy=policy), *args)
    return [r.origin.text for r in residuals if r.is_new]


def new_bytes(function, *args, policy="balanced"):
    return remat.saved_residuals(remat.checkpoint(function, policy=policy), *args).new_bytes


def test_it_recomputes_through_constants():
    def f(x, c=N):
        return jnp.tanh(jnp.exp(x) * c).sum()

    assert kept(f, M) == []
    assert kept(f, M, policy="burn") == ["mul"]


def test_casts_are_no_copies():
    def f(a, b):
        h = a @ b
        return (jnp.exp(h) * jnp.exp(h.astype(jnp.bfloat16)).astype(jnp.float32)).sum()

    assert new_bytes(f, M, N) == 16
    balanced, burn = (remat.retrieval_log(f, M, N, policy=p, argnums=(0, 1)) for p in ("balanced", "burn"))
    assert [balanced.nodes[i].type for i in balanced.held] == ["f32[2,2]"]
    assert [burn.nodes[i].type for i in burn.held] == ["f32[2,2]", "bf16[2,2]", "f32[2,2]"]


def test_it_keeps_sums_in_place_of_addends():
    def f(x, *ws):
        for w in ws:
            x = x + w @ jnp.sin(x)
        return jnp.sin(x).sum()

    assert kept(f, M, N, N) == ["add", "add"]


def test_activations_of_products_cost_nothing():
    def f(a, b, c):
        return (jax.nn.gelu(jax.nn.relu(a @ b)) @ c).sum()

    assert kept(f, M, N, M) == ["dot_general"]


def test_dropout_keeps_the_mask_only():
    def f(a, b):
        h = a @ b
        keep = jax.random.bernoulli(jax.random.key(0), 0.9, h.shape)
        return jnp.tanh(jnp.where(keep, h / 0.9, 0.0)).sum()

    residuals = [r for r in remat.saved_residuals(remat.checkpoint(f, policy="balanced"), M, N) if r.is_new]
    assert sorted(r.type for r in residuals) == ["bool[2,2]", "f32[2,2]"]


def test_it_never_keeps_more_than_burn_where_its_own_rule_would():
    """A product scaled by a constant and masked by its maximum: holding the mask is cheaper than what it comes from."""

    def f(a, b, c, d):
        return ((a @ b + c @ d) * N).max(0).sum()

    assert new_bytes(f, M, N, M, N) <= new_bytes(f, M, N, M, N, policy="burn")


def test_moving_operations_to_the_other_side():
    def f(a, b):
        h = a @ b
        return (jnp.cos(jnp.exp(h)) * h).sum()

    assert kept(f, M, N) == ["dot_general"]
    assert kept(f, M, N, policy=policies.balanced(compute_bound={"exp"})) == ["dot_general", "exp"]
    assert kept(lambda x: jnp.sin(jnp.cumsum(x)).sum(), M, policy=policies.balanced(memory_bound=["cumsum"])) == []


def test_gradients():
    def f(a, b):
        return (jax.nn.softmax(a @ b) @ jnp.sort(jax.nn.silu(b), 0)).max(1).sum()

    choices = [policies.balanced(), policies.balanced(compute_bound={"exp"}), policies.balanced(memory_bound={"sort"})]
    check_gradients(f, M, N, policies=choices, under_jax=True)


@pytest.mark.parametrize(
    "policy",
    [
        policies.balanced(),
        policies.balanced(compute_bound=["exp", "log"]),
        policies.balanced(memory_bound={"sort"}),
        policies.balanced(compute_bound={"exp"}, memory_bound={"sort", "cumsum"}),
        policies.burn_balanced(),
        policies.burn_no_checkpointing(),
        policies.balanced() | policies.save_only_these_names("a"),
    ],
    ids=str,
)
def test_string_forms(policy):
    assert policies.parse(str(policy)) == policy
    assert hash(policies.parse(str(policy))) == hash(policy)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: policies.balanced({"expp"}),
            PolicyError,
            "compute_bound: no primitive is called 'expp'. Did you mean",
        ),
        (lambda: policies.balanced(memory_bound=["q" * 9]), PolicyError, "The table is remat.ir.primitive_table"),
        (lambda: policies.balanced("exp"), PolicyTypeError, r"compute_bound must be a list of names, but is 'exp'"),
        (lambda: policies.balanced({"exp"}, {"exp"}), PolicyError, "exp cannot be both"),
        (lambda: policies.parse("balanced:exp"), PolicyError, "such as 'balanced:compute_bound=exp,log'"),
        (lambda: policies.parse("balanced:compute_bound="), PolicyError, "needs names"),
        (lambda: policies.parse("burn:exp"), PolicyError, "takes no argument"),
        (lambda: remat.checkpoint(jnp.sin, policy=policies.balanced), PolicyTypeError, "without being called"),
        (lambda: remat.checkpoint(jnp.sin, policy=policies.burn_balanced), PolicyTypeError, "without being called"),
    ],
)
def test_mistakes_are_explained(make, error, text):
    with pytest.raises(error, match=text):
        make()
