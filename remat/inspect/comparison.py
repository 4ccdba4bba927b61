"""Policies side by side, as data: what each keeps, recomputes and takes at the peak, and which are worth having."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from remat.errors import ArgumentError
from remat.inspect.json_text import read_json
from remat.units import parse_bytes

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
        data = read_json(text, SCHEMA, "Comparison.to_json")
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
