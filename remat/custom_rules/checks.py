"""Checks of what rule functions return, with messages that name the function and say what it should return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from remat.errors import RuleError, RuleTypeError
from remat.ir.types import is_differentiable, short_text
from remat.signature import Structure, function_name, is_array, leaf_text, tree_text, words_of

if TYPE_CHECKING:
    from remat.custom_rules.rule import Call

PURPOSE = {
    "fwd": "a pair (out, residuals): the result of the function, and what is saved for the backward pass",
    "rem": "a pair (out, residuals): the result of the function again, and what bwd needs",
}


def checked_pair(call: Call, role: str, function: Callable[..., Any], pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise RuleTypeError(f"{_rule(call, role, function)} must return {PURPOSE[role]}, but returned {_shown(pair)}.")
    return pair[0], pair[1]


def check_residuals(call: Call, role: str, function: Callable[..., Any], residuals: Any) -> None:
    for path, leaf in jax.tree_util.tree_flatten_with_path(residuals)[0]:
        if isinstance(leaf, CustomVJPPrimal):
            raise RuleTypeError(
                f"{_rule(call, role, function)} saved an argument as it came, at residuals"
                f"{jax.tree_util.keystr(path)}. With symbolic_zeros=True each leaf of an argument is an object with "
                "the attributes value and perturbed; save its value."
            )


def check_results(
    call: Call, role: str, function: Callable[..., Any], outputs: Sequence[Any], found: Structure
) -> None:
    """The results of a rule function must be arranged like those of the primal function, and have their types."""
    expected, types = call.results.structure, call.results.types
    assert expected is not None
    given = [jax.typeof(x) for x in outputs]
    if found.tree != expected.tree or set(found.statics) != set(expected.statics):
        reason = "pytree structure"
    elif any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(given, types, strict=True)):
        reason = "shapes and dtypes"
    else:
        return
    raise RuleTypeError(
        f"{_rule(call, role, function)} must return {PURPOSE[role]}. Its out has other {reason} than {call.function} "
        f"returns: {tree_text(words_of(found, given))}, where {call.function} returns "
        f"{tree_text(words_of(expected, types))}."
    )


def flat_cotangents(call: Call, bwd: Callable[..., Any], found: Any) -> list[Any]:
    """What `bwd` returned as a list with one entry for each input, None where it is zero."""
    positions = call.positions()
    if isinstance(found, list) and len(found) == len(positions):
        found = tuple(found)
    if not isinstance(found, tuple) or len(found) != len(positions):
        count = f"it returned a tuple of {len(found)}" if isinstance(found, tuple) else f"it returned {_shown(found)}"
        comma = " (write a comma after a single one: `return (g,)`)" if len(positions) == 1 else ""
        raise RuleTypeError(
            f"{_rule(call, 'bwd', bwd)} must return a tuple with one cotangent for each of the {len(positions)} "
            f"differentiated arguments{comma}, {_expected(call)}, but {count}."
        )
    result: list[Any] = [None] * len(call.input_types)
    for given, expected in zip(found, positions, strict=True):
        leaves, tree = jax.tree.flatten(given, is_leaf=_is_zero)
        try:
            parts = tree.flatten_up_to(expected)
        except ValueError:
            raise RuleTypeError(
                f"{_rule(call, 'bwd', bwd)} must return cotangents with the pytree structure of the arguments, "
                f"{_expected(call)}, but it returned {_shown(found)}. None stands for a part that is zero."
            ) from None
        for leaf, part in zip(leaves, parts, strict=True):
            for position in jax.tree.leaves(part):
                if isinstance(position, int):
                    result[position] = _checked_cotangent(call, bwd, leaf, position)
    return result


def _checked_cotangent(call: Call, bwd: Callable[..., Any], given: Any, position: int) -> Any:
    """A cotangent of the type of its input. What is said about an input that has no derivative is ignored."""
    type = call.input_types[position]
    if given is None or not is_differentiable(type):
        return None
    is_zero = isinstance(given, SymbolicZero)
    if not is_zero and not is_array(given):
        found, fits = leaf_text(given), False
    else:
        aval: Any = given.aval if is_zero else jax.typeof(given)
        fits = tuple(aval.shape) == tuple(type.shape) and (aval.dtype == type.dtype or _is_number_for(aval, type))
        found = short_text(aval)
    if fits:
        return None if is_zero else jnp.asarray(given, dtype=type.dtype)
    raise RuleError(
        f"{_rule(call, 'bwd', bwd)} must return for each argument a cotangent of its shape and dtype, "
        f"{_expected(call)}. For {call.arguments.names[position]} it returned {found}, where {short_text(type)} is "
        "needed. Use sum, reshape or astype, or return None if the cotangent is zero."
    )


def _is_number_for(aval: Any, type: Any) -> bool:
    """Whether it is a Python number, or made of such, that stands for one of that type."""
    if not getattr(aval, "weak_type", False):
        return False
    return is_complex(type) or not is_complex(aval)


def is_complex(type: Any) -> bool:
    return dtypes.issubdtype(type.dtype, np.complexfloating)


def float0_zeros(type: Any) -> Any:
    return np.zeros(type.shape, dtypes.float0)


def _is_zero(x: Any) -> bool:
    return x is None or isinstance(x, SymbolicZero)


def _rule(call: Call, role: str, function: Callable[..., Any]) -> str:
    return f"the {role} rule {function_name(function)} of {call.function}"


def _expected(call: Call) -> str:
    """What `bwd` should return, as text."""
    words = words_of(call.arguments.structure, [_cotangent_type(t) for t in call.input_types])[0]
    kept = tuple(w for i, w in enumerate(words) if i not in call.nondiff)
    return tree_text(kept)


def _cotangent_type(type: Any) -> Any:
    return type if is_differentiable(type) else type.to_tangent_aval()


def _shown(x: Any) -> str:
    return f"a {type(x).__name__}, {tree_text(x)}" if isinstance(x, (tuple, list, dict)) else tree_text(x)
