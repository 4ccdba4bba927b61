"""Policies that rule over a part of a function: a name scope, a function, or the bodies of loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat.decisions import SAVE, Decision, Policy, RegionView
from remat.errors import PolicyError
from remat.ir.program import Equation, Value
from remat.policies.algebra import Combinable, inner_text
from remat.policies.parse import WITH_ARGUMENT, parse, text_or_quoted


@dataclass(frozen=True)
class Within(Combinable):
    """`policy` decides about equations in a scope; nothing else is kept.

    A scope is a `jax.named_scope` path or a part of one (`encoder/layer_0`), or the name of the Python function that
    the equation was written in.
    """

    scope: str
    policy: Policy

    def __post_init__(self) -> None:
        if not self.scope:
            raise PolicyError(
                "the scope of within is empty. Give a part of a jax.named_scope path or a function's name."
            )

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        return self.policy.decide(self._inside(view))

    def _inside(self, view: RegionView) -> RegionView:
        return dataclasses.replace(view, equations=[e for e in view.equations if self.contains(e)])

    def parts(self, view: RegionView) -> list[tuple[Policy, RegionView]]:
        return [(self.policy, self._inside(view))]

    def contains(self, equation: Equation) -> bool:
        if f"/{self.scope}/" in f"/{equation.source.scope}/":
            return True
        function = equation.source.position.function
        return self.scope in (function, function.rsplit(".", 1)[-1])

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return getattr(self.policy, "mentioned_names", frozenset())

    def __str__(self) -> str:
        return f"within:{text_or_quoted(self.scope)}:{inner_text(self.policy)}"


@dataclass(frozen=True)
class ScanBody(Combinable):
    """Each iteration of each loop is a region of its own under `policy`; outside loops everything is kept."""

    policy: Policy

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        outside = {v: SAVE for e in view.equations if e not in view.in_loops for v in e.outputs}
        return {**outside, **self.policy.decide(self._inside(view))}

    def _inside(self, view: RegionView) -> RegionView:
        return dataclasses.replace(view, equations=[e for e in view.equations if e in view.in_loops])

    def parts(self, view: RegionView) -> list[tuple[Policy, RegionView]]:
        return [(self.policy, self._inside(view))]

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return getattr(self.policy, "mentioned_names", frozenset())

    def __str__(self) -> str:
        return f"scan_body:{inner_text(self.policy)}"


def within(scope: str | Callable[..., Any], policy: Any) -> Within:
    """Let `policy` decide about one part of a function; values elsewhere are not kept.

    **Arguments**

    - `scope`: a `jax.named_scope` path (or a part of it), a function, or a function's name.
    - `policy`: any policy or its string form.

    >>> from remat import policies
    >>> print(policies.within("attention", "dots") | policies.within("mlp", "names:hidden"))
    within:attention:dots|within:mlp:names:hidden
    """
    name = scope if isinstance(scope, str) else getattr(scope, "__name__", None)
    if not name:
        raise PolicyError(
            f"the scope of within is {scope!r}, but must be a part of a jax.named_scope path, a function with a name, "
            "or a function's name."
        )
    return Within(name, parse(policy))


def scan_body(policy: Any) -> ScanBody:
    """Make each iteration of each `scan` a region of its own under `policy`, without touching the model.

    >>> from remat import policies
    >>> print(policies.scan_body("nothing"))
    scan_body:nothing
    """
    return ScanBody(parse(policy))


WITH_ARGUMENT["within"] = (lambda reader: within(reader.scope(), reader.single()), "attention:dots")
WITH_ARGUMENT["scan_body"] = (lambda reader: scan_body(reader.single()), "dots")
