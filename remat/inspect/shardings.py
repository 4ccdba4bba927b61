"""How many bytes of a kept value one device holds, where the program says how the value is sharded.

That is known of an argument that has a `NamedSharding`, of an array whose type has one (on a mesh with explicit axes),
and of what `jax.lax.with_sharding_constraint` is written about: its result, and its operand, which XLA computes in
that sharding. What an iteration of a loop hands to the next one is sharded as it leaves the body. Of all other values
XLA decides, and nobody knows before it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax.sharding import AxisType, NamedSharding

from remat.ir.linearized import Linearized, LinearScan
from remat.ir.ops import Name, Primitive, Scan
from remat.ir.program import Equation, Value
from remat.ir.types import SYMBOLIC_SIZE, element_count, size_in_bytes


class Shardings:
    """The shardings that are written in a linearized program, or on its arguments."""

    def __init__(self, program: Linearized, leaves: Sequence[Any]):
        self.of: dict[Value, NamedSharding] = {}
        for value, leaf in zip(program.inputs, leaves, strict=False):
            self._note(value, getattr(leaf, "sharding", None))
        for level in program.levels():
            for equation in level.equations:
                self._read(equation)
        for level in program.levels():
            for op in (e.op for e in level.linear):
                if isinstance(op, LinearScan):
                    self._carry(op)

    def device_bytes(self, value: Value) -> int | None:
        """Bytes of one instance on one device; None where nobody wrote how it is sharded."""
        sharding = self.of.get(value) or _of_type(value.type)
        if sharding is None or not _is_of_several(sharding):
            return None
        shape = getattr(value.type, "shape", ())
        sizes = [d if isinstance(d, int) else SYMBOLIC_SIZE for d in shape]
        parts = [_parts(sharding, axes) for axes in sharding.spec]
        local = [-(-size // p) for size, p in zip(sizes, [*parts, *[1] * len(sizes)], strict=False)]
        count = element_count(shape)
        return size_in_bytes(value.type) // count * math.prod(local) if count else 0

    def _read(self, equation: Equation) -> None:
        op, inputs = equation.op, equation.inputs
        if isinstance(op, Primitive) and op.name == "sharding_constraint" and not op.params.get("unconstrained_dims"):
            for atom in (*inputs, *equation.outputs):
                if isinstance(atom, Value):
                    self._note(atom, op.params["sharding"])
        elif isinstance(op, Name) and inputs[0] in self.of:
            self._note(equation.outputs[0], self.of[inputs[0]])  # type: ignore[index]

    def _carry(self, op: LinearScan) -> None:
        scan = op.equation.op
        assert isinstance(scan, Scan)
        carried = op.body.inputs[scan.constant_count : scan.constant_count + scan.carry_count]
        for value, out in zip(carried, op.body.outputs, strict=False):
            if isinstance(out, Value):
                self._note(value, self.of.get(out))

    def _note(self, value: Value, sharding: Any) -> None:
        if isinstance(sharding, NamedSharding):
            self.of.setdefault(value, sharding)


def _of_type(type: Any) -> NamedSharding | None:
    """The sharding that a type tells: only explicit axes are a promise."""
    sharding = getattr(type, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.mesh.empty:
        return None
    return sharding if all(t == AxisType.Explicit for t in sharding.mesh.axis_types) else None


def _is_of_several(sharding: NamedSharding) -> bool:
    return math.prod(sharding.mesh.shape.values()) > 1


def _parts(sharding: NamedSharding, axes: Any) -> int:
    names = axes if isinstance(axes, tuple) else () if axes is None else (axes,)
    return math.prod(sharding.mesh.shape[name] for name in names if name in sharding.mesh.shape)
