"""The small values that a large one follows from by cheap equations.

A barrier makes an array of what it ties. A cotangent is often no array at all before that: a scalar that is broadcast,
an upcast, labels scattered into zeros, a sum that is spread out again; XLA fuses these with what reads them. So a
barrier ties the small values that such a cotangent follows from, and the equations between are emitted again behind it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from remat.ir.ops import Barrier, Primitive
from remat.ir.program import Atom, Equation, Value
from remat.ir.rewrite import Builder
from remat.ir.traits import is_memory_bound, is_product
from remat.ir.types import size_in_bytes

STEPS = 12
"""How many equations are followed at most: chains that spread a value are short."""

WORTHWHILE = 0.5
"""The origin is taken if it has at most this part of the bytes. An upcast from bfloat16 halves them."""


@dataclass(frozen=True, eq=False)
class Origin:
    """A value follows from `roots` by `equations`, in this order."""

    roots: tuple[Value, ...]
    equations: tuple[Equation, ...]


def origin_of(value: Value, producer: Mapping[Value, Equation]) -> Origin | None:
    """The smallest values that `value` follows from by a few cheap equations, if they are much smaller.

    **Arguments**

    - `value`: a value of a program under construction.
    - `producer`: from values of that program to their equations; values that it does not have are roots.

    **Returns**

    The origin, or None if nothing smaller is in reach. It may have no roots: a value made of literals alone.
    """
    bytes_of = {value: size_in_bytes(value.type)}
    heap = [(-bytes_of[value], 0, value)]
    chain: list[Equation] = []
    total, best, best_length = bytes_of[value], WORTHWHILE * bytes_of[value], 0
    while heap and len(chain) < STEPS:
        size, _, largest = heapq.heappop(heap)
        equation = producer.get(largest)
        if equation is None or not _is_cheap(equation):
            if -size > best:
                return _origin(value, chain[:best_length])
            continue  # a root, and small enough
        chain.append(equation)
        total += size
        for atom in equation.inputs:
            if isinstance(atom, Value) and atom not in bytes_of:
                bytes_of[atom] = size_in_bytes(atom.type)
                total += bytes_of[atom]
                heapq.heappush(heap, (-bytes_of[atom], len(bytes_of), atom))
        if total <= best:
            best, best_length = total, len(chain)
    return _origin(value, chain[:best_length])


def _is_cheap(equation: Equation) -> bool:
    """Whether computing an equation again, fused with what reads it, costs next to nothing."""
    if len(equation.outputs) != 1 or equation.op.name == Barrier.name or is_product(equation.op):
        return False  # products are arrays for XLA, outer ones too
    if isinstance(equation.op, Primitive) and equation.op.name in ("scatter-add", "scatter"):
        return sum(size_in_bytes(a.type) for a in equation.inputs[1:]) < size_in_bytes(equation.outputs[0].type)
    return is_memory_bound(equation.op) and not equation.op.effects


def _origin(value: Value, chain: Sequence[Equation]) -> Origin | None:
    """The roots of a chain that was found from the value upwards, with its equations in the order of computation."""
    if not chain:
        return None
    made = {e.outputs[0]: e for e in chain}
    order: dict[Equation, None] = {}
    roots: dict[Value, None] = {}

    def visit(of: Value) -> None:  # as deep as the chain is long
        equation = made.get(of)
        if equation is None:
            roots[of] = None
        elif equation not in order:
            for atom in equation.inputs:
                if isinstance(atom, Value):
                    visit(atom)
            order[equation] = None

    visit(value)
    return Origin(tuple(roots), tuple(order))


def emit_again(builder: Builder, origin: Origin, env: dict[Atom, Atom]) -> None:
    """Append the equations of an origin, with its values replaced as `env` says, and add what they define to it."""
    for equation in origin.equations:
        (output,) = equation.outputs
        if output not in env:
            inputs = [env.get(a, a) for a in equation.inputs]
            env[output] = builder.emit(equation.op, inputs, [output.type])[0]
