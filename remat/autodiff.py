"""The functional transformations that users call: the same arguments as JAX's, and a keyword `policy`.

`remat.grad(f, policy=p)` means `remat.grad(remat.checkpoint(f, policy=p))`. Without a policy, what is kept is what
`jax.grad` keeps. One difference to JAX: the function is traced once, with types in place of values, so Python control
flow may depend on arguments that are not differentiated, but not on the values of those that are.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax import dtypes

from remat import jax_compat
from remat.checkpoint import checkpoint
from remat.errors import ArgumentError, ArgumentTypeError, DifferentiationError
from remat.ir.types import short_text
from remat.signature import check_callable, flatten_arguments, function_name, is_array, leaf_text, tree_text
from remat.transforms import vjp as core
from remat.transforms.vjp import LinearFunction, VjpFunction


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    policy: Any = None,
) -> Callable[..., Any]:
    """The gradient of a scalar function, computed as `policy` says.

    **Arguments**

    - `fun`: a function of arrays and pytrees that returns a floating point scalar (or `(scalar, auxiliary)`).
    - `argnums`: the positional argument or arguments to differentiate. Negative numbers count from the end.
    - `has_aux`: whether `fun` returns a pair of the scalar and auxiliary data.
    - `holomorphic`: whether `fun` is a holomorphic function of complex arguments.
    - `allow_int`: whether integer arguments may be differentiated; their gradients have dtype float0.
    - `policy`: what is kept for the backward pass, as for `remat.checkpoint`. None keeps what `jax.grad` keeps.

    **Returns** a function of the same arguments that returns the gradient, shaped like the differentiated arguments
    (a tuple of such for several `argnums`), or `(gradient, auxiliary)` with `has_aux`. Leaves that are not arrays
    have the gradient None.

    **Raises** `DifferentiationError` for arguments or results that have no gradient, `ArgumentError` and
    `ArgumentTypeError` for bad `argnums`.

    >>> import jax.numpy as jnp, remat
    >>> print(f"{remat.grad(lambda x: jnp.sin(x) ** 2, policy='nothing')(0.5):.4f}")
    0.8415
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, policy=policy)

    @functools.wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return _renamed(gradient, "grad", fun)


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    policy: Any = None,
) -> Callable[..., Any]:
    """The value and the gradient of a scalar function; arguments and errors as for `remat.grad`.

    **Returns** a function that returns `(value, gradient)`, or `((value, auxiliary), gradient)` with `has_aux`.

    >>> import jax.numpy as jnp, remat
    >>> value, gradient = remat.value_and_grad(lambda w, x: jnp.vdot(w, x))(jnp.ones(2), jnp.array([3.0, 4.0]))
    >>> float(value), gradient.tolist()
    (7.0, [3.0, 4.0])
    """
    check_callable(fun, "remat.grad")
    numbers = check_argnums(argnums)
    if policy is not None:
        fun = checkpoint(fun, policy=policy)

    @functools.wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        chosen = choose_arguments(fun, numbers, args, kwargs)

        @functools.wraps(fun)
        def partial(*primals: Any) -> Any:
            full = list(args)
            for i, p in zip(chosen, primals, strict=True):
                full[i] = p
            return fun(*full, **kwargs)

        _named_like_arguments(partial, fun, chosen, args)
        primals = tuple(args[i] for i in chosen)
        for i in chosen:
            _check_input(fun, i, args, holomorphic, allow_int)
        value, vjp_fn, aux = core.vjp(partial, primals, has_aux)
        gradients = vjp_fn(_seed(fun, value, holomorphic))
        gradient = gradients[0] if isinstance(argnums, int) else gradients
        return ((value, aux), gradient) if has_aux else (value, gradient)

    return _renamed(value_and_gradient, "value_and_grad", fun)


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, policy: Any = None) -> Any:
    """The value of a function and its pullback (vector-Jacobian product).

    **Arguments**

    - `fun`: a function of arrays and pytrees.
    - `primals`: its arguments; all of them are differentiated.
    - `has_aux`: whether `fun` returns a pair of the result and auxiliary data.
    - `policy`: what is kept for the backward pass, as for `remat.checkpoint`.

    **Returns** `(out, vjp_fn)`, or `(out, vjp_fn, auxiliary)` with `has_aux`. `vjp_fn` takes a cotangent like `out`
    and returns a tuple of cotangents like `primals` (float0 for integers). It is a pytree whose leaves are exactly
    the residuals, so the forward and the backward pass can be jitted apart.

    >>> import jax, jax.numpy as jnp, remat
    >>> out, vjp_fn = jax.jit(lambda x: remat.vjp(jnp.sin, x))(1.0)
    >>> len(jax.tree.leaves(vjp_fn)), float(vjp_fn(1.0)[0]) == float(jnp.cos(1.0))
    (1, True)
    """
    check_callable(fun, "remat.vjp")
    if policy is not None:
        fun = checkpoint(fun, policy=policy)
    out, vjp_fn, aux = core.vjp(fun, primals, has_aux)
    return (out, vjp_fn, aux) if has_aux else (out, vjp_fn)


def linearize(fun: Callable[..., Any], *primals: Any) -> tuple[Any, LinearFunction]:
    """The value of a function and its derivative as a linear function of tangents.

    **Arguments**

    - `fun`: a function of arrays and pytrees.
    - `primals`: the point at which to linearize.

    **Returns** `(out, linear_fn)`; `linear_fn` takes tangents like `primals` and returns a tangent like `out`. It is a
    pytree whose leaves are the residuals. Checkpoint regions recompute inside `linear_fn`.

    >>> import jax.numpy as jnp, remat
    >>> out, linear_fn = remat.linearize(lambda x: x**2, 3.0)
    >>> float(out), float(linear_fn(1.0))
    (9.0, 6.0)
    """
    check_callable(fun, "remat.linearize")
    return core.linearize(fun, primals)


def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """The value of a function and its directional derivative.

    Forward mode keeps and recomputes nothing, so this is `jax.jvp`; it is here so that the five transformations stand
    together. Arguments, results and errors are those of `jax.jvp`.

    >>> import jax.numpy as jnp, remat
    >>> out, tangent = remat.jvp(lambda x: x**3, (2.0,), (1.0,))
    >>> float(out), float(tangent)
    (8.0, 12.0)
    """
    check_callable(fun, "remat.jvp")
    return jax.jvp(fun, primals, tangents, has_aux=has_aux)


def check_argnums(argnums: int | Sequence[int]) -> tuple[int, ...]:
    """`argnums` as a tuple. **Raises** `ArgumentError`, `ArgumentTypeError`."""
    try:
        return (operator.index(cast(int, argnums)),)
    except TypeError:
        pass
    try:
        numbers = tuple(operator.index(i) for i in cast(Sequence[int], argnums))
    except TypeError:
        raise ArgumentTypeError(
            f"argnums must be an integer or a sequence of integers, but is {argnums!r}. Arguments are chosen by "
            "position; to differentiate a keyword argument, wrap the function or pass it by position."
        ) from None
    if not numbers:
        raise ArgumentError("argnums is empty, so there is nothing to differentiate. Name at least one argument.")
    return numbers


def choose_arguments(
    fun: Callable[..., Any], numbers: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[int]:
    """Positions of the differentiated arguments, negative ones resolved."""
    count = len(args)
    for i in numbers:
        if not -count <= i < count:
            named = f" and {', '.join(f'{k}=...' for k in kwargs)} by keyword" if kwargs else ""
            raise ArgumentError(
                f"argnums={i} is out of range: {function_name(fun)} was called with {count} positional "
                f"argument{'s' if count != 1 else ''}{named}. Differentiated arguments must be passed by position."
            )
    chosen = [i % count for i in numbers]
    if len(set(chosen)) < len(chosen):
        raise ArgumentError(f"argnums={numbers} names an argument twice. Name each argument once.")
    return chosen


def _named_like_arguments(partial: Any, fun: Callable[..., Any], chosen: list[int], args: tuple[Any, ...]) -> None:
    """Give the partial function a signature with the names of the chosen arguments, for messages and reports."""
    import inspect

    names = flatten_arguments(fun, tuple(0.0 for _ in args), {}).names
    parameters = [inspect.Parameter(_identifier(names[i], i), inspect.Parameter.POSITIONAL_ONLY) for i in chosen]
    partial.__signature__ = inspect.Signature(parameters)


def _identifier(name: str, position: int) -> str:
    return name if name.isidentifier() else f"argument_{position}"


def _check_input(
    fun: Callable[..., Any], position: int, args: tuple[Any, ...], holomorphic: bool, allow_int: bool
) -> None:
    """The argument at this position must consist of differentiable leaves (or not all of static ones)."""
    alone = (*(None for _ in args[:position]), args[position])
    arguments = flatten_arguments(fun, alone, {}, is_array)
    statics = list(arguments.structure.statics.values())
    if statics and not arguments.leaves:
        raise DifferentiationError(
            f"grad of {function_name(fun)}: argument {position} holds {leaf_text(statics[0])}, which has no gradient. "
            "Differentiate a floating point array or a pytree of them, chosen by argnums."
        )
    for leaf, name in zip(arguments.leaves, arguments.names, strict=True):
        what = f"grad of {function_name(fun)}: argument {name} is {leaf_text(leaf)}"
        dtype = jax.typeof(leaf).dtype
        if holomorphic and not dtypes.issubdtype(dtype, np.complexfloating):
            raise DifferentiationError(f"{what}, but holomorphic=True needs complex inputs. Leave holomorphic out.")
        if not holomorphic and dtypes.issubdtype(dtype, np.complexfloating):
            raise DifferentiationError(
                f"{what}. A complex input has a gradient only for a holomorphic function: pass holomorphic=True, or "
                "use remat.vjp for functions that are not."
            )
        if not dtypes.issubdtype(dtype, np.inexact) and not allow_int:
            raise DifferentiationError(
                f"{what}, which has no gradient. Pass floating point values (1.0 instead of 1), choose other argnums, "
                "or set allow_int=True to get gradients of dtype float0."
            )


def _seed(fun: Callable[..., Any], value: Any, holomorphic: bool) -> Any:
    """The cotangent of the result: one."""
    if not is_array(value):
        raise DifferentiationError(
            f"grad needs a scalar result, but {function_name(fun)} returned {tree_text(value)}. Return one floating "
            "point scalar; use has_aux=True for further results, or remat.vjp for results that are no scalars."
        )
    result = jax.typeof(value)
    if result.shape != ():
        raise DifferentiationError(
            f"grad needs a scalar result, but {function_name(fun)} returned {short_text(result)}. Reduce it (for "
            "example with .sum() or .mean()), or use remat.vjp."
        )
    if holomorphic:
        if not dtypes.issubdtype(result.dtype, np.complexfloating):
            raise DifferentiationError(
                f"grad with holomorphic=True needs a complex result, but {function_name(fun)} returned "
                f"{short_text(result)}. Leave holomorphic out."
            )
    elif not dtypes.issubdtype(result.dtype, np.floating):
        raise DifferentiationError(
            f"grad needs a floating point result, but {function_name(fun)} returned {short_text(result)}. Convert it "
            "to a float, or use remat.vjp; for complex results of holomorphic functions set holomorphic=True."
        )
    return jax.lax.full_like(value, 1, sharding=jax_compat.cotangent_type(result).sharding)


def _renamed(new: Any, prefix: str, fun: Callable[..., Any]) -> Any:
    new.__name__ = f"{prefix}_{function_name(fun)}"
    new.__doc__ = f"{prefix} of {function_name(fun)}, by remat.\n\n{fun.__doc__ or ''}"
    return new


__all__ = ["LinearFunction", "VjpFunction", "grad", "jvp", "linearize", "value_and_grad", "vjp"]
