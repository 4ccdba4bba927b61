"""`checkpoint` and `checkpoint_name`: regions, and names for the values in them.

A region is a primitive of our own (`remat.region_primitive`), so it works under every JAX transformation and in code
that never heard of remat; its derivative is our split (`transforms.region_derivative`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, overload

import jax
from jax.extend import source_info_util

from remat import jax_compat
from remat.decisions import (
    JaxPolicy,
    Policy,
    as_policy,
    constructor_name,
)
from remat.errors import ArgumentError, ArgumentTypeError
from remat.graph_nodes import call_with_states, holds_nodes, owner_of, with_states
from remat.libraries import numbers_in_modules
from remat.policies.algebra import Both, Combinable, Either
from remat.policies.parse import parse
from remat.region_primitive import Marks
from remat.regions import Call
from remat.signature import call_text, flatten_arguments, is_array, leaf_text
from remat.statics import Statics
from remat.targets.target import Target, as_target
from remat.trace import ValueNeeded, values_at_hand
from remat.transforms import region_derivative  # noqa: F401  (gives regions their derivative)

source_info_util.register_exclusion(__file__)  # a name is reported at the line that gives it

P = ParamSpec("P")
R = TypeVar("R")


@overload
def checkpoint(
    fun: Callable[P, R],
    /,
    *,
    policy: Any = None,
    prevent_cse: Any = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[P, R]: ...
@overload
def checkpoint(
    fun: None = None,
    /,
    *,
    policy: Any = None,
    prevent_cse: Any = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    target: Target | str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checkpoint(
    fun: Any = None,
    /,
    *,
    policy: Any = None,
    prevent_cse: Any = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    target: Target | str | None = None,
) -> Any:
    """Make a function a region whose intermediate values are recomputed in the backward pass, but for those that
    `policy` keeps.

    **Arguments**

    - `fun`: the function. Without it, a decorator is returned: `@checkpoint` and `@checkpoint(policy=...)` both work.
    - `policy`: a member of `remat.policies`, its string form (`"dots"`, `"names:a,b"`), a member of
      `jax.checkpoint_policies`, or a function in JAX's protocol. None keeps nothing but the inputs.
    - `prevent_cse`: whether XLA is kept from merging the recomputation with the forward pass. True is right, except
      where nothing could be merged (inside `scan`, where remat leaves it out by itself). A pytree prefix of the
      arguments gives an answer for each argument.
    - `static_argnums`, `static_argnames`: arguments that are Python values and not arrays, by position or by name.
      They may be passed by position or by keyword, and need not be hashable.
    - `target`: what the derivative is made for, a `remat.Target` or its name. None is the device JAX would run on,
      or the target of a `remat.measure` around.

    Python booleans and leaves that are no arrays (strings, functions, None) are static without being declared, and in
    Equinox modules all numbers are. Modules of Flax nnx may be arguments, and `fun` may be one or a method of one:
    their state is updated.

    **Returns** a function of the same arguments and results. Under the outermost of several nested regions, its
    policy decides for all of them.

    **Raises** `PolicyTypeError`, `PolicyError` for bad policies, `ArgumentError`, `ArgumentTypeError` for bad static
    arguments.

    >>> import jax.numpy as jnp, remat
    >>> @remat.checkpoint(policy="dots")
    ... def layer(w, x):
    ...     return jnp.tanh(w @ x)
    >>> remat.grad(lambda w: layer(w, jnp.ones(2)).sum())(jnp.zeros((2, 2))).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    if fun is None:
        return functools.partial(
            checkpoint,
            policy=policy,
            prevent_cse=prevent_cse,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            target=target,
        )
    if not callable(fun) or _is_policy(fun):
        raise ArgumentTypeError(
            f"remat.checkpoint takes a function, but got {fun!r} of type {type(fun).__name__}. Options are passed by "
            "keyword: remat.checkpoint(fun, policy=...), or @remat.checkpoint(policy=...) above a function."
        )
    marks = marks_of(policy, target)
    statics = Statics.of(fun, static_argnums, static_argnames)
    _check_prevent_cse(prevent_cse)
    of_states = with_states(fun)

    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if owner_of(fun) is None and not holds_nodes((args, kwargs)):
            return _call_region(fun, marks, prevent_cse, statics, args, kwargs)
        return call_with_states(
            lambda args, kwargs: _call_region(of_states, marks, prevent_cse, statics, args, kwargs), fun, args, kwargs
        )

    return checkpointed


def checkpoint_name(x: Any, name: Any) -> Any:
    """Give a value a name that policies can ask for. It is the identity.

    **Arguments**

    - `x`: an array or a pytree; each array leaf gets the name, other leaves pass through.
    - `name`: usually a string.

    **Returns** `x`, named. Code after it has to use the returned value: the name is on the result, not on `x`.

    **Raises** `ArgumentTypeError` for a name that cannot be hashed, and when `x` is a single leaf that is no array.

    >>> import jax.numpy as jnp, remat
    >>> f = lambda x: remat.checkpoint_name(jnp.sin(x), "s") * 2
    >>> print(remat.trace(f)(1.0))
    program(a: f32[])
      b: f32[] = sin a
      c: f32[] = name[s] b
      d: f32[] = mul c 2.0
      return d
    """
    leaves = jax.tree.leaves(x)
    if len(leaves) == 1 and leaves[0] is x and not is_array(x):
        raise ArgumentTypeError(
            f"checkpoint_name was to name {leaf_text(x)}, which is no array. The value comes first, then the name: "
            "checkpoint_name(x, 'name')."
        )
    if not isinstance(name, Hashable) or hasattr(name, "aval"):
        raise ArgumentTypeError(
            f"the name of a checkpoint_name must be hashable, but is {name!r}. Use a string: "
            "checkpoint_name(x, 'name')."
        )
    return jax.tree.map(lambda leaf: jax_compat.checkpoint_name(leaf, name) if is_array(leaf) else leaf, x)


def marks_of(policy: Any, target: Target | str | None) -> Marks:
    """The marks of a region under whatever policy and target a user may give."""
    return Marks(resolve_policy(policy), target=None if target is None else as_target(target))


def resolve_policy(policy: Any) -> Policy | None:
    """A policy object from whatever a user may give; None stays None."""
    if policy is None:
        return None
    if isinstance(policy, str):
        return parse(policy)
    return as_policy(policy)


def _is_policy(fun: Any) -> bool:
    """Whether a policy was given where a function belongs; policies are callable too."""
    theirs = any(fun is known for known in vars(jax.checkpoint_policies).values())
    return isinstance(fun, Combinable) or constructor_name(fun) is not None or theirs


def _check_prevent_cse(prevent_cse: Any) -> None:
    flags = jax.tree.leaves(prevent_cse) if isinstance(prevent_cse, (bool, tuple, list)) else []
    if not flags or not all(isinstance(f, bool) for f in flags):
        raise ArgumentTypeError(
            "prevent_cse must be True, False, or a tuple with such an answer for each positional argument (a pytree "
            f"prefix), but is {prevent_cse!r}."
        )


def _call_region(
    fun: Callable[..., Any],
    marks: Marks,
    prevent_cse: Any,
    statics: Statics,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Bind the region for one call."""
    args, kwargs = statics.wrap(args, kwargs)
    if values_at_hand.get() and statics.are_traced(args, kwargs):
        raise ValueNeeded("a static argument of a checkpoint")
    arguments = flatten_arguments(fun, args, kwargs).with_static(numbers_in_modules((args, kwargs)))
    flags = prevent_cse if isinstance(prevent_cse, bool) else _flags_of_leaves(prevent_cse, args, arguments)
    with_jax = functools.partial(jax.checkpoint, policy=jax_policy(marks.policy), prevent_cse=flags)
    return Call(fun, replace(marks, prevent_cse=flags), with_jax, statics)(arguments)


def _flags_of_leaves(prefix: Any, args: tuple[Any, ...], arguments: Any) -> tuple[bool, ...]:
    """`prevent_cse` for each traced leaf; leaves of keyword arguments get True."""
    try:
        full = jax.tree.map(lambda flag, part: jax.tree.map(lambda _: flag, part), tuple(prefix), args)
    except ValueError as error:
        raise ArgumentError(
            f"prevent_cse={prefix!r} does not fit the call {call_text(arguments.function, args, {})}: {error}\nGive an "
            "answer for each positional argument (or each leaf of it), or True or False for all."
        ) from None
    flags = jax.tree.leaves(full)
    static = arguments.structure.statics
    chosen = [f for i, f in enumerate(flags) if i not in static]
    return tuple(chosen + [True] * (len(arguments.leaves) - len(chosen)))


def jax_policy(policy: Policy | None) -> Any:
    """The policy for JAX's own checkpoint, which asks about one equation at a time."""
    if policy is None:
        return None
    if isinstance(policy, JaxPolicy):
        return policy.callable
    make = getattr(policy, "as_jax", None)
    found = make() if make is not None else None
    if found is not None:
        return found
    return policy if _looks_at_one_equation(policy) else None


def _looks_at_one_equation(policy: Any) -> bool:
    if isinstance(policy, (Either, Both)):
        return all(map(_looks_at_one_equation, policy.policies))
    if isinstance(policy, Combinable):
        return type(policy).__call__ is not Combinable.__call__
    return isinstance(policy, JaxPolicy) or callable(policy)
