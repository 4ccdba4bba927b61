"""How a user's arguments and results map to the flat inputs and outputs of a program.

Leaves that are arrays or numbers are traced; every other leaf (strings, functions, configuration objects) is held
static, so that models which carry activation functions or flags as leaves need no wrapper.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

from remat.errors import ArgumentTypeError
from remat.ir.types import short_text


@dataclass(frozen=True, eq=False)
class Structure:
    """A pytree with some leaves taken out as arrays and the others kept (`statics`, by position)."""

    tree: Any
    statics: dict[int, Any]

    def build(self, arrays: Sequence[Any]) -> Any:
        total = self.tree.num_leaves
        rest = iter(arrays)
        leaves = [self.statics[i] if i in self.statics else next(rest) for i in range(total)]
        return tree_unflatten(self.tree, leaves)


@dataclass(frozen=True, eq=False)
class Signature:
    """The calling convention of a traced function: structures of its arguments and results, and argument names."""

    function: str
    inputs: Structure
    outputs: Structure
    argument_names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Arguments:
    """Flattened arguments of one call: `leaves` to trace, with their `names` (`params['w']`, `x`)."""

    function: str
    leaves: list[Any]
    names: tuple[str, ...]
    structure: Structure

    def rebuild(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.structure.build(leaves)

    def with_static(self, positions: frozenset[int]) -> Arguments:
        """The same with more leaves held static, by their positions in the pytree."""
        if not positions:
            return self
        traced = [i for i in range(self.structure.tree.num_leaves) if i not in self.structure.statics]
        statics = {**self.structure.statics, **{i: x for i, x in zip(traced, self.leaves) if i in positions}}
        keep = [i not in positions for i in traced]
        leaves = [x for x, k in zip(self.leaves, keep) if k]
        names = tuple(n for n, k in zip(self.names, keep) if k)
        return Arguments(self.function, leaves, names, Structure(self.structure.tree, statics))

    def signature(self, outputs: Structure) -> Signature:
        return Signature(self.function, self.structure, outputs, self.names)


def is_array(leaf: Any) -> bool:
    """Whether JAX would trace this leaf: an array, a tracer, a number, or a stand-in with a shape and dtype."""
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex, jax.ShapeDtypeStruct)):
        return not (isinstance(leaf, np.ndarray) and leaf.dtype == object)
    return hasattr(leaf, "__jax_array__") or (
        hasattr(leaf, "shape") and hasattr(leaf, "dtype") and hasattr(leaf, "aval")
    )


def is_traced(leaf: Any) -> bool:
    """Whether an argument is traced. Python booleans are static: they are flags."""
    return is_array(leaf) and not isinstance(leaf, bool)


def is_number(leaf: Any) -> bool:
    """Whether a leaf is a number of Python's own."""
    return isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic)


def function_name(fun: Callable[..., Any]) -> str:
    return getattr(fun, "__name__", None) or type(fun).__name__


def check_callable(fun: Any, caller: str) -> None:
    """**Raises** `ArgumentTypeError` for what is not a function."""
    if not callable(fun):
        raise ArgumentTypeError(
            f"{caller} takes a function, but got {_short.repr(fun)} of type {type(fun).__name__}. Pass the function "
            "itself, without calling it."
        )


def flatten_arguments(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_traced: Callable[[Any], bool] = is_traced,
) -> Arguments:
    """Flatten a call; leaves for which `is_traced` is false are held static."""
    paths, tree = tree_flatten_with_path((args, kwargs))
    positional = _positional_names(fun, len(args))
    leaves, names, statics = [], [], {}
    for i, (path, leaf) in enumerate(paths):
        if is_traced(leaf):
            leaves.append(leaf)
            first, key, *rest = path
            name = positional[key.idx] if first.idx == 0 else str(key.key)
            names.append(name + keystr(tuple(rest)))
        else:
            statics[i] = leaf
    return Arguments(function_name(fun), leaves, tuple(names), Structure(tree, statics))


def leaves_of(
    arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any], positions: Collection[int]
) -> list[bool]:
    """For each leaf of flattened arguments, whether it is part of a positional argument at one of the positions."""
    paths, _ = tree_flatten_with_path((args, kwargs))
    return [
        path[0].idx == 0 and path[1].idx in positions
        for i, (path, _) in enumerate(paths)
        if i not in arguments.structure.statics
    ]


def flatten_outputs(fun: Callable[..., Any], out: Any, numbers_are_static: bool = False) -> tuple[list[Any], Structure]:
    """Flatten a result into arrays and the structure that puts them back beside its static leaves."""
    leaves, tree = tree_flatten(out)
    statics = {
        i: leaf for i, leaf in enumerate(leaves) if not is_array(leaf) or (numbers_are_static and is_number(leaf))
    }
    return [leaf for i, leaf in enumerate(leaves) if i not in statics], Structure(tree, statics)


def check_pair(fun: Callable[..., Any], out: Any) -> tuple[Any, Any]:
    """A result and its auxiliary data.

    **Raises** `ArgumentTypeError` for what is no sequence of two.
    """
    if isinstance(out, (tuple, list)) and len(out) == 2:
        return out[0], out[1]
    raise ArgumentTypeError(
        f"with has_aux=True, {function_name(fun)} must return a pair, a two-element tuple (result, auxiliary data), "
        f"but it returned {tree_text(out)}. Return a tuple of two, or leave has_aux out."
    )


_short = reprlib.Repr()
_short.maxother = _short.maxstring = 90


class _Word(str):
    """A text that prints without quotes, to stand in a pytree for a leaf that is only described."""

    def __repr__(self) -> str:
        return str(self)


def leaf_text(leaf: Any) -> str:
    """A leaf in an error message: the type of an array (`f32[3]`); anything else as it is, with its class."""
    if not is_array(leaf):
        return f"{_short.repr(leaf)} of type {type(leaf).__name__}"
    return short_text(leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf))


def tree_text(tree: Any) -> str:
    """A pytree in an error message: types in place of arrays, such as `{'w': f32[3], 'b': f32[]}`."""
    leaves, structure = tree_flatten(tree)
    words = [leaf if isinstance(leaf, _Word) else _Word(leaf_text(leaf)) for leaf in leaves]
    return _short.repr(tree_unflatten(structure, words))


def call_text(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A call in an error message: `f(f32[3], scale=f32[])`."""
    return f"{function}({', '.join([*map(tree_text, args), *(f'{k}={tree_text(v)}' for k, v in kwargs.items())])})"


def words_of(structure: Structure, types: Sequence[Any]) -> Any:
    """The pytree of a structure with the texts of types as leaves, for `tree_text` and `call_text`."""
    return structure.build([_Word(short_text(t)) for t in types])


def _positional_names(fun: Callable[..., Any], count: int) -> list[str]:
    """Names of the first `count` positional parameters; `args[2]` where the function takes `*args`."""
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return [f"args[{i}]" for i in range(count)]
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names.extend(f"{parameter.name}[{i}]" for i in range(count - len(names)))
    names.extend(f"args[{i}]" for i in range(len(names), count))
    return names[:count]
