"""The rule for `while`: it has a derivative in forward mode only."""

from __future__ import annotations

from collections.abc import Sequence

from remat.errors import ReverseModeError
from remat.ir.linearized import Opaque, Transposed
from remat.ir.ops import While
from remat.ir.program import Atom, Equation, Program
from remat.ir.types import is_differentiable
from remat.transforms.derivative import forward_map
from remat.transforms.linearize import Linearizer, Tangent, emit_opaque, linearize_program, linearize_rules


def _while(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent]
) -> tuple[list[Atom], list[Tangent]]:
    """Forward mode only: the length of the loop is unknown, so nothing can be kept for a backward pass."""
    op = equation.op
    assert isinstance(op, While)
    types = [a.type for a in inputs]
    active = tuple(t is not None for t in tangents)
    outputs = state.emit(op, inputs, [v.type for v in equation.outputs])
    carried = _active_carry(op, active)
    if not any(carried):
        return list(outputs), [None] * len(outputs)

    def forward() -> Program:
        inner = forward_map(op, types, active)
        flags = [is_differentiable(v.type) for v in equation.outputs]
        keep = [c for c, f in zip(carried, flags, strict=True) if f]
        kept = [o for o, k in zip(inner.outputs, keep, strict=True) if k]
        return Program(inner.inputs, inner.equations, kept, inner.constants)

    def backward(present: tuple[bool, ...]) -> Transposed:
        raise ReverseModeError(
            f"cannot differentiate in reverse mode through the while loop at {equation.source.text or 'unknown line'}:"
            " its number of iterations is only known when it runs, so nothing can be kept for the backward pass. Use "
            "jax.lax.scan, jax.lax.fori_loop with constant bounds, forward mode (remat.jvp), or stop_gradient on what "
            "enters the loop."
        )

    return list(outputs), emit_opaque(state, Opaque("while", forward, backward), inputs, tangents, carried, outputs)


def _active_carry(op: While, active: Sequence[bool]) -> list[bool]:
    """Which carried values depend on active inputs, by iteration to a fixed point."""
    m, n = op.condition_constants, op.condition_constants + op.body_constants
    constants, carry = list(active[m:n]), list(active[n:])
    while True:
        body = linearize_program(op.body, [*constants, *carry])
        grown = [c or t is not None for c, t in zip(carry, body.tangent_outputs, strict=True)]
        if grown == carry:
            return carry
        carry = grown


linearize_rules[While] = _while
