"""A linearized program: what a function computes, beside what its derivative does with tangents.

    Linearized ::= inputs, tangents: Value*   equations: Equation*   linear: LinearEquation*   outputs, tangent_outputs

`equations` are *primal* (what the function computes) and *coefficient* (new values that derivative rules bring in,
such as the `cos` of a `sin`). `linear` equations map tangents to tangents; besides tangents they read primal values
and coefficients, and those are what a backward pass needs. Values that no differentiated input reaches have no
tangent: they are constants for the derivative.

A structured op is linearized into a plain equation in `equations` and one linear equation that holds the linearized
bodies (`LinearScan`, `LinearCond`, `LinearShardMap`), since what is saved inside is only decided later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from remat.ir.ops import Op
from remat.ir.program import Atom, Equation, Program, Value
from remat.ir.region import Region
from remat.ir.rewrite import prune, select, used_values
from remat.ir.source import Source


class LinearEquation(Equation):
    """An equation that is linear in the inputs marked in `linear`; its other inputs are coefficients."""

    __slots__ = ("linear", "reads")

    def __init__(
        self,
        op: Op,
        inputs: Sequence[Atom],
        outputs: Sequence[Value],
        source: Source,
        region: Region | None,
        linear: Sequence[bool],
    ):
        super().__init__(op, inputs, outputs, source, region)
        self.linear = tuple(linear)
        self.reads: list[Value] | None = None
        """What its transpose reads, once that is known."""

    @property
    def coefficients(self) -> list[Atom]:
        """The inputs that it is not linear in."""
        return select(self.inputs, [not is_linear for is_linear in self.linear])

    @property
    def tangents(self) -> list[Value]:
        """The inputs that it is linear in."""
        return select(self.inputs, self.linear)


@dataclass(frozen=True, eq=False)
class Derivation:
    """What the derivative rule of one equation `op inputs -> outputs` made: equations, and the linear ones that use
    what these compute. Only planning policies look closer, so the rest is worked out when asked for."""

    op: Op
    inputs: Sequence[Atom]
    outputs: Sequence[Atom]
    made: Sequence[Equation]
    linear: Sequence[LinearEquation]

    @cached_property
    def primal(self) -> list[Equation]:
        """The equations that compute the results. JAX's rules may take an operation apart."""
        return select(self.made, self._is_primal)

    @cached_property
    def coefficients(self) -> list[Equation]:
        """The further equations, for the linear ones alone."""
        return select(self.made, [not p for p in self._is_primal])

    @cached_property
    def _is_primal(self) -> list[bool]:
        needed = {v for e in prune(self.made, self.outputs) for v in e.outputs}
        return [not needed.isdisjoint(e.outputs) for e in self.made]


@dataclass(eq=False)
class Linearized:
    """See the module docstring. `tangents` and `tangent_outputs` have None where there is no tangent (a zero)."""

    inputs: list[Value]
    tangents: list[Value | None]
    equations: list[Equation]
    linear: list[LinearEquation]
    outputs: list[Atom]
    tangent_outputs: list[Value | None]
    constants: list[tuple[Value, Any]] = field(default_factory=list[tuple[Value, Any]])
    derivations: list[Derivation] = field(default_factory=list[Derivation])
    always_kept: set[Value] = field(default_factory=set[Value])
    """Values of regions that are kept whatever the policy is: what a `defremat` rule saves."""

    always_rebuilt: set[Value] = field(default_factory=set[Value])
    """Values of regions that are never kept: what such a rule computes in the backward pass."""

    stand_ins: dict[Value, Value] = field(default_factory=dict[Value, Value])
    """From a result of such a rule's forward function to the one of them that is the same result."""

    def all_equations(self) -> Iterator[Equation]:
        """All primal and coefficient equations, those inside differentiated loops and branches included."""
        structured = (LinearScan, LinearCond, LinearShardMap)
        bodies = {e.op.equation: e.op for e in self.linear if isinstance(e.op, structured)}
        for equation in self.equations:
            yield equation
            op = bodies.get(equation)
            if isinstance(op, (LinearScan, LinearShardMap)):
                yield from op.body.all_equations()
            elif isinstance(op, LinearCond):
                for branch in op.branches:
                    yield from branch.all_equations()

    @cached_property
    def use_counts(self) -> Counter[Value]:
        """How many equations read each value, at every level: primal, coefficient and linear ones, and the results."""
        uses: Counter[Value] = Counter()
        for level in self.levels():
            for equation in (*level.equations, *level.linear):
                uses.update({a for a in equation.inputs if isinstance(a, Value)})
            uses.update({a for a in level.outputs if isinstance(a, Value)})
        return uses

    def live_linear(self) -> list[LinearEquation]:
        """The linear equations of this level that the tangents of its results depend on, in order."""
        needed = {t for t in self.tangent_outputs if t is not None}
        live: list[LinearEquation] = []
        for equation in reversed(self.linear):
            if any(v in needed for v in equation.outputs):
                live.append(equation)
                needed.update(equation.tangents)
        live.reverse()
        return live

    def levels(self) -> Iterator[Linearized]:
        """This program and the bodies of its differentiated loops, branches and shard_maps, at every depth."""
        yield self
        for equation in self.linear:
            if isinstance(equation.op, (LinearScan, LinearShardMap)):
                yield from equation.op.body.levels()
            elif isinstance(equation.op, LinearCond):
                for branch in equation.op.branches:
                    yield from branch.levels()

    def equations_in_loops(self) -> Iterator[Equation]:
        """The part of `all_equations` that is inside differentiated loops."""
        for equation in self.linear:
            if isinstance(equation.op, LinearScan):
                yield from equation.op.body.all_equations()
            elif isinstance(equation.op, LinearShardMap):
                yield from equation.op.body.equations_in_loops()
            elif isinstance(equation.op, LinearCond):
                for branch in equation.op.branches:
                    yield from branch.equations_in_loops()


@dataclass(frozen=True, eq=False)
class LinearScan(Op):
    """The derivative of a scan equation; inputs and outputs are the tangents of the active constants, carry, slices."""

    body: Linearized
    equation: Equation
    active_constants: tuple[bool, ...]
    active_carry: tuple[bool, ...]
    active_slices: tuple[bool, ...]
    active_outputs: tuple[bool, ...]
    name: ClassVar[str] = "linear_scan"

    @property
    def length(self) -> int:
        return self.equation.op.length  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class LinearCond(Op):
    """The derivative of a cond equation; inputs and outputs are the tangents of the active operands and results."""

    branches: tuple[Linearized, ...]
    equation: Equation
    active_operands: tuple[bool, ...]
    active_outputs: tuple[bool, ...]
    name: ClassVar[str] = "linear_cond"


@dataclass(frozen=True, eq=False)
class LinearShardMap(Op):
    """The derivative of a shard_map equation; inputs and outputs are the tangents of the active inputs and results."""

    body: Linearized
    equation: Equation
    active_outputs: tuple[bool, ...]
    name: ClassVar[str] = "linear_shard_map"


@dataclass(frozen=True, eq=False)
class Transposed:
    """A linear equation turned around: `program` takes the coefficients and the cotangents that are present, and
    returns cotangents for the linear inputs; `zero` marks those that get none."""

    program: Program
    zero: tuple[bool, ...]

    @cached_property
    def used(self) -> frozenset[Value]:
        """Those inputs of the program that it reads."""
        return frozenset(used_values(self.program))


@dataclass(frozen=True, eq=False)
class Opaque(Op):
    """A linear map known only as programs: `forward` takes (coefficients, tangents), and `backward` makes a program of
    (coefficients, cotangents) for the set of cotangents that are present. Either is made when first asked for; making
    it raises where that direction does not exist."""

    name: str  # type: ignore[misc]
    forward: Callable[[], Program]
    backward: Callable[[tuple[bool, ...]], Transposed]
