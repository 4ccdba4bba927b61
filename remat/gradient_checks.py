"""What may be differentiated: the checks of `argnums`, of arguments and of results, and their messages."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax import dtypes

from remat.errors import ArgumentError, ArgumentTypeError, DifferentiationError, MissingArgumentError
from remat.ir.types import short_text
from remat.libraries import about_gradient
from remat.signature import flatten_arguments, function_name, is_array, leaf_text, tree_text


def check_argnums(argnums: int | Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """`argnums` as a tuple, and whether it was a single number. **Raises** `ArgumentError`, `ArgumentTypeError`."""
    try:
        return (operator.index(cast(int, argnums)),), True
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
    return numbers, False


def choose_arguments(
    fun: Callable[..., Any], numbers: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[int]:
    """Positions of the differentiated arguments, negative ones resolved."""
    count = len(args)
    for i in numbers:
        if not -count <= i < count:
            named = f" and {', '.join(f'{k}=...' for k in kwargs)} by keyword" if kwargs else ""
            raise (MissingArgumentError if i >= count else ArgumentError)(
                _as_jax_says(lambda i=i: jax.grad(lambda *_: 0.0, i)(*args))
                + f"argnums={i} is out of range: {function_name(fun)} was called with {count} positional "
                f"argument{'s' if count != 1 else ''}{named}. Differentiated arguments must be passed by position."
            )
    chosen = [i % count for i in numbers]
    if len(set(chosen)) < len(chosen):
        raise ArgumentError(f"argnums={numbers} names an argument twice. Name each argument once.")
    return chosen


def check_input(
    fun: Callable[..., Any], position: int, args: tuple[Any, ...], holomorphic: bool, allow_int: bool
) -> None:
    """The argument at this position must consist of differentiable leaves (or not all of static ones)."""
    alone = (*(None for _ in args[:position]), args[position])
    arguments = flatten_arguments(fun, alone, {})
    if not arguments.leaves:  # then a boolean is not the flag of something that has a gradient
        arguments = flatten_arguments(fun, alone, {}, is_array)
    statics = list(arguments.structure.statics.values())
    if statics and not arguments.leaves:
        raise _error(
            lambda: jax.grad(lambda _: 0.0)(statics[0]),
            f"grad of {function_name(fun)}: argument {position} holds {leaf_text(statics[0])}, which has no gradient. "
            "Differentiate a floating point array or a pytree of them, chosen by argnums.",
        )
    for leaf, name in zip(arguments.leaves, arguments.names, strict=True):
        dtype = jax.typeof(leaf).dtype
        if holomorphic and not dtypes.issubdtype(dtype, np.complexfloating):
            wrong = ", but holomorphic=True needs complex inputs. Leave holomorphic out."
        elif not dtypes.issubdtype(dtype, np.inexact) and not allow_int:
            wrong = f", which has no gradient. {about_gradient(args[position])}"
        else:
            continue
        raise _error(
            lambda leaf=leaf: jax.grad(lambda _: 0.0, holomorphic=holomorphic)(leaf),
            f"grad of {function_name(fun)}: argument {name} is {leaf_text(leaf)}{wrong}",
        )


def check_result(fun: Callable[..., Any], value: Any, holomorphic: bool) -> None:
    problem = _problem_of_result(function_name(fun), value, holomorphic)
    if problem is not None:
        start = 0j if holomorphic else 0.0
        raise _error(lambda: jax.grad(lambda _: value, holomorphic=holomorphic)(start), problem)


def _problem_of_result(function: str, value: Any, holomorphic: bool) -> str | None:
    if not is_array(value):
        return (
            f"grad needs a scalar result, but {function} returned {tree_text(value)}. Return one floating point "
            "scalar; use has_aux=True for further results, or remat.vjp for results that are no scalars."
        )
    result = jax.typeof(value)
    if result.shape != ():
        return (
            f"grad needs a scalar result, but {function} returned {short_text(result)}. Reduce it (for example with "
            ".sum() or .mean()), or use remat.vjp."
        )
    if holomorphic and not dtypes.issubdtype(result.dtype, np.complexfloating):
        return (
            f"grad with holomorphic=True needs a complex result, but {function} returned {short_text(result)}. Leave "
            "holomorphic out."
        )
    if not holomorphic and not dtypes.issubdtype(result.dtype, np.floating):
        return (
            f"grad needs a floating point result, but {function} returned {short_text(result)}. Convert it to a float, "
            "or use remat.vjp; for complex results of holomorphic functions set holomorphic=True."
        )
    return None


def _error(mistake: Callable[[], Any], text: str) -> DifferentiationError:
    return DifferentiationError(_as_jax_says(mistake) + text)


def _as_jax_says(mistake: Callable[[], Any]) -> str:
    """What JAX says of the same mistake, as a first line: these are the words that people know and search for."""
    try:
        mistake()
    except (TypeError, ValueError) as error:
        return f"{error}\n"
    return ""
