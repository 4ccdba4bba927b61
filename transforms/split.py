"""Splitting a linearized program into a forward program, a backward (or tangent) program, and the residuals between."""

# Some imports fill the rule tables; ruff looks for those that are unused.
# pyright: reportUnusedImport=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import remat.transforms.rules.cond
import remat.transforms.rules.custom_rule
import remat.transforms.rules.scan
import remat.transforms.rules.shard_map
import remat.transforms.rules.while_loop  # noqa: F401  (fill the rule tables)
from remat.decisions import RECOMPUTE, Decision, Offload
from remat.ir.check import check_program
from remat.ir.linearized import Linearized
from remat.ir.program import Atom, Program, Value
from remat.ir.rewrite import prune
from remat.ir.types import size_in_bytes
from remat.jax_compat import cotangent_type
from remat.transforms.forward import forward_equations, ordered_residuals, redundant_residuals
from remat.transforms.offload import place_fetches, place_stores
from remat.transforms.override import warn_of_overriding
from remat.transforms.useless import warn_of_useless_policies
from remat.transforms.walk import Level


@dataclass(frozen=True, eq=False)
class Split:
    """`forward`: inputs -> outputs, residuals. `second`: residuals, cotangents -> cotangents of the active inputs, or
    residuals, tangents -> tangents of the outputs.

    **Attributes**

    - `residuals`: the values that are kept, as the forward program defines them, in order.
    - `given`: for each output, whether `second` takes a cotangent for it (backward); for each input, whether it takes
      a tangent (forward mode).
    - `returned`: for each input (backward) or output (forward mode), whether `second` returns something for it; where
      it does not, the result is zero.
    - `level`, `linearized`: what the split was made from, for inspection.
    """

    forward: Program
    second: Program
    residuals: list[Value]
    given: tuple[bool, ...]
    returned: tuple[bool, ...]
    level: Level
    linearized: Linearized

    @property
    def output_count(self) -> int:
        return len(self.linearized.outputs)


def split(linearized: Linearized, decisions: dict[Value, Decision], backward: bool = True, warn: bool = True) -> Split:
    """Split a linearized program as decided. `backward` says whether the second program runs in reverse, `warn` whether
    users are told of policies that are of no use.

    A kept value and a view or cast of it are never both kept: where the first walk finds such a pair, the later of the
    two is recomputed in a second walk.
    """
    level, arguments, given, results = _walk_without_redundance(linearized, decisions, backward)
    if backward and warn:
        warn_of_useless_policies(linearized, level)
        count = partial(kept_bytes, linearized)
        warn_of_overriding(linearized, level, decisions, bytes_kept_by(linearized, level), count)
    found = [r for r in results if r is not None]
    then = prune(level.equations_out, found)
    read = {a for e in then for a in e.inputs}.union(found)
    kept = [v for v in ordered_residuals(level) if level.residuals[v] in read]
    stored = [level.residuals[v] for v in kept]

    outputs: list[Any] = [*linearized.outputs, *stored]
    first = prune(forward_equations(level), outputs)
    if backward:
        kinds: dict[Atom, str] = {
            level.residuals[v]: d.destination for v, d in level.kept.items() if isinstance(d, Offload)
        }
        first, then = place_stores(first, outputs), place_fetches(then, arguments, kinds)
    forward = Program(linearized.inputs, first, outputs, linearized.constants)
    second = Program([*stored, *arguments], then, found)
    returned = tuple(r is not None for r in results)
    return Split(check_program(forward), check_program(second), kept, given, returned, level, linearized)


def kept_bytes(linearized: Linearized, decisions: dict[Value, Decision]) -> int:
    """How many bytes would be kept for the backward pass, what the caller holds anyway left out."""
    return bytes_kept_by(linearized, _walk_without_redundance(linearized, decisions, True)[0])


def bytes_kept_by(linearized: Linearized, level: Level) -> int:
    """How many bytes a finished walk keeps, what the caller holds anyway left out."""
    held = {*linearized.inputs, *(v for v, _ in linearized.constants)}
    return sum(size_in_bytes(stored.type) for value, stored in level.residuals.items() if value not in held)


def _walk_without_redundance(
    linearized: Linearized, decisions: dict[Value, Decision], backward: bool
) -> tuple[Level, list[Value], tuple[bool, ...], Sequence[Atom | None]]:
    """One walk, and where it keeps a value and a view or cast of it, another one that recomputes the later."""
    walked = _walk(linearized, dict(decisions), backward)
    redundant = redundant_residuals(walked[0])
    if redundant:
        walked = _walk(linearized, {**decisions, **dict.fromkeys(redundant, RECOMPUTE)}, backward)
    return walked


def _walk(
    linearized: Linearized, decisions: dict[Value, Decision], backward: bool
) -> tuple[Level, list[Value], tuple[bool, ...], Sequence[Atom | None]]:
    """One walk; returns the level, the arguments of the second program, which are given, and its results."""
    level = Level(linearized, decisions, backward)
    if backward:
        cotangents = [None if t is None else Value(cotangent_type(t.type)) for t in linearized.tangent_outputs]
        arguments = [c for c in cotangents if c is not None]
        return level, arguments, tuple(c is not None for c in cotangents), level.transpose(cotangents)
    tangents = linearized.tangents
    arguments = [t for t in tangents if t is not None]
    return level, arguments, tuple(t is not None for t in tangents), level.apply(tangents)
