"""Memory, work and time of one gradient step, side by side: no checkpoint, JAX whole, JAX by hand, remat whole.

    python benchmarks/memory.py [--no-times] [--only TEXT] [--json FILE]

For each net and policy, four ways to compute `value_and_grad` of the same loss are compiled in one process: without
checkpoint, with `jax.checkpoint` around the whole loss, with `jax.checkpoint` placed on every layer or loop body by
hand, and with `remat.value_and_grad(loss, policy=...)` around the whole loss (also with `substituting` and `balanced`).
Shown are:

- *kept*: bytes remat predicts to keep for the backward pass (`saved_residuals(...).new_bytes`);
- *temp*, *output*: MiB of the compiled program (`memory_analysis()`), on XLA's CPU backend with default flags;
- *dots*: GFLOP in dot products and convolutions, loop bodies multiplied by their length;
- *step*: median milliseconds of interleaved repetitions;
- *difference*: the largest difference of a gradient to the one without checkpoint, relative to the gradient's maximum.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from nets import Net, all_nets, random_arguments

import remat
from remat.ir.costs import dot_flops

MIB = 2**20
REPETITIONS = 15


def candidates(net: Net) -> dict[str, Callable[..., Any]]:
    policy = getattr(jax.checkpoint_policies, net.policy)
    plain = net.loss(lambda layer: layer)
    by_hand = net.loss(partial(jax.checkpoint, policy=policy))
    found = {
        "no checkpoint": jax.value_and_grad(plain),
        "jax, whole loss": jax.value_and_grad(jax.checkpoint(plain, policy=policy)),
        "jax, by hand": jax.value_and_grad(by_hand),
    }
    for who, policy in remat_policies(net).items():
        found[who] = remat.value_and_grad(plain, policy=policy)
    return found


def remat_policies(net: Net) -> dict[str, str]:
    """What remat is measured with, around the whole loss: the net's policy, the same substituting, and `balanced`."""
    return {
        "remat, whole loss": net.short,
        "remat, substituting": f"substituting:{net.short}",
        "remat, balanced": "balanced",
    }


def kept_bytes(net: Net, who: str) -> int | None:
    """Bytes that remat predicts to keep with respect to the differentiated argument."""
    policy = remat_policies(net).get(who)
    if policy is None:
        return None
    loss = net.loss(lambda layer: layer)
    data = random_arguments(net.shapes[1:])

    def of_first(first: Any) -> Any:
        return loss(first, *data)

    return remat.saved_residuals(remat.checkpoint(of_first, policy=policy), net.shapes[0]).new_bytes


def measure(net: Net, with_times: bool) -> list[dict[str, Any]]:
    rows, compiled = [], {}
    for who, function in candidates(net).items():
        compiled[who] = jax.jit(function).lower(*net.shapes).compile()
        memory = compiled[who].memory_analysis()
        rows.append(
            {
                "net": net.name,
                "policy": net.short,
                "who": who,
                "kept_mib": None if (kept := kept_bytes(net, who)) is None else kept / MIB,
                "temp_mib": memory.temp_size_in_bytes / MIB,
                "output_mib": memory.output_size_in_bytes / MIB,
                "dot_gflop": dot_flops(remat.trace(function)(*net.shapes)) / 1e9,
            }
        )
    arguments = random_arguments(net.shapes)
    _, reference = compiled["no checkpoint"](*arguments)
    for row in rows:
        _, gradients = compiled[row["who"]](*arguments)
        row["difference"] = largest_difference(gradients, reference)
    if with_times:
        for who, milliseconds in step_times(compiled, arguments).items():
            next(r for r in rows if r["who"] == who)["step_ms"] = milliseconds
    return rows


def largest_difference(found: Any, expected: Any) -> float:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(jnp.abs(a - b).max() / jnp.maximum(jnp.abs(b).max(), 1e-30)) for a, b in pairs)


def step_times(compiled: dict[str, Any], arguments: Any) -> dict[str, float]:
    times: dict[str, list[float]] = {who: [] for who in compiled}
    for repetition in range(REPETITIONS + 1):
        for who, step in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(step(*arguments))
            if repetition:
                times[who].append((time.perf_counter() - start) * 1e3)
    return {who: statistics.median(t) for who, t in times.items()}


def line(row: dict[str, Any]) -> str:
    kept = "      -" if row["kept_mib"] is None else f"{row['kept_mib']:7.1f}"
    step = f"{row['step_ms']:7.1f}" if "step_ms" in row else "      -"
    return (
        f"  {row['who']:20s} {kept} {row['temp_mib']:7.1f} {row['output_mib']:7.1f} {row['dot_gflop']:7.2f} "
        f"{step}  {row['difference']:.0e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-times", action="store_true", help="compile and compare, but measure no times")
    parser.add_argument("--only", default="", help="only nets whose name contains this")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    versions = f"jax {jax.__version__}, remat {remat.__version__}, Python {platform.python_version()}"
    device = f"{jax.devices()[0].platform}, {platform.machine()}"
    print(f"{versions}; {device}")
    print(f"  {'':20s} {'kept':>7s} {'temp':>7s} {'output':>7s} {'dots':>7s} {'step':>7s}  difference")
    print(f"  {'':20s} {'MiB':>7s} {'MiB':>7s} {'MiB':>7s} {'GFLOP':>7s} {'ms':>7s}")
    rows = []
    for net in all_nets():
        if options.only in net.name:
            print(f"{net.name}, policy {net.short}")
            found = measure(net, not options.no_times)
            rows += found
            print("\n".join(map(line, found)), flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"versions": versions, "device": device, "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
