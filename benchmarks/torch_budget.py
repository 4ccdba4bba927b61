"""Budgets against those of torch: what is recomputed at as many saved bytes, and what becomes of the peak.

    python benchmarks/torch_budget.py [--only TEXT] [--json [FILE]]

Needs torch beside JAX (`pip install torch`, the CPU build does); nothing runs or is compiled. Three nets are written
twice, operation by operation (`torch_nets`), in 32 bits. Torch cuts each at ten values of `activation_memory_budget`,
which is a part of what its fastest plan saves. Then remat is given the bytes that torch saves:

- *plan*: `remat.plan(budget=<bytes>, of="saved")`, which minimizes seconds and chooses from its list of plans;
- *best set*: the set of values that remat's solver finds for exactly that limit, with torch's measure of time:
  operations in products, and one for any other operation.

Shown are MiB saved, GFLOP of products that run twice, and MiB of the peak of the backward graph, operation by
operation, gradients included. Neither side counts inputs of the loss or views of them (torch's own figure has
transposed weights). A row is lost (`!`) where remat saves or recomputes more than 1.001 of what torch does.

The peak by operation is not what a compiler takes, and no budget of remat's is about it. So a second table gives
`remat.plan` ten budgets for the peak that it simulates of XLA's program. Torch has no budget for a peak: its first
table's column is what its budgets do to it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from partition import Partition

import remat

SCHEMA = "remat.torch-budget/1"
FRACTIONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
MIB, GFLOP = 2**20, 1e9
EQUAL = 1.001
"""How much more still counts as equal: the gap that remat's solver leaves."""
FIGURES = f"{'MiB':>7s} {'GFLOP':>6s} {'peak':>6s} "
HEADER = (
    f"{'':6s} {'torch':>14s} {'':7s} {'plan':>14s} {'':7s} {'best set':>14s}\n"
    f"{'budget':>6s} {FIGURES} {FIGURES} {FIGURES}"
)
PEAK_HEADER = f"{'budget':>8s} {'simulated':>9s} {FIGURES}"


@dataclass(frozen=True)
class Point:
    """One value of torch's budget: what torch does, and remat at as many saved bytes."""

    net: str
    fraction: float
    torch: Partition
    plan: Partition
    best_set: Partition

    def lost(self, ours: Partition) -> list[str]:
        """In words, what remat has more of than torch."""
        pairs = {
            "MiB saved": (ours.saved_bytes / MIB, self.torch.saved_bytes / MIB),
            "GFLOP": (ours.recomputed_flops / GFLOP, self.torch.recomputed_flops / GFLOP),
        }
        return [f"{our:.2f} against {their:.2f} {what}" for what, (our, their) in pairs.items() if our > EQUAL * their]

    def __str__(self) -> str:
        marks = "".join(" !" if self.lost(p) else "  " for p in (self.plan, self.best_set))
        return f"{self.fraction:6.2f} {_columns(self.torch)} {_columns(self.plan)} {_columns(self.best_set)}{marks}"


@dataclass(frozen=True)
class PeakPoint:
    """One budget for the peak: `peak_bytes` are simulated, of what XLA makes of the plan; `partition` is counted as for
    torch."""

    net: str
    budget_bytes: int
    peak_bytes: int
    partition: Partition

    def __str__(self) -> str:
        return f"{self.budget_bytes / MIB:8.1f} {self.peak_bytes / MIB:9.1f} {_columns(self.partition)}"


@dataclass(frozen=True)
class Figures:
    """All of it, with the versions that it was made with."""

    versions: dict[str, str]
    points: tuple[Point, ...]
    peaks: tuple[PeakPoint, ...]

    @property
    def nets(self) -> list[str]:
        return list(dict.fromkeys(p.net for p in self.points))

    def of(self, net: str) -> tuple[list[Point], list[PeakPoint]]:
        return [p for p in self.points if p.net == net], [p for p in self.peaks if p.net == net]

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Figures:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(
                f"figures have the schema {data['schema']!r} where {SCHEMA!r} was expected: make them anew"
            )
        sides = ("torch", "plan", "best_set")
        points = [Point(p["net"], p["fraction"], *(Partition(**p[side]) for side in sides)) for p in data["points"]]
        peaks = [PeakPoint(**{**p, "partition": Partition(**p["partition"])}) for p in data["peaks"]]
        return cls(data["versions"], tuple(points), tuple(peaks))


def _columns(partition: Partition) -> str:
    saved, peak = partition.saved_bytes / MIB, partition.backward_peak / MIB
    return f"{saved:7.2f} {partition.recomputed_flops / GFLOP:6.2f} {peak:6.1f} "


def falls(peaks: Sequence[int]) -> int:
    """How often a peak is lower than the one before it, though its budget is larger."""
    return sum(b < a for a, b in pairwise(peaks))


def summary(figures: Figures) -> list[str]:
    """What the figures say, net by net, each sentence worked out from them."""
    lines: list[str] = []
    for net in figures.nets:
        points, peaks = figures.of(net)
        plans, sets = ([p for p in points if not p.lost(side(p))] for side in (_plan, _best_set))
        lower = [p for p in points if p.best_set.backward_peak <= EQUAL * p.torch.backward_peak]
        torch_falls, our_falls = falls([p.torch.backward_peak for p in points]), falls([p.peak_bytes for p in peaks])
        lines.append(
            f"{net}: plan equal or better at {len(plans)} of {len(points)}, best set at {len(sets)} of {len(points)}; "
            f"backward peak of the best set no higher at {len(lower)} of {len(points)}; steps to a larger budget at "
            f"which the peak falls: torch {torch_falls}, remat {our_falls}"
        )
    return lines


def _plan(point: Point) -> Partition:
    return point.plan


def _best_set(point: Point) -> Partition:
    return point.best_set


def losses(figures: Figures) -> Iterator[str]:
    """Where remat needs more bytes or operations than torch, and where its backward peak is higher."""
    for point in figures.points:
        for name, side in (("plan", point.plan), ("best set", point.best_set)):
            more = point.lost(side)
            if side.backward_peak > EQUAL * point.torch.backward_peak:
                peaks = (f"{p.backward_peak / MIB:.1f}" for p in (side, point.torch))
                more.append(f"backward peak {' against '.join(peaks)} MiB")
            for words in more:
                yield f"{point.net} at {point.fraction:g}, {name}: {words}"


def measured(
    twin: Any, fractions: Sequence[float] = FRACTIONS, budgets: int = 10
) -> tuple[list[Point], list[PeakPoint]]:
    """The figures of one net."""
    from remat_partition import Measured
    from torch_partition import partition_of

    ours, tensors = Measured(twin.in_jax, twin.shapes), twin.tensors()
    points: list[Point] = []
    for fraction in fractions:
        theirs = partition_of(twin.in_torch, tensors, fraction)
        assert theirs.plain_flops == ours.plain_flops, f"{twin.name} is not the same net in torch and in JAX"
        plan = ours.partition(ours.plan(theirs.saved_bytes, "saved").policy)
        best = ours.partition(ours.best_for_torch(theirs.saved_bytes))
        points.append(Point(twin.name, fraction, theirs, plan, best))
        print(points[-1], flush=True)
    front = remat.pareto(twin.in_jax, *twin.shapes, target="cpu")
    peaks: list[PeakPoint] = []
    for limit in np.linspace(front[-1].peak_bytes, front[0].peak_bytes, budgets):
        plan = ours.plan(int(np.ceil(limit)), "peak")
        peaks.append(PeakPoint(twin.name, plan.budget_bytes, plan.choice.peak_bytes, ours.partition(plan.policy)))
    return points, peaks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only nets whose name contains this")
    parser.add_argument("--json", nargs="?", const="", help="write all figures to this file (torch-budget.json)")
    options = parser.parse_args()
    import torch
    from torch_nets import TWINS

    points: list[Point] = []
    peaks: list[PeakPoint] = []
    for twin in TWINS:
        if options.only not in twin.name:
            continue
        print(twin.name, HEADER, sep="\n")
        found = measured(twin)
        points += found[0]
        peaks += found[1]
        print(PEAK_HEADER, *found[1], sep="\n", flush=True)
    versions = {"torch": str(torch.__version__), "jax": jax.__version__, "remat": remat.__version__}
    figures = Figures(versions, tuple(points), tuple(peaks))
    print(*summary(figures), *losses(figures), sep="\n")
    if options.json is not None:
        path = Path(options.json or Path(__file__).parent / "torch-budget.json")
        path.write_text(figures.to_json())


if __name__ == "__main__":
    main()
