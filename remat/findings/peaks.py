"""Policies that do not lower the peak, or that keep more than there would be without them."""

from __future__ import annotations

from collections.abc import Iterator

from remat import jax_compat
from remat.findings.case import Case, Walk, recomputed_in, walks_of
from remat.findings.codes import WORTHWHILE
from remat.findings.finding import Finding
from remat.findings.place import place_of_call
from remat.inspect.planned import Planned
from remat.ir.ops import Checkpoint
from remat.ir.program import Equation
from remat.ir.source import Position
from remat.ir.traits import is_memory_bound, row_of
from remat.ir.types import size_in_bytes
from remat.simulate.live_bytes import simulate_split
from remat.units import bytes_text

EXPENSIVE = frozenset(
    {"contraction", "attention", "linear algebra", "transform", "sorting", "recurrent", "call", "loop"}
)
"""Kinds of primitives that cost time to run again. Without any of them, recomputation is next to free."""

MORE = 1.02
"""By how much kept bytes have to grow: less is rounding of the model, not of the program."""


def no_lower_peak(case: Case) -> Iterator[Finding]:
    """Recomputation that costs time and that the peak is no lower for."""
    base = case.base
    if base is None:
        return
    made, costly = _again(case.recomputed)
    made_before, costly_before = _again(recomputed_in(walks_of(base.split)))
    if made - made_before < WORTHWHILE or costly <= costly_before:
        return
    before = simulate_split(base.split).peak
    after = simulate_split(case.planned.split).peak
    if after < before:
        return
    subject, place, what, many = _region(case)
    yield case.finding(
        "no-lower-peak",
        place,
        subject,
        after,
        f"{what} {'do' if many else 'does'} not lower the peak: the step takes {bytes_text(after)} besides its "
        f"arguments, and {bytes_text(before)} without (simulated), while {bytes_text(made - made_before)} are computed "
        "again.",
        "Keep more, put checkpoints around parts of the function (its layers, the body of its loop), or leave it out.",
    )


def _again(recomputed: dict[Equation, Walk]) -> tuple[int, int]:
    """How many bytes are computed again, and how many of them by what costs time."""
    all_of_it = costly = 0
    for equation, walk in recomputed.items():
        size = sum(size_in_bytes(v.type) for v in equation.outputs) * walk.times
        all_of_it += size
        costly += size if row_of(equation.op).kind in EXPENSIVE and not is_memory_bound(equation.op) else 0
    return all_of_it, costly


def keeps_more(case: Case) -> Iterator[Finding]:
    """Policies that keep more bytes than there are without them."""
    base = case.base
    if base is None:
        return
    before, after = kept_bytes(base), kept_bytes(case.planned)
    if after <= before * MORE or after - before < WORTHWHILE:
        return
    subject, place, what, _ = _region(case)
    yield case.finding(
        "keeps-more",
        place,
        subject,
        after - before,
        f"with {what}, {bytes_text(after)} are kept for the backward pass, {bytes_text(after - before)} more than "
        "without.",
        "Leave it out, or keep less.",
    )


def kept_bytes(planned: Planned) -> int:
    """What is kept on the device for the backward pass, what the caller holds anyway left out."""
    split = planned.split
    held = {*split.linearized.inputs, *(v for v, _ in split.linearized.constants)}
    stored = [split.level.residuals[v] for v in split.residuals if v not in held]
    return sum(size_in_bytes(v.type) for v in stored if not jax_compat.is_on_host(v.type))


def _region(case: Case) -> tuple[str, Position, str, bool]:
    """What is meant: the policy around the function, or the checkpoints in it; and whether these are several."""
    if case.policy is not None:
        return str(case.policy), case.source, f"the policy {case.policy} around {case.loss.function}", False
    regions = [e for p in case.programs for e in p.equations if isinstance(e.op, Checkpoint)]
    function = getattr(regions[0].op, "function", "")
    of, many = f" of {function}" if function else "", len(regions) > 1
    named = f"the {len(regions)} checkpoints" if many else f"the checkpoint{of}"
    return function or "checkpoint", place_of_call(regions[0]), named, many
