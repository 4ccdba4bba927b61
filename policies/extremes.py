"""Keep everything, keep nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from remat.decisions import RECOMPUTE, SAVE, Decision, RegionView, stands_for
from remat.ir.program import Value
from remat.policies.base import PerEquation
from remat.policies.parse import WORDS


@dataclass(frozen=True)
class EverythingSaveable(PerEquation):
    """Everything the backward pass needs is kept, as without `checkpoint`."""

    def decide_primitive(self, primitive: Any, types: tuple[Any, ...], params: dict[str, Any]) -> Decision:
        return SAVE

    def decide_name(self, tag: Any) -> Decision:
        return SAVE

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        return {v: SAVE for e in view.equations for v in e.outputs}

    def as_jax(self) -> Callable[..., Any]:
        return jax.checkpoint_policies.everything_saveable

    def __str__(self) -> str:
        return "everything"


@dataclass(frozen=True)
class NothingSaveable(PerEquation):
    """Nothing is kept: everything is recomputed from the region's inputs. The same as no policy in `checkpoint`."""

    def decide_primitive(self, primitive: Any, types: tuple[Any, ...], params: dict[str, Any]) -> Decision:
        return RECOMPUTE

    def as_jax(self) -> Callable[..., Any]:
        return jax.checkpoint_policies.nothing_saveable

    def __str__(self) -> str:
        return "nothing"


everything_saveable = EverythingSaveable()
nothing_saveable = NothingSaveable()

# JAX's two objects stand for these wherever they come from, so that reports do not depend on what was handed over.
stands_for(jax.checkpoint_policies.everything_saveable, everything_saveable)
stands_for(jax.checkpoint_policies.nothing_saveable, nothing_saveable)

WORDS.update({"everything": everything_saveable, "nothing": nothing_saveable})
WORDS.update({"everything_saveable": everything_saveable, "nothing_saveable": nothing_saveable})
