"""How a function is called while JAX differentiates it: as one region, traced with types in place of values where that
can be, and otherwise with what is not differentiated as it is.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from remat import jax_compat
from remat.checkpoint import jax_policy
from remat.errors import RematError
from remat.libraries import numbers_in_modules
from remat.region_primitive import Marks
from remat.regions import Call
from remat.signature import Arguments, check_pair, flatten_arguments, function_name, is_traced
from remat.trace import VALUE_ERRORS, values_at_hand

Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""A way to call the function that is differentiated, with all its arguments."""


def differentiated_as_region(
    fun: Callable[..., Any], chosen: Sequence[int], marks: Marks, has_aux: bool, differentiate: Callable[[Run], Any]
) -> Any:
    """Differentiate a function as a region.

    It is traced with types in place of all values, and what was traced is kept in mind. If its Python code looks at
    values, those that are not differentiated are closed over as they are; it is then traced at each call. And if it
    looks at what it computes from them, then without a policy JAX differentiates it step by step.
    """
    policy = marks.policy
    was_traced: list[bool] = []

    def with_jax(flat: Callable[..., Any]) -> Callable[..., Any]:
        return flat if policy is None else jax.checkpoint(flat, policy=jax_policy(policy))

    def traced(args: tuple[Any, ...], kwargs: dict[str, Any], always: bool = False) -> Any:
        arguments = flatten_arguments(fun, args, kwargs, is_not_a_size)
        token = values_at_hand.set(True)
        try:
            return Call(fun, marks, with_jax, None, has_aux, always, lambda: was_traced.append(True))(arguments)
        finally:
            values_at_hand.reset(token)

    def closed_over(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def partial(*parts: Any) -> Any:
            return fun(*replaced(args, chosen, parts), **kwargs)

        _named_like_arguments(partial, fun, chosen, args)
        arguments = without_settings(partial, tuple(args[i] for i in chosen))
        return Call(partial, marks, with_jax, None, has_aux)(arguments)

    def direct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = fun(*args, **kwargs)
        return check_pair(fun, out) if has_aux else out

    ways = [traced, closed_over, *([direct] if policy is None else [])]
    if jax_compat.jit_is_disabled() and policy is None:  # the user wants to see values
        ways = [direct]
    elif _looks_at_values(fun):
        ways.remove(traced)
    for way in ways:
        try:
            found = differentiate(way)
        except (*VALUE_ERRORS, jax.errors.UnexpectedTracerError):  # the latter: a rule that closes over a value
            if way is ways[-1]:
                raise
        except RematError:
            raise
        except (TypeError, ValueError, NotImplementedError, AttributeError) as error:
            if policy is not None or way is not traced or not was_traced:  # else it is an error of the function
                raise
            return _as_region_instead(error, lambda: differentiate(functools.partial(traced, always=True)))
        else:
            if way is not ways[0]:
                _note_that_it_looks_at_values(fun)
            return found
    raise AssertionError("unreachable")


def _as_region_instead(error: Exception, differentiate: Callable[[], Any]) -> Any:
    """The derivative where JAX's rules fail and ours do not.

    They fail on cotangents of another float type than their primals, and some look at literals as if they were arrays.
    Where ours fail too, JAX's error is raised, with the user's line.
    """
    try:
        return differentiate()
    except (RematError, type(error)) as located:
        notes = [str(located)] if isinstance(located, RematError) else getattr(located, "__notes__", [])
        for note in notes:
            error.add_note(note)
    raise error


def without_settings(fun: Callable[..., Any], args: tuple[Any, ...]) -> Arguments:
    """The leaves of differentiated arguments: no flags and strings, and in Equinox modules no Python numbers."""
    return flatten_arguments(fun, args, {}).with_static(numbers_in_modules((args, {})))


def is_not_a_size(leaf: Any) -> bool:
    """Python integers that are not differentiated may be sizes and exponents, and stay what they are."""
    return is_traced(leaf) and not (isinstance(leaf, int) and not isinstance(leaf, np.generic))


_valued: weakref.WeakSet[Any] = weakref.WeakSet()
"""Functions whose Python code looks at the values of arguments that are not differentiated."""


def _looks_at_values(fun: Callable[..., Any]) -> bool:
    try:
        return fun in _valued
    except TypeError:
        return False


def _note_that_it_looks_at_values(fun: Callable[..., Any]) -> None:
    try:
        _valued.add(fun)
    except TypeError:  # no weak reference can be made to it
        pass


def replaced(args: tuple[Any, ...], chosen: Sequence[int], parts: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments with the chosen ones replaced."""
    full = list(args)
    for i, part in zip(chosen, parts, strict=True):
        full[i] = part
    return tuple(full)


def _named_like_arguments(partial: Any, fun: Callable[..., Any], chosen: Sequence[int], args: tuple[Any, ...]) -> None:
    """Give the partial function a signature with the names of the chosen arguments, for messages and reports."""
    partial.__name__ = partial.__qualname__ = function_name(fun)
    partial.__wrapped__ = fun
    names = flatten_arguments(fun, tuple(0.0 for _ in args), {}).names
    parameters = [inspect.Parameter(_identifier(names[i], i), inspect.Parameter.POSITIONAL_ONLY) for i in chosen]
    partial.__signature__ = inspect.Signature(parameters)


def _identifier(name: str, position: int) -> str:
    return name if name.isidentifier() else f"argument_{position}"
