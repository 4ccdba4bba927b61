"""Budgets against hand placement: does a plan fit once compiled, and what does it recompute?

    python benchmarks/budget.py [--target NAME] [--only TEXT] [--points N] [--json [FILE]]

For each net of the memory benchmark, `remat.plan` is given budgets between the smallest peak that it finds and what no
checkpoint takes, on the unmodified loss. Each plan is compiled (`Plan.verify`: at most two smaller plans where the
compiler takes more than was simulated). Shown are MiB of the budget, of the simulated peak and of temporaries and
results of the compiled program, and GFLOP in products that the plan adds.

Then the budget is what hand placement takes, compiled: `jax.checkpoint` on every layer or loop body, keeping nothing,
products, or products without batch dimensions. A plan should add no more products than that.

A row where a plan takes more than 1.02 of its budget, or adds more products than hand placement, is marked `!`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from nets import DOTS, NO_BATCH, NOTHING, Net, all_nets
from training_nets import TRAINING_NETS

import remat

MIB, GFLOP = 2**20, 1e9
HAND = {"nothing": NOTHING, "dots": DOTS, "dots_no_batch": NO_BATCH}
WITHIN = 1.02


@dataclass
class Row:
    """One budget. `hand_gflop` is what hand placement adds in products, where the budget is its bytes."""

    net: str
    budget: str
    budget_mib: float
    simulated_mib: float | None = None
    compiled_mib: float | None = None
    added_gflop: float | None = None
    seconds: float | None = None
    hand_gflop: float | None = None
    structure: str = ""
    corrections: int = 0
    error: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether it breaks what a plan promises."""
        if self.error is not None or self.compiled_mib is None or self.added_gflop is None:
            return True
        if self.hand_gflop is not None and self.added_gflop > self.hand_gflop * 1.001 + 1e-3:
            return True
        return self.compiled_mib > WITHIN * self.budget_mib

    def __str__(self) -> str:
        if self.error is not None:
            return f"  {self.budget:16s} {self.budget_mib:9.1f}  ! {self.error[:80]}"
        hand = "" if self.hand_gflop is None else f"{self.hand_gflop:9.2f}"
        figures = f"{self.budget_mib:9.1f} {self.simulated_mib:9.1f} {self.compiled_mib:9.1f} {self.added_gflop:9.2f}"
        return f"  {self.budget:16s} {figures} {hand:9s} {self.structure}{' !' if self.is_lost else ''}"


def compiled(function: Any, net: Net, target: str) -> tuple[int | None, int | None]:
    """Bytes of temporaries and results, and FLOPs of products; None where it does not fit."""
    found = remat.measure(function, *net.shapes, target=target)
    return found.live_bytes, found.dot_flops


def row_for(net: Net, loss: Any, name: str, limit: int, plain_flops: int, target: str, hand: int | None = None) -> Row:
    row = Row(net.name, name, limit / MIB, hand_gflop=None if hand is None else (hand - plain_flops) / GFLOP)
    try:
        plan = remat.plan(loss, *net.shapes, budget=limit, target=target).verify()
    except remat.BudgetError as error:
        row.error = str(error)
        return row
    assert plan.compiled is not None
    row.simulated_mib, row.compiled_mib = plan.choice.peak_bytes / MIB, (plan.compiled_bytes or 0) / MIB
    row.added_gflop = ((plan.compiled.dot_flops or 0) - plain_flops) / GFLOP
    row.seconds, row.structure, row.corrections = plan.choice.seconds, plan.choice.structure, plan.corrections
    return row


def smallest_compiled(loss: Any, net: Net, front: remat.Pareto, target: str) -> int:
    """Bytes of the smallest plan, compiled: below, no budget can be met."""
    plan = remat.plan(loss, *net.shapes, budget=front[-1].peak_bytes, target=target)
    found, _ = compiled(remat.value_and_grad(loss, policy=plan.policy), net, target)
    return found or front[-1].peak_bytes


def rows_of(net: Net, points: int, target: str) -> list[Row]:
    loss = net.loss(lambda layer: layer)
    start = time.perf_counter()
    front = remat.pareto(loss, *net.shapes, target=target)
    print(f"{net.name}: {len(front.tried)} plans, {len(front)} worth having, {time.perf_counter() - start:.1f} s")
    whole, plain_flops = compiled(jax.value_and_grad(loss), net, target)
    top = front[0].peak_bytes if whole is None else whole
    low = max(smallest_compiled(loss, net, front, target), front[-1].peak_bytes)
    if plain_flops is None:  # it does not fit
        plain_flops = remat.compare(loss, net.shapes, [None], target=target)[0].dot_flops
    print(f"  {'budget':16s} {'MiB':>9s} {'simulated':>9s} {'compiled':>9s} {'+GFLOP':>9s} {'by hand':>9s}")
    rows: list[Row] = []
    for i, limit in enumerate(np.linspace(low, max(top, low * 1.05), points)):
        rows.append(row_for(net, loss, f"{i + 1} of {points}", int(limit), plain_flops, target))
        print(rows[-1], flush=True)
    for name, policy in HAND.items():
        policy = getattr(jax.checkpoint_policies, policy)
        placed = net.loss(lambda layer, policy=policy: jax.checkpoint(layer, policy=policy))
        taken, flops = compiled(jax.value_and_grad(placed), net, target)
        if taken is not None:
            rows.append(row_for(net, loss, f"hand {name}", taken, plain_flops, target, flops))
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--only", default="", help="only nets whose name contains this")
    parser.add_argument("--points", type=int, default=10)
    parser.add_argument("--json", nargs="?", const="", help="write all figures to this file (budget-TARGET.json)")
    options = parser.parse_args()
    nets = all_nets() if options.target == "cpu" else TRAINING_NETS
    rows: list[Row] = []
    done: set[Any] = set()
    for net in nets:
        if options.only in net.name and net.name not in done:
            done.add(net.name)
            rows += rows_of(net, options.points, options.target)
    lost = [r for r in rows if r.is_lost]
    print(f"{len(rows) - len(lost)} of {len(rows)} rows hold")
    if options.json is not None:
        short = "-".join(options.target.split(":")[:2])
        path = Path(options.json or Path(__file__).parent / f"budget-{short}.json")
        old = json.loads(path.read_text())["rows"] if path.exists() else []
        kept = [r for r in old if r["net"] not in done]
        data = {"versions": f"jax {jax.__version__}, remat {remat.__version__}", "target": options.target}
        path.write_text(json.dumps({**data, "rows": [*kept, *map(asdict, rows)]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
