"""`assert_trees_close` sees every difference, and random cotangents tell elements apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import dtypes

from remat.testing import assert_trees_close, random_cotangent

X = jnp.array([0.3, 0.7, 1.1])

DIFFERENT_TREES = {
    "value": ({"w": X, "b": X}, {"w": X, "b": X.at[1].add(1e-3)}, r"here\['b'\]"),
    "value of a scalar": (1.0, 1.001, "here"),
    "integer": (jnp.arange(3), jnp.arange(3).at[2].set(1), "here"),
    "boolean": (jnp.array([True, False]), jnp.array([True, True]), "here"),
    "imaginary part": (X + 1j, X + 1.001j, "here"),
    "a NaN": ([X], [X.at[0].set(jnp.nan)], r"here\[0\]"),
    "an infinity": (X.at[0].set(jnp.inf), X, "here"),
    "sign of an infinity": (jnp.inf, -jnp.inf, "here"),
    "dtype": ((X, X), (X, X.astype(jnp.bfloat16)), r"here\[1\]: dtype float32, expected bfloat16"),
    "width of an integer": (jnp.arange(3), jnp.arange(3).astype(jnp.int8), "here: dtype int32, expected int8"),
    "shape": (X, X[None], r"here: shape \(3,\), expected \(1, 3\)"),
    "structure": ([X], (X,), "here: structure"),
    "a missing leaf": ({"w": X}, {"w": X, "b": X}, "here: structure"),
    "None in place of a leaf": ([None], [X], "here: structure"),
    "float0 in place of zeros": (np.zeros(3, dtypes.float0), jnp.zeros(3), "here: dtype .*, expected float32"),
    "random key": (jax.random.key(0), jax.random.key(1), "here"),
}


@pytest.mark.parametrize("what", DIFFERENT_TREES)
def test_assert_trees_close_sees_a_difference(what: str) -> None:
    found, expected, message = DIFFERENT_TREES[what]
    assert_trees_close(found, found, what="here")
    assert_trees_close(expected, expected, what="here")
    with pytest.raises(AssertionError, match=message):
        assert_trees_close(found, expected, what="here")
    with pytest.raises(AssertionError, match="here"):
        assert_trees_close(expected, found, what="here")


def test_tolerances_of_assert_trees_close() -> None:
    assert_trees_close(X, X * (1 + 5e-4), rtol=1e-3)
    with pytest.raises(AssertionError):
        assert_trees_close(X, X * (1 + 5e-3), rtol=1e-3)
    assert_trees_close(jnp.zeros(3), jnp.full(3, 5e-4), atol=1e-3)
    with pytest.raises(AssertionError):
        assert_trees_close(jnp.zeros(3), jnp.full(3, 5e-3), atol=1e-3)


def test_random_cotangents_tell_the_elements_apart() -> None:
    """Cotangents that are equal or zero would hide gradients that are permuted or lost."""
    out = {"x": X, "n": jnp.arange(3), "z": X + 1j, "half": X.astype(jnp.bfloat16)}
    found = random_cotangent(out)
    for name in ("x", "z", "half"):
        assert found[name].dtype == out[name].dtype
        assert len(np.unique(found[name])) == 3
        assert np.all(found[name] != 0)
    assert np.all(np.imag(found["z"]) != 0)
    assert not np.array_equal(found["x"], np.real(found["z"]))
    assert found["n"].dtype == dtypes.float0
