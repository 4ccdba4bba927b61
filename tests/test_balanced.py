"""The policy `balanced`: what it keeps, that it has none of Burn's limits, and what users can move."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat import policies
from remat.errors import PolicyError, PolicyTypeError
from remat.policies.balanced import Balanced
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


def test_moving_an_operation_reaches_functions_made_of_it():
    def f(a, b):
        return (jax.nn.relu(a @ b) @ b).sum()

    assert kept(f, M, N) == ["dot_general"]
    assert kept(f, M, N, policy=policies.balanced(compute_bound={"max"})) == ["dot_general", "custom_jvp_call"]


def dots(function, *args):
    return str(jax.make_jaxpr(function)(*args)).count("dot_general")


@pytest.mark.parametrize("policy", ["balanced", "burn", "burn_no_checkpointing", "substituting:dots"])
@pytest.mark.parametrize("activation", [jnp.tanh, jnp.exp, jax.nn.sigmoid, jax.nn.silu])
def test_no_product_runs_again_under_jax(activation, policy):
    """JAX keeps by names, which do not reach the result that an activation's own derivative reads."""

    def f(*arrays):
        *ws, h = arrays
        for w in ws:
            h = activation(h @ w)
        return h.sum()

    arrays = [M] * 5
    assert dots(jax.grad(remat.checkpoint(f, policy=policy), range(5)), *arrays) == 12
    assert dots(remat.grad(f, range(5), policy=policy), *arrays) == 12


@pytest.mark.parametrize("policy", ["balanced", "burn", "substituting:dots", "dots"])
def test_functions_that_only_have_a_forward_derivative(policy):
    def f(x, c):
        scaled = jax.lax.while_loop(lambda s: s[1] < 3, lambda s: (jnp.sin(s[0]), s[1] + 1), (c, 0))[0]
        return jnp.exp(jnp.exp(x) * scaled).sum()

    region = remat.checkpoint(f, policy=policy)
    np.testing.assert_allclose(region(M, N), f(M, N), rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(region, (M, N), (N, M))[1], jax.jvp(f, (M, N), (N, M))[1], rtol=1e-5)
    np.testing.assert_allclose(remat.grad(f, policy=policy)(M, N), jax.grad(f)(M, N), rtol=1e-5)


@pytest.mark.parametrize("policy", ["balanced", "burn", "substituting:dots", "dots"])
def test_functions_with_parts_that_have_no_derivative(policy):
    def f(x, c):
        fixed = jax.pure_callback(np.sin, jax.ShapeDtypeStruct((2, 2), jnp.float32), c)
        return jnp.exp(jnp.exp(x) * fixed).sum()

    np.testing.assert_allclose(remat.checkpoint(f, policy=policy)(M, N), f(M, N), rtol=1e-6)
    np.testing.assert_allclose(remat.grad(f, policy=policy)(M, N), jax.grad(f)(M, N), rtol=1e-5)
    with pytest.raises(ValueError, match="Pure callbacks do not support JVP"):
        remat.grad(f, 1, policy=policy)(M, N)


def test_many_regions_are_counted_once():
    """One choice for all, so that planning does not grow with the square of the number of regions."""
    layer = remat.checkpoint(lambda h, w: jnp.tanh(h @ w) * h, policy="balanced")

    def f(ws, x):
        for w in ws:
            x = layer(x, w)
        return x.sum()

    counted = []
    original = Balanced._count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Balanced, "_count", lambda *args: counted.append(1) or original(*args))
        jax.make_jaxpr(remat.grad(f))([M] * 10, M)
    assert len(counted) <= 11 + 1  # one for each region's names, one for all of the program


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
