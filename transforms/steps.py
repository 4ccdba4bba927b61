"""The steps of a backward pass, written down while it is made: what is turned around, what is recomputed for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat.ir.linearized import LinearEquation
from remat.ir.program import Equation, Value


@dataclass(frozen=True, eq=False)
class BackwardStep:
    """A step of the backward pass of one level: a linear equation is transposed, or equations of the forward pass are
    computed again for one.

    **Attributes**

    - `equation`: the linear equation.
    - `recomputed`: what is computed again; empty if the equation itself is transposed.
    - `reads`: the values of the forward pass that the step starts from, kept or recomputed before.
    - `after`: the tangents whose cotangents have to exist before a recomputation begins.
    - `first`: where its equations begin in the backward program of the level.
    """

    equation: LinearEquation
    recomputed: Sequence[Equation]
    reads: Sequence[Value]
    after: Sequence[Value]
    first: int
