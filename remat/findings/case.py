"""What findings are made from: a loss, what would run under the policy, and what without it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from remat.decisions import Policy, RegionView
from remat.findings.codes import KINDS
from remat.findings.finding import Finding
from remat.findings.place import place_of
from remat.inspect.planned import Loss, Planned
from remat.ir.linearized import LinearScan
from remat.ir.ops import Call, Checkpoint, Cond, Op, Scan, ShardMap, While, nested_programs
from remat.ir.program import Equation, Program, Value
from remat.ir.source import NOWHERE, Position
from remat.ir.types import element_count
from remat.targets.target import Target
from remat.transforms.decide import region_views
from remat.transforms.differentiate_program import Differentiated, as_it_stands, linearize_and_split
from remat.transforms.split import Split, split
from remat.transforms.walk import Level


@dataclass(frozen=True, eq=False)
class Walk:
    """A walked level, and how often it runs; of the body of a loop also the loop, and the level around it."""

    level: Level
    times: int
    loop: LinearScan | None
    around: Level | None


@dataclass(frozen=True, eq=False)
class Case:
    """A loss under a policy (None: none around it), for a target; `source` is where the loss was written."""

    loss: Loss
    policy: Policy | None
    target: Target
    source: Position

    @cached_property
    def program(self) -> Program:
        """The loss as it was traced, one region if there is a policy."""
        return self.loss.traced(self.policy)

    @cached_property
    def walked(self) -> Differentiated:
        """Its derivative with the user's regions and no others, for what is said of regions.

        **Raises** `ReverseModeError` if it has none.
        """
        found = as_it_stands(self.program, self.loss.is_active, 0, False)
        if not found.backward:
            split(found.linearized, found.decisions)  # raises
        return found

    @cached_property
    def planned(self) -> Planned:
        """What would run."""
        found = linearize_and_split(self.program, self.loss.is_active, warn=False, found=self.walked)
        return Planned(self.loss, self.program, found.split)

    @cached_property
    def base(self) -> Planned | None:
        """What would run without the policy, or where there is none, without the regions in the function; None if
        there are no regions either."""
        if not any(isinstance(e.op, Checkpoint) for p in self.programs for e in p.equations):
            return None
        program = _opened(self.program) if self.policy is not None else without_regions(self.program)
        found = linearize_and_split(program, self.loss.is_active, warn=False)
        return Planned(self.loss, program, found.split)

    @cached_property
    def walks(self) -> list[Walk]:
        """The walked levels: the top, and the bodies of differentiated loops and branches."""
        return walks_of(self.walked.split)

    @cached_property
    def walk_of(self) -> dict[Value, Walk]:
        """The level that each value of the linearized program is in."""
        return {v: w for w in self.walks for e in w.level.linearized.equations for v in e.outputs}

    @cached_property
    def views(self) -> list[RegionView]:
        """The outermost regions that have a policy and that the user made."""
        views = region_views(self.walked.linearized)
        return [v for v in views if v.region.policy is not None and not v.region.derived]

    @cached_property
    def kept(self) -> frozenset[Value]:
        """The values that are kept, at each level."""
        return frozenset(v for w in self.walks for v in w.level.residuals)

    @cached_property
    def stacked(self) -> frozenset[Value]:
        """The values of loop bodies of which each iteration's is kept."""
        found: list[Value] = []
        for walk in self.walks:
            origins = walk.level.origins
            found.extend(origins[v].inner for v in walk.level.residuals if v in origins and origins[v].times != 1)
        return frozenset(found)

    @cached_property
    def recomputed(self) -> dict[Equation, Walk]:
        """The equations that run again in the backward pass, in their order."""
        return recomputed_in(self.walks)

    @cached_property
    def programs(self) -> list[Program]:
        """The traced program and all programs nested in it, each once."""
        return list(nested_programs([self.program]))

    def place(self, view: RegionView) -> Position:
        """Where a region is: the function itself, the line of the call, or the first line inside."""
        if self.policy is not None:
            return self.source
        lines = map(place_of, [view.region.source, *(e.source for e in view.equations[:1])])
        return next((p for p in lines if p.file), self.source)

    def finding(self, code: str, source: Position, subject: str, size: float, message: str, fix: str) -> Finding:
        """A finding of a kind; where it has no line, it stands at the function."""
        place = source if source.file else self.source
        return Finding(code, KINDS[code].level, place, subject, round(size), _sentence(message), _sentence(fix))


def walks_of(made: Split) -> list[Walk]:
    """All levels of a split program."""
    levels = made.linearized.levels()
    loops = {id(e.op.body): e.op for p in levels for e in p.linear if isinstance(e.op, LinearScan)}
    found = [Walk(made.level, 1, None, None)]
    for walk in found:  # grows meanwhile
        for child in walk.level.children:
            loop = loops.get(id(child.linearized))
            times = walk.times * (1 if loop is None else element_count((loop.length,)))
            found.append(Walk(child, times, loop, walk.level))
    return found


def recomputed_in(walks: list[Walk]) -> dict[Equation, Walk]:
    """The equations that run again in the backward pass, with the level that they are in."""
    return {e: w for w in walks for e in w.level.retrieval.recomputed}


def _sentence(text: str) -> str:
    """A text that begins with a capital letter, unless it begins with a name or an identifier."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def _opened(program: Program) -> Program:
    """A program without the regions at its top."""
    equations = [
        _with_op(e, Call(e.op.program, e.op.function) if isinstance(e.op, Checkpoint) else e.op)
        for e in program.equations
    ]
    return Program(program.inputs, equations, program.outputs, program.constants, program.signature)


def without_regions(program: Program, known: dict[int, Program] | None = None) -> Program:
    """The same program with calls in place of the checkpoint regions in it, at every depth."""
    known = {} if known is None else known
    if id(program) not in known:
        equations = [_with_op(e, _without_region(e.op, known)) for e in program.equations]
        known[id(program)] = Program(program.inputs, equations, program.outputs, program.constants, program.signature)
    return known[id(program)]


def _with_op(equation: Equation, op: Op) -> Equation:
    if op is equation.op:
        return equation
    return Equation(op, equation.inputs, equation.outputs, equation.source, equation.region)


def _without_region(op: Op, known: dict[int, Program]) -> Op:
    if isinstance(op, Checkpoint):
        return Call(without_regions(op.program, known), op.function)
    if isinstance(op, Call):
        return replace(op, program=without_regions(op.program, known))
    if isinstance(op, (Scan, ShardMap)):
        return replace(op, body=without_regions(op.body, known))
    if isinstance(op, Cond):
        return replace(op, branches=tuple([without_regions(b, known) for b in op.branches]))
    if isinstance(op, While):
        return replace(op, body=without_regions(op.body, known))
    return op


def position_of(fun: Callable[..., Any]) -> Position:
    """Where a function was written; nowhere if Python does not tell."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    fun = inspect.unwrap(fun)
    call: Any = type(fun).__call__
    code = getattr(fun, "__code__", None) or getattr(call, "__code__", None)
    if code is None:
        return NOWHERE
    return Position(code.co_filename, code.co_firstlineno, 0, getattr(fun, "__name__", type(fun).__name__))
