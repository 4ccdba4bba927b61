"""The functional transformations that users call: the same arguments as JAX's, and a keyword `policy`.

Each is JAX's own transformation of the function made a region: the function's derivative is our split, and everything
around it (which arguments, auxiliary data, dtypes, what a pullback looks like) is JAX's. `remat.grad(f, policy=p)`
means `remat.grad(remat.checkpoint(f, policy=p))`. Without a policy the region is transparent: what is kept is what
`jax.grad` keeps, and the regions inside have their own say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.extend import source_info_util

from remat.checkpoint import marks_of
from remat.differentiate import Run, differentiated_as_region, replaced, without_settings
from remat.gradient_checks import check_argnums, check_input, check_result, choose_arguments
from remat.region_primitive import Marks
from remat.signature import check_callable, function_name
from remat.targets.target import Target
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
    target: Target | str | None = None,
) -> Callable[..., Any]:
    """The gradient of a scalar function, computed as `policy` says.

    **Arguments**

    - `fun`: a function of arrays and pytrees that returns a floating point scalar (or `(scalar, auxiliary)`).
    - `argnums`: the positional argument or arguments to differentiate. Negative numbers count from the end.
    - `has_aux`: whether `fun` returns a pair of the scalar and auxiliary data.
    - `holomorphic`: whether `fun` is a holomorphic function of complex arguments.
    - `allow_int`: whether integer arguments may be differentiated; their gradients have dtype float0.
    - `policy`: what is kept for the backward pass, as for `remat.checkpoint`. None keeps what `jax.grad` keeps.
    - `target`: what the backward pass is made for, a `remat.Target` or its name (`"tpu:v5e:2x2"`): which barriers hold
      its order, and where segments are cut. None is the device that JAX would run on.

    **Returns** a function of the same arguments that returns the gradient, shaped like the differentiated arguments
    (a tuple of such for several `argnums`), or `(gradient, auxiliary)` with `has_aux`. Leaves that are not arrays
    have the gradient None.

    **Raises** `DifferentiationError` for arguments or results that have no gradient, `ArgumentError` and
    `ArgumentTypeError` for bad `argnums`.

    >>> import jax.numpy as jnp, remat
    >>> print(f"{remat.grad(lambda x: jnp.sin(x) ** 2, policy='nothing')(0.5):.4f}")
    0.8415
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, policy=policy, target=target)

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
    target: Target | str | None = None,
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
    marks = _marks(policy, target)

    @functools.wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        chosen = choose_arguments(fun, numbers, args, kwargs)
        for i in chosen:
            check_input(fun, i, args, holomorphic, allow_int)
        given = without_settings(fun, tuple(args[i] for i in chosen))

        def differentiate(run: Run) -> Any:
            @functools.wraps(fun)  # for JAX's messages
            def scalar(leaves: list[Any]) -> Any:
                parts, _ = given.rebuild(leaves)
                out = run(replaced(args, chosen, parts), kwargs)
                out, aux = out if has_aux else (out, None)
                check_result(fun, out, holomorphic)
                return out, aux

            return jax.value_and_grad(scalar, 0, True, holomorphic, allow_int)(given.leaves)

        (value, aux), found = differentiated_as_region(fun, chosen, marks, has_aux, differentiate)
        gradients = without_statics(given.structure, allow_int).build(found)[0]
        gradient = gradients[0] if single else gradients
        return ((value, aux), gradient) if has_aux else (value, gradient)

    return _renamed(value_and_gradient, "value_and_grad", fun)


def vjp(
    fun: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    policy: Any = None,
    target: Target | str | None = None,
    **options: Any,
) -> Any:
    """The value of a function and its pullback (vector-Jacobian product).

    **Arguments**

    - `fun`: a function of arrays and pytrees.
    - `primals`: its arguments; all of them are differentiated.
    - `has_aux`: whether `fun` returns a pair of the result and auxiliary data.
    - `policy`, `target`: what is kept for the backward pass, and what it is made for, as for `remat.grad`.
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
    out, vjp_fn, *aux = _linear_part(jax.vjp, fun, primals, has_aux, _marks(policy, target), options)
    given = without_settings(fun, primals)
    vjp_fn = VjpFunction(vjp_fn, given.structure) if given.structure.statics else vjp_fn
    return (out, vjp_fn, *aux)


def linearize(
    fun: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    policy: Any = None,
    target: Target | str | None = None,
    **options: Any,
) -> Any:
    """The value of a function and its derivative as a linear function of tangents.

    **Arguments**

    - `fun`: a function of arrays and pytrees.
    - `primals`: the point at which to linearize.
    - `has_aux`: whether `fun` returns a pair of the result and auxiliary data.
    - `policy`, `target`: what is kept for `linear_fn`, and what it is made for, as for `remat.grad`.
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
    out, linear_fn, *aux = _linear_part(jax.linearize, fun, primals, has_aux, _marks(policy, target), options)
    given = without_settings(fun, primals)
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


def _linear_part(
    transform: Callable[..., Any],
    fun: Callable[..., Any],
    primals: tuple[Any, ...],
    has_aux: bool,
    marks: Marks,
    options: dict[str, Any],
) -> Any:
    """`jax.vjp` or `jax.linearize` of a function of positional arguments; static leaves do not take part."""
    given = without_settings(fun, primals)
    has_statics = bool(given.structure.statics)
    if has_aux:
        options = {**options, "has_aux": True}

    def differentiate(run: Run) -> Any:
        @functools.wraps(fun)  # for JAX's messages
        def call(*args: Any) -> Any:
            return run(given.rebuild(args)[0] if has_statics else args, {})

        return transform(call, *(given.leaves if has_statics else primals), **options)

    return differentiated_as_region(fun, range(len(primals)), marks, has_aux, differentiate)


def _marks(policy: Any, target: Target | str | None) -> Marks:
    """Those of a whole function as a region; without a policy, the regions inside have their own say."""
    marks = marks_of(policy, target)
    return replace(marks, transparent=marks.policy is None)


def _renamed(new: Any, prefix: str, fun: Callable[..., Any]) -> Any:
    new.__name__ = f"{prefix}_{function_name(fun)}"
    new.__doc__ = f"{prefix} of {function_name(fun)}, by remat.\n\n{fun.__doc__ or ''}"
    return new
