"""Regions that are recomputed in two levels, where recomputing them at once would hold everything.

A policy that keeps next to nothing of a long chain (`nothing` around an unrolled loss) makes the backward pass start
with the whole forward pass, all of which then stays until it is used. So the region is cut into segments, each a region
inside it: the backward pass first recomputes what crosses the cuts, and then the inside of one segment at a time. That
runs the forward pass once more and holds about the square root of it. What is kept between the passes stays what the
policy says.

It is done where a simulation says that it lowers the peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from remat.decisions import Decision
from remat.errors import ReverseModeError
from remat.ir.linearized import Linearized
from remat.ir.ops import Checkpoint, Op
from remat.ir.program import Equation, Program, Value
from remat.ir.types import element_count, size_in_bytes
from remat.simulate.live_bytes import simulate_split
from remat.transforms.decide import decide
from remat.transforms.linearize import linearize_program
from remat.transforms.segments import segmented
from remat.transforms.split import Split, split

AT_ONCE = 0.25
"""Two levels are tried where at least this part of the bytes of a program is recomputed for one equation."""

LOWER = 0.9
"""They are used if the peak is at most this part of the one before,"""

WORTHWHILE = 2**18
"""and lower by so many bytes: nobody runs out of memory for less."""


@dataclass(frozen=True, eq=False)
class Differentiated:
    """A linearized program with what was decided about it and how it is split; `backward` says that it can be run in
    reverse."""

    linearized: Linearized
    decisions: dict[Value, Decision]
    split: Split
    backward: bool


def linearize_and_split(
    program: Program, active: Sequence[bool], auxiliary: int = 0, warn: bool = True
) -> Differentiated:
    """Linearize a program with respect to its active inputs, ask the policies of its regions, and split it; in two
    levels where that pays.

    **Arguments**

    - `program`, `active`: what is differentiated, and with respect to which inputs.
    - `auxiliary`: how many of the last outputs are not differentiated.
    - `warn`: whether users are told of policies that are no use.
    """
    first = _one_level(program, active, auxiliary, warn)
    if not (first.backward and recomputes_much_at_once(first.split)):
        return first
    divided = in_two_levels(program, auxiliary)
    if divided is None:
        return first
    second = _one_level(divided, active, auxiliary, False)
    before, after = simulate_split(first.split).peak, simulate_split(second.split).peak
    return second if after <= min(LOWER * before, before - WORTHWHILE) else first


def split_program(program: Program, active: Sequence[bool], backward: bool = True, auxiliary: int = 0) -> Split:
    """Linearize a program with respect to its active inputs, ask the policies of its regions, and split it. The last
    `auxiliary` outputs are not differentiated."""
    if backward:
        found = linearize_and_split(program, active, auxiliary)
        if not found.backward:
            split(found.linearized, found.decisions)  # raises
        return found.split
    linearized = _linearized(program, active, auxiliary)
    return split(linearized, decide(linearized), False)


def _linearized(program: Program, active: Sequence[bool], auxiliary: int) -> Linearized:
    linearized = linearize_program(program, active)
    linearized.tangent_outputs[len(program.outputs) - auxiliary :] = [None] * auxiliary
    return linearized


def _one_level(program: Program, active: Sequence[bool], auxiliary: int, warn: bool) -> Differentiated:
    linearized = _linearized(program, active, auxiliary)
    decisions = decide(linearized, warn)
    try:
        return Differentiated(linearized, decisions, split(linearized, decisions, True, warn), True)
    except ReverseModeError:  # raised again if the tangents are transposed
        return Differentiated(linearized, decisions, split(linearized, decisions, False), False)


def recomputes_much_at_once(made: Split) -> bool:
    """Whether a large part of the program is recomputed for one equation of the backward pass."""
    level = made.level
    whole = sum(size_in_bytes(v.type) for e in level.linearized.equations for v in e.outputs)
    return level.retrieval.most_at_once > max(AT_ONCE * whole, WORTHWHILE)


def in_two_levels(program: Program, auxiliary: int = 0) -> Program | None:
    """The same program with segments inside the region that is the whole of it. None if there is none, or if it is no
    loss: a region whose results are arrays is one layer of a chain, which the user has cut already."""
    if len(program.equations) != 1 or not isinstance(program.equations[0].op, Checkpoint):
        return None
    (equation,) = program.equations
    if any(element_count(t.shape) > 1 for t in program.output_types[: len(program.outputs) - auxiliary]):
        return None
    region = Equation(_in_segments(equation.op), equation.inputs, equation.outputs, equation.source, equation.region)
    return Program(program.inputs, [region], program.outputs, program.constants, program.signature)


def _in_segments(op: Checkpoint) -> Checkpoint:
    return replace(op, program=segmented(op.program, partial(_segment, op)))


def _segment(op: Checkpoint, inside: Program) -> Op:
    return Checkpoint(inside, op.policy, op.prevent_cse, op.function, derived=True)
