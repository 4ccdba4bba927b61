"""Running a differentiated region outside jit: operations one by one, and what came from a jitted function as one.

Differentiation inlines the calls of jitted functions. JAX, which does not, runs each as a compiled unit; so do we, by
the name scope that every equation from such a call is in. Results then are those of JAX to the last bit where the same
operations run, and a large jitted function costs one dispatch, not one for each of its operations.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import Literal, jaxpr_as_fun

from remat import jax_compat
from remat.ir.source import RECOMPUTED


@dataclass(frozen=True, eq=False)
class Unit:
    """Equations that run together: `run` maps the values of `inputs` to those of `outputs`."""

    inputs: list[Any]
    outputs: list[Any]
    run: Callable[..., Any]
    last_uses: list[Any]


_units: weakref.WeakKeyDictionary[Any, list[Unit]] = weakref.WeakKeyDictionary()
"""By jaxpr; nothing in a unit refers to the closed jaxpr itself."""


def evaluate(jaxpr: Any, inputs: Sequence[Any]) -> list[Any]:
    """Apply a closed jaxpr, whose equations came from a user's function by inlining calls, to arrays."""
    opened = jax_compat.unwrap(jaxpr)
    if jaxpr not in _units:
        _units[jaxpr] = _units_of(opened)
    env = {**dict(opened.constants), **dict(zip(opened.inputs, inputs, strict=True))}
    for unit in _units[jaxpr]:
        env.update(zip(unit.outputs, unit.run(*(env[v] for v in unit.inputs)), strict=True))
        for variable in unit.last_uses:
            del env[variable]
    return [a.val if isinstance(a, Literal) else env[a] for a in opened.outputs]


def _units_of(opened: Any) -> list[Unit]:
    calls = itertools.groupby(opened.equations, _unit_key())
    groups = [part for _, group in calls for part in _recomputed_first(list(group))]
    needed = {a for a in opened.outputs if not isinstance(a, Literal)}
    units = []
    for group in reversed(groups):
        made = {v for e in group for v in e.outvars}
        inputs = list(dict.fromkeys(a for e in group for a in e.invars if not isinstance(a, Literal) and a not in made))
        outputs = [v for e in group for v in e.outvars if v in needed]
        function = jaxpr_as_fun(jax_compat.part_of_jaxpr(opened.jaxpr, group, inputs, outputs))
        last_uses = [v for v in inputs if v not in needed]
        units.append(Unit(inputs, outputs, jax.jit(function) if _call_of(group[0]) else function, last_uses))
        needed.update(inputs)
    return units[::-1]


def _unit_key() -> Callable[[Any], Any]:
    """The same for equations that one call made, another for each one outside of calls."""
    alone = itertools.count()
    return lambda equation: _call_of(equation) or next(alone)


def _recomputed_first(equations: list[Any]) -> list[list[Any]]:
    """What the backward pass of a call recomputes, and what it computes with cotangents, apart, as JAX runs them."""
    again: list[Any] = []
    rest: list[Any] = []
    for equation in equations:
        (again if RECOMPUTED in str(equation.source_info.name_stack) else rest).append(equation)
    made = {v for e in rest for v in e.outvars}
    if any(not isinstance(a, Literal) and a in made for e in again for a in e.invars):
        return [equations]
    return [part for part in (again, rest) if part]


def _call_of(equation: Any) -> tuple[str, ...] | None:
    """The name scopes to the outermost call of a jitted function that an equation came from."""
    path: list[str] = []
    for part in str(equation.source_info.name_stack).split("/"):
        if part != RECOMPUTED:
            path.append(part)
        if part.startswith("jit("):
            return tuple(path)
    return None
