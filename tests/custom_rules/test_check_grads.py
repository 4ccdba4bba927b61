"""`remat.check_grads` passes right derivatives, and says of wrong ones where they are wrong."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat.errors import ArgumentError, ArgumentTypeError, ForwardModeError

X = jnp.linspace(0.2, 1.4, 5)


def with_factor(factor, second=1.0):
    """sin(x) * y, with the cotangent of y off by a factor; `second` is off in the second derivative only."""
    cosine = jax.custom_jvp(jnp.cos)
    cosine.defjvp(lambda p, t: (jnp.cos(p[0]), -jnp.sin(p[0]) * t[0] * second))
    f = remat.custom_vjp(lambda x, y: jnp.sin(x) * y)
    f.defvjp(lambda x, y: (jnp.sin(x) * y, (x, y)), lambda r, g: (g * cosine(r[0]) * r[1], factor * g * jnp.sin(r[0])))
    return f


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16, jnp.complex64])
def test_right_derivatives_pass(dtype):
    x = X.astype(dtype) * (1 + 0.3j if dtype == jnp.complex64 else 1)
    remat.check_grads(with_factor(1), (x, x), order=2 if dtype == jnp.float32 else 1, modes=("rev",))
    remat.check_grads(lambda x: jnp.sin(x) * x, (x,))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_wrong_first_derivative(dtype):
    text = r"(?s)wrong in order 1, mode 'rev', for the argument y of type .*\[5\]\..*its rules give .*, and finite "
    with pytest.raises(AssertionError, match=text) as caught:
        remat.check_grads(with_factor(1.5), (X.astype(dtype), X.astype(dtype)), modes="rev")
    analytic, numeric = (float(n) for n in re.findall(r"give ([-\de.+]*\d)", str(caught.value)))
    np.testing.assert_allclose(analytic / numeric, 1.5, rtol=0.1)


def test_wrong_second_derivative():
    f = with_factor(1, second=3.0)
    remat.check_grads(f, (X, X), modes="rev")
    with pytest.raises(AssertionError, match="wrong in order 2, mode 'rev', for the argument x of type"):
        remat.check_grads(f, (X, X), order=2, modes="rev")


def test_names_leaves_of_pytrees_and_modes():
    f = jax.custom_jvp(lambda t: t["a"] * t["b"])
    f.defjvp(lambda p, t: (p[0]["a"] * p[0]["b"], t[0]["a"] * p[0]["b"] + 2 * p[0]["a"] * t[0]["b"]))
    with pytest.raises(AssertionError, match=r"order 1, mode 'fwd', for the argument tree\['b'\]"):
        remat.check_grads(lambda tree: f(tree), ({"a": X, "b": X},))


def test_arguments_without_derivative_are_held_fixed():
    remat.check_grads(lambda x, n, flag, name: jnp.where(flag, x**n, x), (X, 3, True, "a text"), order=2)


def test_under_a_region():
    remat.check_grads(remat.checkpoint(with_factor(1)), (X, X), order=2, modes="rev")


def test_given_tolerances():
    with pytest.raises(AssertionError, match=r"Each argument alone is right|wrong in order 1"):
        remat.check_grads(with_factor(1.001), (X, X), modes="rev", atol=1e-6, rtol=1e-6)
    remat.check_grads(with_factor(1.5), (X, X), modes="rev", atol=10.0, rtol=10.0, eps=1e-2)


def test_double_precision():
    with jax.enable_x64(True):
        x = jnp.linspace(0.2, 1.4, 5, dtype=jnp.float64)
        remat.check_grads(with_factor(1), (x, x), order=2, modes="rev")
        with pytest.raises(AssertionError, match="argument y"):
            remat.check_grads(with_factor(1.0001), (x, x), modes="rev")


def test_forward_mode_of_a_reverse_rule():
    with pytest.raises(ForwardModeError) as caught:
        remat.check_grads(with_factor(1), (X, X))
    assert any("modes='rev'" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: remat.check_grads(jnp.sin, (1.0,), modes="back"), ArgumentError, "'fwd', 'rev' or both"),
        (lambda: remat.check_grads(jnp.sin, (1.0,), modes=()), ArgumentError, "'fwd', 'rev' or both"),
        (lambda: remat.check_grads(jnp.sin, (1.0,), order=0), ArgumentError, "1 or more"),
        (lambda: remat.check_grads(jnp.sin, 1.0), ArgumentTypeError, "a tuple of arguments"),
        (lambda: remat.check_grads(jnp.abs, (1,)), ArgumentTypeError, "nothing to check"),
        (lambda: remat.check_grads(3, (1.0,)), ArgumentTypeError, "takes a function"),
    ],
)
def test_wrong_calls(call, error, text):
    with pytest.raises(error, match=text):
        call()
