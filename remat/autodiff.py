"""The functional transformations that users call: the same arguments as JAX's, and a keyword `policy`.

Each is JAX's own transformation of the function made a region: the function's derivative is our split, and everything
around it (which arguments, auxiliary data, dtypes, what a pullback looks like) is JAX's. `remat.grad(f, policy=p)`
means `remat.grad(remat.checkpoint(f, policy=p))`. Without a policy the region is transparent: what is kept is what
`jax.grad` keeps, and the regions inside have their own say.
"""

from __future__ import annotations

import functools
import inspect
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax import dtypes
from jax.extend import source_info_util

from remat.checkpoint import jax_policy, resolve_policy
from remat.errors import ArgumentError, ArgumentTypeError, DifferentiationError, MissingArgumentError
from remat.ir.types import short_text
from remat.region_primitive import Marks
from remat.regions import Call
from remat.signature import (
    check_callable,
    check_pair,
    flatten_arguments,
    function_name,
    is_array,
    is_traced,
    leaf_text,
    tree_text,
)
from remat.trace import VALUE_ERRORS, values_at_hand
from remat.transforms.vjp import LinearFunction, VjpFunction, without_statics

source_info_util.register_exclusion(__file__)


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
    numbers, single = check_argnums(argnums)
    resolved = resolve_policy(policy)

    @functools.wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        chosen = choose_arguments(fun, numbers, args, kwargs)
        for i in chosen:
            _check_input(fun, i, args, holomorphic, allow_int)
        given = flatten_arguments(fun, tuple(args[i] for i in chosen), {})

        def differentiate(run: Run) -> Any:
            @_named_like(fun)
            def scalar(leaves: list[Any]) -> Any:
                parts, _ = given.rebuild(leaves)
                out = run(_replaced(args, chosen, parts), kwargs)
                out, aux = out if has_aux else (out, None)
                _check_result(fun, out, holomorphic)
                return out, aux

            return jax.value_and_grad(scalar, 0, True, holomorphic, allow_int)(given.leaves)

        (value, aux), found = _differentiated(fun, chosen, resolved, has_aux, differentiate)
        gradients = without_statics(given.structure, allow_int).build(found)[0]
        gradient = gradients[0] if single else gradients
        return ((value, aux), gradient) if has_aux else (value, gradient)

    return _renamed(value_and_gradient, "value_and_grad", fun)


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, policy: Any = None, **options: Any) -> Any:
    """The value of a function and its pullback (vector-Jacobian product).

    **Arguments**

    - `fun`: a function of arrays and pytrees.
    - `primals`: its arguments; all of them are differentiated.
    - `has_aux`: whether `fun` returns a pair of the result and auxiliary data.
    - `policy`: what is kept for the backward pass, as for `remat.checkpoint`.
    - `options`: further options of the installed `jax.vjp`, such as `saveable_args`.

    **Returns** `(out, vjp_fn)`, or `(out, vjp_fn, auxiliary)` with `has_aux`. `vjp_fn` takes a cotangent like `out`
    and returns a tuple of cotangents like `primals` (float0 for integers and booleans, None for other static leaves).
    It is what `jax.vjp` returns, a pytree whose leaves are exactly the residuals, so the forward and the backward pass
    can be jitted apart.

    >>> import jax, jax.numpy as jnp, remat
    >>> out, vjp_fn = jax.jit(lambda x: remat.vjp(jnp.sin, x))(1.0)
    >>> len(jax.tree.leaves(vjp_fn)), float(vjp_fn(1.0)[0]) == float(jnp.cos(1.0))
    (1, True)
    """
    check_callable(fun, "remat.vjp")
    out, vjp_fn, *aux = _linear_part(jax.vjp, fun, primals, has_aux, policy, options)
    given = flatten_arguments(fun, primals, {})
    vjp_fn = VjpFunction(vjp_fn, given.structure) if given.structure.statics else vjp_fn
    return (out, vjp_fn, *aux)


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, policy: Any = None, **options: Any) -> Any:
    """The value of a function and its derivative as a linear function of tangents.

    **Arguments**

    - `fun`: a function of arrays and pytrees.
    - `primals`: the point at which to linearize.
    - `has_aux`: whether `fun` returns a pair of the result and auxiliary data.
    - `policy`: what is kept for `linear_fn`, as for `remat.checkpoint`.
    - `options`: further options of the installed `jax.linearize`.

    **Returns** `(out, linear_fn)`, or `(out, linear_fn, auxiliary)` with `has_aux`; `linear_fn` takes tangents like
    `primals` and returns a tangent like `out`. It is a pytree whose leaves are the residuals. Checkpoint regions
    recompute inside `linear_fn`.

    >>> import jax.numpy as jnp, remat
    >>> out, linear_fn = remat.linearize(lambda x: x**2, 3.0)
    >>> float(out), float(linear_fn(1.0))
    (9.0, 6.0)
    """
    check_callable(fun, "remat.linearize")
    out, linear_fn, *aux = _linear_part(jax.linearize, fun, primals, has_aux, policy, options)
    given = flatten_arguments(fun, primals, {})
    linear_fn = LinearFunction(linear_fn, given.structure) if given.structure.statics else linear_fn
    return (out, linear_fn, *aux)


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


Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""A way to call the function that is differentiated, with all its arguments."""


def _linear_part(
    transform: Callable[..., Any],
    fun: Callable[..., Any],
    primals: tuple[Any, ...],
    has_aux: bool,
    policy: Any,
    options: dict[str, Any],
) -> Any:
    """`jax.vjp` or `jax.linearize` of a function of positional arguments; static leaves do not take part."""
    given = flatten_arguments(fun, primals, {})
    has_statics = bool(given.structure.statics)
    if has_aux:
        options = {**options, "has_aux": True}

    def differentiate(run: Run) -> Any:
        @_named_like(fun)
        def call(*args: Any) -> Any:
            return run(given.rebuild(args)[0] if has_statics else args, {})

        return transform(call, *(given.leaves if has_statics else primals), **options)

    return _differentiated(fun, range(len(primals)), resolve_policy(policy), has_aux, differentiate)


def _differentiated(
    fun: Callable[..., Any], chosen: Sequence[int], policy: Any, has_aux: bool, differentiate: Callable[[Run], Any]
) -> Any:
    """Differentiate a function as a region.

    It is traced with types in place of all values, and what was traced is kept in mind. If its Python code looks at
    values, those that are not differentiated are closed over as they are; it is then traced at each call. And if it
    looks at what it computes from them, then without a policy JAX differentiates it step by step.
    """
    marks = Marks(policy, transparent=policy is None)

    def with_jax(flat: Callable[..., Any]) -> Callable[..., Any]:
        return flat if policy is None else jax.checkpoint(flat, policy=jax_policy(policy))

    def traced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arguments = flatten_arguments(fun, args, kwargs, _is_not_a_size)
        token = values_at_hand.set(True)
        try:
            return Call(fun, marks, with_jax, None, has_aux)(arguments)
        finally:
            values_at_hand.reset(token)

    def closed_over(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def partial(*parts: Any) -> Any:
            return fun(*_replaced(args, chosen, parts), **kwargs)

        _named_like_arguments(partial, fun, chosen, args)
        arguments = flatten_arguments(partial, tuple(args[i] for i in chosen), {})
        return Call(partial, marks, with_jax, None, has_aux)(arguments)

    def direct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = fun(*args, **kwargs)
        return check_pair(fun, out) if has_aux else out

    ways = [traced, closed_over, *([direct] if policy is None else [])]
    if jax.config.jax_disable_jit and policy is None:  # the user wants to see values
        ways = [direct]
    elif _looks_at_values(fun):
        ways.remove(traced)
    for way in ways:
        try:
            found = differentiate(way)
        except (*VALUE_ERRORS, jax.errors.UnexpectedTracerError):  # the latter: a rule that closes over a value
            if way is ways[-1]:
                raise
        else:
            if way is not ways[0]:
                _note_that_it_looks_at_values(fun)
            return found
    raise AssertionError("unreachable")


def _is_not_a_size(leaf: Any) -> bool:
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


def _replaced(args: tuple[Any, ...], chosen: Sequence[int], parts: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments with the chosen ones replaced."""
    full = list(args)
    for i, part in zip(chosen, parts, strict=True):
        full[i] = part
    return tuple(full)


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
                f"argnums={i} is out of range: {function_name(fun)} was called with {count} positional "
                f"argument{'s' if count != 1 else ''}{named}. Differentiated arguments must be passed by position."
            )
    chosen = [i % count for i in numbers]
    if len(set(chosen)) < len(chosen):
        raise ArgumentError(f"argnums={numbers} names an argument twice. Name each argument once.")
    return chosen


def _named_like_arguments(partial: Any, fun: Callable[..., Any], chosen: Sequence[int], args: tuple[Any, ...]) -> None:
    """Give the partial function a signature with the names of the chosen arguments, for messages and reports."""
    partial.__name__ = partial.__qualname__ = function_name(fun)
    partial.__wrapped__ = fun
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
    arguments = flatten_arguments(fun, alone, {})
    if not arguments.leaves:  # then a boolean is not the flag of something that has a gradient
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
        if not dtypes.issubdtype(dtype, np.inexact) and not allow_int:
            raise DifferentiationError(
                f"{what}, which has no gradient. Pass floating point values (1.0 instead of 1), choose other argnums, "
                "or set allow_int=True to get gradients of dtype float0."
            )


def _check_result(fun: Callable[..., Any], value: Any, holomorphic: bool) -> None:
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


def _named_like(fun: Callable[..., Any]) -> Callable[[Any], Any]:
    """Let JAX's messages name the user's function in place of the one that calls it."""

    def name(inner: Any) -> Any:
        inner.__name__ = inner.__qualname__ = function_name(fun)
        return inner

    return name


def _renamed(new: Any, prefix: str, fun: Callable[..., Any]) -> Any:
    new.__name__ = f"{prefix}_{function_name(fun)}"
    new.__doc__ = f"{prefix} of {function_name(fun)}, by remat.\n\n{fun.__doc__ or ''}"
    return new
