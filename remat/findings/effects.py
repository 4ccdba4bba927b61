"""Random numbers that are drawn again, and effects, whose results are kept whatever the policy is."""

from __future__ import annotations

from collections.abc import Iterator

from remat.errors import UnknownCostError
from remat.findings.case import Case, Walk
from remat.findings.finding import Finding
from remat.findings.place import line_text, place_of
from remat.ir.costs import cost_of
from remat.ir.program import Equation
from remat.ir.traits import row_of
from remat.ir.types import size_in_bytes
from remat.units import bytes_text

DRAWS = frozenset({"random_bits", "random_gamma", "rng_bit_generator", "rng_uniform", "threefry2x32", "threefry4x32"})
"""Random primitives that make as much as they are asked for; others split and fold keys, which costs nothing."""


def random_again(case: Case) -> Iterator[Finding]:
    """Random bits that are drawn again in the backward pass: the same ones, which costs only time."""
    draws = [(e, w) for e, w in case.recomputed.items() if row_of(e.op).kind == "random" and e.op.name in DRAWS]
    if not draws:
        return
    size = sum(size_in_bytes(v.type) * w.times for e, w in draws for v in e.outputs)
    first = draws[0][0]
    work = sum(_flops(e, w) for e, w in draws)
    yield case.finding(
        "random-recomputed",
        place_of(first.source),
        first.op.name,
        size,
        f"{bytes_text(size)} of random bits are drawn again in the backward pass, the first of {len(draws)} at "
        f"{line_text(first.source)}: the same bits, for {work:.1e} operations more.",
        "To keep a mask instead, name it, mask = remat.checkpoint_name(mask, 'mask'), and add 'names:mask' to the "
        "policy; a mask of booleans has a quarter of the bytes.",
    )


def _flops(equation: Equation, walk: Walk) -> float:
    try:
        return cost_of(equation).flops * walk.times
    except UnknownCostError:
        return 0.0


def kept_effects(case: Case) -> Iterator[Finding]:
    """Effects in regions with a policy, or in regions at all: they are not repeated, so what they return is kept."""
    for walk in case.walks:
        for equation in walk.level.linearized.equations:
            kept = [v for v in equation.outputs if v in walk.level.residuals]
            if equation.region is None or not equation.op.effects or not kept:
                continue
            size = sum(size_in_bytes(v.type) for v in kept) * walk.times
            yield case.finding(
                "effects-kept",
                place_of(equation.source),
                equation.op.name,
                size,
                f"{equation.op.name} has effects, which a backward pass does not repeat: its result is kept "
                f"({bytes_text(size)}), whatever the policy is.",
                "If it only computes, use jax.pure_callback, which may run again.",
            )
