"""The backward program: what is recomputed, how often, from where, and what keeps XLA from undoing it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from splitting import MATRIX, VECTOR, count, split

import remat
from remat import policies
from remat.ir.ops import Barrier, Scan
from remat.testing import assert_saved, assert_trees_close, check_gradients


def chain(functions):
    def f(x):
        for function in functions:
            x = function(x)
        return x

    return f


def test_a_shared_ancestor_is_recomputed_once():
    def f(x):
        y = jnp.exp(x)
        return (jnp.sin(y) * jnp.cos(y) + jnp.tanh(y)).sum()

    backward = split(remat.checkpoint(f), VECTOR).second
    assert count(backward, "exp") == 1
    assert count(backward, "tanh") == 1


def test_nothing_is_recomputed_without_a_region():
    backward = split(lambda x: jnp.sin(jnp.exp(x)), VECTOR).second
    assert [e.op.name for e in backward.equations] == ["mul", "mul"]


def test_recomputation_starts_from_the_nearest_kept_value():
    def f(x):
        return jnp.tanh(jnp.sin(remat.name(jnp.exp(jnp.cos(x)), "e")))

    backward = split(remat.checkpoint(f, policy="names:e"), VECTOR).second
    assert count(backward, "exp") == 0
    assert count(backward, "sin") == 2  # the sin again, and the derivative of cos


def test_recomputation_stands_right_before_its_use():
    """In a chain of two regions, the first recomputes only after the second has been differentiated."""
    layer = remat.checkpoint(lambda w, x: jnp.sin(jnp.exp(w * x)))
    backward = split(lambda v, w, x: layer(w, layer(v, x)), VECTOR, VECTOR, VECTOR).second
    names = [e.op.name for e in backward.equations]
    assert names.count("exp") == 2
    first, second = (i for i, name in enumerate(names) if name == "exp")
    assert "mul" in names[first:second]
    between = {v for e in backward.equations[first:second] for v in e.outputs}
    tied = [e for e in backward.equations[:second] if isinstance(e.op, Barrier)][-1]
    assert between & set(tied.inputs), "the second recomputation does not wait for the first layer's cotangents"


@pytest.mark.parametrize("length", [4, 8, 16, 32])
def test_recursive_scheme_recomputes_n_log_n(length):
    """Each level of the scheme runs the earlier half again: 2, 8, 24 evaluations for 4, 8, 16 in JAX, where the last
    value of each half is computed though nothing needs it; here those are left out."""
    f = remat.recursive_checkpoint([jnp.sin] * length)
    found = count(split(f, 1.0).second, "sin")
    assert found == {4: 1, 8: 5, 16: 17, 32: 49}[length]
    in_jax = length // 2 * (length.bit_length() - 2)
    assert found <= in_jax
    np.testing.assert_allclose(remat.grad(f)(0.5), jax.grad(chain([jnp.sin] * length))(0.5), rtol=1e-5)


@pytest.mark.parametrize(("length", "kept"), [(8, 4), (16, 5), (32, 6), (64, 7)])
def test_recursive_scheme_keeps_log_n(length, kept):
    assert len(remat.saved_residuals(remat.recursive_checkpoint([jnp.sin] * length), 1.0)) == kept


def test_values_of_a_region_are_not_shared_with_its_neighbour():
    """A region that needs another region's inside recomputes it in its own right."""
    inner = remat.checkpoint(lambda x: jnp.tanh(jnp.exp(x)))

    @remat.checkpoint
    def outer(x):
        y = inner(x)
        return jnp.sin(y) * y

    backward = split(outer, VECTOR).second
    assert count(backward, "exp") == 2  # once for y in the outer region, once for the inner region's own backward


def test_a_result_that_is_kept_anyway_serves_its_own_region():
    layer = remat.checkpoint(lambda x: jnp.tanh(x))
    backward = split(lambda x: layer(layer(x)), VECTOR).second
    assert count(backward, "tanh") == 1  # the last result; the first is kept as the second layer's input


def test_unnamed_use_reads_the_named_value():
    """The derivative of exp reads its result from before it was named; keeping the name must be enough."""
    f = remat.checkpoint(lambda x: jnp.sin(remat.name(jnp.exp(x), "e")), policy="names:e")
    assert_saved(f, [VECTOR], [("f32[4]", "e")])
    assert count(split(f, VECTOR).second, "exp") == 0


@pytest.mark.parametrize("size", [100, 1000])
def test_programs_grow_linearly(size):
    """Also where values depend on earlier ones along exponentially many paths."""

    def f(x):
        a, b = x, x
        for _ in range(size):
            a, b = jnp.sin(a * b), a + jnp.cos(b)
        return (a + b).sum()

    result = split(remat.checkpoint(f), VECTOR)
    assert len(result.second.equations) <= 25 * size + 50


def test_long_chains_need_no_recursion():
    """A chain of 5,000 steps, recomputed from its input in one go."""

    def f(x):
        for _ in range(5000):
            x = jnp.sin(x)
        return x

    result = split(remat.checkpoint(f), 1.0)
    assert len(result.residuals) == 1
    assert count(result.second, "sin") == 4999


# Loops


def backward_scan(fun, *args) -> Scan:
    (scan,) = [e.op for e in split(fun, *args).second.equations if isinstance(e.op, Scan)]
    return scan


def silu_step(x, w):
    h = x @ w
    return h * jax.nn.sigmoid(h), None


def silu_net(x, ws):
    return jax.lax.scan(silu_step, x, ws)[0]


STACK = jnp.stack([MATRIX] * 3)


def test_a_policy_around_a_scan_acts_in_each_iteration():
    scan = backward_scan(remat.checkpoint(silu_net, policy="dots"), MATRIX, STACK)
    assert count(scan.body, "dot_general") == 2  # the two of the derivative, none recomputed
    assert scan.reverse
    scan = backward_scan(remat.checkpoint(silu_net), MATRIX, STACK)
    assert count(scan.body, "dot_general") == 3


def test_the_carried_value_is_rebuilt_from_the_iteration_before():
    f = remat.checkpoint(silu_net, policy="dots")
    kept = [r for r in remat.saved_residuals(f, MATRIX, STACK) if r.is_new]
    assert [(r.origin.text, r.times) for r in kept] == [("dot_general", 3)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_rebuilt_carries_give_the_same_gradients(reverse, length):
    def f(x, ws, scale):
        def step(carry, w):
            h, n = carry
            y = jnp.tanh(h @ w) * scale
            return (y, n + 1), y

        (y, _), ys = jax.lax.scan(step, (x, 0), ws, reverse=reverse)
        return y, ys

    args = (MATRIX, jnp.stack([MATRIX * (i + 1) for i in range(length)]), 0.5)
    check_gradients(f, *args, policies=["dots", "nothing", "everything", "scan_body:dots"])


def test_a_chain_through_a_product_is_not_rebuilt():
    """The carry goes through a second product that is not kept, so it is kept itself."""

    def step(x, w):
        return remat.name(jnp.sin(x @ w), "kept") @ w, None

    f = remat.checkpoint(lambda x, ws: jax.lax.scan(step, x, ws)[0], policy="names:kept")
    residuals = [r for r in remat.saved_residuals(f, MATRIX, STACK) if r.is_new]
    assert sorted((r.carried, r.origin.text) for r in residuals) == [(False, "kept"), (True, "scan")]


def test_scan_body_policy_equals_a_checkpoint_on_the_body():
    by_hand = lambda x, ws: jax.lax.scan(remat.checkpoint(silu_step), x, ws)[0]  # noqa: E731
    by_policy = remat.checkpoint(silu_net, policy=policies.scan_body("nothing"))
    found = [(r.type, r.times, r.carried) for r in remat.saved_residuals(by_policy, MATRIX, STACK)]
    expected = [(r.type, r.times, r.carried) for r in remat.saved_residuals(by_hand, MATRIX, STACK)]
    assert found == expected
    check_gradients(silu_net, MATRIX, STACK, policies=["scan_body:nothing"])


def test_nested_scan_recomputes_the_inner_loop_under_a_policy():
    def outer(x, ws):
        return jax.lax.scan(lambda x, w: (jnp.sin(x * w), None), x, ws)[0], None

    def f(x, ws):
        return jax.lax.scan(outer, x, ws)[0]

    stack = jnp.ones((3, 5, 4))
    residuals = [r for r in remat.saved_residuals(remat.checkpoint(f), VECTOR, stack) if r.is_new]
    assert [(r.carried, r.loops) for r in residuals] == [(True, (3,))]
    check_gradients(f, VECTOR, stack)


# Views and substitution


def test_a_view_is_not_kept_beside_its_base():
    def f(w, x):
        h = w @ x
        return (jnp.sin(h) * 2).sum() + jnp.tanh(h.reshape(2, 8)).sum() + jnp.exp(h.T).sum()

    everything = remat.checkpoint(f, policy="everything")
    kept = [r.origin.text for r in remat.saved_residuals(everything, MATRIX, MATRIX) if r.is_new]
    assert "reshape" not in kept
    assert "transpose" not in kept
    check_gradients(f, MATRIX, MATRIX, policies=["everything"])


def test_slices_of_stacked_weights_cost_nothing():
    def f(ws, x):
        for i in range(3):
            x = jnp.sin(ws[i] @ x)
        return x.sum()

    for policy in ("everything", "dots", "nothing"):
        region = remat.checkpoint(f, policy=policy)
        kept = [r.origin.text for r in remat.saved_residuals(region, STACK, VECTOR) if r.is_new]
        assert not {"squeeze", "slice", "dynamic_slice"} & set(kept), policy


def residual_stream(x, ws):
    for w in ws:
        x = x + jnp.tanh(x) @ w
    return (x**2).sum()


def test_substituting_keeps_the_sum_in_place_of_its_addend():
    literal = remat.checkpoint(residual_stream, policy="dots")
    substituted = remat.checkpoint(residual_stream, policy="substituting:dots")
    args = (MATRIX, [MATRIX] * 3)
    first, second = remat.saved_residuals(literal, *args), remat.saved_residuals(substituted, *args)
    assert [r.origin.text for r in first if r.is_new] == ["dot_general"] * 3
    assert [r.origin.text for r in second if r.is_new] == ["add"] * 3
    assert second.new_bytes == first.new_bytes
    recomputed = split(substituted, *args).level.retrieval.recomputed
    assert not any(e.op.name == "add" for e in recomputed)
    check_gradients(residual_stream, *args, policies=["substituting:dots"])


def test_substituting_keeps_the_smaller_of_a_value_and_its_cast():
    def f(x, w):
        h = (x @ w).astype(jnp.bfloat16)
        return (jnp.sin(h) * h).astype(jnp.float32).sum()

    found = remat.saved_residuals(remat.checkpoint(f, policy="substituting:dots"), MATRIX, MATRIX)
    assert [r.type for r in found if r.is_new] == ["bf16[4,4]"]


def test_substituting_leaves_values_with_other_uses():
    def f(x, w):
        h = x @ w
        return (jnp.sin(h) + (h + 1)).sum()

    found = remat.saved_residuals(remat.checkpoint(f, policy="substituting:dots"), MATRIX, MATRIX)
    assert [r.origin.text for r in found if r.is_new] == ["dot_general"]


# Numbers


def test_gradients_do_not_depend_on_the_policy():
    """But for the last bits, which depend on what XLA fuses."""
    args = (MATRIX, [MATRIX] * 3)
    expected = remat.grad(residual_stream)(*args)
    for policy in ("nothing", "dots", "everything", "substituting:dots"):
        assert_trees_close(remat.grad(residual_stream, policy=policy)(*args), expected, rtol=1e-6, atol=1e-6)


def test_16_bit_values_that_are_kept_are_rounded():
    def f(x, w):
        return jnp.tanh(x @ w).astype(jnp.float32).sum()

    half = MATRIX.astype(jnp.bfloat16)
    forward = split(remat.checkpoint(f, policy="dots"), half, half).forward
    assert count(forward, "reduce_precision") == 1
    assert count(split(remat.checkpoint(f, policy="dots"), MATRIX, MATRIX).forward, "reduce_precision") == 0
    check_gradients(f, half, half, rtol=2e-2, atol=1e-2)


def test_a_stacked_result_serves_as_the_carried_value():
    """An LSTM stacks its hidden state and carries it too; one of the two is enough."""

    def step(carry, x):
        h, c = carry
        c = jnp.tanh(h @ x) * c + h
        h = jnp.sin(c)
        return (h, c), h

    def f(x, xs):
        return (jax.lax.scan(step, (x, x), xs)[1] ** 2).sum()

    residuals = [r for r in remat.saved_residuals(remat.checkpoint(f), MATRIX, STACK) if r.is_new]
    assert [r.stacked_type for r in residuals] == ["f32[3,4,4]", "f32[3,4,4]"]  # h once, and c
    check_gradients(f, MATRIX, STACK, policies=["nothing", "dots", "everything"])


def test_a_loop_does_not_run_again_for_its_results():
    def f(x, ws):
        final, _ = jax.lax.scan(silu_step, x, ws)
        return (jnp.sin(final) ** 2).sum()

    backward = split(remat.checkpoint(f, policy="dots"), MATRIX, STACK).second
    assert count(backward, "scan") == 1
    assert count(backward, "dot_general") == 2
