"""`custom_gradient`: a derivative written as a closure that the function returns beside its result."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from remat.custom_rules.closure import Closure, closed
from remat.custom_rules.custom_vjp import custom_vjp
from remat.errors import RuleTypeError
from remat.signature import check_callable, function_name, tree_text


def custom_gradient(fun: Any = None, *, remat: bool = False) -> Any:
    """A function that returns its result and, beside it, the function that makes its gradient.

    **Arguments**

    - `fun`: `fun(*args) -> (out, vjp)`, where `vjp(cotangent)` returns a tuple with one cotangent for each argument.
      What `vjp` closes over is kept for the backward pass. Without `fun`, a decorator is returned.
    - `remat`: whether `fun` returns `(out, rem)` instead, with `rem(*args) -> (out, vjp)`. In a region, what `rem`
      closes over is kept, whatever the policy is, and `rem` runs in the backward pass; so it should use its own
      arguments and not those of `fun`. Outside of regions it runs right after `fun`.

    **Returns** a `custom_vjp` function `fun(*args) -> out`.

    **Raises** `RuleTypeError` and `RuleError`, when it is called or differentiated, for wrong results of `fun`, `rem`
    or `vjp`.

    >>> import jax.numpy as jnp, remat
    >>> @remat.custom_gradient(remat=True)
    ... def sin(x):
    ...     cos_x = jnp.cos(x)
    ...     def rem(x):
    ...         return jnp.sin(x), lambda g: (g * cos_x,)
    ...     return jnp.sin(x), rem
    >>> print(f"{remat.grad(remat.checkpoint(lambda x: sin(sin(x))))(1.0):.6f}")
    0.360039
    """
    if fun is None:
        return functools.partial(custom_gradient, remat=remat)
    check_callable(fun, "remat.custom_gradient")
    name = function_name(fun)

    @functools.wraps(fun)
    def primal(*args: Any, **kwargs: Any) -> Any:
        return _pair(name, fun(*args, **kwargs), "rem" if remat else "vjp")[0]

    def fwd(*args: Any) -> tuple[Any, Closure]:
        out, vjp = _pair(name, fun(*args), "vjp")
        return out, closed(vjp, out, cotangents=True)

    def fwd_before_rem(*args: Any) -> tuple[Any, Closure]:
        out, rem = _pair(name, fun(*args), "rem")

        @functools.wraps(rem)
        def rebuilt(*args: Any) -> tuple[Any, Closure]:
            out, vjp = _pair(f"the rem function of {name}", rem(*args), "vjp")
            return out, closed(vjp, out, cotangents=True)

        return out, closed(rebuilt, *args)

    def rem(kept: Closure, *args: Any) -> Any:
        return kept(*args)

    def vjp(residuals: Closure, cotangent: Any) -> Any:
        found = residuals(cotangent)
        return found if isinstance(found, (tuple, list)) else (found,)

    function = custom_vjp(primal)
    if remat:
        function.defremat(fwd_before_rem, rem, vjp)
    else:
        function.defvjp(fwd, vjp)
    return function


def _pair(name: str, pair: Any, second: str) -> tuple[Any, Callable[..., Any]]:
    """What a function given to `custom_gradient` returned, if it is a result and a function."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not callable(pair[1]):
        takes = "cotangent" if second == "vjp" else "*args"
        raise RuleTypeError(
            f"{name} is used with custom_gradient and must return a pair (out, {second}) with a function "
            f"{second}({takes}), but returned {tree_text(pair)}."
        )
    return pair[0], pair[1]
