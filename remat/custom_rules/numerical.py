"""`check_grads`: are the derivatives of a function those of its values? Asked of JAX, explained here.

`jax.test_util.check_grads` compares derivatives with finite differences in one random direction. When it finds a
difference, each argument is checked alone, order by order and mode by mode, to say where the difference is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes, test_util

from remat.errors import ArgumentError, ArgumentTypeError, ForwardModeError
from remat.ir.types import is_differentiable, short_text
from remat.signature import Arguments, check_callable, flatten_arguments

MODES = ("fwd", "rev")
STEPS = {8: 1e-5, 4: 3e-3, 2: 0.1, 1: 0.5}
"""The step of finite differences by the bytes of a real number: small enough for the curve, large enough for the
rounding."""


def check_grads(
    fun: Callable[..., Any],
    args: Sequence[Any],
    order: int = 1,
    modes: str | Sequence[str] = MODES,
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Check the derivatives of a function, such as one with rules of its own, against finite differences.

    **Arguments**

    - `fun`, `args`: the function, and a tuple of arguments to differentiate it at. Leaves of `args` without derivative
      (integers, flags) are held fixed.
    - `order`: derivatives up to this order are checked.
    - `modes`: `"fwd"`, `"rev"`, or both. A `custom_vjp` function has only `"rev"`.
    - `atol`, `rtol`: tolerances. By default those that JAX has for the dtype.
    - `eps`: the step of the finite differences. By default one for the dtype.

    **Raises** `AssertionError` that names the argument, the order and the mode in which they differ, with both numbers.

    >>> import jax.numpy as jnp, remat
    >>> square = remat.custom_vjp(lambda x: x * x)
    >>> square.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g,))
    >>> remat.check_grads(square, (3.0,), order=2, modes="rev")
    """
    check_callable(fun, "remat.check_grads")
    chosen = _modes(modes)
    if operator.index(order) < 1:
        raise ArgumentError(f"order must be 1 or more, but is {order}.")
    if not isinstance(args, (tuple, list)):
        raise ArgumentTypeError("args must be a tuple of arguments: check_grads(fun, (x,)).")
    arguments = flatten_arguments(fun, tuple(args), {})
    arrays = [jnp.asarray(x) if is_differentiable(jax.typeof(x)) else x for x in arguments.leaves]
    active = [i for i, x in enumerate(arrays) if is_differentiable(jax.typeof(x))]
    if not active:
        raise ArgumentTypeError(f"no argument of {arguments.function} is a floating point array; nothing to check.")
    step = eps if eps is not None else max(STEPS[_real_bytes(arrays[i].dtype)] for i in active)

    def failure(positions: list[int], up_to: int, mode: Sequence[str]) -> AssertionError | None:
        function = _of_leaves(fun, arguments, arrays, positions)
        leaves = [arrays[i] for i in positions]
        try:
            test_util.check_grads(function, leaves, up_to, list(mode), atol, rtol, step)
        except AssertionError as error:
            return error
        except ForwardModeError as error:
            error.add_note("check_grads checks forward mode too, unless it is called with modes='rev'.")
            raise
        return None

    error = failure(active, order, chosen)
    if error is None:
        return
    cases = ((o, m, i) for o in range(1, order + 1) for m in chosen for i in active)
    found = next((c for c in cases if failure([c[2]], c[0], [c[1]]) is not None), None)
    raise AssertionError(_text(fun, arguments, arrays, found, step, error)) from None


def _text(
    fun: Callable[..., Any],
    arguments: Arguments,
    arrays: list[Any],
    found: tuple[int, str, int] | None,
    step: float,
    error: AssertionError,
) -> str:
    said = "\n".join(line for line in str(error).splitlines() if line.strip())
    if found is None:
        return (
            f"the derivatives of {arguments.function} are not those of its values. Each argument alone is right within "
            f"the tolerance, all together are not (eps={step:g}).\nJAX found:\n{said}"
        )
    order, mode, position = found
    function = _along(_of_leaves(fun, arguments, arrays, [position]), arrays[position])
    analytic, numeric = _both(function, mode, order, step)
    return (
        f"the derivative of {arguments.function} is wrong in order {order}, mode {mode!r}, for the argument "
        f"{arguments.names[position]} of type {short_text(jax.typeof(arrays[position]))}. In a random direction, and "
        f"weighted over the results, its rules give {analytic:.6g}, and finite differences (eps={step:g}) give "
        f"{numeric:.6g}.\nJAX found:\n{said}"
    )


def _of_leaves(
    fun: Callable[..., Any], arguments: Arguments, arrays: list[Any], positions: list[int]
) -> Callable[..., list[Any]]:
    """The function of some leaves of its arguments, with those results that have derivatives."""

    def function(*leaves: Any) -> list[Any]:
        full = list(arrays)
        for i, x in zip(positions, leaves, strict=True):
            full[i] = x
        args, kwargs = arguments.rebuild(full)
        results = jax.tree.leaves(fun(*args, **kwargs))
        return [r for r in results if is_differentiable(jax.typeof(r))]

    return function


def _along(function: Callable[..., list[Any]], x: Any) -> Callable[[Any], Any]:
    """The function as a curve: of a step in a random direction, to a weighted sum of its results."""
    random = np.random.default_rng(0)
    direction = _random_like(random, x)
    weights = [_random_like(random, r) for r in jax.eval_shape(function, x)]

    def curve(s: Any) -> Any:
        results = function(x + (s * direction).astype(x.dtype))
        return sum(jnp.real(jnp.sum(w * r)).astype(s.dtype) for w, r in zip(weights, results, strict=True))

    return curve


def _random_like(random: np.random.Generator, x: Any) -> Any:
    values = random.uniform(0.5, 1.5, x.shape)
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        values = values + 1j * random.uniform(0.5, 1.5, x.shape)
    return jnp.asarray(values).astype(x.dtype)


def _both(curve: Callable[[Any], Any], mode: str, order: int, step: float) -> tuple[float, float]:
    """The derivative of a curve at 0 by its rules, and by finite differences of the derivative one order lower."""
    *_, lower, wanted = _derivatives(curve, mode, order)
    zero = jnp.zeros((), jnp.result_type(float))
    numeric = (lower(zero + step) - lower(zero - step)) / (2 * step)
    return float(wanted(zero)), float(numeric)


def _derivatives(curve: Callable[[Any], Any], mode: str, order: int) -> Iterator[Callable[[Any], Any]]:
    yield curve
    for _ in range(order):
        curve = jax.grad(curve) if mode == "rev" else _tangent_of(curve)
        yield curve


def _tangent_of(curve: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda s: jax.jvp(curve, (s,), (jnp.ones_like(s),))[1]


def _modes(modes: str | Sequence[str]) -> tuple[str, ...]:
    chosen = (modes,) if isinstance(modes, str) else tuple(modes)
    wrong = next((m for m in chosen if m not in MODES), None)
    if wrong is not None or not chosen:
        raise ArgumentError(f"modes must be 'fwd', 'rev' or both, but is {modes!r}.")
    return chosen


def _real_bytes(dtype: Any) -> int:
    return dtype.itemsize // 2 if dtypes.issubdtype(dtype, np.complexfloating) else dtype.itemsize
