"""Which tangents get a cotangent at all, and which tangents are asked for: found before anything is emitted.

A result that the loss does not use has no cotangent. Were it given one of zeros, the derivative of what made it would
be kept for nothing, and would turn to NaN where it is infinite. So loops and branches are only resolved for the
outputs that are live. What a loop carries is live by iteration to a fixed point: a carried value is live if its final
value is, or if an iteration's live results lead back to it.

In reverse mode, what a linear equation leads back to is what its transpose returns; in forward mode it is every tangent
that it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from remat import jax_compat
from remat.ir.linearized import (
    LinearCond,
    LinearEquation,
    Linearized,
    LinearScan,
    LinearShardMap,
    Opaque,
    Transposed,
)
from remat.ir.ops import Scan
from remat.ir.program import Value
from remat.ir.rewrite import select
from remat.transforms.derivative import transpose


@dataclass(frozen=True, eq=False)
class LiveScan:
    """For each output and each input of a scan's body, whether it has a live tangent. A carried value that is live in
    any iteration counts as an output; as an input it counts if the initial value is live."""

    outputs: tuple[bool, ...]
    inputs: tuple[bool, ...]


class Liveness:
    """Answers for all levels of one walk; each question is worked out once."""

    def __init__(self, backward: bool):
        self.backward = backward
        self._transposed: dict[tuple[LinearEquation, tuple[bool, ...]], Transposed] = {}
        self._scans: dict[tuple[LinearEquation, tuple[bool, ...]], LiveScan] = {}

    def tangents(self, linearized: Linearized, outputs: Iterable[Value]) -> set[Value]:
        """The live tangents of a level of which these tangents are live at its end."""
        live = set(outputs)
        for equation in reversed(linearized.linear):
            present = tuple([v in live for v in equation.outputs])
            if any(present):
                live.update(select(equation.tangents, self.reached(equation, present)))
        return live

    def of_outputs(self, linearized: Linearized, flags: Sequence[bool]) -> set[Value]:
        """The live tangents of a level whose flagged outputs are live."""
        found = [t for t, f in zip(linearized.tangent_outputs, flags, strict=True) if f and t is not None]
        return self.tangents(linearized, found)

    def reached(self, equation: LinearEquation, present: tuple[bool, ...]) -> Sequence[bool]:
        """Which tangents of a linear equation are live if those of its outputs are that are `present`."""
        op = equation.op
        if isinstance(op, LinearScan):
            flags = self.scan(equation, present).inputs
            return _of_tangents(equation, select(flags, _active_inputs(op)))
        if isinstance(op, LinearCond):
            spread = spread_flags(present, op.active_outputs)
            branches = [(b, self.of_outputs(b, spread)) for b in op.branches]
            found = [[t in live for t in b.tangents if t is not None] for b, live in branches]
            return _of_tangents(equation, [any(each) for each in zip(*found, strict=True)])
        if isinstance(op, LinearShardMap):
            flags = spread_flags(present, op.active_outputs)
            live = jax_compat.inside_shard_map(op.equation.op, lambda: self.of_outputs(op.body, flags))
            return [t in live for t in op.body.tangents if t is not None]
        if not self.backward:
            return [True] * sum(equation.linear)
        return [not zero for zero in self.transposed(equation, present).zero]

    def transposed(self, equation: LinearEquation, present: tuple[bool, ...]) -> Transposed:
        """The transpose of an equation that is no loop or branch."""
        key = (equation, present)
        if key not in self._transposed:
            op = equation.op
            self._transposed[key] = (
                op.backward(present)
                if isinstance(op, Opaque)
                else transpose(op, equation.inputs, equation.linear, equation.outputs, present)
            )
        return self._transposed[key]

    def scan(self, equation: LinearEquation, present: tuple[bool, ...]) -> LiveScan:
        """What is live in a scan of which those final carries and stacked results are live that are `present`."""
        key = (equation, present)
        if key not in self._scans:
            self._scans[key] = self._scan(equation, present)
        return self._scans[key]

    def _scan(self, equation: LinearEquation, present: tuple[bool, ...]) -> LiveScan:
        op = equation.op
        assert isinstance(op, LinearScan)
        scan = op.equation.op
        assert isinstance(scan, Scan)
        k, n = scan.constant_count, scan.constant_count + scan.carry_count
        flags = spread_flags(present, op.active_outputs)
        carry, stacked = flags[: scan.carry_count], flags[scan.carry_count :]
        while True:
            live = self.of_outputs(op.body, [*carry, *stacked])
            reached = [t in live for t in op.body.tangents]
            grown = [c or r for c, r in zip(carry, reached[k:n], strict=True)]
            if grown == carry:
                break
            carry = grown
        # In reverse mode a carried value that no iteration leads back to has no cotangent before the loop, unless there
        # may be no iteration, and the final value is the initial one. In forward mode the loop starts from all of them.
        runs = self.backward and isinstance(scan.length, int) and scan.length > 0
        initial = reached[k:n] if runs else carry
        return LiveScan((*carry, *stacked), (*reached[:k], *initial, *reached[n:]))


def spread_flags(present: Sequence[bool], active: Sequence[bool]) -> list[bool]:
    """Flags of the active ones as flags of all."""
    flags = iter(present)
    return [a and next(flags) for a in active]


def _active_inputs(op: LinearScan) -> tuple[bool, ...]:
    return (*op.active_constants, *op.active_carry, *op.active_slices)


def _of_tangents(equation: LinearEquation, flags: Sequence[bool]) -> list[bool]:
    """Flags of all inputs as flags of those that are tangents; some are zeros where a loop needs an initial tangent."""
    return select(flags, equation.linear)
