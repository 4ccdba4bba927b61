"""Recursive checkpointing of a chain of functions: memory that grows with the logarithm of its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from remat.checkpoint import checkpoint
from remat.errors import ArgumentTypeError
from remat.signature import check_callable


def recursive_checkpoint(funs: Sequence[Callable[[Any], Any]], *, policy: Any = None) -> Callable[[Any], Any]:
    """Compose functions, applied left to right, with nested checkpoint regions around the earlier half of each part.

    The residuals of a chain of D functions grow with log2(D) instead of D, for about log2(D) times the computation
    (the scheme of the JAX documentation's `recursive_checkpoint`, with the order of the list kept).

    **Arguments**

    - `funs`: functions of one argument. An empty sequence gives the identity.
    - `policy`: what each region keeps besides its input, as for `remat.checkpoint`.

    **Returns** the composed function.

    >>> import jax.numpy as jnp, remat
    >>> f = remat.recursive_checkpoint([jnp.sin] * 16)
    >>> len([r for r in remat.saved_residuals(f, 1.0)]) <= 5
    True
    """
    if callable(funs):
        raise ArgumentTypeError(
            f"remat.recursive_checkpoint takes a list of functions, but got {funs!r}. Write "
            "recursive_checkpoint([f, g])."
        )
    funs = list(funs)
    for fun in funs:
        check_callable(fun, "each part of remat.recursive_checkpoint")
    if not funs:
        return lambda x: x
    if len(funs) == 1:
        return funs[0]
    if len(funs) == 2:
        first, second = funs
        return lambda x: second(first(x))
    middle = len(funs) // 2
    left = checkpoint(recursive_checkpoint(funs[:middle], policy=policy), policy=policy)
    right = recursive_checkpoint(funs[middle:], policy=policy)
    return lambda x: right(left(x))
