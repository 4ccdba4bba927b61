"""Helpers for tests of code that uses remat; the project's own tests use them too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax import dtypes

from remat.autodiff import value_and_grad, vjp
from remat.checkpoint import checkpoint
from remat.inspect.saved import saved_residuals
from remat.ir.types import is_differentiable

DEFAULT_POLICIES = (None, "nothing", "dots", "everything")


def assert_trees_close(found: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-6, what: str = "result") -> None:
    """Assert that two pytrees have the same structure, dtypes and shapes, and close values.

    **Raises** `AssertionError` that names the first leaf that differs.
    """
    found, expected = jax.tree.map(_as_numpy, (found, expected))
    _assert_same_types(found, expected, what)
    paths, _ = jax.tree_util.tree_flatten_with_path(found)
    for (path, a), b in zip(paths, jax.tree.leaves(expected), strict=True):
        where = f"{what}{jax.tree_util.keystr(path)}"
        if a.dtype != dtypes.float0:
            wide = np.complex128 if np.iscomplexobj(a) else np.float64
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=rtol, atol=atol, err_msg=where)


def _assert_same_types(found: Any, expected: Any, what: str) -> None:
    """Two pytrees of arrays or tracers have the same structure, dtypes and shapes."""
    paths, structure = jax.tree_util.tree_flatten_with_path(found)
    others, expected_structure = jax.tree.flatten(expected)
    assert structure == expected_structure, f"{what}: structure {structure}, expected {expected_structure}"
    for (path, a), b in zip(paths, others, strict=True):
        where = f"{what}{jax.tree_util.keystr(path)}"
        a, b = (x if hasattr(x, "dtype") else np.asarray(x) for x in (a, b))
        assert a.dtype == b.dtype, f"{where}: dtype {a.dtype}, expected {b.dtype}"
        assert a.shape == b.shape, f"{where}: shape {a.shape}, expected {b.shape}"


def _as_numpy(x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, jax.Array) and dtypes.issubdtype(x.dtype, dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.asarray(x)


def check_gradients(
    fun: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] | None = None,
    policies: Iterable[Any] = DEFAULT_POLICIES,
    under_jax: bool = False,
    compiled: bool = False,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> tuple[Any, tuple[Any, ...]]:
    """Assert that the value and the derivative of `fun` under each policy are those that JAX computes.

    **Arguments**

    - `fun`, `args`: the function and where to differentiate it. It may return any pytree; the cotangents are fixed
      pseudo-random numbers.
    - `argnums`: the arguments to differentiate; None means all with floating point leaves only.
    - `policies`: what to try; None stands for no policy.
    - `under_jax`: whether to check `jax.vjp` of `remat.checkpoint(fun)` as well.
    - `compiled`: whether to run all of it in one `jax.jit`, with few optimizations. Where many small operations would
      otherwise be compiled one by one, that is several times faster.

    **Returns** JAX's value and its derivatives with respect to the chosen arguments, for further assertions.

    **Raises** `AssertionError` that says which policy and which leaf is wrong.
    """
    numbers = _differentiable_arguments(args) if argnums is None else argnums
    numbers = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    policies = tuple(policies)
    assert numbers, "no argument with floating point leaves only; name argnums"
    assert policies, "no policy to check"

    def partial(*chosen: Any) -> Any:
        full = list(args)
        for i, x in zip(numbers, chosen, strict=True):
            full[i] = x
        return fun(*full)

    labels: list[str] = []

    def run(*chosen: Any) -> list[tuple[Any, Any]]:
        out, pullback = jax.vjp(partial, *chosen)
        cotangent = random_cotangent(out)
        results = [(out, pullback(cotangent))]
        for policy in policies:
            found, ours = vjp(partial, *chosen, policy=policy)
            _assert_same_types(found, out, f"value under policy {policy}")
            labels.append(f"under policy {policy}")
            results.append((found, ours(cotangent)))
            if under_jax and policy is not None:
                found, theirs = jax.vjp(checkpoint(partial, policy=policy), *chosen)
                _assert_same_types(found, out, f"value by JAX under policy {policy}")
                labels.append(f"by JAX under policy {policy}")
                results.append((found, theirs(cotangent)))
        return results

    execute = jax.jit(run, compiler_options={"xla_backend_optimization_level": 0}) if compiled else run
    expected, *results = execute(*[args[i] for i in numbers])
    for how, (value, gradient) in zip(labels, results, strict=True):
        assert_trees_close(value, expected[0], rtol, atol, f"value {how}")
        assert_trees_close(gradient, expected[1], rtol, atol, f"gradient {how}")
    return expected


def _differentiable_arguments(args: Sequence[Any]) -> tuple[int, ...]:
    def floats(tree: Any) -> bool:
        leaves = jax.tree.leaves(tree)
        return bool(leaves) and all(hasattr(x, "dtype") and is_differentiable(x) for x in leaves)

    return tuple(i for i, a in enumerate(args) if floats(a) or isinstance(a, float))


def random_cotangent(out: Any) -> Any:
    """Pseudo-random cotangents for a result; float0 zeros for what has no derivative."""
    random = np.random.default_rng(0)

    def one(x: Any) -> Any:
        x = jax.typeof(x)
        if not is_differentiable(x):
            return np.zeros(x.shape, dtypes.float0)
        values = random.uniform(0.5, 1.5, x.shape)
        if dtypes.issubdtype(x.dtype, np.complexfloating):
            values = values + 1j * random.uniform(0.5, 1.5, x.shape)
        return jax.numpy.asarray(values).astype(x.dtype)

    return jax.tree.map(one, out)


def assert_saved(fun: Callable[..., Any], args: Sequence[Any], expected: Iterable[tuple[str, str]]) -> None:
    """Assert which values are kept for the backward pass of `fun`, as (type, origin) pairs in any order.

    The origin is the argument's path, the name, or the operation, as in `Residual.origin.text`.
    """
    found = sorted((r.type, r.origin.text) for r in saved_residuals(fun, *args))
    assert found == sorted(expected), f"kept {found}, expected {sorted(expected)}"


__all__ = ["assert_saved", "assert_trees_close", "check_gradients", "random_cotangent", "value_and_grad"]
