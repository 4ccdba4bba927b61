"""How well the simulation predicts memory: simulated against compiled bytes, for each target, net and way.

    python benchmarks/simulation.py [--target NAME] [--only TEXT] [--json FILE]

Two figures are compared, in MiB: what `remat.simulate` says that the program takes besides its arguments
(`Timeline.set_aside`), and what the target's compiler sets aside for temporaries and results. Nothing is compiled: the
second are the figures that `benchmarks/memory.py` wrote, for the ways that it compares (without checkpoint, with
JAX's, with remat's). Programs are traced for the target, as there. So a change of the simulation is judged in a minute.

Without `--target` all of them are compared: the CPU, two TPUs, and a GPU, nets of training size for the last three.
Without `--only` the table is written to `benchmarks/simulation.json`, in place of the targets that were compared. Where
a program is another than in that file, the table says so: then its compiled figure may be of the old one, and
`python benchmarks/memory.py --target NAME --only NET --json` measures it again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the targets need not be there

from memory import candidates, nets_for
from nets import Net

import remat
from remat import Target
from remat.simulate.live_bytes import simulate
from remat.targets.measure import made_for

MIB = 2**20
HERE = Path(__file__).parent
FIGURES = {
    "cpu": "memory-cpu.json",
    "tpu:v5e:2x2": "memory-tpu-v5e.json",
    "tpu:v5p:2x2x1": "memory-tpu-v5p.json",
    "gpu:H100": "memory-gpu-H100.json",
    "gpu:H100, cublas": "memory-gpu-H100-cublas.json",
}
"""Where the compiled figures of each target are. Sharded programs are not compared: they are simulated whole."""

LEFT_OUT = ("remat, substituting",)
"""A way whose programs differ little from those of another."""


def compare(name: str, only: str, known: dict[tuple[str, ...], str]) -> dict[str, Any]:
    """The rows of a target, each printed as soon as it is known. `known` are programs that were compared before."""
    figures = json.loads((HERE / FIGURES[name]).read_text())
    target, rows = Target.parse(name.split(",")[0]), []
    compiled = {key_of(r): r["temp_mib"] + r["output_mib"] for r in figures["rows"] if r["temp_mib"] is not None}
    print(f"{name}: {figures['versions']}; MiB")
    print(f"  {'net':18s} {'way':15s} {'policy':16s} {'simulated':>9s} {'compiled':>9s} {'error':>7s}")
    with made_for(target):
        for net in [n for n in nets_for(target) if only in n.name]:
            for row in rows_of(net, target, compiled, {key_of(r) for r in rows}):
                changed = known.get((name, *key_of(row)), row["program"]) != row["program"]
                print(line(row) + ("  another program than before" if changed else ""), flush=True)
                rows.append(row)
    print(f"  {summary(rows)}\n" if rows else "  nothing to compare\n")
    return {"versions": figures["versions"], "summary": summary(rows) if rows else "", "rows": rows}


def rows_of(net: Net, target: Target, compiled: dict[tuple[str, ...], float], done: set[tuple[str, ...]]) -> Any:
    """The rows of a net for which there is a compiled figure."""
    for who, function in candidates(net).items():
        way, policy = way_and_policy(net, who)
        row: dict[str, Any] = {"net": net.name, "who": way, "policy": policy}
        figure = compiled.get((net.name, who, net.short))
        if figure is None or who in LEFT_OUT or key_of(row) in done:
            continue
        program = remat.trace(function)(*net.shapes)
        row["program"] = hashlib.sha256(str(program).encode()).hexdigest()[:16]
        row["compiled_mib"] = round(figure, 1)
        row["simulated_mib"] = round(simulate(program, target=target).set_aside / MIB, 1)
        yield row


def way_and_policy(net: Net, who: str) -> tuple[str, str]:
    """A way of `memory.py`, and its policy, which there is part of the way's name or that of the net."""
    if who == "no checkpoint":
        return who, ""
    by, how = who.split(", ")
    if by == "jax":
        way, policy = ("whole loss", "") if how == "whole loss" else ("by hand", how.removeprefix("by hand").strip())
        return f"jax, {way}", policy or net.short
    return by, {"whole loss": net.short, "segments": "segments:nothing"}.get(how, how)


def key_of(row: dict[str, Any]) -> tuple[str, ...]:
    return row["net"], row["who"], row["policy"]


def error(row: dict[str, Any]) -> float:
    return row["simulated_mib"] / row["compiled_mib"] - 1


def line(row: dict[str, Any]) -> str:
    figures = f"{row['simulated_mib']:9.1f} {row['compiled_mib']:9.1f} {error(row):+7.1%}"
    return f"  {row['net']:18s} {row['who']:15s} {row['policy']:16s} {figures}"


def summary(rows: list[dict[str, Any]]) -> str:
    errors = sorted(abs(error(r)) for r in rows)
    within = sum(e <= 0.1 for e in errors)
    return f"median error {statistics.median(errors):.1%}, largest {errors[-1]:.1%}; {within} of {len(rows)} within 10%"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=[*FIGURES], help="only this target")
    parser.add_argument("--only", default="", help="only nets whose name contains this")
    parser.add_argument("--json", default=HERE / "simulation.json", type=Path, help="read and write this file")
    options = parser.parse_args()
    saved = json.loads(options.json.read_text()) if options.json.exists() else {}
    known = {(name, *key_of(r)): r["program"] for name, table in saved.items() for r in table["rows"]}
    tables = {t: compare(t, options.only, known) for t in ([options.target] if options.target else FIGURES)}
    for name, table in tables.items():
        print(f"{name:16s} {table['summary']}")
    if not options.only:
        options.json.write_text(json.dumps({**saved, **tables}, indent=1) + "\n")


if __name__ == "__main__":
    main()
