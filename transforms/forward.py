"""The forward side of a split: the equations that compute results and residuals, in order."""

from __future__ import annotations

from remat import jax_compat
from remat.decisions import Offload, Save
from remat.ir.ops import Name, Primitive, ToMemory
from remat.ir.program import Equation, Value
from remat.ir.source import UNKNOWN
from remat.ir.traits import is_view_or_cast
from remat.ir.types import is_floating
from remat.transforms.walk import Level


def forward_equations(level: Level) -> list[Equation]:
    """The primal and coefficient equations, with loops and branches that emit residuals, moves to other memories, and
    kept values rounded to their type."""
    kept = {v for v in level.residuals if _should_round(level, v)}
    result = [e for equation in level.forward_order() for e in _rounded(equation, kept)]
    for value, residual in level.residuals.items():
        decision = level.kept[value]
        if isinstance(decision, Offload):
            made = level.producer.get(value)  # none for what a loop carries
            source, region = (UNKNOWN, None) if made is None else (made.source, made.region)
            result.append(Equation(ToMemory(decision.destination), [value], [residual], source, region))
    return result


def _should_round(level: Level, value: Value) -> bool:
    """Sub-32-bit floats that a policy keeps: XLA may hold more digits in the forward pass than are stored, and then
    gradients would depend on the policy (JAX does the same in its checkpoint)."""
    equation = level.producer.get(value)
    if equation is None or equation.region is None or not isinstance(equation.op, (Primitive, Name)):
        return False
    return is_floating(value.type) and value.type.dtype.itemsize < 4


def _rounded(equation: Equation, kept: set[Value]) -> list[Equation]:
    """The equation, followed by roundings of those of its outputs that are in `kept`."""
    if not any(v in kept for v in equation.outputs):
        return [equation]
    raw = [Value(v.type) if v in kept else v for v in equation.outputs]
    result = [Equation(equation.op, equation.inputs, raw, equation.source, equation.region)]
    for before, after in zip(raw, equation.outputs, strict=True):
        if before is not after:
            op = Primitive(*jax_compat.reduce_precision(after.type.dtype))
            result.append(Equation(op, [before], [after], equation.source, equation.region))
    return result


def ordered_residuals(level: Level) -> list[Value]:
    """Values that are kept, in JAX's order: constants, inputs, and then as the forward program has them."""
    order: dict[Value, int] = {}
    for value in (*(v for v, _ in level.linearized.constants), *level.linearized.inputs):
        order[value] = len(order)
    for equation in level.forward_order():
        for value in equation.outputs:
            order.setdefault(value, len(order))
    return sorted(level.residuals, key=order.__getitem__)


def redundant_residuals(level: Level) -> list[Value]:
    """Kept values of a region that are views or casts of another kept value, or of an input, at every level; with
    the values in between."""
    found = [v for value in level.residuals for v in _views_down_to_kept(level, value)]
    for child in level.children:
        found.extend(redundant_residuals(child))
    return found


def _views_down_to_kept(level: Level, value: Value) -> list[Value]:
    """The chain of views and casts from `value` down to a value that is kept too; empty if there is none."""
    chain: list[Value] = []
    equation = level.producer.get(value)
    if equation is None or equation.region is None or not isinstance(level.decisions.get(value), Save):
        return []
    while is_view_or_cast(equation.op):
        chain.append(value)
        sources = [a for a in equation.inputs if isinstance(a, Value)]
        if len(sources) != 1:
            return []
        (value,) = sources
        equation = level.producer.get(value)
        if equation is None or value in level.residuals:
            return chain
    return []
