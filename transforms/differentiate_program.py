"""From a program to a forward and a backward program: linearize, ask the policies, split.

A region that is a whole loss is special: its backward begins at once, and nobody has cut it. There, two other forms of
the program are tried (`transforms.open_end`, `transforms.two_levels`), and the one with the lowest simulated peak is
taken. Most programs give no reason to try, which the first walk tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat.decisions import Decision
from remat.errors import NoLowerPeakWarning, ReverseModeError
from remat.ir.linearized import Linearized
from remat.ir.ops import Call, Checkpoint, Op
from remat.ir.program import Equation, Program, Value
from remat.ir.types import element_count
from remat.simulate.live_bytes import simulate_split
from remat.transforms.decide import decide, warn_user
from remat.transforms.linearize import linearize_program
from remat.transforms.open_end import recomputes_what_is_alive, with_open_end
from remat.transforms.split import Split, split
from remat.transforms.two_levels import WORTHWHILE, in_two_levels, recomputes_much_at_once
from remat.units import bytes_text

LOWER = 0.9
"""Two levels are used if the peak is at most this part of the one before, and lower by what is worthwhile."""


@dataclass(frozen=True, eq=False)
class Differentiated:
    """A linearized program with what was decided about it and how it is split; `backward` says that it can be run in
    reverse."""

    linearized: Linearized
    decisions: dict[Value, Decision]
    split: Split
    backward: bool

    @property
    def peak(self) -> int:
        """Bytes that the forward and the backward program need besides their arguments, as far as a simulation says."""
        return simulate_split(self.split).set_aside


def linearize_and_split(
    program: Program,
    active: Sequence[bool],
    auxiliary: int = 0,
    warn: bool = True,
    found: Differentiated | None = None,
) -> Differentiated:
    """Linearize a program with respect to its active inputs, ask the policies of its regions, and split it.

    **Arguments**

    - `program`, `active`: what is differentiated, and with respect to which inputs.
    - `auxiliary`: how many of the last outputs are not differentiated.
    - `warn`: whether users are told of policies that are no use.
    - `found`: what `as_it_stands` returns, where that has been done.
    """
    found = found or as_it_stands(program, active, auxiliary, warn)
    region = _loss_region(program, auxiliary) if found.backward else None
    if region is None:
        return found
    if recomputes_what_is_alive(found.split):
        opened = as_it_stands(_with(program, Call(with_open_end(region))), active, auxiliary, False)
        return opened if opened.peak <= found.peak else found
    if not recomputes_much_at_once(found.split):
        return found
    divided = as_it_stands(_with(program, in_two_levels(region)), active, auxiliary, False)
    before = found.peak
    if divided.peak <= min(LOWER * before, before - WORTHWHILE):
        return divided
    if warn and not region.derived and before > WORTHWHILE:
        plain = as_it_stands(_with(program, Call(region.program)), active, auxiliary, False)
        _warn_if_no_lower(region, before, plain.peak)
    return found


def split_program(program: Program, active: Sequence[bool], backward: bool = True, auxiliary: int = 0) -> Split:
    """The same for who only asks for the split; without `backward`, for tangents."""
    if not backward:
        linearized = _linearized(program, active, auxiliary)
        return split(linearized, decide(linearized), False)
    found = linearize_and_split(program, active, auxiliary)
    if not found.backward:
        split(found.linearized, found.decisions)  # raises
    return found.split


def _linearized(program: Program, active: Sequence[bool], auxiliary: int) -> Linearized:
    linearized = linearize_program(program, active)
    linearized.tangent_outputs[len(program.outputs) - auxiliary :] = [None] * auxiliary
    return linearized


def as_it_stands(program: Program, active: Sequence[bool], auxiliary: int, warn: bool) -> Differentiated:
    """The same as `linearize_and_split`, with the regions that the user made and no others."""
    linearized = _linearized(program, active, auxiliary)
    decisions = decide(linearized, warn)
    try:
        return Differentiated(linearized, decisions, split(linearized, decisions, True, warn), True)
    except ReverseModeError:  # raised again if the tangents are transposed
        return Differentiated(linearized, decisions, split(linearized, decisions, False), False)


def _loss_region(program: Program, auxiliary: int) -> Checkpoint | None:
    """The region that is the whole of a program, if it is a loss. A region whose results are arrays is one layer of a
    chain, which the user has cut already."""
    if len(program.equations) != 1 or any(
        element_count(t.shape) > 1 for t in program.output_types[: len(program.outputs) - auxiliary]
    ):
        return None
    op = program.equations[0].op
    return op if isinstance(op, Checkpoint) and not getattr(op.policy, "is_a_plan", False) else None


def _with(program: Program, op: Op) -> Program:
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
        NoLowerPeakWarning(
            f"the policy {region.policy} of the checkpoint{of} does not lower the peak: what it recomputes at once "
            f"makes the step take {bytes_text(peak)} besides its arguments, and without a policy it would be "
            f"{bytes_text(plain)} (simulated). No place was found where little crosses from one part to the next. "
            "Keep more, put checkpoints around parts of it, or leave the policy out."
        )
    )
