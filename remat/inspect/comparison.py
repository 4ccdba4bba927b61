"""Policies side by side, as data: what each keeps, recomputes and takes at the peak, and which are worth having."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from remat.checkpoint import resolve_policy
from remat.decisions import Policy
from remat.errors import (
    ArgumentError,
    ArgumentTypeError,
    RematWarning,
    TargetError,
    TargetUnavailableError,
)
from remat.inspect.planned import Loss, Planned
from remat.inspect.residuals import residuals_of
from remat.inspect.step_times import step_times
from remat.inspect.timeline import policy_text
from remat.ir.costs import dot_flops
from remat.planning.seconds import Rates
from remat.simulate.live_bytes import simulate_split
from remat.targets.current import current_target
from remat.targets.measure import made_for, measure, versions_of
from remat.targets.target import Target, as_target
from remat.units import parse_bytes

POLICIES = (None, "dots", "balanced", "nothing", "segments:nothing")
SCHEMA = "remat.compare/1"
TOLERANCE = 0.02
"""By how much bytes may grow before `against` says so."""


@dataclass(frozen=True)
class Row:
    """What one policy does. Figures that are not known are None: all of a policy that failed, measured ones that
    nobody asked for.

    **Attributes**

    - `policy`: its short form, `none` for no policy.
    - `kept_bytes`, `host_bytes`: what is kept for the backward pass on the device and in the host's memory.
    - `dot_flops`: operations in products and convolutions of both passes, loops multiplied. `recomputed_flops`: how
      many more than without a policy; less than zero if it recomputes less than regions in the function do.
    - `peak_bytes`: simulated, what the program takes besides the arguments: its results, and the rest at its worst.
      `live_bytes`: the same measured, which is temporaries and results of the compiled program.
    - `seconds`: of both passes by the target's peak rates, for comparing.
      `step_seconds`, `step_spread`: measured, where the target is the device that is there: the median of a few steps
      and half the distance between quartiles.
    - `total_bytes`: with the arguments, measured where it can be: what has to fit into a device.
    - `front`: whether no other row needs less of bytes and time (recomputation, where times are not known).
    - `warnings`: what remat warned of. `error`: why there are no figures, or no measured ones.
    """

    policy: str
    kept_bytes: int | None = None
    host_bytes: int | None = None
    dot_flops: int | None = None
    recomputed_flops: int | None = None
    peak_bytes: int | None = None
    live_bytes: int | None = None
    total_bytes: int | None = None
    seconds: float | None = None
    step_seconds: float | None = None
    step_spread: float | None = None
    front: bool = False
    warnings: tuple[str, ...] = ()
    error: str | None = None

    @property
    def bytes(self) -> int | None:
        """Measured if there, else simulated."""
        return self.peak_bytes if self.live_bytes is None else self.live_bytes


@dataclass(frozen=True)
class Fit:
    """Which rows fit into so many bytes, arguments included; `str` is a sentence that says so.

    `rows` are those that fit, the one that recomputes least first. `smallest` is the row that takes least, whether it
    fits or not; None if no policy has figures.
    """

    limit_bytes: int
    rows: tuple[Row, ...]
    smallest: Row | None
    count: int
    measured: bool

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __str__(self) -> str:
        from remat.report.comparison import fit_text

        return fit_text(self)


@dataclass(frozen=True)
class Change:
    """A policy whose bytes were other ones before; None if it failed or was not there. `worse`: by too much."""

    policy: str
    before: int | None
    after: int | None
    worse: bool

    def __str__(self) -> str:
        from remat.report.comparison import change_text

        return change_text(self)


@dataclass(frozen=True)
class Comparison(Sequence[Row]):
    """One row for each policy, in the order in which they were given.

    **Attributes**

    - `function`, `target`: what was differentiated, and for which compiler. `argument_bytes`: what the caller holds.
    - `measured`: whether programs were compiled. Then the front and `fits` are about measured bytes.
    - `versions`: of what made the figures.
    """

    function: str
    target: str
    argument_bytes: int
    measured: bool
    rows: tuple[Row, ...]
    versions: tuple[tuple[str, str], ...]

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def fits(self, limit: str | int) -> Fit:
        """The policies under which the function fits into a memory, arguments included: `fits("16GiB")`.

        **Raises** `ArgumentError`, `ArgumentTypeError` for what is no size.
        """
        size = parse_bytes(limit)
        known = sorted([r for r in self._usable if r.total_bytes is not None], key=_total)
        fitting = [r for r in known if _total(r) <= size]
        fitting.sort(key=lambda r: (r.recomputed_flops or 0, r.seconds or 0.0, _total(r)))
        return Fit(size, tuple(fitting), known[0] if known else None, len(self.rows), self.measured)

    @property
    def _usable(self) -> list[Row]:
        """The rows with the figure that this comparison is about."""
        return [r for r in self.rows if r.error is None]

    def against(self, old: Comparison, tolerance: float = TOLERANCE) -> list[Change]:
        """How the bytes of each policy have changed since an older comparison: measured bytes if both have them,
        simulated ones otherwise.

        **Arguments**

        - `old`: of the same target; policies that it does not have are left out.
        - `tolerance`: a change is `worse` if bytes are over the old ones by more than this part, or are gone.

        **Raises** `ArgumentError` if the targets differ.
        """
        if old.target != self.target:
            raise ArgumentError(
                f"a comparison for {self.target} cannot be held against one for {old.target}: their compilers differ. "
                "Compare for the same target."
            )
        measured = self.measured and old.measured
        before = {r.policy: r for r in old.rows}
        changes = []
        for row in self.rows:
            if row.policy in before:
                then, now = (_figure(r, measured) for r in (before[row.policy], row))
                worse = then is not None and (now is None or now > then * (1 + tolerance))
                if worse or then != now:
                    changes.append(Change(row.policy, then, now, worse))
        return changes

    def plot(self, path: str) -> None:
        """Draw bytes against time into a file (`.svg`, `.png`, `.pdf`); the front is a line. Needs matplotlib."""
        from remat.report.plot import plot_comparison

        plot_comparison(self, path)

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        data = {
            "schema": SCHEMA,
            "function": self.function,
            "target": self.target,
            "argument_bytes": self.argument_bytes,
            "measured": self.measured,
            "versions": dict(self.versions),
            "rows": [asdict(r) for r in self.rows],
        }
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """What `to_json` wrote. **Raises** `ArgumentError` for anything else."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ArgumentError(f"this is no JSON ({error}), but must be what Comparison.to_json wrote.") from None
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            raise ArgumentError(f"this is JSON with the schema {schema!r}, but must be {SCHEMA!r}.")
        known = {f.name for f in fields(Row)}
        rows: list[dict[str, Any]] = [
            {**{k: v for k, v in r.items() if k in known}, "warnings": tuple(r.get("warnings", ()))}
            for r in data["rows"]
        ]
        return cls(
            function=data["function"],
            target=data["target"],
            argument_bytes=data["argument_bytes"],
            measured=data["measured"],
            rows=tuple(Row(**r) for r in rows),
            versions=tuple(data["versions"].items()),
        )

    def __str__(self) -> str:
        from remat.report.comparison import comparison_text

        return comparison_text(self)


def _total(row: Row) -> int:
    return row.total_bytes or 0


def _figure(row: Row, measured: bool) -> int | None:
    if measured:
        return None if row.error is not None else row.live_bytes
    return row.peak_bytes


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
