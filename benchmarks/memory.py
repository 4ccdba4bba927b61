"""Memory, work and time of one gradient step, side by side: no checkpoint, JAX whole, JAX by hand, remat whole.

    python benchmarks/memory.py [--target NAME] [--no-times] [--only TEXT] [--json [FILE]] [--gpu-dots triton|cublas]
    python benchmarks/memory.py --target NAME --only TEXT --who "remat, whole loss" --against FILE

For each net, ways to compute `value_and_grad` of the same loss are compiled in one process: without checkpoint, with
`jax.checkpoint` around the whole loss, with `jax.checkpoint` placed on every layer or loop body by hand (under the
net's policy, under dots and under nothing), and with `remat.value_and_grad(loss, policy=...)` around the whole loss
(also with `substituting`, `nothing`, `segments` and `balanced`). Shown are:

- *kept*: bytes remat predicts to keep for the backward pass (`saved_residuals(...).new_bytes`);
- *temp*, *output*: MiB of the compiled program, with XLA's default flags;
- *dots*: GFLOP in dot products and convolutions of the compiled program, loop bodies multiplied by their length;

and on the CPU, where the program can be run:

- *step*: median milliseconds of interleaved repetitions;
- *difference*: the largest difference of a gradient to the one without checkpoint, relative to the gradient's maximum.

`--target tpu:v5e:2x2`, `tpu:v5p:2x2x1` or `gpu:H100` compiles for that device, which need not be there
(`pip install 'remat[tpu]'` or `'remat[gpu]'`), nets of training size in bfloat16; for eight of them (`tpu:v5p:2x2x2`,
`gpu:H100:8`) decoders whose parameters and batch are sharded over all, with what collectives move. For a TPU each
program is compiled in a process that ends as soon as arrays have their place (`early.py`). A real GPU chooses for each
product between Triton and cuBLAS by timing them; `--gpu-dots` makes all of them one or the other, and the truth is
between the two.

`--json` without a name writes `benchmarks/memory-TARGET.json`. Rows of other nets in that file stay.

`--against FILE` compares with figures written before, of the ways in `--who` (all without it), and exits with 1 where
a program needs more than 3 % above them. CI does so for each compiler: all nets on the CPU, two for TPU and GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the compilers for TPU and GPU load then without a device

import jax
import jax.numpy as jnp
from early import figures_of
from nets import DOTS, NOTHING, Net, all_nets, random_arguments
from training_nets import FSDP_DEVICES, FSDP_NETS, TRAINING_NETS

import remat
from remat import Target

MIB = 2**20
REPETITIONS = 15
RISE = 1.03
"""How much more a program may need than it did, with `--against`: compilers differ a little from version to version."""


def candidates(net: Net) -> dict[str, Callable[..., Any]]:
    """The ways to compute value and gradient, each with its name."""
    plain = net.loss(lambda layer: layer)
    found = {
        "no checkpoint": jax.value_and_grad(plain),
        "jax, whole loss": jax.value_and_grad(jax.checkpoint(plain, policy=jax_policy(net.policy))),
        "jax, by hand": by_hand(net, net.policy),
    }
    for short, policy in (("dots", DOTS), ("nothing", NOTHING)):
        if policy != net.policy:
            found[f"jax, by hand {short}"] = by_hand(net, policy)
    for who, policy in remat_policies(net).items():
        found[who] = remat.value_and_grad(plain, policy=policy)
    return found


def by_hand(net: Net, policy: str) -> Callable[..., Any]:
    return jax.value_and_grad(net.loss(partial(jax.checkpoint, policy=jax_policy(policy))))


def jax_policy(name: str) -> Any:
    return getattr(jax.checkpoint_policies, name)


def remat_policies(net: Net) -> dict[str, str]:
    """What remat is measured with, around the whole loss: the net's policy, the same substituting, and others."""
    others = {} if net.short == "nothing" else {"remat, nothing": "nothing"}
    return {
        "remat, whole loss": net.short,
        "remat, substituting": f"substituting:{net.short}",
        **others,
        "remat, segments": "segments:nothing",
        "remat, balanced": "balanced",
    }


def kept_bytes(net: Net, who: str) -> int | None:
    """Bytes that remat predicts to keep with respect to the differentiated argument."""
    policy = remat_policies(net).get(who)
    if policy is None:
        return None
    loss = net.loss(lambda layer: layer)
    data = jax.tree.map(lambda t: jnp.zeros(t.shape, t.dtype), net.shapes[1:])

    def of_first(first: Any) -> Any:
        return loss(first, *data)

    return remat.saved_residuals(remat.checkpoint(of_first, policy=policy), net.shapes[0]).new_bytes


def measure(net: Net, target: Target, compiler_options: dict[str, Any], chosen: str = "") -> list[dict[str, Any]]:
    """A row for each candidate, of what the compiler says; each is printed as soon as it is known."""
    rows = []
    for who, function in candidates(net).items():
        if chosen and who != chosen:
            continue
        if target.platform == "tpu":
            place = [sys.executable, __file__, "--target", str(target), "--only", net.name, "--row", who, "--dump"]
            figures = figures_of(place)
        else:
            measured = remat.measure(function, *net.shapes, target=target, compiler_options=compiler_options)
            figures = {**json.loads(measured.to_json()), "seconds": measured.compile_seconds}
        rows.append(row_of(net, who, figures))
        if target.platform != "cpu":
            print(line(rows[-1]), flush=True)
    return rows


def row_of(net: Net, who: str, figures: dict[str, Any]) -> dict[str, Any]:
    flops, error = figures.get("dot_flops"), figures.get("error")
    return {
        "net": net.name,
        "policy": net.short,
        "who": who,
        "kept_mib": in_mib(kept_bytes(net, who)),
        "temp_mib": in_mib(figures.get("temp_bytes")),
        "output_mib": in_mib(figures.get("output_bytes")),
        "dot_gflop": None if flops is None else flops / 1e9,
        "compile_s": round(figures["seconds"], 1),
        **({"collectives_mib": moved} if (moved := moved_between_devices(figures)) else {}),
        **({} if error is None else {"error": error}),
    }


def moved_between_devices(figures: dict[str, Any]) -> dict[str, float]:
    """MiB that a device's collectives move, by kind, loops multiplied by their length."""
    found = sorted((c["kind"], c["bytes"]) for c in figures.get("collectives") or [])
    return {kind: round(moved / MIB, 1) for kind, moved in found}


def compile_into(folder: str, net: Net, who: str, target: Target) -> None:
    """Compile one candidate, and have what is decided written into a folder; print the error if it is too large."""
    options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
    measured = remat.measure(candidates(net)[who], *net.shapes, target=target, compiler_options=options)
    if measured.error is not None:
        print(measured.error)


def in_mib(count: int | None) -> float | None:
    return None if count is None else count / MIB


def run(net: Net, rows: list[dict[str, Any]], with_times: bool) -> None:
    """Run the candidates here, and add differences of gradients and times to their rows."""
    compiled = {who: jax.jit(f).lower(*net.shapes).compile() for who, f in candidates(net).items()}
    arguments = random_arguments(net.shapes)
    _, reference = compiled["no checkpoint"](*arguments)
    for row in rows:
        _, gradients = compiled[row["who"]](*arguments)
        row["difference"] = largest_difference(gradients, reference)
    if with_times:
        for who, milliseconds in step_times(compiled, arguments).items():
            next(r for r in rows if r["who"] == who)["step_ms"] = milliseconds


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
    if "error" in row:
        return f"  {row['who']:20s} {row['error'].splitlines()[0]}"

    def cell(key: str, form: str) -> str:
        value = row.get(key)
        return f"{'-':>8s}" if value is None else format(value, form)

    forms = {"kept_mib": "8.1f", "temp_mib": "8.1f", "output_mib": "8.1f", "dot_gflop": "8.2f", "step_ms": "8.1f"}
    moved = "".join(f"  {kind} {size:.0f} MiB" for kind, size in row.get("collectives_mib", {}).items())
    return f"  {row['who']:20s} {' '.join(cell(k, f) for k, f in forms.items())}  {cell('difference', '.0e')}{moved}"


def versions(target: Target) -> str:
    plugin = {"tpu": "libtpu", "gpu": "jax-cuda12-plugin"}.get(target.platform)
    found = [] if plugin is None else [f"{plugin} {importlib.metadata.version(plugin)}"]
    return ", ".join([f"jax {jax.__version__}, remat {remat.__version__}, Python {platform.python_version()}", *found])


def write_json(path: Path, target: Target, rows: list[dict[str, Any]]) -> None:
    """Write the rows, in place of those of the same nets that are there."""
    measured = {(row["net"], row["policy"]) for row in rows}
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    kept = [row for row in old if (row["net"], row["policy"]) not in measured]
    device = f"cpu, {platform.machine()}" if target.platform == "cpu" else str(target)
    path.write_text(
        json.dumps({"versions": versions(target), "device": device, "rows": [*kept, *rows]}, indent=1) + "\n"
    )


def risen(rows: list[dict[str, Any]], path: Path) -> list[str]:
    """What needs more memory than it did when the figures in that file were written."""
    known = {_way(row): _needed(row) for row in json.loads(path.read_text())["rows"]}
    found = []
    for row in rows:
        before, now = known.get(_way(row)), _needed(row)
        if before is not None and (now is None or now > RISE * before):
            found.append(f"{', '.join(_way(row))}: {now} MiB, before {before} MiB")
    return found


def _way(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["net"], row["policy"], row["who"]


def _needed(row: dict[str, Any]) -> float | None:
    return None if row.get("temp_mib") is None else round(row["temp_mib"] + row["output_mib"], 1)


def nets_for(target: Target) -> list[Net]:
    if target.platform == "cpu":
        return all_nets()
    return FSDP_NETS if target.devices == FSDP_DEVICES else TRAINING_NETS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", help="what to compile for (default: cpu, where it is run too)")
    parser.add_argument("--no-times", action="store_true", help="on the CPU, compile and compare, but measure no times")
    parser.add_argument("--only", default="", help="only nets whose name contains this")
    parser.add_argument(
        "--gpu-dots", choices=["triton", "cublas"], default="triton", help="how a GPU's products are made"
    )
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--dump", help=argparse.SUPPRESS)
    parser.add_argument("--json", nargs="?", const="", help="write the figures to this file")
    parser.add_argument("--who", default="", help="only this way, in the words of the table; not with --json")
    parser.add_argument("--against", help="exit with 1 where more memory is needed than the figures in this file say")
    options = parser.parse_args()
    if options.who and options.json is not None:
        parser.error("--json writes all ways of a net; leave --who out")
    target = Target.parse(options.target)
    there = nets_for(target)
    nets = [n for n in there if options.only in n.name]
    if options.dump:
        return compile_into(options.dump, nets[0], options.row, target)
    cublas = target.platform == "gpu" and options.gpu_dots == "cublas"
    print(f"{versions(target)}; {target}{', products by cuBLAS' if cublas else ''}")
    print(f"  {'':20s} {'kept':>8s} {'temp':>8s} {'output':>8s} {'dots':>8s} {'step':>8s}  difference")
    print(f"  {'':20s} {'MiB':>8s} {'MiB':>8s} {'MiB':>8s} {'GFLOP':>8s} {'ms':>8s}")
    kind = ["cublas"] if cublas else ["fsdp"] if there is FSDP_NETS else []
    name = "-".join(["memory", target.platform, *filter(None, [target.chip]), *kind])
    file = Path(options.json or Path(__file__).with_name(f"{name}.json"))
    worse, count = [], 0
    for net in nets:
        print(f"{net.name}, policy {net.short}", flush=True)
        rows = measure(net, target, {"xla_gpu_enable_triton_gemm": False} if cublas else {}, options.who)
        count += len(rows)
        worse += risen(rows, Path(options.against)) if options.against else []
        if target.platform == "cpu" and not options.who:
            run(net, rows, not options.no_times)
        if target.platform == "cpu":
            print("\n".join(map(line, rows)), flush=True)
        if options.json is not None:
            write_json(file, target, rows)
    if not count:
        parser.error(f"nothing was measured: --only {options.only!r}, --who {options.who!r} fit no net's row")
    if worse:
        sys.exit("needs more memory than before:\n  " + "\n  ".join(worse))


if __name__ == "__main__":
    main()
