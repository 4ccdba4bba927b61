"""The README's picture of policies and plans, and its figures: bytes against time, simulated for a device not here.

    python benchmarks/picture.py [FILE]

The net is the decoder of training size from `training_nets.py` as a scan, for one TPU v5e. A point for each policy is a
row of `remat.compare`, the line are the plans of `remat.pareto`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import matplotlib
from matplotlib.figure import Figure
from training_nets import TRAINING_NETS

import remat

TARGET = "tpu:v5e:1x1"
POLICIES = [None, "dots", "dots_no_batch", "balanced", "nothing"]
DEFAULT = Path(__file__).parent.parent / "docs" / "pictures" / "plans.svg"
GIB = 2**30
LINE, POINT = "#0b6e99", "#c8553d"


def main() -> None:
    net = next(n for n in TRAINING_NETS if n.name == "decoder scan")
    loss = net.loss(lambda layer: layer)
    comparison = remat.compare(loss, net.shapes, POLICIES, target=TARGET)
    plans = remat.pareto(loss, *net.shapes, target=TARGET)
    least = min([c.seconds for c in plans] + [r.seconds for r in comparison if r.seconds])

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    points = [(c.peak_bytes / GIB, c.seconds / least) for c in plans]
    axes.step(*zip(*points, strict=True), where="pre", color=LINE, linewidth=1.2, zorder=1)
    axes.scatter(*zip(*points, strict=True), color=LINE, s=18, zorder=2, label='plans: policy="budget:..."')
    for row in comparison:
        if row.peak_bytes is not None and row.seconds is not None:
            at = row.peak_bytes / GIB, row.seconds / least
            axes.scatter(*at, color=POINT, s=30, marker="s", zorder=3)
            axes.annotate(row.policy, at, xytext=(6, 4), textcoords="offset points", fontsize=9, color=POINT)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    axes.set_xlabel("GiB at the peak besides arguments, simulated")
    axes.set_ylabel("time by peak rates, least is 1")
    axes.set_title(f"a decoder of eight layers as a scan, {TARGET}", fontsize=10)
    axes.grid(alpha=0.25)
    axes.margins(x=0.1, y=0.12)
    axes.legend(frameon=False, fontsize=9)
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    matplotlib.rcParams["svg.hashsalt"] = "remat"  # the same picture is the same file
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    print(remat.compare(loss, net.shapes, target=TARGET).fits("5GiB"))
    print(remat.plan(loss, *net.shapes, budget="4GiB", target=TARGET))
    print(path)


if __name__ == "__main__":
    main()
