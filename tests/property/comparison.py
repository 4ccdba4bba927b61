"""Comparing results with JAX's.

Numbers are compared in relation to the largest of each result. Where they differ by more, JAX's own result is computed
again a rounding error away: what it changes by then is what the program makes of rounding, and no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes


class Mismatch(AssertionError):
    """A result that is not JAX's."""


def compiled(fun: Callable[..., Any], *args: Any) -> Any:
    return jax.jit(fun, compiler_options={"xla_backend_optimization_level": 0})(*args)


def roundings(fun: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """What a function makes of inputs that are a rounding error away, and of rounding as other compilers do it."""
    random = np.random.default_rng(0)

    def nudged(x: Any) -> Any:
        if not dtypes.issubdtype(x.dtype, np.floating):
            return x
        error = 2 * float(jnp.finfo(x.dtype).eps)
        return (x * (1 + error * random.choice([-1.0, 1.0], x.shape))).astype(x.dtype)

    return [fun(*inputs), *(compiled(fun, *map(nudged, inputs)) for _ in range(3))]


def compare(how: str, found: Any, expected: Any, others: Callable[[], Iterable[Any]]) -> None:
    """Compare two trees; `others` are results that would be as good as the expected one.

    **Raises** `Mismatch` that says how the result was computed, and which leaf is wrong.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(found)
    leaves, expected_structure = jax.tree.flatten(expected)
    if structure != expected_structure:
        raise Mismatch(f"{how}: structure {structure}, expected {expected_structure}")
    scale = max((_largest(x) for x in leaves), default=0.0)
    for k, ((path, a), b) in enumerate(zip(paths, leaves, strict=True)):
        where = f"{how}, result{jax.tree_util.keystr(path)}"
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            raise Mismatch(f"{where}: {a.dtype}{a.shape}, expected {b.dtype}{b.shape}")
        error = _difference(a, b)
        if error <= tolerance(a.dtype) * max(_largest(b), 0.01 * scale):
            continue
        allowed = max(_difference(jax.tree.leaves(other)[k], b) for other in others())
        if error > 10 * allowed:
            raise Mismatch(f"{where}: differs by {error:.3g}, rounding makes {allowed:.3g}\nfound\n{a}\nexpected\n{b}")


def tolerance(dtype: Any) -> float:
    return 3e-2 if dtype == jnp.bfloat16 else 2e-4


def _numbers(x: Any) -> np.ndarray[Any, Any]:
    if dtypes.issubdtype(x.dtype, dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.asarray(x).astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def _largest(x: Any) -> float:
    if x.dtype == dtypes.float0:
        return 0.0
    numbers = np.abs(_numbers(x))
    return float(np.max(numbers[np.isfinite(numbers)], initial=0.0))


def _difference(found: Any, expected: Any) -> float:
    """The largest difference. Where JAX has NaN anything will do; NaN elsewhere is an infinite difference."""
    if found.dtype == dtypes.float0:
        return 0.0
    a, b = _numbers(found), _numbers(expected)
    same = (a == b) | np.isnan(b)
    with np.errstate(invalid="ignore"):
        differences = np.where(same, 0.0, np.abs(a - b))
    return float(np.max(np.where(np.isnan(differences), np.inf, differences), initial=0.0))
