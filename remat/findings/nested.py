"""Checkpoints inside checkpoints, and those without a policy: whose policy it is that counts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from remat.decisions import RegionView, Save, as_policy
from remat.findings.case import Case
from remat.findings.finding import Finding
from remat.findings.peaks import kept_bytes
from remat.findings.place import place_of, place_of_call
from remat.ir.ops import Checkpoint
from remat.ir.program import Equation
from remat.ir.region import Region
from remat.ir.types import size_in_bytes
from remat.transforms.override import ADVICE, overriding, overriding_text
from remat.transforms.split import bytes_kept_by
from remat.transforms.split import kept_bytes as kept_under
from remat.units import bytes_text


def nested_policies(case: Case) -> Iterator[Finding]:
    """Policies that rule over those of checkpoints inside: with the bytes that this costs, or else as a note."""
    walked, program = case.walked, case.walked.linearized
    kept = bytes_kept_by(program, walked.split.level)
    found = overriding(program, walked.split.level, walked.decisions, kept, partial(kept_under, program))
    if found is not None and found.kept > found.alone:
        place, policy, size = case.place(found.outer), _policy(found.outer.region), found.kept - found.alone
        yield case.finding("overridden-policy", place, str(policy), size, overriding_text(found), ADVICE)
    else:
        yield from _ignored_policies(case)


def _ignored_policies(case: Case) -> Iterator[Finding]:
    inside: dict[tuple[str, str], list[Region]] = {}
    equations: dict[Region, list[Equation]] = {}
    for view in case.views:
        for equation in view.equations:
            region: Any = equation.region
            while region.parent is not None:
                equations.setdefault(region, []).append(equation)
                region = region.parent
    for region in equations:
        if region.policy is not None and _policy(region) != _policy(region.outermost):
            inside.setdefault((str(_policy(region.outermost)), str(_policy(region))), []).append(region)
    for (outer, inner), regions in inside.items():
        first = regions[0]
        size = sum(_lost(case, r, equations[r]) for r in regions)
        count = f"the checkpoint of {first.function}" if first.function else "a checkpoint"
        count = count if len(regions) == 1 else f"{len(regions)} checkpoints"
        yield case.finding(
            "ignored-policy",
            place_of(first.source),
            inner,
            size,
            f"the policy {inner} of {count} has no say: the outermost checkpoint decides, and its policy is {outer}. "
            f"What is computed again though {inner} would keep it: {bytes_text(size)}.",
            f"Leave the outer policy out, or give it what {inner} keeps.",
        )


def _lost(case: Case, region: Region, equations: list[Equation]) -> int:
    """Bytes that a region's own policy would keep and that are computed again."""
    policy: Any = as_policy(region.policy)
    if not hasattr(policy, "decide_equation"):
        return 0
    decisions = policy.decide(RegionView(region, equations, frozenset(), case.walked.linearized))
    again = [e for e in equations if e in case.recomputed]
    return sum(
        size_in_bytes(v.type) * case.recomputed[e].times
        for e in again
        for v in e.outputs
        if isinstance(decisions.get(v), Save)
    )


def _policy(region: Region) -> Any:
    return None if region.policy is None else as_policy(region.policy)


def regions_without_policy(case: Case) -> Iterator[Finding]:
    """Checkpoints that keep nothing but their inputs because nobody said what to keep."""
    if case.policy is not None or case.base is None:
        return
    made = [e for e in _outermost(case) if e.op.policy is None and not e.op.derived]  # type: ignore[attr-defined]
    if not made:
        return
    function = getattr(made[0].op, "function", "")
    of = f" of {function}" if function else ""
    which = f"the checkpoint{of} was" if len(made) == 1 else f"{len(made)} checkpoints, such as that{of}, were"
    size = max(kept_bytes(case.base) - kept_bytes(case.planned), 0)
    yield case.finding(
        "region-without-policy",
        place_of_call(made[0]),
        function or "checkpoint",
        size,
        f"{which} made without a policy, which keeps nothing but the inputs and computes all else again "
        f"({bytes_text(size)} less are kept). In remat.grad, no policy means that everything is kept.",
        "Write policy='nothing' where this is meant, or keep what is expensive: policy='dots'.",
    )


def _outermost(case: Case) -> Iterator[Equation]:
    """The outermost checkpoints of the traced program, each once."""
    seen: set[int] = set()
    stack = [case.program]
    while stack:
        program = stack.pop()
        if id(program) in seen:
            continue
        seen.add(id(program))
        for equation in program.equations:
            if isinstance(equation.op, Checkpoint):
                yield equation
            else:
                stack.extend(equation.op.programs)
