"""What a loop carries from one iteration to the next has to keep its type; if it does not, we say which leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import keystr, tree_flatten_with_path, tree_structure

from remat.errors import ArgumentTypeError


def settled(caller: str, function: str, init: Any, after: Callable[[Any], Any]) -> Any:
    """The first carry, with weakly typed leaves (Python numbers) cast to the type that an iteration gives them.

    `after` gives the types of the carry after an iteration.

    **Raises** `ArgumentTypeError` for a carry whose structure or types an iteration changes.
    """
    cast = jax.tree.map(_cast, init, _alike(caller, function, init, after(init)))
    found = after(cast) if _types(cast) != _types(init) else after(init)
    before, later = _types(cast), _alike(caller, function, cast, found)
    paths = [p for p, _ in tree_flatten_with_path(before)[0]]
    wrong = [
        f"carry{keystr(path)} goes in as {_text(a)} and comes out as {_text(b)}"
        for path, a, b in zip(paths, jax.tree.leaves(before), jax.tree.leaves(later), strict=True)
        if (a.shape, a.dtype) != (b.shape, b.dtype)
    ]
    if wrong:
        raise ArgumentTypeError(
            f"{caller}: an iteration must return a carry of the shapes and dtypes that it takes, but in {function} "
            f"{'; '.join(wrong)}. Cast it in {function}, or give the first carry that type."
        )
    return cast


def _types(tree: Any) -> Any:
    return jax.eval_shape(lambda x: x, tree)


def _alike(caller: str, function: str, init: Any, found: Any) -> Any:
    if tree_structure(found) != tree_structure(init):
        raise ArgumentTypeError(
            f"{caller}: an iteration must return a carry of the same structure that it takes, but {function} takes "
            f"{tree_structure(init)} and returns {tree_structure(found)}."
        )
    return found


def _cast(leaf: Any, found: Any) -> Any:
    """A weakly typed leaf as the type that it becomes, if it does so by JAX's promotion."""
    given = _types(leaf)
    if not getattr(given, "weak_type", False) or given.shape != found.shape:
        return leaf
    same = jnp.promote_types(given.dtype, found.dtype) == found.dtype or given.dtype == found.dtype
    strong = not getattr(found, "weak_type", False)
    return jnp.asarray(leaf, found.dtype) if strong and same else leaf


def _text(type: Any) -> str:
    return f"{type.dtype.name}[{','.join(map(str, type.shape))}]"
