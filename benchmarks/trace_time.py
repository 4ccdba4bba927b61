"""How long it takes to trace, differentiate and lower an unrolled function, beside `jax.make_jaxpr(jax.grad(f))`.

    python benchmarks/trace_time.py [--json FILE]

Prints, for functions of 1,000 to 20,000 equations, the median of interleaved repetitions and its ratio to JAX's, and
how the time grows with the size. Nothing is compiled or run. Python's cyclic garbage collector is off while the clock
runs: its passes over everything that is alive make any such measurement grow faster than the work.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import remat

SIZES = (1_000, 10_000, 20_000)
EQUATIONS_PER_STEP = 4


def chain(size: int) -> Callable[[jax.Array], jax.Array]:
    """A function of about `size` equations: elementwise operations in a row."""

    def f(x: jax.Array) -> jax.Array:
        for _ in range(size // EQUATIONS_PER_STEP):
            x = jnp.tanh(jnp.sin(x) * 0.5 + x)
        return x.sum()

    return f


def shared(size: int) -> Callable[[jax.Array], jax.Array]:
    """A function of about `size` equations in which every value depends on many earlier ones along many paths."""

    def f(x: jax.Array) -> jax.Array:
        a, b = x, x
        for _ in range(size // EQUATIONS_PER_STEP):
            a, b = jnp.sin(a * b), a + jnp.cos(b)
        return (a + b).sum()

    return f


def candidates(f: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {
        "jax.grad": jax.grad(f),
        "remat.grad": remat.grad(f),
        "remat.grad, nothing": remat.grad(f, policy="nothing"),
    }


def measure(f: Callable[..., Any], repetitions: int) -> dict[str, float]:
    """Median seconds of `jax.make_jaxpr` of each candidate, repetitions interleaved."""
    x = jnp.ones(8)
    times: dict[str, list[float]] = {}
    for _ in range(repetitions + 1):
        for name, g in candidates(f).items():
            gc.collect()
            gc.disable()
            start = time.perf_counter()
            jax.make_jaxpr(g)(x)
            times.setdefault(name, []).append(time.perf_counter() - start)
            gc.enable()
    return {name: statistics.median(t[1:]) for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    versions = f"jax {jax.__version__}, remat {remat.__version__}, Python {platform.python_version()}"
    print(versions)
    rows = []
    for kind in (chain, shared):
        for size in SIZES:
            found = measure(kind(size), options.repetitions)
            base = found["jax.grad"]
            rows.append({"function": kind.__name__, "equations": size, "seconds": found})
            shown = "  ".join(f"{name} {t:6.3f} s ({t / base:.2f}x)" for name, t in found.items())
            print(f"{kind.__name__:7s} {size:6d} equations: {shown}")
        first, last = rows[-len(SIZES)], rows[-1]
        growth = last["equations"] / first["equations"]
        for name in first["seconds"]:
            ratio = last["seconds"][name] / first["seconds"][name]
            print(f"  {growth:.0f}x the equations take {ratio:.1f}x the time: {name}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"versions": versions, "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
