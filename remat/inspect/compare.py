"""Comparing policies: each is traced, split and simulated, and if asked compiled and run."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remat.checkpoint import resolve_policy
from remat.decisions import Policy
from remat.errors import ArgumentError, ArgumentTypeError, RematWarning, TargetError, TargetUnavailableError
from remat.inspect.comparison import Comparison, Row
from remat.inspect.describe import residuals_of
from remat.inspect.planned import Loss, Planned
from remat.inspect.step_times import step_times
from remat.inspect.timeline import policy_text
from remat.ir.costs import dot_flops
from remat.planning.seconds import Rates
from remat.simulate.live_bytes import simulate_split
from remat.targets.current import current_target
from remat.targets.measure import made_for, measure, versions_of
from remat.targets.target import Target, as_target

POLICIES = (None, "dots", "balanced", "nothing", "segments:nothing")


def compare(
    fun: Callable[..., Any],
    args: Sequence[Any],
    policies: Sequence[Any] = POLICIES,
    *,
    kwargs: Mapping[str, Any] | None = None,
    argnums: int | Sequence[int] = 0,
    target: Target | str | None = None,
    measure: bool = False,
    run: bool = False,
) -> Comparison:
    """What `remat.value_and_grad(fun, argnums, policy=p)` keeps, recomputes and takes, for each of some policies.

    **Arguments**

    - `fun`: a function that returns a floating point scalar.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `policies`: None, strings, policy objects. One that fails is a row with an `error`.
    - `argnums`: the arguments that are differentiated.
    - `target`: for whose compiler, as for `remat.measure`. None is what JAX would run on.
    - `measure`: whether programs are compiled for it too, which takes its time. Otherwise peaks are simulated: of
      arrays that are sharded they then are those of all devices together.

    - `run`: whether steps are run too, in turns, on the device that is there; it has to be the target.

    **Returns** a `Comparison`, which prints as a table. What remat warns of is in its rows.

    **Raises** what `remat.value_and_grad` raises for bad functions, arguments and `argnums`, `TargetError` for bad
    targets, `TargetUnavailableError` for one whose compiler is not installed if programs are compiled, and
    `ArgumentTypeError` for what is no sequence of arguments or policies.

    >>> import jax, jax.numpy as jnp, remat
    >>> def loss(ws, x):
    ...     for w in ws:
    ...         x = jnp.sin(jnp.tanh(x @ w))
    ...     return x.sum()
    >>> f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    >>> args = [f32(64, 64)] * 4, f32(64, 64)
    >>> comparison = remat.compare(loss, args, [None, "dots", "nothing"], target="cpu")
    >>> [(row.policy, row.kept_bytes, row.recomputed_flops) for row in comparison][1:]
    [('dots', 65536, 0), ('nothing', 0, 2097152)]
    >>> print(comparison.fits("1 MiB"))
    3 of 3 policies fit into 1.0 MiB, arguments included (simulated); none
    recomputes least: it takes 208.0 KiB.
    """
    _check_sequences(args, policies)
    chosen = as_target(target)
    if run and chosen.platform != Target.of_default_device().platform:
        raise ArgumentError(
            f"steps cannot be run for {chosen}: the device that is there is {Target.of_default_device()}. Leave out "
            "run=True, or the target."
        )
    return compare_loss(
        Loss.of("remat.compare", fun, tuple(args), dict(kwargs or {}), argnums), policies, chosen, measure, run
    )


def compare_loss(
    loss: Loss, policies: Sequence[Any], chosen: Target, measure: bool, run: bool = False, base: Planned | None = None
) -> Comparison:
    """The comparison for a loss; `base` is what runs without a policy, where that is known."""
    with made_for(chosen), _quiet():
        base = base or loss.under(None)
        rows = [_row(loss, base, p, chosen if measure else None) for p in policies]
        rows = _with_times(rows, loss, policies) if run else rows
    return Comparison(
        function=loss.function,
        target=str(chosen),
        argument_bytes=base.argument_bytes,
        measured=measure,
        rows=_with_front(rows),
        versions=versions_of("remat", "jax", "jaxlib"),
    )


def _check_sequences(args: Any, policies: Any) -> None:
    if not isinstance(args, (tuple, list)):
        raise ArgumentTypeError(
            f"the arguments of the function are passed as one tuple, but got {args!r:.60} of type "
            f"{type(args).__name__}: write remat.compare(fun, (x, y), [...])."
        )
    if isinstance(policies, str) or not isinstance(policies, Sequence):
        raise ArgumentTypeError(
            f"policies must be a list of policies, but got {policies!r:.60} of type {type(policies).__name__}. "
            'Write policies=[None, "dots"].'
        )


def _row(loss: Loss, base: Planned, given: Any, target: Target | None) -> Row:
    """The row of a policy; `target` is what to compile for, if at all."""
    row = Row(given if isinstance(given, str) else policy_text(given))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            policy = resolve_policy(given)
            row = replace(row, policy=policy_text(policy))
            row = _planned(row, base if policy is None else loss.under(policy), base)
            row = row if target is None else _measured(row, loss, policy, target)
        except (TargetError, TargetUnavailableError):  # no policy's fault
            raise
        except Exception as error:  # whatever it is, the other policies have their rows
            row = replace(row, error=f"{type(error).__name__}: {error}")
    texts = [str(w.message) for w in caught if issubclass(w.category, RematWarning)]
    for w in caught:
        if not issubclass(w.category, RematWarning):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno, source=w.source)
    return replace(row, warnings=tuple(dict.fromkeys(texts)))


def _planned(row: Row, planned: Planned, base: Planned) -> Row:
    kept = residuals_of(planned.split, planned.program, planned.loss.function)
    flops, peak = _flops(planned), simulate_split(planned.split).set_aside
    return replace(
        row,
        kept_bytes=kept.new_bytes - kept.offloaded_bytes,
        host_bytes=kept.offloaded_bytes,
        dot_flops=flops,
        recomputed_flops=flops - _flops(base),
        peak_bytes=peak,
        total_bytes=peak + planned.argument_bytes,
        seconds=_seconds(planned),
    )


def _seconds(planned: Planned) -> float:
    rates = Rates.of(current_target())
    return rates.program(planned.split.forward) + rates.program(planned.split.second)


def _with_times(rows: list[Row], loss: Loss, policies: Sequence[Any]) -> list[Row]:
    """The rows with measured times; those that failed stay as they are."""
    numbers = [i for i, row in enumerate(rows) if row.error is None]
    candidates = {str(i): loss.gradient(resolve_policy(policies[i])) for i in numbers}
    times = step_times(candidates, loss.leaves)
    measured = {int(i): (t.seconds, t.spread) for i, t in times.items()}
    return [
        replace(row, step_seconds=measured[i][0], step_spread=measured[i][1]) if i in measured else row
        for i, row in enumerate(rows)
    ]


def _measured(row: Row, loss: Loss, policy: Policy | None, target: Target) -> Row:
    found = measure(loss.gradient(policy), *loss.leaves, target=target)
    if found.error is not None:
        return replace(row, total_bytes=None, error=f"the compiler refuses the program: {found.error}")
    return replace(row, live_bytes=found.live_bytes, total_bytes=found.total_bytes)


def _flops(planned: Planned) -> int:
    return round(dot_flops(planned.split.forward) + dot_flops(planned.split.second))


def _with_front(rows: list[Row]) -> tuple[Row, ...]:
    """Mark the rows that no other one is better than in one respect and as good in the other."""
    known = all(r.seconds is not None for r in rows if r.error is None)
    points = {i: (r.bytes, r.seconds if known else r.recomputed_flops) for i, r in enumerate(rows) if r.error is None}

    def is_beaten(point: Any) -> bool:
        return any(p != point and p[0] <= point[0] and p[1] <= point[1] for p in points.values())

    return tuple(replace(r, front=i in points and not is_beaten(points[i])) for i, r in enumerate(rows))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings of remat: what there is to warn of stands in the rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RematWarning)
        yield
