"""`saved_residuals`: what is kept for the backward pass of a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from remat.checkpoint import checkpoint, resolve_policy
from remat.gradient_checks import check_argnums, choose_arguments
from remat.inspect.describe import describe_each
from remat.inspect.recomputation import recomputation_of
from remat.inspect.residuals import Residuals
from remat.inspect.shardings import Shardings
from remat.inspect.why import Made, why_kept
from remat.ir.keys import Keys
from remat.ir.ops import nested_programs
from remat.ir.program import Program
from remat.ir.types import is_differentiable
from remat.signature import flatten_arguments, function_name, leaves_of
from remat.targets.current import current_target
from remat.targets.measure import made_for
from remat.targets.target import Target, as_target
from remat.trace import trace_arguments
from remat.transforms.differentiate_program import split_program


def saved_residuals(
    fun: Callable[..., Any],
    /,
    *args: Any,
    policy: Any = None,
    target: Target | str | None = None,
    argnums: int | Sequence[int] | None = None,
    **kwargs: Any,
) -> Residuals:
    """What is kept for the backward pass when `fun` is differentiated.

    **Arguments**

    - `fun`: the function; checkpoint regions in it, ours and JAX's, act as they do under `remat.grad`.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `policy`: what is kept, as for `remat.grad(fun, policy=...)`: the function is one region. None leaves that to the
      regions in it.
    - `target`: for whose compiler, and by whose rates the time of what is recomputed is predicted. None is what JAX
      would run on. An argument of `fun` that has this name is given by its position.
    - `argnums`: the positional argument or arguments that are differentiated, as for `remat.grad`; None means all
      floating point arguments.

    **Returns** a `Residuals` sequence, which prints as a report. Sizes are predicted from the program, not measured.

    **Raises** what `remat.grad` raises for bad policies and `argnums`, and `TargetError` for bad targets.

    >>> import jax.numpy as jnp, remat
    >>> w, x = jnp.ones((5, 4)), jnp.ones(4)
    >>> [(r.type, r.origin.text, r.total_bytes) for r in remat.saved_residuals(lambda w, x: jnp.sin(w @ x), w, x)]
    [('f32[5,4]', 'w', 80), ('f32[4]', 'x', 16), ('f32[5]', 'cos', 20)]
    >>> [r.origin.text for r in remat.saved_residuals(lambda w, x: jnp.sin(w @ x), w, x, policy="nothing", argnums=0)]
    ['w', 'x']
    """
    return residuals_for(fun, args, kwargs, policy=policy, target=target, argnums=argnums)


def residuals_for(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    policy: Any = None,
    target: Target | str | None = None,
    argnums: int | Sequence[int] | None = None,
) -> Residuals:
    """The same, apart from what the function is called with."""
    chosen = current_target() if target is None else as_target(target)
    resolved = resolve_policy(policy)
    if resolved is not None:
        fun = checkpoint(fun, policy=resolved)
    arguments = flatten_arguments(fun, args, kwargs)
    active = [True for _ in arguments.leaves]
    if argnums is not None:
        positions = choose_arguments(fun, check_argnums(argnums)[0], args, kwargs)
        active = leaves_of(arguments, args, kwargs, positions)
    with made_for(chosen):
        program = trace_arguments(fun, arguments)
        types = program.input_types
        split = split_program(program, [a and is_differentiable(t) for a, t in zip(active, types, strict=True)])
    made = Made(split, program, function_name(fun), "none" if resolved is None else str(resolved), chosen)
    keys, shardings = Keys(split.linearized, arguments.names), Shardings(split.linearized, arguments.leaves)
    return Residuals(
        function=made.function,
        residuals=tuple([found for _, found in describe_each(split, program, keys, shardings)]),
        policy="" if resolved is None else made.policy,
        recomputation=recomputation_of(split, program, chosen),
        is_of_a_derivative=holds_a_backward_pass(program),
        ask=lambda value: why_kept(made, value, keys),
    )


def holds_a_backward_pass(program: Program) -> bool:
    """Whether a program was differentiated in reverse when it was traced: JAX writes it into the name scopes."""
    return any("transpose(jvp(" in e.source.own_scope for p in nested_programs([program]) for e in p.equations)
