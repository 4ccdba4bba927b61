"""The intermediate representation: programs of equations over typed values.

    Program  ::= inputs: Value*  constants: (Value, array)*  equations: Equation*  outputs: Atom*
    Equation ::= outputs: Value*  <-  op  inputs: Atom*   @ source, region
    Atom     ::= Value | Literal
    Value    ::= identity + type
    Op       ::= see `remat.ir.ops`

A program is in static single assignment form: each value is defined once, as an input, a constant or an equation's
output, before it is used. Nested programs (loop bodies, branches) are closed: they have no constants of their own, and
whatever they use comes in as an input. The shape follows JAX's jaxprs; what is added is the region an equation
belongs to, a source position that is only worked out when someone reads it, and structure (loops, branches,
checkpoint regions) as data of our own instead of primitive parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remat.ir.source import Source

if TYPE_CHECKING:
    from remat.ir.ops import Op
    from remat.ir.region import Region
    from remat.signature import Signature

Type = Any
"""The type of a value: a JAX abstract value (shape, dtype, weak type, memory space, sharding)."""


class Value:
    """A value of a program. Two values are the same only if they are the same object."""

    __slots__ = ("type",)

    def __init__(self, type: Type):
        self.type = type

    def __repr__(self) -> str:
        return f"Value({self.type})"


class Literal:
    """A constant small enough to stand in the equation that uses it."""

    __slots__ = ("type", "value")

    def __init__(self, value: Any, type: Type):
        self.value = value
        self.type = type

    def __repr__(self) -> str:
        return f"Literal({self.value})"


Atom = Value | Literal


class Equation:
    """`outputs <- op inputs`, with where it was written and the checkpoint region it belongs to (None: no region)."""

    __slots__ = ("inputs", "op", "outputs", "region", "source")

    def __init__(
        self, op: Op, inputs: Sequence[Atom], outputs: Sequence[Value], source: Source, region: Region | None = None
    ):
        self.op = op
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.source = source
        self.region = region

    def __repr__(self) -> str:
        return f"Equation({self.op.name}, {len(self.inputs)} -> {len(self.outputs)})"


@dataclass(eq=False)
class Program:
    """A closed, straight-line list of equations.

    **Attributes**

    - `inputs`: the values a caller gives, in order.
    - `equations`: in an order in which each value is defined before its use.
    - `outputs`: what a caller receives.
    - `constants`: arrays (or JAX tracers) that the traced function closed over; only a top-level program has any.
    - `signature`: how the flat inputs and outputs map to the pytrees of the traced function; None for programs that
      were not made by tracing a user's function.
    """

    inputs: list[Value]
    equations: list[Equation]
    outputs: list[Atom]
    constants: list[tuple[Value, Any]] = field(default_factory=list[tuple[Value, Any]])
    signature: Signature | None = None

    @property
    def input_types(self) -> list[Type]:
        return [v.type for v in self.inputs]

    @property
    def output_types(self) -> list[Type]:
        return [a.type for a in self.outputs]

    def __iter__(self) -> Iterator[Equation]:
        return iter(self.equations)

    def __str__(self) -> str:
        from remat.ir.printer import program_text

        return program_text(self)
