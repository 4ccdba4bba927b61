"""How well the simulation predicts memory: simulated against compiled bytes, for each net and policy.

    python benchmarks/simulation.py [--only TEXT] [--json FILE]

For each net of the memory benchmark, without a policy (`jax.value_and_grad`) and with some (`remat.value_and_grad`),
two figures are compared, in MiB: the peak of `remat.simulate.live_bytes.simulate` on the program, and what XLA's CPU
compiler with default flags sets aside for temporaries and results (`memory_analysis()`). Compiled figures are read from
the file if they are there for the same program and the same versions, so that a change of the simulation is judged in
seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
from collections.abc import Callable
from typing import Any

import jax
from nets import NETS, Net

import remat
from remat.simulate.live_bytes import simulate

MIB = 2**20
POLICIES = (None, "nothing", "dots", "balanced")
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "simulation.json")


def gradient(net: Net, policy: str | None) -> Callable[..., Any]:
    loss = net.loss(lambda layer: layer)
    return jax.value_and_grad(loss) if policy is None else remat.value_and_grad(loss, policy=policy)


def compiled_mib(function: Callable[..., Any], net: Net) -> float:
    memory = jax.jit(function).lower(*net.shapes).compile().memory_analysis()
    return (memory.temp_size_in_bytes + memory.output_size_in_bytes) / MIB


def compare(net: Net, policy: str | None, known: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    function = gradient(net, policy)
    program = remat.trace(function)(*net.shapes)
    digest = hashlib.sha256(str(program).encode()).hexdigest()[:16]
    row = known.get((net.name, policy or "none"), {})
    fresh = row.get("program") == digest
    return {
        "net": net.name,
        "policy": policy or "none",
        "program": digest,
        "compiled_mib": row["compiled_mib"] if fresh else compiled_mib(function, net),
        "simulated_mib": simulate(program).peak / MIB,
    }


def error(row: dict[str, Any]) -> float:
    return row["simulated_mib"] / row["compiled_mib"] - 1


def line(row: dict[str, Any]) -> str:
    figures = f"{row['simulated_mib']:9.1f} {row['compiled_mib']:9.1f} {error(row):+8.1%}"
    return f"  {row['net']:18s} {row['policy']:10s} {figures}"


def summary(rows: list[dict[str, Any]]) -> str:
    errors = sorted(abs(error(r)) for r in rows)
    within = sum(e <= 0.1 for e in errors)
    return f"median error {statistics.median(errors):.1%}, largest {errors[-1]:.1%}; {within} of {len(rows)} within 10%"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only nets whose name contains this")
    parser.add_argument(
        "--json", default=FILE, help="read compiled figures from this file, and write all figures to it"
    )
    options = parser.parse_args()
    versions = f"jax {jax.__version__}, {jax.devices()[0].platform}"
    saved = {"versions": versions, "rows": []}
    if os.path.exists(options.json):
        with open(options.json) as file:
            saved = json.load(file)
    same = saved["versions"] == versions
    known = {(r["net"], r["policy"]): r for r in saved["rows"]} if same else {}
    print(f"{versions}; MiB\n  {'':29s} {'simulated':>9s} {'compiled':>9s} {'error':>8s}")
    rows = []
    for net in {net.name: net for net in NETS if options.only in net.name}.values():
        for policy in POLICIES:
            rows.append(compare(net, policy, known))
            print(line(rows[-1]), flush=True)
    print(summary(rows))
    if not options.only:
        with open(options.json, "w") as file:
            json.dump({"versions": versions, "summary": summary(rows), "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
