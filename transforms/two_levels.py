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
from remat.errors import ReverseModeError, UselessPolicyWarning
from remat.ir.linearized import Linearized
from remat.ir.ops import Call, Checkpoint, Op
from remat.ir.program import Equation, Program, Value
from remat.ir.types import element_count, size_in_bytes
from remat.simulate.live_bytes import simulate_split
from remat.transforms.decide import decide, warn_user
from remat.transforms.linearize import linearize_program
from remat.transforms.segments import segmented
from remat.transforms.split import Split, split
from remat.units import bytes_text

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
    region = loss_region(program, auxiliary)
    if region is None:
        return first
    second = _one_level(_with_region(program, _in_segments(region)), active, auxiliary, False)
    before, after = simulate_split(first.split).peak, simulate_split(second.split).peak
    if after <= min(LOWER * before, before - WORTHWHILE):
        return second
    if warn and not region.derived:
        plain = _one_level(_with_region(program, Call(region.program)), active, auxiliary, False)
        _warn_if_no_lower(region, before, simulate_split(plain.split).peak)
    return first


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


def loss_region(program: Program, auxiliary: int = 0) -> Checkpoint | None:
    """The region that is the whole of a program, if it is a loss. A region whose results are arrays is one layer of a
    chain, which the user has cut already."""
    if len(program.equations) != 1 or any(
        element_count(t.shape) > 1 for t in program.output_types[: len(program.outputs) - auxiliary]
    ):
        return None
    op = program.equations[0].op
    return op if isinstance(op, Checkpoint) else None


def _with_region(program: Program, op: Op) -> Program:
    """A program of one equation with another op in it."""
    (equation,) = program.equations
    replaced = Equation(op, equation.inputs, equation.outputs, equation.source, equation.region)
    return Program(program.inputs, [replaced], program.outputs, program.constants, program.signature)


def _warn_if_no_lower(region: Checkpoint, peak: int, plain: int) -> None:
    """Tell of a policy that takes as much memory as none, or more."""
    if peak < plain:
        return
    of = f" of {region.function}" if region.function else ""
    warn_user(
        UselessPolicyWarning(
            f"the policy {region.policy} of the checkpoint{of} does not lower the peak: what it recomputes at once "
            f"makes the step take {bytes_text(peak)} besides its arguments, and without a policy it would be "
            f"{bytes_text(plain)} (simulated). No place was found where little crosses from one part to the next. "
            "Keep more, for instance with 'dots' or 'balanced', or leave the policy out."
        )
    )


def _in_segments(op: Checkpoint) -> Checkpoint:
    return replace(op, program=segmented(op.program, partial(_segment, op)))


def _segment(op: Checkpoint, inside: Program) -> Op:
    return Checkpoint(inside, op.policy, op.prevent_cse, op.function, derived=True)
