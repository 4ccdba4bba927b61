"""The rules of one call, as functions of flat lists of arrays.

A call of a `custom_vjp` function has a `Call`: how its arguments and results are arranged, and the values of those
arguments that are no arrays. `Rules` puts the user's rule functions behind one interface over flat lists, in which None
stands for a cotangent that is zero, and checks what they return (`remat.custom_rules.checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from remat.custom_rules import checks
from remat.ir.types import is_differentiable
from remat.signature import Arguments, Structure, flatten_outputs
from remat.statics import Box


@dataclass(frozen=True, eq=False)
class Saved:
    """What one rule function leaves for the next: arrays, and how they are arranged."""

    leaves: list[Any]
    structure: Any


@dataclass(eq=False)
class Results:
    """How the results of a call are arranged. Known from the first function that runs: the primal one, or `fwd` where
    the primal function cannot be traced."""

    structure: Structure | None = None
    types: list[Any] = field(default_factory=list)

    def note(self, arrays: Sequence[Any], structure: Structure) -> None:
        self.structure, self.types = structure, [jax.typeof(x) for x in arrays]


@dataclass(frozen=True, eq=False)
class Call:
    """One call. `arguments` has a `Box` in place of each argument that is not differentiated, by position, and no
    leaves: a call outlives the tracers that it was made with."""

    function: str
    arguments: Arguments
    nondiff: tuple[int, ...]
    input_types: list[Any]
    results: Results = field(default_factory=Results)

    def rebuild(self, leaves: Sequence[Any]) -> list[Any]:
        """All arguments of the user's function, with these leaves."""
        args, _ = self.arguments.rebuild(leaves)
        return [a.value if isinstance(a, Box) else a for a in args]

    def fixed(self) -> list[Any]:
        """The arguments that are not differentiated; `bwd` takes them first."""
        args = self.rebuild(range(len(self.input_types)))
        return [args[i] for i in self.nondiff]

    def positions(self) -> list[Any]:
        """The differentiated arguments with the position of each leaf in the flat list in its place."""
        args = self.rebuild(range(len(self.input_types)))
        return [a for i, a in enumerate(args) if i not in self.nondiff]


@dataclass(frozen=True, eq=False)
class VjpRule:
    """What `defvjp` was given."""

    fwd: Callable[..., Any]
    bwd: Callable[..., Any]
    symbolic_zeros: bool = False


@dataclass(frozen=True, eq=False)
class RematRule:
    """What `defremat` was given."""

    fwd: Callable[..., Any]
    rem: Callable[..., Any]
    bwd: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules of one call; at least one of the two is there."""

    call: Call
    vjp: VjpRule | None
    remat: RematRule | None

    @property
    def name(self) -> str:
        return self.call.function

    def rebuilds(self, in_region: bool) -> bool:
        """Whether the rule with `rem` applies. Outside regions it stands in where there is no other."""
        return self.remat is not None and (in_region or self.vjp is None)

    def tells_zeros(self, rebuilds: bool) -> bool:
        """Whether `bwd` wants to know which cotangents are zero."""
        return not rebuilds and self.vjp is not None and self.vjp.symbolic_zeros

    def forward(self, inputs: Sequence[Any], perturbed: Sequence[bool], rebuilds: bool) -> tuple[list[Any], Saved]:
        """Run `fwd`: the results, and what it saves. `perturbed` marks the inputs that are differentiated."""
        rule = self.remat if rebuilds else self.vjp
        assert rule is not None
        if self.tells_zeros(rebuilds):
            inputs = [CustomVJPPrimal(x, p) for x, p in zip(inputs, perturbed, strict=True)]
        return self._pair("fwd", rule.fwd, rule.fwd(*self.call.rebuild(inputs)))

    def rebuild(self, saved: Saved, inputs: Sequence[Any]) -> tuple[list[Any], Saved]:
        """Run `rem`: the results again, and what `bwd` needs."""
        assert self.remat is not None
        rem, saved_by_fwd = self.remat.rem, saved.structure.build(saved.leaves)
        return self._pair("rem", rem, rem(saved_by_fwd, *self.call.rebuild(inputs)))

    def outside(self, inputs: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], Saved]:
        """The forward pass outside every region: `fwd`, followed by `rem` where that rule applies."""
        rebuilds = self.rebuilds(False)
        outputs, saved = self.forward(inputs, perturbed, rebuilds)
        if rebuilds:
            _, saved = self.rebuild(saved, inputs)
        return outputs, saved

    def backward(self, saved: Saved, cotangents: Sequence[Any], rebuilds: bool) -> list[Any]:
        """Run `bwd`: from cotangents of the results to cotangents of the inputs; None is zero."""
        rule = self.remat if rebuilds else self.vjp
        results = self.call.results
        assert rule is not None
        assert results.structure is not None
        tells = self.tells_zeros(rebuilds)
        given = [_cotangent(c, t, tells) for c, t in zip(cotangents, results.types, strict=True)]
        found = rule.bwd(*self.call.fixed(), saved.structure.build(saved.leaves), results.structure.build(given))
        return checks.flat_cotangents(self.call, rule.bwd, found)

    def _pair(self, role: str, function: Callable[..., Any], pair: Any) -> tuple[list[Any], Saved]:
        out, residuals = checks.checked_pair(self.call, role, function, pair)
        outputs, structure = flatten_outputs(function, out)
        checks.check_residuals(self.call, role, function, residuals)
        saved = Saved(*flatten_outputs(function, residuals))
        if self.call.results.structure is None:
            self.call.results.note(outputs, structure)
        checks.check_results(self.call, role, function, outputs, structure)
        return outputs, saved


def _cotangent(cotangent: Any, type: Any, tells_zeros: bool) -> Any:
    """A cotangent as `bwd` takes it."""
    if cotangent is not None:
        return cotangent if isinstance(cotangent, jax.Array) else jnp.asarray(cotangent)
    tangent = type.to_tangent_aval()
    if tells_zeros:
        return SymbolicZero(tangent)
    return jnp.zeros(type.shape, type.dtype) if is_differentiable(type) else checks.float0_zeros(type)
