"""Where an equation is in the user's own code, frames of the libraries that call it left out."""

from __future__ import annotations

import itertools
import os
import re

from remat import jax_compat
from remat.ir.ops import nested_programs
from remat.ir.program import Equation
from remat.ir.source import Position, Source

FRAMEWORKS = frozenset({"flax", "equinox", "haiku", "optax", "diffrax", "optimistix", "lineax", "jaxtyping", "jax"})
"""Libraries that a user's code is written against. JAX's record of an equation names lines in them."""

REACH = 100
"""How many equations of a checkpoint are asked for their line."""

_PACKAGE = re.compile(r"[\\/](?:site|dist)-packages[\\/]([^\\/]+)[\\/]|[\\/](functools|contextlib)\.py$")


def place_of(source: Source) -> Position:
    """The innermost line that is in none of these libraries; what JAX says where there is no such line."""
    first = source.position
    if not _is_library(first.file):
        return first
    at: Source | None = source
    while at is not None:
        for file, line, function in jax_compat.frames_of(at.info):
            if not _is_library(file):
                return Position(file, line, 0, function)
        at = at.caller or at.enclosing
    return first


def place_of_call(equation: Equation) -> Position:
    """Where a checkpoint is called; where libraries call it, the first line of the user's inside."""
    inside = (e.source for p in nested_programs(equation.op.programs) for e in p.equations)
    places = map(place_of, itertools.chain([equation.source], itertools.islice(inside, REACH)))
    return next((p for p in places if p.file and not _is_library(p.file)), place_of(equation.source))


def line_text(source: Source) -> str:
    """A place in a sentence: `model.py:12`."""
    position = place_of(source)
    return f"{position.file.rsplit('/', 1)[-1]}:{position.line}" if position.file else "an unknown line"


_ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_OWN = tuple(os.path.realpath(os.path.join(_ROOT, name)) + os.sep for name in os.listdir(_ROOT) if name != "demo")


def _is_library(file: str) -> bool:
    if os.path.realpath(file).startswith(_OWN) or os.path.dirname(file) == _ROOT:
        return True
    found = _PACKAGE.search(file)
    return found is not None and (found[1] is None or found[1] in FRAMEWORKS)
