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
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import remat

SIZES = (1_000, 5_000, 20_000)
EQUATIONS_PER_STEP = 4


def chain(size: int, factor: float) -> Callable[[jax.Array], jax.Array]:
    """A function of about `size` equations: elementwise operations in a row. Another factor makes it another function,
    so that nothing that was traced before is of use."""

    def f(x: jax.Array) -> jax.Array:
        for _ in range(size // EQUATIONS_PER_STEP):
            x = jnp.tanh(jnp.sin(x) * factor + x)
        return x.sum()

    return f


def shared(size: int, factor: float) -> Callable[[jax.Array], jax.Array]:
    """A function of about `size` equations in which every value depends on many earlier ones along many paths."""

    def f(x: jax.Array) -> jax.Array:
        a, b = x, x
        for _ in range(size // EQUATIONS_PER_STEP):
            a, b = jnp.sin(a * b), a * factor + jnp.cos(b)
        return (a + b).sum()

    return f


def candidates(f: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {
        "jax.grad": jax.grad(f),
        "remat.grad": remat.grad(f),
        "remat.grad, nothing": remat.grad(f, policy="nothing"),
    }


def measure(make: Callable[[float], Any], repetitions: int) -> dict[str, float]:
    """Median seconds of `jax.make_jaxpr` of each candidate, each of a new function, repetitions interleaved."""
    x = jnp.ones(8)
    times: dict[str, list[float]] = {}
    for i in range(repetitions + 1):
        for name in candidates(make(0.0)):
            g = candidates(make(0.5 + i / 1000))[name]
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
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    versions = f"jax {jax.__version__}, remat {remat.__version__}, Python {platform.python_version()}"
    print(versions)
    rows = []
    for kind in (chain, shared):
        for size in SIZES:
            found = measure(partial(kind, size), options.repetitions)
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
