"""`filter_grad`, `filter_value_and_grad` and `filter_checkpoint` of Equinox, for each policy.

As in Equinox, floating point arrays of the first argument are differentiated, and every leaf that is no array (numbers,
flags, functions) is static.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from remat.autodiff import value_and_grad
from remat.checkpoint import jax_policy, resolve_policy
from remat.errors import ArgumentError, ArgumentTypeError
from remat.region_primitive import Marks
from remat.regions import Call
from remat.signature import check_callable, flatten_arguments, function_name
from remat.statics import Box

try:
    import equinox as eqx
except ImportError as error:
    raise ImportError("remat.frameworks.equinox needs Equinox. Install it: pip install equinox.") from error


def filter_grad(fun: Any = None, *, has_aux: bool = False, policy: Any = None, **options: Any) -> Any:
    """`eqx.filter_grad`, computed as `policy` says.

    **Arguments**

    - `fun`: a function whose first argument is differentiated: a module or another pytree. Without it, a decorator is
      returned.
    - `has_aux`: whether `fun` returns a pair of the scalar and auxiliary data.
    - `policy`: what is kept for the backward pass, as for `remat.checkpoint`. None keeps what `eqx.filter_grad` keeps.
    - `options`: `holomorphic` and `allow_int`, as for `jax.grad`.

    **Returns** a function of the same arguments that returns the gradient, with None for leaves that are no floating
    point arrays, or `(gradient, auxiliary)` with `has_aux`.

    **Raises** `ArgumentTypeError` when the first argument is not passed by position, `ArgumentError` for `argnums`, and
    what `remat.grad` raises.

    >>> import equinox as eqx, jax, jax.numpy as jnp
    >>> from remat.frameworks.equinox import filter_grad
    >>> model = eqx.nn.MLP(2, "scalar", 4, 1, key=jax.random.key(0))
    >>> gradient = filter_grad(lambda model, x: model(x), policy="nothing")(model, jnp.ones(2))
    >>> gradient.layers[-1].bias.tolist(), gradient.activation
    ([1.0], None)
    """
    if fun is None:
        return functools.partial(filter_grad, has_aux=has_aux, policy=policy, **options)
    both = filter_value_and_grad(fun, has_aux=has_aux, policy=policy, **options)
    return _named_like(_Gradient(both, has_aux), fun)


def filter_value_and_grad(fun: Any = None, *, has_aux: bool = False, policy: Any = None, **options: Any) -> Any:
    """`eqx.filter_value_and_grad`, computed as `policy` says; arguments and errors as for `filter_grad`.

    **Returns** a function of the same arguments that returns `(value, gradient)`, or `((value, auxiliary), gradient)`
    with `has_aux`.

    >>> import equinox as eqx, jax.numpy as jnp
    >>> from remat.frameworks.equinox import filter_value_and_grad
    >>> value, gradient = filter_value_and_grad(lambda tree: tree["w"].sum() * tree["n"])({"w": jnp.ones(2), "n": 3})
    >>> float(value), gradient["w"].tolist(), gradient["n"]
    (6.0, [3.0, 3.0], None)
    """
    if fun is None:
        return functools.partial(filter_value_and_grad, has_aux=has_aux, policy=policy, **options)
    check_callable(fun, "filter_value_and_grad")
    if "argnums" in options:
        raise ArgumentError(
            "argnums is not an option of filter_value_and_grad, which differentiates the first argument. Collect what "
            "you need gradients of in a tuple, and pass that first."
        )
    return _named_like(_ValueAndGradient(fun, has_aux, resolve_policy(policy), options), fun)


def filter_checkpoint(fun: Any = None, *, policy: Any = None, prevent_cse: bool = True) -> Any:
    """`eqx.filter_checkpoint` for each policy: `remat.checkpoint` in which every leaf that is no array is static.

    **Arguments**: `fun` and `policy` as for `remat.checkpoint`; `prevent_cse` True or False.

    **Returns** a function of the same arguments and results; a decorator without `fun`.

    **Raises** `PolicyError` and `PolicyTypeError` for bad policies.

    >>> import equinox as eqx, jax, jax.numpy as jnp
    >>> from remat.frameworks.equinox import filter_checkpoint
    >>> repeat = filter_checkpoint(lambda x, times: sum(jnp.sin(x) for _ in range(times)), policy="balanced")
    >>> jax.grad(repeat)(0.0, 3).item()
    3.0
    """
    if fun is None:
        return functools.partial(filter_checkpoint, policy=policy, prevent_cse=prevent_cse)
    check_callable(fun, "filter_checkpoint")
    resolved = resolve_policy(policy)
    with_jax = functools.partial(jax.checkpoint, policy=jax_policy(resolved), prevent_cse=prevent_cse)
    region = Call(fun, Marks(resolved, prevent_cse), with_jax)

    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return region(flatten_arguments(fun, args, kwargs, eqx.is_array))

    return checkpointed


class _Wrapper(eqx.Module):
    """Modules, as Equinox's own wrappers are, so that the arrays of a module that is wrapped are inputs of a jit."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else eqx.Partial(self, instance)  # type: ignore[arg-type]


class _ValueAndGradient(_Wrapper):
    _fun: Callable[..., Any]
    _run: Any = eqx.field(static=True)
    _has_aux: bool = eqx.field(static=True)
    _policy: Any = eqx.field(static=True)
    _options: tuple[tuple[str, Any], ...] = eqx.field(static=True)

    def __init__(self, fun: Callable[..., Any], has_aux: bool, policy: Any, options: dict[str, Any]):
        self._fun = fun
        self._run = _of_parts(fun) if jax.tree_util.all_leaves([fun]) else None  # made once, so that it is traced once
        self._has_aux, self._policy, self._options = has_aux, policy, tuple(options.items())

    @property
    def __wrapped__(self) -> Any:
        return self._fun

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not args:
            raise ArgumentTypeError(
                f"the gradient of {function_name(self._fun)} was called without a positional argument. The first "
                "argument is differentiated, and must be passed by position."
            )
        differentiated, rest = eqx.partition(args[0], eqx.is_inexact_array)
        run = _of_parts(self._fun) if self._run is None else self._run
        both = value_and_grad(run, has_aux=self._has_aux, policy=self._policy, **dict(self._options))
        return both(differentiated, *jax.tree.map(_boxed, ((rest, *args[1:]), kwargs)))


class _Gradient(_Wrapper):
    _both: Callable[..., Any]
    _has_aux: bool = eqx.field(static=True)

    @property
    def __wrapped__(self) -> Any:
        return self._both

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        value, gradient = self._both(*args, **kwargs)
        return (gradient, value[1]) if self._has_aux else gradient


def _of_parts(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function, of the two parts of its first argument and the rest, in which what is no array is in a box."""

    @functools.wraps(fun)
    def of_parts(differentiated: Any, others: Any, kwargs: Any) -> Any:
        (rest, *args), kwargs = jax.tree.map(_unboxed, (others, kwargs))
        return fun(eqx.combine(differentiated, rest), *args, **kwargs)

    del of_parts.__wrapped__  # its arguments are not those of `fun`
    return of_parts


def _boxed(leaf: Any) -> Any:
    return leaf if eqx.is_array(leaf) else Box(leaf)


def _unboxed(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Box) else leaf


def _named_like(wrapper: Any, fun: Any) -> Any:
    return eqx.module_update_wrapper(wrapper) if hasattr(fun, "__name__") else wrapper
