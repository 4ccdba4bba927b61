"""Static arguments of `checkpoint`: Python values that are part of the program, by position or by name.

A static argument is hidden from flattening in a box that is no pytree, wherever it is passed: by position or by
keyword (JAX loses a flag that is declared by position and passed by keyword).
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.core

from remat.errors import ArgumentError, ArgumentTypeError
from remat.signature import function_name


class Box:
    """Hides a static value from pytree flattening."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Box) and type(self.value) is type(other.value) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True)
class Statics:
    """Which arguments of a function are static."""

    positions: frozenset[int]
    names: frozenset[str]
    function: str

    @classmethod
    def of(cls, fun: Callable[..., Any], argnums: int | Sequence[int], argnames: str | Sequence[str]) -> Statics:
        """Resolve positions and names against the signature, so that each static argument is known by both.

        **Raises** `ArgumentError`, `ArgumentTypeError` for arguments that the function does not have.
        """
        numbers = _numbers(argnums)
        names = _names(argnames)
        parameters = _parameters(fun)
        if parameters is None:
            return cls(frozenset(numbers), frozenset(names), function_name(fun))
        positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        takes_more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        takes_any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
        known = [p.name for p in parameters]
        for name in names:
            if name not in known and not takes_any_name:
                raise ArgumentError(
                    f"static_argnames has {name!r}, but {function_name(fun)} has no such parameter. Its parameters: "
                    f"{', '.join(map(repr, known)) or 'none'}."
                )
        positions = set()
        for number in numbers:
            if not takes_more and not -len(positional) <= number < len(positional):
                raise ArgumentError(
                    f"static_argnums has {number}, but {function_name(fun)} takes {len(positional)} positional "
                    f"arguments ({', '.join(positional) or 'none'}). Use a position in that range or static_argnames."
                )
            positions.add(number if number >= 0 or takes_more else number + len(positional))
        positions.update(positional.index(n) for n in names if n in positional)
        named = set(names) | {positional[i] for i in positions if 0 <= i < len(positional)}
        return cls(frozenset(positions), frozenset(named), function_name(fun))

    def wrap(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Box the static arguments of a call."""
        if not self.positions and not self.names:
            return args, kwargs
        positions = {i if i >= 0 else i + len(args) for i in self.positions}
        boxed = tuple(Box(a) if i in positions else a for i, a in enumerate(args))
        return boxed, {k: Box(v) if k in self.names else v for k, v in kwargs.items()}

    @staticmethod
    def are_traced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a boxed argument holds a traced value."""
        boxes = [a for a in (*args, *kwargs.values()) if isinstance(a, Box)]
        return any(isinstance(x, jax.core.Tracer) for box in boxes for x in jax.tree.leaves(box.value))

    def unwrap(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Take the static arguments out of their boxes."""
        return tuple(map(_open, args)), {k: _open(v) for k, v in kwargs.items()}


def _open(x: Any) -> Any:
    return x.value if isinstance(x, Box) else x


def _parameters(fun: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return None


def _numbers(argnums: Any) -> tuple[int, ...]:
    given = argnums if isinstance(argnums, (tuple, list, set, frozenset, range)) else (argnums,)
    try:
        return tuple(operator.index(i) for i in given)
    except TypeError:
        raise ArgumentTypeError(
            f"static_argnums must be an integer or a sequence of integers, but is {argnums!r}. Use static_argnames "
            "for names."
        ) from None


def _names(argnames: Any) -> tuple[str, ...]:
    sequence = isinstance(argnames, (tuple, list, set, frozenset))
    given = tuple(argnames) if sequence else (argnames,)
    if not all(isinstance(n, str) for n in given):
        raise ArgumentTypeError(
            f"static_argnames must be a string or a sequence of strings, but is {argnames!r}. Use static_argnums for "
            "positions."
        )
    return given
