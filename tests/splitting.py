"""What tests of the backward program share: splitting a function, and counting equations."""

import jax.numpy as jnp

import remat
from remat.ir.program import Program
from remat.ir.types import is_differentiable
from remat.transforms.split import Split
from remat.transforms.two_levels import split_program

VECTOR = jnp.linspace(0.1, 1.0, 4)
MATRIX = jnp.linspace(0.1, 1.0, 16).reshape(4, 4) / 4


def split(fun, *args) -> Split:
    program = remat.trace(fun)(*args)
    return split_program(program, [is_differentiable(t) for t in program.input_types])


def count(program: Program, name: str) -> int:
    """How many equations of that name, nested programs included."""
    own = sum(e.op.name == name for e in program.equations)
    return own + sum(count(inner, name) for e in program.equations for inner in e.op.programs)
