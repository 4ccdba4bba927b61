"""How the bytes of a program are spread over devices, as far as its arguments and its sharding constraints say.

XLA decides that value by value when it compiles. Here gradients are taken to be spread as what they are of, and all
else as the most of the values between: as the batch, that is. What is gathered on the way (the weights of a layer) is
not counted. `Plan.verify` corrects for that by what the compiled program takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remat.ir.ops import nested_programs
from remat.ir.program import Program
from remat.simulate.sizes import device_bytes


@dataclass(frozen=True)
class Spread:
    """`gradients` are bytes on all devices together, `gradients_each` on one; all else is in so many `parts`. `held`
    are the bytes of arguments on one device."""

    gradients: int
    gradients_each: int
    parts: int
    held: int

    def peak(self, bytes: int) -> int:
        """What one device takes of a peak, gradients included."""
        return self.gradients_each + self.kept(max(0, bytes - self.gradients)) if self.parts > 1 else bytes

    def kept(self, bytes: int) -> int:
        """What one device takes of values that are kept."""
        return -(-bytes // self.parts)


def spread_of(program: Program, active: Sequence[bool], given: Sequence[int] = ()) -> Spread:
    """How a loss is spread: by constraints in it, and by the `given` number of parts of each of its inputs."""
    parts = {v: 1 for v in program.inputs} | dict(zip(program.inputs, given, strict=False))
    between = [n for (v, n), a in zip(parts.items(), active, strict=True) if not a]
    everywhere = [e for p in nested_programs([program]) for e in p.equations]
    for equation in [e for e in everywhere if e.op.name == "sharding_constraint"]:
        value = equation.inputs[0]
        count = parts_of(equation.op.params["sharding"], value.type.shape)  # type: ignore[attr-defined]
        if value in parts:
            parts[value] = max(parts[value], count)  # type: ignore[index]
        else:
            between.append(count)
    each = [-(-device_bytes(v.type) // n) for v, n in parts.items()]
    gradients = [(device_bytes(v.type), e) for v, e, a in zip(parts, each, active, strict=True) if a]
    held = sum(each) + sum(device_bytes(v.type) for v, _ in program.constants)
    return Spread(sum(g for g, _ in gradients), sum(e for _, e in gradients), max(between, default=1), held)


def parts_of(sharding: Any, shape: tuple[int, ...]) -> int:
    """In how many parts an array is that has this sharding; 1 where that is not known."""
    try:
        part = sharding.shard_shape(shape)
    except (AttributeError, TypeError, ValueError):
        return 1
    return math.prod(-(-n // max(1, p)) for n, p in zip(shape, part, strict=True) if isinstance(n, int))
