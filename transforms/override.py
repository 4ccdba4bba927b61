"""Telling the user that an outer policy keeps more than the checkpoints inside it would.

The outermost region decides, as in JAX. Around checkpoints that were placed with care this may cost memory: `dots`
around a loop whose body is a checkpoint of its own keeps the products of each iteration, where the body alone keeps
nothing. To tell by how much, the program is walked once more with those outer regions taken away, but only if the first
walk kept something that is inside an inner region.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remat.decisions import Decision, Policy, RegionView, as_policy, checked_decisions
from remat.errors import OverriddenPolicyWarning
from remat.ir.linearized import Linearized
from remat.ir.ops import Name
from remat.ir.program import Equation, Value
from remat.ir.region import Region
from remat.transforms.decide import mark_last_region, region_views, warn_user
from remat.transforms.useless import levels_of, parts_of
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.transforms.walk import Level

Decisions = dict[Value, Decision]


@dataclass(frozen=True, eq=False)
class Overriding:
    """Outer regions that rule over other ones: the first of them, those inside, how many bytes are kept, and how many
    the inner ones would keep by themselves."""

    outer: RegionView
    inside: list[RegionView]
    kept: int
    alone: int


def warn_of_overriding(
    program: Linearized, level: Level, decisions: Decisions, kept: int, count: Callable[[Decisions], int]
) -> None:
    """Warn if the regions that rule over other regions keep more than these would by themselves."""
    found = overriding(program, level, decisions, kept, count)
    if found is not None and found.kept > found.alone:
        warn_user(OverriddenPolicyWarning(f"{overriding_text(found)} {ADVICE}"))


def overriding(
    program: Linearized, level: Level, decisions: Decisions, kept: int, count: Callable[[Decisions], int]
) -> Overriding | None:
    """The regions that rule over other regions, if they keep something inside those.

    `decisions` are those of the finished walk `level`, which keeps `kept` bytes, and `count` tells how many bytes other
    decisions keep.
    """
    inner = _overridden(level)
    outer = {r.parent for r in inner if r.parent is not None}
    views = [v for v in region_views(program) if v.region in outer] if inner else []
    if not views or any(v.region.derived for v in views) or not all(_is_local(r.policy, views[0]) for r in inner):
        return None
    with _without(outer, inner, program):
        inside = [v for v in region_views(program) if v.region in inner]
        ruled = {v for view in views for e in view.equations for v in e.outputs}
        alone = {v: d for v, d in decisions.items() if v not in ruled}
        for view in inside:
            if view.region.policy is not None:
                alone.update(checked_decisions(as_policy(view.region.policy), view))
        return Overriding(views[0], inside, kept, count(alone))


def _overridden(level: Level) -> dict[Region, None]:
    """The regions just inside an outermost one, if something is kept inside one that has a policy of its own, and that
    the user did not ask for by name."""
    found: dict[Region, None] = {}
    kept = False
    for each in levels_of(level):
        for equation in each.linearized.equations:
            region = equation.region
            if region is None or region.parent is None:
                continue
            while region.parent is not None and region.parent.parent is not None:
                region = region.parent
            outer = region.parent
            if outer is None or outer.policy is None:
                continue
            found[region] = None
            if not kept and not isinstance(equation.op, Name) and any(v in each.kept for v in equation.outputs):
                kept = _policy(outer) != _policy(region)
    return found if kept else {}


def _policy(region: Region) -> Policy | None:
    return None if region.policy is None else as_policy(region.policy)


def _is_local(policy: Any, view: RegionView) -> bool:
    """Whether a policy looks at one equation at a time. Others plan for the program as it is; they are asked once."""
    return policy is None or all(hasattr(p, "decide_equation") for p, _ in parts_of(as_policy(policy), view))


@contextmanager
def _without(outer: set[Region], inner: dict[Region, None], program: Linearized) -> Generator[None]:
    """The program as if the outer regions were not there, for the time of a count."""
    parents = {r: r.parent for r in inner}
    last = {v.region: v.region.last for v in region_views(program)} | dict.fromkeys(inner, False)
    freed: list[tuple[Equation, Region]] = []
    for level in program.levels():
        for equation in (*level.equations, *level.linear):
            if equation.region is not None and equation.region in outer:
                freed.append((equation, equation.region))
    try:
        for region in inner:
            region.parent = None
        for equation, _ in freed:
            equation.region = None
        mark_last_region(program)
        yield
    finally:
        for equation, region in freed:
            equation.region = region
        for region, parent in parents.items():
            region.parent = parent
        for region, was in last.items():
            region.last = was


ADVICE = "Leave the outer policy out, or give the inner checkpoint the policy that you want."


def overriding_text(found: Overriding) -> str:
    """What the outer policy does, with bytes."""
    view, inside = found.outer, found.inside
    first = next((v for v in inside if v.equations[0] in set(view.equations)), inside[0])
    inside = [v for v in inside if _policy(v.region) != _policy(view.region)]
    policies = dict.fromkeys(str(_policy(v.region) or "nothing") for v in inside)
    return (
        f"the policy {as_policy(view.region.policy)} of the checkpoint{view.place} overrides "
        f"{'that of the checkpoint' if len(inside) == 1 else f'those of {len(inside)} checkpoints'} inside it "
        f"({', '.join(policies)}, "
        f"{first.place.strip() or 'on an unknown line'}): {bytes_text(found.kept)} are kept for the backward pass, "
        f"{bytes_text(found.kept - found.alone)} more than without the outer policy."
    )
