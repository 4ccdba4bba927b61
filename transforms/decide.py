"""Asking policies: from a linearized program to a decision for each value.

The policy of the outermost region around an equation decides about it, as in JAX, where an outer `checkpoint` wins
over inner ones. Outside every region all that the backward needs is kept.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Collection, Iterable
from typing import Any

from remat.decisions import RECOMPUTE, SAVE, Decision, Policy, RegionView, as_policy, checked_decisions, names_in
from remat.errors import UnknownNameWarning
from remat.ir.linearized import LinearCond, Linearized, LinearScan, LinearShardMap
from remat.ir.program import Equation, Value
from remat.ir.region import Region
from remat.name_patterns import is_pattern, stands_for_name


def decide(program: Linearized, warn: bool = True) -> dict[Value, Decision]:
    """Decisions for the values of all regions of a top-level linearized program; `warn` of policies that are no use."""
    mark_last_region(program)
    decisions: dict[Value, Decision] = {}
    for view in region_views(program):
        if view.region.policy is not None:
            policy = as_policy(view.region.policy)
            if warn and not view.region.derived:
                warn_of_unknown_names(policy, view.equations, view.place.strip())
            decisions.update(checked_decisions(policy, view))
    for level in program.levels():
        decisions.update(dict.fromkeys(level.always_rebuilt, RECOMPUTE))
        decisions.update(dict.fromkeys(level.always_kept, SAVE))
    return decisions


def region_views(program: Linearized) -> list[RegionView]:
    """What each outermost region's policy gets to see."""
    by_region: dict[Region, list[Equation]] = {}
    in_loops = frozenset(program.equations_in_loops())
    rebuilt = frozenset[Value]().union(*(level.always_rebuilt for level in program.levels()))
    for equation in program.all_equations():
        if equation.region is not None and rebuilt.isdisjoint(equation.outputs):
            by_region.setdefault(equation.region.outermost, []).append(equation)
    return [RegionView(region, equations, in_loops, program) for region, equations in by_region.items()]


def mark_last_region(program: Linearized) -> None:
    """Find the region whose backward begins as soon as the forward ends: no region and no loop comes after it."""
    for equation in reversed(program.linear):
        if equation.region is not None:
            equation.region.outermost.last = True
            return
        if isinstance(equation.op, LinearShardMap):
            return mark_last_region(equation.op.body)
        if isinstance(equation.op, (LinearScan, LinearCond)):
            return


def warn_of_unknown_names(policy: Policy, equations: Iterable[Equation], where: str = "") -> bool:
    """Warn once of names and patterns that a policy asks for and that stand for no name in the function; `where` says
    of which checkpoint.

    Returns whether there was something to warn of.
    """
    mentioned: Collection[Any] = getattr(policy, "mentioned_names", ())
    if not mentioned:
        return False
    seen = names_in(equations)
    unknown = sorted((n for n in mentioned if not any(stands_for_name(n, tag) for tag in seen)), key=str)
    if unknown:
        text = unknown_names_text(policy, unknown, seen, where)
        warn_user(UnknownNameWarning(text))
    return bool(unknown)


def unknown_names_text(policy: Policy, unknown: list[Any], seen: list[Any], where: str) -> str:
    names = ", ".join(repr(n) for n in seen) if seen else "none at all"
    asked = ", ".join(repr(n) for n in unknown)
    close = [m for n in unknown for m in difflib.get_close_matches(str(n), [str(s) for s in seen], n=1)]
    hint = f"Did you mean {', '.join(repr(c) for c in dict.fromkeys(close))}?"
    several = len(unknown) > 1
    none = f"uses {'those names' if several else 'that name'}"
    if any(map(is_pattern, unknown)):
        none = f"uses a name that {'one of these' if several else 'this'} stands for"
    return (
        f"the policy {policy} of the checkpoint{where and f' {where}'} asks for {asked}, but no checkpoint_name in the "
        f"function {none}. Names used: {names}. "
        f"{hint if close else 'Name a value with remat.checkpoint_name, or take the name out of the policy.'}"
    )


def warn_user(warning: Warning) -> None:
    """Give a warning at the line of the user's code that we were called from."""
    warnings.warn(warning, stacklevel=_user_stacklevel())


def _user_stacklevel() -> int:
    """The stack level, seen from the caller, of the first frame that is neither ours nor JAX's."""
    level, frame = 1, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # documented
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    return level


_LIBRARIES = ("remat", "jax", "contextlib", "functools")
