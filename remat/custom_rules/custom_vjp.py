"""`custom_vjp`: a function whose derivative its author writes, with a say in what is kept and what is rebuilt."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import jax
from jax.extend import source_info_util

from remat import jax_compat
from remat.custom_rules.primitive import bind_function
from remat.custom_rules.rule import Call, RematRule, Rules, VjpRule
from remat.errors import ArgumentError, ArgumentTypeError, MissingRuleError, NondiffTracerError
from remat.signature import check_callable, flatten_arguments, flatten_outputs, function_name
from remat.statics import Box
from remat.trace import flat_like

source_info_util.register_exclusion(__file__)  # a call is reported at the line that makes it

R = TypeVar("R")


class custom_vjp(Generic[R]):
    """A function with a reverse-mode derivative of its own, as `jax.custom_vjp`, with rules for regions too.

    **Arguments**

    - `fun`: the function. Its arguments may be pytrees of arrays.
    - `nondiff_argnums`, `nondiff_argnames`: arguments that are Python values and have no derivative, by position or
      name. `fwd` and `rem` get them where they stand; `bwd` gets them first.

    Give it rules with `defvjp`, `defremat`, or both. Works under `remat.grad`, `jax.grad`, `jit`, `vmap` and in loops.

    **Raises**, when it is called or differentiated: `MissingRuleError` without rules; `RuleTypeError`, `RuleError`
    when a rule returns the wrong thing; `ForwardModeError` for forward-mode derivatives; `ClosedOverError` when it is
    differentiated with respect to a value that it closes over.

    >>> import jax.numpy as jnp, remat
    >>> @remat.custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))
    >>> print(remat.grad(lambda x: 5 * clipped(x))(2.0))
    1.0
    """

    def __init__(
        self,
        fun: Callable[..., R],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ):
        check_callable(fun, "remat.custom_vjp")
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = _nondiff_positions(fun, nondiff_argnums, nondiff_argnames)
        self._vjp: VjpRule | None = None
        self._remat: RematRule | None = None

    def __repr__(self) -> str:
        return f"<custom_vjp {function_name(self.fun)}>"

    def defvjp(self, fwd: Callable[..., tuple[R, Any]], bwd: Callable[..., Any], symbolic_zeros: bool = False) -> None:
        """Give the function a derivative. In a region, `fwd` is ordinary code: the policy is asked about its values.

        **Arguments**

        - `fwd`: `fwd(*args) -> (out, residuals)`.
        - `bwd`: `bwd(residuals, cotangent) -> cotangents`, a tuple with one entry for each argument; None is zero.
        - `symbolic_zeros`: whether the rules are told what is zero: leaves of `fwd`'s arguments are then objects with
          `value` and `perturbed`, and cotangents that are zero come as `jax.custom_derivatives.SymbolicZero`.

        >>> import jax.numpy as jnp, remat
        >>> sin = remat.custom_vjp(jnp.sin)
        >>> sin.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda c, g: (c * g,))
        >>> print(remat.grad(sin)(0.0))
        1.0
        """
        check_callable(fwd, "fwd of defvjp")
        check_callable(bwd, "bwd of defvjp")
        self._vjp = VjpRule(fwd, bwd, bool(symbolic_zeros))

    def defremat(
        self, fwd: Callable[..., tuple[R, Any]], rem: Callable[..., tuple[R, Any]], bwd: Callable[..., Any]
    ) -> None:
        """Say what is kept and what is rebuilt where the function is differentiated in a region.

        What `fwd` saves is kept, whatever the region's policy is. In the backward pass, `rem` rebuilds the rest, right
        where `bwd` needs it. Outside of regions `rem` runs right after `fwd` and what `bwd` needs is kept; if the
        function has a `defvjp` rule too, that one serves there.

        **Arguments**

        - `fwd`: `fwd(*args) -> (out, kept)`.
        - `rem`: `rem(kept, *args) -> (out, residuals)`.
        - `bwd`: `bwd(residuals, cotangent) -> cotangents`.

        >>> import jax.numpy as jnp, remat
        >>> sin = remat.custom_vjp(jnp.sin)
        >>> sin.defremat(
        ...     lambda x: (jnp.sin(x), jnp.cos(x)), lambda c, x: (jnp.sin(x), c), lambda c, g: (c * g,)
        ... )
        >>> print(f"{remat.grad(remat.checkpoint(lambda x: sin(sin(x))))(1.0):.6f}")
        0.360039
        """
        for role, function in (("fwd", fwd), ("rem", rem), ("bwd", bwd)):
            check_callable(function, f"{role} of defremat")
        self._remat = RematRule(fwd, rem, bwd)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        name = function_name(self.fun)
        if self._vjp is None and self._remat is None:
            raise MissingRuleError(
                f"no VJP is defined for the custom_vjp function {name}. Call {name}.defvjp(fwd, bwd) or "
                f"{name}.defremat(fwd, rem, bwd) before using it."
            )
        positional = _positional(self.fun, args, kwargs)
        nondiff = tuple(sorted({i if i >= 0 else i + len(positional) for i in self.nondiff_argnums}))
        for i in nondiff:
            if i >= len(positional):
                raise ArgumentError(
                    f"nondiff_argnums of {name} has {i}, but it was called with {len(positional)} arguments."
                )
            _check_no_tracer(name, i, positional[i])
        boxed = tuple(Box(a) if i in nondiff else a for i, a in enumerate(positional))
        arguments = flatten_arguments(self.fun, boxed, {})
        leaves = arguments.leaves
        call = Call(name, dataclasses.replace(arguments, leaves=[]), nondiff, [jax.typeof(x) for x in leaves])

        def flat(*leaves: Any) -> list[Any]:
            arrays, structure = flatten_outputs(self.fun, self.fun(*call.rebuild(leaves)))
            call.results.note(arrays, structure)
            return arrays

        flat_like(flat, self.fun)
        outputs = bind_function(flat, leaves, Rules(call, self._vjp, self._remat))
        assert call.results.structure is not None
        return call.results.structure.build(outputs)


def _positional(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments by position, defaults filled in."""
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):
        if kwargs:
            raise ArgumentTypeError(
                f"{function_name(fun)} has no signature, so its arguments must be passed by position."
            ) from None
        return args
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentTypeError(f"the arguments of the custom_vjp function {function_name(fun)}: {error}.") from None
    bound.apply_defaults()
    if bound.kwargs:
        raise ArgumentTypeError(
            f"the custom_vjp function {function_name(fun)} got {', '.join(bound.kwargs)} by keyword only. Its rules "
            "take arguments by position, so let the function take them by position."
        )
    return bound.args


def _check_no_tracer(name: str, position: int, value: Any) -> None:
    if any(isinstance(leaf, jax_compat.Tracer) for leaf in jax.tree.leaves(value)):
        raise NondiffTracerError(
            f"argument {position} of the custom_vjp function {name} is declared in nondiff_argnums, but has a JAX "
            "tracer in it. Such arguments are Python values (functions, flags, sizes). Pass arrays as ordinary "
            "arguments, for which bwd may return None."
        )


def _nondiff_positions(fun: Callable[..., Any], argnums: Any, argnames: Any) -> tuple[int, ...]:
    numbers = argnums if isinstance(argnums, (tuple, list, set, frozenset, range)) else (argnums,)
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    try:
        found = {operator.index(i) for i in numbers}
    except TypeError:
        raise ArgumentTypeError(
            f"nondiff_argnums must be an integer or a sequence of integers, but is {argnums!r}. Use nondiff_argnames "
            "for names."
        ) from None
    if names:
        parameters = list(inspect.signature(fun).parameters)
        for n in names:
            if n not in parameters:
                raise ArgumentError(
                    f"nondiff_argnames has {n!r}, but {function_name(fun)} has no such parameter. Its parameters: "
                    f"{', '.join(map(repr, parameters)) or 'none'}."
                )
            found.add(parameters.index(n))
    return tuple(sorted(found))
