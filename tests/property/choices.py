"""Random choices among variables and types."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from property.programs import Type, Var


@dataclass(frozen=True)
class Menu:
    """What may be in a program.

    **Attributes**

    - `statements`: how many statements at most, all levels together.
    - `depth`: how deep functions may be nested.
    - `forward_mode`: only what forward mode can go through (no custom_vjp).
    - `exact`: only true derivatives, for second order.
    - `sharp`: whether there may be unused results with infinite derivatives.
    - `loops`: more loops, and little else.
    """

    statements: int = 10
    depth: int = 2
    forward_mode: bool = False
    exact: bool = False
    sharp: bool = True
    loops: bool = False

    def without_rules(self) -> Menu:
        return replace(self, forward_mode=True, exact=True)

    def inner(self) -> Menu:
        return replace(self, depth=self.depth - 1)


class Choices:
    """Where all randomness of one program comes from, and names for its variables."""

    def __init__(self, seed: int):
        self.seed = seed
        self.random = np.random.default_rng(seed)
        self.names = itertools.count()
        self.left = 0

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.random.integers(len(options)))]

    def weighted(self, options: dict[Any, float]) -> Any:
        weights = np.array(list(options.values()))
        return list(options)[int(self.random.choice(len(weights), p=weights / weights.sum()))]

    def recent(self, pool: Sequence[Var]) -> Var:
        """A variable, newer ones and floats more often."""
        found = pool[0]
        for _ in range(3):
            found = pool[len(pool) - 1 - min(int(self.random.exponential(3)), len(pool) - 1)]
            if found.type.is_float:
                break
        return found

    def of_type(self, pool: Sequence[Var], type: Type) -> Var | None:
        found = [v for v in pool if v.type == type]
        return self.recent(found) if found else None

    def of_types(self, pool: Sequence[Var], types: Sequence[Type]) -> list[Var]:
        found = [self.of_type(pool, t) for t in types]
        assert None not in found
        return found  # type: ignore[return-value]

    def var(self, type: Type, prefix: str = "v") -> Var:
        return Var(f"{prefix}{next(self.names)}", type)
