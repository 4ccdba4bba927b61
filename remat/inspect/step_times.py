"""How long a step takes on the device that is there, measured in turns so that all candidates meet the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

REPETITIONS = 7


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step: the median of several, and half the distance between the quartiles."""

    seconds: float
    spread: float


def step_times(
    candidates: Mapping[str, Callable[..., Any]], leaves: Sequence[Any], repetitions: int = REPETITIONS
) -> dict[str, StepTime]:
    """Run jitted candidates on arguments of these types, one after another, several times over.

    Types in place of arrays stand for arrays of small random numbers, zeros for integers. The first run of each, which
    compiles, does not count.
    """
    arguments = [_array(x) for x in leaves]
    jitted = {name: jax.jit(fun) for name, fun in candidates.items()}
    for fun in jitted.values():
        jax.block_until_ready(fun(*arguments))
    seconds: dict[str, list[float]] = {name: [] for name in jitted}
    for _ in range(repetitions):
        for name, fun in jitted.items():
            start = time.perf_counter()
            jax.block_until_ready(fun(*arguments))
            seconds[name].append(time.perf_counter() - start)
    return {name: _summary(found) for name, found in seconds.items()}


def _summary(seconds: list[float]) -> StepTime:
    if len(seconds) < 2:
        return StepTime(seconds[0], 0.0)
    quartiles = statistics.quantiles(seconds, n=4)
    return StepTime(statistics.median(seconds), (quartiles[2] - quartiles[0]) / 2)


def _array(x: Any) -> Any:
    if not isinstance(x, jax.ShapeDtypeStruct):
        return x
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), x.shape) if x.shape else jax.random.key(0)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.zeros(x.shape, x.dtype)
    generator = np.random.default_rng(0)
    return jnp.asarray(generator.standard_normal(x.shape) * 0.02, x.dtype)
