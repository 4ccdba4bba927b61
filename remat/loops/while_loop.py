"""`bounded_while_loop`: a while loop that has a reverse-mode derivative, since it says how long it can get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from remat.checkpoint import checkpoint
from remat.errors import ArgumentError, ArgumentTypeError
from remat.loops.carry import settled
from remat.loops.nested import Step, run_plan
from remat.loops.plan import chosen_plan
from remat.signature import check_callable, function_name

CALLER = "remat.bounded_while_loop"


def bounded_while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    max_steps: int,
    *,
    segments: int | None = None,
    slots: int | None = None,
    levels: int | None = None,
    policy: Any = "nothing",
) -> Any:
    """`jax.lax.while_loop` with at most `max_steps` steps, which can be differentiated in reverse mode.

    It is a checkpointed scan over `max_steps` iterations that stops early: as soon as the condition is false, a segment
    does nothing but look at it, and so does its gradient. So the work is that of the steps that are taken, and the
    memory that of `max_steps` steps (see `remat.checkpointed_scan`). Under `jax.vmap`, segments are skipped once the
    condition is false for all; those that are done wait, and their state is not touched.

    **Arguments**

    - `cond`, `body`, `init`: as for `jax.lax.while_loop`. A step is never taken from a state for which `cond` is false
      (under `jax.vmap`, a step of one that is done is taken from its first state, and the result dropped).
    - `max_steps`: the loop ends after so many steps, even if the condition still holds; call `cond` with the result to
      know.
    - `segments`, `slots`, `levels`, `policy`: as for `remat.checkpointed_scan`.

    **Returns** the last state.

    **Raises** `ArgumentTypeError` for a state that changes its type (with the leaf), and for a condition that is not
    one boolean; `ArgumentError` as `remat.checkpointed_scan`.

    >>> import jax, remat
    >>> double = lambda x: remat.bounded_while_loop(lambda x: x < 100.0, lambda x: 2 * x, x, max_steps=64)
    >>> float(double(3.0)), float(jax.grad(double)(3.0))
    (192.0, 64.0)
    """
    for fun in (cond, body):
        check_callable(fun, CALLER)
    _check_bound(max_steps)
    plan = chosen_plan(CALLER, max_steps, segments, levels, slots)
    init = settled(CALLER, function_name(body), init, lambda state: jax.eval_shape(body, state))
    if not plan:
        return jax.tree.map(jnp.asarray, init)
    _check_condition(cond, init)
    first = jax.lax.stop_gradient(init)

    def step(carry: Any, _: Any) -> Any:
        state, going = carry
        # Mapped over a batch, some are done: what they do from here must be finite, so that its zero gradient is zero.
        new = _select(going, body(_select(going, state, first)), state)
        return (new, jnp.logical_and(going, cond(new))), None

    region = checkpoint(skipped_when_done(step), policy=policy, prevent_cse=False)
    carry = (init, jnp.asarray(cond(init)))
    (state, _), _ = run_plan(plan, region, carry, None, False, skipped_when_done)
    return state


def skipped_when_done(step: Step) -> Step:
    """The step or segment if the loop goes on, else nothing."""

    def maybe(carry: Any, xs: Any) -> Any:
        run = lambda carry: step(carry, xs)[0]  # noqa: E731
        return jax.lax.cond(_any_of_batch(carry[1]), run, lambda carry: carry, carry), None

    return maybe


@jax.custom_batching.custom_vmap
def _any_of_batch(going: Any) -> Any:
    """The condition; of a batch, whether any goes on. A `cond` on it stays one where a batch would make it a select."""
    return going


@_any_of_batch.def_vmap
def _(size: int, batched: list[bool], going: Any) -> tuple[Any, bool]:
    return _any_of_batch(jnp.any(going, axis=0)), False


def _select(going: Any, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jax.lax.select(jnp.broadcast_to(going, jnp.shape(a)), a, b), yes, no)


def _check_bound(max_steps: Any) -> None:
    if isinstance(max_steps, bool) or not hasattr(max_steps, "__index__"):
        raise ArgumentTypeError(
            f"max_steps of {CALLER} must be an integer, as memory is laid out for so many steps, but is {max_steps!r}."
        )
    if max_steps < 0:
        raise ArgumentError(f"max_steps of {CALLER} must be 0 or more, but is {max_steps}.")


def _check_condition(cond: Callable[[Any], Any], init: Any) -> None:
    found = jax.eval_shape(cond, init)
    if getattr(found, "shape", None) != () or found.dtype != jnp.bool_:
        raise ArgumentTypeError(
            f"{CALLER}: the condition must be one boolean, but {function_name(cond)} returns {found}. Reduce it with "
            "jnp.any or jnp.all, or map the loop with jax.vmap."
        )
