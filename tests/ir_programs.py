"""What tests of the intermediate representation share."""

from __future__ import annotations

import textwrap
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import primitives

from remat.ir.ops import Primitive
from remat.ir.program import Equation, Program, Value
from remat.ir.source import UNKNOWN

X = jnp.arange(3.0)
VECTOR = jax.typeof(X)
SIN = Primitive(primitives.sin_p, {"accuracy": None})


def assert_text(program: Program, expected: str) -> None:
    assert str(program) == textwrap.dedent(expected).strip()


def names_of_ops(program: Program) -> list[str]:
    return [e.op.name for e in program.equations]


def unary(x: Value, out: Value) -> Equation:
    return Equation(SIN, [x], [out], UNKNOWN)


def values(*types: Any) -> list[Value]:
    return [Value(t) for t in types]
