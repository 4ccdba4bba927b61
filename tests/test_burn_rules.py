"""Burn's rules, one by one: what its strategies do in the cases that are easy to get wrong."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat import policies
from remat.testing import check_gradients

NO, BURN = policies.burn_no_checkpointing(), policies.burn_balanced()
M = np.array([[0.5, 1.5], [2.0, 0.25]], np.float32)
N = np.array([[1.0, -0.5], [0.75, 2.0]], np.float32)


def log(function, *args, policy=BURN, argnums=None):
    return remat.retrieval_log(
        function, *args, policy=policy, argnums=tuple(range(len(args))) if argnums is None else argnums
    )


def operations(found, ids):
    return [found.nodes[i].operation for i in ids]


def counts(found):
    return [(r.node, len(r.executed)) for r in found.retrievals]


def test_a_leaf_is_always_there():
    found = log(lambda x: jnp.exp(x).sum(), M)
    assert counts(found) == [(0, 1)]
    assert found.held == found.kept == ()
    assert found.drained


def test_a_chain_of_memory_bound_operations_is_recomputed_to_the_nearest_kept_value():
    def chain(x):
        for _ in range(4):
            x = jax.nn.sigmoid(x)
        return x.sum()

    found = log(chain, M)
    assert found.held == ()
    assert counts(found) == [(3, 4), (2, 1), (1, 1), (0, 1)]
    assert found.recomputed == (1, 2, 3)
    assert found.n_required == {0: 2, 1: 2, 2: 2, 3: 1}


def test_a_product_of_a_value_with_itself_asks_for_it_twice():
    found = log(lambda x: (jnp.exp(x) * jnp.exp(x)).sum(), M)
    assert counts(found)[:2] == [(1, 2), (2, 2)] or found.n_required[0] >= 2  # two exps are two nodes
    square = log(lambda x: jnp.square(jnp.exp(x)).sum(), M)
    assert counts(square) == [(1, 2), (1, 1), (0, 1)]
    assert square.n_required == {0: 2, 1: 2}


def scaled(x, c):
    return jnp.tanh(jnp.exp(x) * c).sum()


def test_a_constant_array_makes_an_operation_compute_bound():
    found = log(scaled, M, N, argnums=0)
    assert operations(found, found.held) == ["mul"]
    assert found.recomputed == ()


@pytest.mark.parametrize("scalar", [2.0, np.float32(2.0), jnp.float32(2.0)])
def test_a_constant_number_does_not(scalar):
    found = log(lambda x: scaled(x, scalar), M)
    assert found.held == ()
    assert operations(found, found.recomputed) == ["exp", "mul"]


def test_an_array_that_repeats_a_number_counts_as_a_number():
    found = log(lambda x: jnp.tanh(jnp.exp(x) * jnp.full((2, 2), 3.0)).sum(), M)
    assert found.held == ()


def test_scalar_arguments_without_gradient_are_numbers():
    found = log(scaled, M, 3.0, argnums=0)
    assert found.held == ()


def test_detaching_an_intermediate_makes_a_constant():
    found = log(lambda x: jnp.tanh(jnp.exp(x) * jax.lax.stop_gradient(jnp.exp(x))).sum(), M)
    assert "mul" in operations(found, found.held)


def test_detaching_a_leaf_leaves_a_leaf():
    found = log(lambda x: jnp.tanh(jnp.exp(x) * jax.lax.stop_gradient(x)).sum(), M)
    assert found.held == ()


def test_softmax_of_an_intermediate():
    """Its maximum is detached, so that the shifted values are kept like those of a matrix product."""

    def f(a, b):
        return (jax.nn.softmax(a @ b, 1) @ b).sum()

    plain, balanced = log(f, M, N, policy=NO), log(f, M, N)
    assert operations(plain, plain.held) == ["sub", "exp", "broadcast_in_dim", "div"]
    assert operations(balanced, balanced.held) == ["sub", "reduce_sum"]
    assert operations(balanced, balanced.recomputed) == ["exp", "broadcast_in_dim", "div"]
    assert {balanced.nodes[i].type for i in balanced.held} == {"f32[2,2]", "f32[2]"}


def test_balanced_can_hold_more_after_the_forward_pass_until_backups_are_dropped():
    def f(a, b, c):
        return (a @ b + jnp.exp(c)).sum()

    plain, balanced = log(f, M, N, M, policy=NO), log(f, M, N, M)
    assert plain.held_bytes == 0
    assert operations(balanced, balanced.held) == ["dot_general"]
    assert balanced.held_bytes == 16
    assert balanced.kept_bytes == 0


@pytest.mark.parametrize(
    "reduce",
    [jnp.prod, lambda x: jnp.cumprod(x, 0).sum(), lambda x: x.max(0).sum(), lambda x: jnp.sort(x, 0).sum()],
)
def test_operations_with_state_of_their_own_bypass_the_checkpointer(reduce):
    found = log(lambda a, b: reduce(a @ b), M, N)
    assert [r.node for r in found.retrievals] == [0, 1]
    check_gradients(lambda a, b: reduce(a @ b), M, N, policies=(NO, BURN))


def test_untracked_operations_are_never_asked_for():
    found = log(lambda a, w: (jnp.exp(a) * a * w).sum(), M, N, argnums=1)
    assert operations(found, [r.node for r in found.retrievals]) == ["mul"]
    assert [n.requirement for n in found.nodes[:4]] == ["constant", "leaf", "constant", "constant"]


def test_the_first_layers_weight_is_never_kept_when_its_input_is_a_constant():
    found = log(lambda w, x: jnp.tanh(x @ w).sum(), M, N, argnums=0)
    assert 0 not in found.n_required


def test_a_square_is_a_product_with_itself():
    for function in (lambda x: jnp.exp(jnp.exp(x) ** 2).sum(), lambda x: jnp.exp(jnp.square(jnp.exp(x))).sum()):
        assert log(function, M).n_required == {0: 2, 1: 4, 2: 1}


def test_a_detached_intermediate_is_held():
    def f(w, a):
        return (w * jax.lax.stop_gradient(jnp.exp(a @ a))).sum()

    for policy in (NO, BURN, policies.balanced()):
        assert log(f, M, N, policy=policy).held_bytes == 16
        assert remat.saved_residuals(remat.checkpoint(f, policy=policy), M, N).new_bytes == 16


def test_a_detached_argument_costs_nothing_and_is_no_argument_to_differentiate():
    def f(a):
        return jnp.tanh(jax.lax.stop_gradient(a) * a).sum()

    found = log(f, M)
    assert [n.requirement for n in found.nodes[:2]] == ["leaf", "constant"]
    assert "1 of them differentiated arguments" in str(found)
    assert [r.origin.text for r in remat.saved_residuals(remat.checkpoint(f, policy=BURN), M) if r.is_new] == []


def test_functions_that_burn_would_take_apart_are_compute_bound():
    found = log(lambda x: (jax.nn.relu6(x @ x) @ x).sum(), M)
    assert len(found.held) == 2
    assert len(log(lambda x: (jax.nn.relu(x @ x) @ x).sum(), M).held) == 1


def test_views_of_a_repeated_number_are_numbers():
    assert not log(lambda x: jnp.tanh(jnp.exp(x) * jnp.full(4, 3.0).reshape(2, 2)).sum(), M).held


def test_the_log_says_what_the_plan_keeps_besides():
    def f(x):
        return jax.lax.scan(lambda c, _: (jnp.sin(jnp.exp(c)), None), x, None, length=100)[0].sum()

    for policy in (None, BURN, policies.balanced()):
        found = log(f, M, policy=policy)
        region = f if policy is None else remat.checkpoint(f, policy=policy)
        assert found.kept_bytes == 0
        assert found.planned_bytes == remat.saved_residuals(region, M).new_bytes > 0
        assert "1 of the nodes are results of loops or branches" in str(found)


def test_loops_of_unknown_length_are_an_error_in_the_log():
    def f(x):
        return jax.lax.while_loop(lambda s: s.sum() < 9.0, lambda s: s * s, x).sum()

    for policy in (None, BURN, NO, policies.balanced()):
        with pytest.raises(remat.RematError, match="while loop"):
            log(f, M + 2, policy=policy)


def test_other_policies_ask_for_what_jax_reads():
    """The result of an exp, where Burn asks for its input; the input of a sine in both."""

    def f(x):
        return jnp.sin(jnp.exp(x)).sum()

    assert counts(log(f, M, policy=None)) == [(1, 1), (1, 1)]
    assert counts(log(f, M, policy=NO)) == [(1, 1), (0, 1)]
    assert counts(log(f, M, policy="nothing")) == [(1, 2), (1, 1)]


def test_casts_are_kept_by_burn_and_recomputed_by_balanced():
    def f(x):
        return jnp.exp(jnp.exp(x).astype(jnp.bfloat16)).astype(jnp.float32).sum()

    found = log(f, M)
    assert "convert_element_type" in operations(found, found.held)
    assert not log(f, M, policy=policies.balanced()).held


def test_dropout_masks_are_kept_and_not_drawn_again():
    key = jax.random.key(0)

    def f(x):
        return jnp.tanh(jnp.where(jax.random.bernoulli(key, 0.5, x.shape), jnp.exp(x), 0.0)).sum()

    for policy in (BURN, NO, policies.balanced()):
        backward = "\n".join(remat.inspect.fwd_bwd.fwd_bwd(remat.checkpoint(f, policy=policy), M).backward)
        assert "random_bits" not in backward
        check_gradients(f, M / 4, policies=(policy,))  # where tanh is not flat: 1 - tanh² keeps its digits


@pytest.mark.parametrize("activation", [jax.nn.relu, jax.nn.silu, jax.nn.gelu, jax.nn.sigmoid, jnp.tanh])
def test_activations_keep_their_input_only(activation):
    """Through jit and custom_jvp: of a product and its activation, only the product is kept."""

    def f(a, b, c):
        return (activation(a @ b) @ c).sum()

    found = log(f, M, N, M)
    assert operations(found, found.held) == ["dot_general"]
    residuals = remat.saved_residuals(remat.checkpoint(f, policy=BURN), M, N, M)
    assert [r.origin.text for r in residuals if r.is_new] == ["dot_general"]
    check_gradients(f, M, N, M, policies=(BURN,))


def silu_scan(ws, x):
    def body(h, w):
        h = h @ w
        return h * jax.nn.sigmoid(h), None

    return jax.lax.scan(body, x, ws)[0].sum()


@pytest.mark.parametrize(("policy", "tensors"), [(NO, 16), (BURN, 8)])
def test_strategies_act_in_each_iteration_of_a_scan(policy, tensors):
    """No checkpointing keeps the product and the sigmoid of each iteration; what is carried follows from them."""
    residuals = remat.saved_residuals(
        remat.checkpoint(lambda ws: silu_scan(ws, jnp.ones((4, 4))), policy=policy),
        jax.ShapeDtypeStruct((8, 4, 4), jnp.float32),
    )
    assert residuals.new_bytes == tensors * 64


def test_levels_of_the_log():
    found = log(lambda x: jnp.exp(jnp.exp(x)).sum(), M)
    assert found.text("basic").splitlines() == [
        "retrieve_node_output NodeId { value: 1 }: 2 node(s) to compute",
        "retrieve_node_output NodeId { value: 0 }: 1 node(s) to compute",
    ]
    assert found.text("full").splitlines()[1:3] == [
        "execute_retro_forward NodeId { value: 0 }",
        "execute_retro_forward NodeId { value: 1 }",
    ]
    assert found.text() == found.text("full")
    with pytest.raises(remat.RematError, match="level of a retrieval log is 'medium', but must be 'basic' or 'full'"):
        found.text("medium")


def test_the_summary_says_what_burn_promised():
    found = log(lambda w, x: jnp.tanh(jnp.sin(x @ w) @ w).sum(), M, N, argnums=0)
    lines = str(found).splitlines()
    assert lines[0] == "<lambda>: 7 nodes, 1 of them differentiated arguments, depth 5; 5 backward steps"
    assert "policy: burn" in lines
    assert "when the backward pass begins: 32 B in 2 values" in lines
    assert any("saved" in line and "dot_general" in line and "test_burn_rules.py" in line for line in lines)
    assert any("recomputed" in line and " sin " in line for line in lines)
    assert all(len(line) <= 100 for line in lines[:6])
    assert json.loads(found.to_json())["kept_bytes"] == 32


def test_long_chains_are_linear_and_need_no_recursion():
    def chain(x):
        for _ in range(3000):
            x = jnp.sin(x)
        return x.sum()

    found = log(chain, M)
    assert len(found.retrievals[0].executed) == 3000
    assert found.drained


def test_a_shared_ancestor_is_gone_through_once():
    def shared(x):
        y = jnp.exp(x)
        for _ in range(200):
            y = jnp.sin(y) * jnp.cos(y)
        return y.sum()

    found = log(shared, M)
    assert max(len(r.executed) for r in found.retrievals) <= 3 * 200 + 2
    assert len(found.recomputed) == len(set(found.recomputed))


def test_two_policies_in_one_computation_are_nested_regions():
    """Burn refuses to mix strategies; here the outer region decides, and neighbours keep their own policy."""

    def f(x):
        a = remat.checkpoint(lambda x: jnp.sin(jnp.exp(x)), policy=NO)(x)
        return remat.checkpoint(lambda x: jnp.sin(jnp.exp(x)), policy=BURN)(a).sum()

    check_gradients(f, M)
    assert [r.origin.text for r in remat.saved_residuals(f, M) if r.is_new] == ["exp", "sin"]


# Requirements: the functional form of Burn's autodiff decorator.


def requirement_of(function, *args, argnums=0):
    return [(v.name, v.requirement) for v in remat.requirements(function, *args, argnums=argnums)]


def test_requirements_of_burns_table():
    """a: constant, w: leaf; a*a is a constant, a*w is tracked."""
    found = requirement_of(lambda w, a: ((a * a) + (a * w)).sum(), M, N)
    assert found == [
        ("w", "leaf"),
        ("a", "constant"),
        ("mul", "constant"),
        ("mul", "tracked"),
        ("add", "tracked"),
        ("reduce_sum", "tracked"),
    ]


def test_integers_and_booleans_pass_through():
    def f(x, k, flag):
        return jnp.where(flag, x * k, x).sum()

    found = dict(requirement_of(f, M, jnp.arange(2), jnp.array([True, False]), argnums=(0, 1, 2)))
    assert found["x"] == "leaf"
    assert found["k"] == found["flag"] == "constant"
    gradients = remat.grad(f, (0,), policy=BURN)(M, jnp.arange(2), jnp.array([True, False]))
    assert gradients[0].dtype == jnp.float32


def test_a_constant_mixed_with_a_tracked_value():
    """Burn's example: loss = (a*w + c*w).sum() with a plain c."""
    a, c = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.ones((2, 2), np.float32)
    for policy in (None, NO, BURN, policies.balanced()):
        gradient = remat.grad(lambda w: (a * w + c * w).sum(), policy=policy)(M)
        np.testing.assert_array_equal(gradient, [[2, 3], [4, 5]])


def test_a_gradient_that_nothing_depends_on_is_zero():
    """Burn panics; JAX returns zeros, and `requirements` says so."""

    def f(w, x):
        return (x * x).sum()

    found = remat.requirements(f, M, N, argnums=(0, 1))
    assert found.unreached == ("w",)
    assert str(found).endswith("no result depends on w: the gradient is zero")
    np.testing.assert_array_equal(remat.grad(f, policy=BURN)(M, N), np.zeros((2, 2)))
    assert json.loads(found.to_json())["unreached"] == ["w"]
    with pytest.raises(remat.RematError, match="'leaves' is no requirement"):
        found.of("leaves")


def test_stop_gradient_gives_a_constant():
    found = requirement_of(lambda x: (jax.lax.stop_gradient(x) * x).sum(), M)
    assert found == [("x", "leaf"), ("stop_gradient", "constant"), ("mul", "tracked"), ("reduce_sum", "tracked")]


def test_paths_of_pytrees():
    found = remat.requirements(lambda p, x: (p["w"] * x + p["b"]).sum(), {"w": M, "b": N}, M)
    assert [v.name for v in found.of("leaf")] == ["p['b']", "p['w']"]
    assert found[2].name == "x"
    assert len(found[:2]) == 2


@pytest.mark.parametrize("call", [remat.requirements, remat.retrieval_log])
def test_bad_calls_are_explained(call):
    with pytest.raises(remat.RematError, match="argnums=3 is out of range"):
        call(lambda x: x, M, argnums=3)
    with pytest.raises(remat.RematError, match="takes a function, but got 3"):
        call(3, M)
