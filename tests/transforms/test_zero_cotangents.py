"""Results that nothing uses have no cotangent: nothing is kept, carried or summed up for them, and where their
derivative is infinite the gradient is still finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import remat
from remat.ir.ops import Cond, Scan
from remat.testing import check_gradients
from remat.trace import trace
from remat.transforms.differentiate_program import split_program
from remat.transforms.split import Split

POLICIES = [None, "nothing", "dots", "everything", "burn", "balanced"]


def scan_output(x: Any) -> Any:
    return lax.scan(lambda c, _: (c * 1.5, jnp.log(c)), x, None, length=2)[0]


def scan_carry(x: Any) -> Any:
    return lax.scan(lambda c, _: ((c[0] * 1.5, jnp.log(c[1])), None), (x, x), None, length=2)[0][0]


def scan_carries_in_turn(x: Any) -> Any:
    """The second leads to the third, neither to the first."""
    step = lambda c, _: ((c[0] * 1.5, jnp.sqrt(c[1]), c[2] + jnp.log(c[1])), None)  # noqa: E731
    return lax.scan(step, (x, x, x), None, length=3)[0][0]


def inner_scan(x: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        good, bad = lax.scan(lambda c, _: (c * 1.5, jnp.log(c)), c, None, length=2)
        return good, bad

    return lax.scan(step, x, None, length=2)[0]


def cond(x: Any) -> Any:
    return lax.cond(x < 1, lambda x: (x * 2, jnp.log(x)), lambda x: (x, x), x)[0]


def barrier(x: Any) -> Any:
    return lax.optimization_barrier((jnp.log(x), x))[1]


def reduce(x: Any) -> Any:
    v = jnp.stack([x, x + 1])
    return lax.reduce((v, jnp.log(v)), (0.0, 0.0), lambda p, q: (p[0] + q[0], p[1] + q[1]), (0,))[0]


def rule_returning_none(x: Any) -> Any:
    rule = jax.custom_vjp(lambda x, y: (x * 2, y))
    rule.defvjp(lambda x, y: ((x * 2, y), None), lambda _, g: (2 * g[0], None))
    return rule(x, jnp.log(x))[0]


def shard_map(x: Any) -> Any:
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")
    f = jax.shard_map(lambda x: (x * 2, jnp.log(x)), mesh=mesh, in_specs=spec, out_specs=(spec, spec))
    return f(jnp.full(2, x))[0].sum()


KINDS: dict[Callable[[Any], Any], float] = {
    scan_output: 2.25,
    scan_carry: 2.25,
    scan_carries_in_turn: 3.375,
    inner_scan: 1.5**4,
    cond: 2.0,
    barrier: 1.0,
    reduce: 2.0,
    rule_returning_none: 2.0,
    shard_map: 4.0,
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_unused_results_do_not_make_nan(kind: Callable[[Any], Any], policy: str | None) -> None:
    if policy is None and np.isnan(jax.grad(kind)(0.0)):
        pytest.skip("without a policy it is JAX's own derivative, which has NaN here in this version")
    assert remat.grad(kind, policy=policy)(0.0) == KINDS[kind]


def split(fun: Callable[..., Any], *args: Any, backward: bool = True) -> Split:
    program = trace(fun)(*args)
    return split_program(program, [True] * len(program.inputs), backward)


def scans(equations: Any) -> list[Scan]:
    return [e.op for e in equations if isinstance(e.op, Scan)]


def test_metrics_of_a_scan_are_not_kept() -> None:
    def f(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(h + w * x)
            return h, jnp.exp(jnp.sin(h))

        h, metrics = lax.scan(step, jnp.zeros(w.shape), xs)
        return (h**2).sum(), lax.stop_gradient(metrics), metrics

    args = jnp.ones(3), jnp.ones((5, 3))
    program = trace(f)(*args)
    found = split_program(program, [True, True], auxiliary=1)
    without = split_program(trace(lambda *a: f(*a)[0])(*args), [True, True])
    assert [v.type for v in found.residuals] == [v.type for v in without.residuals]


def test_only_live_values_are_carried_and_summed_up() -> None:
    """Backward: the cotangent of the one live carry, and the sum for the one constant that it depends on."""

    def f(a: Any, b: Any, x: Any, y: Any, slices: Any) -> Any:
        step = lambda c, s: ((jnp.sin(c[0]) * a, c[1] * b * s), None)  # noqa: E731
        return lax.scan(step, (x, y), slices)[0][0]

    found = split(f, 1.0, 2.0, 3.0, 4.0, jnp.ones(3))
    (op,) = scans(found.second.equations)
    assert (op.carry_count, len(op.body.outputs)) == (2, 2)
    assert found.returned == (True, False, True, False, False)


def test_a_carry_that_leads_to_a_live_one_is_live() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        step = lambda c, _: ((c[0] + c[1], c[1] * jnp.sin(c[2]), jnp.cos(c[2])), jnp.exp(c[0]))  # noqa: E731
        return lax.scan(step, (x, y, z), None, length=4)[0][0]

    check_gradients(f, 0.1, 0.2, 0.3, policies=POLICIES, compiled=True)


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_carry_that_starts_anew(length: int) -> None:
    """The initial value counts in the first iteration only, and the final one is the initial one if there is none."""

    def f(x: Any, y: Any) -> Any:
        return lax.scan(lambda c, _: ((jnp.sin(c[1]), y * 2), None), (x, x * 2), None, length=length)[0]

    check_gradients(f, 0.3, 0.4, policies=POLICIES, compiled=True)
    (first, last) = remat.grad(lambda x, y: f(x, y)[1], (0, 1))(0.3, 0.4)
    assert (first, last) == ((2.0, 0.0) if length == 0 else (0.0, 2.0))


def test_forward_mode_runs_what_is_asked_for_only() -> None:
    def f(x: Any, y: Any) -> Any:
        (a, _), metrics = lax.scan(lambda c, _: ((jnp.sin(c[0]), jnp.exp(c[1])), c[1]), (x, y), None, length=3)
        b = lax.cond(x > 0, lambda p, q: (p * 2, jnp.log(q)), lambda p, q: (p, q), x, y)[0]
        return a + b, lax.stop_gradient(metrics)

    found = split(f, 1.0, 2.0, backward=False)
    (op,) = scans(found.second.equations)
    (branches,) = (e.op.branches for e in found.second.equations if isinstance(e.op, Cond))
    assert (op.carry_count, [len(b.outputs) for b in branches]) == (1, [1, 1])
    assert not any("log" in e.op.name or "div" in e.op.name for b in branches for e in b.equations)
    _, linear = remat.linearize(f, 0.5, 0.0)
    expected = jax.jvp(lambda x: f(x, 0.0)[0], (0.5,), (1.0,))[1]
    np.testing.assert_allclose(linear(1.0, 1.0)[0], expected, rtol=1e-6)


def test_rules_see_symbolic_zeros() -> None:
    seen = []

    @jax.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * 2, y * 3

    def forward(x: Any, y: Any) -> Any:
        return (x.value * 2, y.value * 3), None

    def backward(_: Any, g: Any) -> Any:
        seen.append([type(c) is jax.custom_derivatives.SymbolicZero for c in g])
        return (2 * g[0], None)

    f.defvjp(forward, backward, symbolic_zeros=True)
    assert remat.grad(lambda x, y: f(x, y)[0], (0, 1))(1.0, 1.0) == (2.0, 0.0)
    assert seen[-1] == [False, True]


def test_a_rule_that_is_not_linear_stays_as_written() -> None:
    """Its cotangent does not depend on the one given, and yet is not zero."""
    f = jax.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (f(x), x), lambda x, g: (x + 1,))
    assert remat.grad(lambda x: f(x) * 0.5)(3.0) == jax.grad(lambda x: f(x) * 0.5)(3.0) == 4.0


def test_none_of_a_rule_ends_the_backward_pass() -> None:
    """What led to an argument without a cotangent is neither kept nor turned around."""
    rule = jax.custom_vjp(lambda x, y: x + y)
    rule.defvjp(lambda x, y: (x + y, None), lambda _, g: (g, None))
    found = split(lambda x, y: rule(x, jnp.sin(y)), 1.0, 2.0)
    assert (found.residuals, found.returned) == ([], (True, False))


def test_zeros_are_asked_of_opaque_equations_only_once() -> None:
    """The backward program for a set of cotangents is made once, however often the function is split."""
    made = []
    f = jax.custom_vjp(lambda x: x * 2)

    def backward(_: Any, g: Any) -> Any:
        made.append(1)
        return (2 * g,)

    f.defvjp(lambda x: (f(x), None), backward)
    program = trace(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0])(1.0)
    split_program(program, [True])
    assert len(made) <= 2


def test_several_results_of_one_operation() -> None:
    def f(x: Any) -> Any:
        values, _ = jnp.linalg.eigh(x @ x.T + jnp.diag(jnp.arange(3.0)))
        _, r = jnp.linalg.qr(x)
        return values.sum() + r.sum()

    check_gradients(f, jnp.arange(9.0).reshape(3, 3) / 10 + jnp.eye(3), policies=[None, "dots"], rtol=1e-3, atol=1e-3)
