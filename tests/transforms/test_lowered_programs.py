"""What a differentiated function is compiled to: contexts of equations, branches for platforms, symbolic shapes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.experimental.xla_metadata import set_xla_metadata

import remat

POLICIES = [None, "nothing", "dots", "burn", "balanced", "substituting:dots"]


def marked(grad: Any, fun: Any, *args: Any) -> int:
    return jax.jit(grad(fun)).lower(*args).as_text().count('mark = "me"')


@pytest.mark.parametrize("body", [lambda x: x @ x, lambda x: jnp.sin(x) * x, lambda x: lax.cumsum(x)])
def test_metadata_of_equations_stays(body: Any) -> None:
    def f(x: Any) -> Any:
        with set_xla_metadata(mark="me"):
            return body(x).sum()

    assert marked(remat.grad, f, jnp.ones((3, 3))) == marked(jax.grad, f, jnp.ones((3, 3))) > 0
    assert marked(remat.grad, lambda x: f(x) * 0 + body(x).sum(), jnp.ones((3, 3))) > 0


def test_the_same_equation_with_and_without_metadata() -> None:
    """A rule that was made in one context is not used in another."""

    def f(x: Any) -> Any:
        return (x @ x).sum()

    def g(x: Any) -> Any:
        with set_xla_metadata(mark="me"):
            return f(x)

    assert marked(remat.grad, f, jnp.ones((3, 3))) == 0
    assert marked(remat.grad, g, jnp.ones((3, 3))) > 0
    assert marked(remat.grad, f, jnp.ones((3, 3))) == 0


def elsewhere(x: Any) -> Any:
    """A function that is not compiled for this platform."""

    @jax.custom_vjp
    def f(x: Any) -> Any:
        return jax.pure_callback(lambda a: 1 / 0, x, x, vmap_method="sequential")

    f.defvjp(lambda x: (f(x), None), lambda _, g: (f(g),))
    return f(x)


@pytest.mark.parametrize("policy", POLICIES)
def test_only_the_branch_of_this_platform_is_lowered(policy: str | None) -> None:
    def f(x: Any) -> Any:
        y = lax.platform_dependent(jnp.sin(x), tpu=elsewhere, cuda=elsewhere, default=lambda x: jnp.cos(x) * x)
        return lax.platform_dependent(y, cpu=jnp.sin, rocm=elsewhere).sum()

    def loop(x: Any) -> Any:
        step = lambda c, _: (lax.platform_dependent(c, tpu=elsewhere, default=jnp.sin), None)  # noqa: E731
        return lax.scan(step, x, None, length=2)[0].sum()

    for fun in (f, loop):
        gradient = jax.jit(remat.grad(fun, policy=policy))
        assert "callback" not in gradient.lower(jnp.arange(3.0)).as_text()
        np.testing.assert_allclose(gradient(jnp.arange(3.0)), jax.jit(jax.grad(fun))(jnp.arange(3.0)), rtol=1e-5)
    batched = jax.jit(jax.vmap(remat.grad(f, policy=policy)))
    assert "callback" not in batched.lower(jnp.ones((2, 3))).as_text()


def test_a_program_read_and_lowered_again_keeps_the_platforms() -> None:
    f = lambda x: lax.platform_dependent(x, tpu=elsewhere, default=jnp.sin)  # noqa: E731
    text = jax.jit(remat.lower(remat.trace(f)(1.0))).lower(1.0).as_text()
    assert "callback" not in text


@pytest.mark.parametrize("policy", POLICIES)
def test_symbolic_shapes(policy: str | None) -> None:
    (b,) = export.symbolic_shape("b")
    shapes = jax.ShapeDtypeStruct((4, 4), jnp.float32), jax.ShapeDtypeStruct((b, 4), jnp.float32)

    def f(w: Any, x: Any) -> Any:
        x = lax.scan(lambda x, _: (jnp.tanh(x @ w) + 1, x.sum()), x, None, length=2)[0]
        return jnp.tanh(jnp.sin(x @ w) @ w + jnp.ones(4)).sum()

    exported = export.export(jax.jit(remat.grad(f, policy=policy)))(*shapes)
    args = jnp.eye(4) / 2, jnp.arange(12.0).reshape(3, 4)
    np.testing.assert_allclose(exported.call(*args), jax.grad(f)(*args), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_loops_of_symbolic_length(policy: str | None) -> None:
    xs = jax.ShapeDtypeStruct(export.symbolic_shape("n"), jnp.float32)

    def with_slices(a: Any, xs: Any) -> Any:
        return lax.scan(lambda c, y: (jnp.sin(c * 1.2 + y**2), c), a, xs)[0]

    def without(a: Any, xs: Any) -> Any:
        return lax.scan(lambda c, y: (c * jnp.sin(a), None), a, xs)[0]

    for f in (with_slices, without):
        gradient = jax.grad(f, (0, 1)), export.export(jax.jit(remat.grad(f, (0, 1), policy=policy)))(1.0, xs).call
        for length in (1, 3):  # a symbolic dimension is at least 1
            expected, found = (g(1.0, jnp.linspace(0, 1, length)) for g in gradient)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)


def test_a_report_of_symbolic_shapes() -> None:
    (b,) = export.symbolic_shape("b")
    f = remat.checkpoint(lambda w, x: jnp.sin(x @ w).sum(), policy="dots")
    residuals = remat.saved_residuals(f, jnp.ones((3, 3)), jax.ShapeDtypeStruct((b, 3), jnp.float32))
    assert [r.type for r in residuals if r.is_new] == ["f32[b,3]"]


@pytest.mark.parametrize("policy", ["everything", "balanced", "burn", "substituting:everything", "dots"])
def test_complex_values_in_a_region(policy: str) -> None:
    f = lambda x: jnp.abs(jnp.fft.fft(x) * jnp.exp(1j * x)).sum()  # noqa: E731
    x = jnp.arange(4.0)
    np.testing.assert_allclose(remat.grad(f, policy=policy)(x), jax.grad(f)(x), rtol=1e-4, atol=1e-4)
