"""Rules under `vmap`: each rule function is mapped over the same axis as the function.

Inputs that are mapped are mapped over their first axis, results always are. What a rule saves is mapped only where it
depends on what is mapped, so that a weight matrix among the residuals is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jex_core
from jax.interpreters import batching

from remat.custom_rules.rule import Saved
from remat.errors import RuleTypeError

_look_p = jex_core.Primitive("remat_look_at_axes")
"""The identity, which tells over which axis each of its operands is mapped."""
_look_p.multiple_results = True
_look_p.def_impl(lambda *xs, note: list(xs))
_look_p.def_abstract_eval(lambda *xs, note: list(xs))


def _look(values: Sequence[Any], dims: Sequence[Any], *, note: Callable[..., None]) -> tuple[Any, Any]:
    note(dims)
    return values, dims


batching.primitive_batchers[_look_p] = _look


@dataclass(frozen=True)
class Axis:
    """What a `vmap` maps over."""

    size: int
    name: Any
    spmd_name: Any

    @classmethod
    def of(cls, axis_data: Any) -> Axis:
        return cls(axis_data.size, axis_data.name, axis_data.spmd_name)

    def vmap(self, function: Callable[..., Any], in_axes: Any, out_axes: Any) -> Callable[..., Any]:
        return jax.vmap(
            function,
            in_axes=tuple(in_axes),
            out_axes=out_axes,
            axis_name=self.name,
            axis_size=self.size,
            spmd_axis_name=self.spmd_name,
        )

    def at_front(self, x: Any, dim: int | None) -> Any:
        return jnp.broadcast_to(x, (self.size, *jnp.shape(x))) if dim is None else jnp.moveaxis(x, dim, 0)

    def run(
        self, name: str, function: Callable[..., tuple[list[Any], Saved]], args: Sequence[Any], in_axes: Sequence[Any]
    ) -> tuple[list[Any], Saved]:
        """Map a rule function that returns results and `Saved`; each saved array keeps the axis that it has."""
        structures: list[Any] = []
        axes: list[Any] = []

        def one(*xs: Any) -> tuple[list[Any], list[Any]]:
            outputs, saved = function(*xs)
            structures.append(saved.structure)
            return outputs, list(saved.leaves)

        def looked_at(*xs: Any) -> tuple[list[Any], list[Any]]:
            outputs, leaves = one(*xs)
            axes[:] = [None] * len(leaves)
            return outputs, list(_look_p.bind(*leaves, note=lambda dims: axes.__setitem__(slice(None), dims)))

        _, types = jax.eval_shape(self.vmap(looked_at, in_axes, 0), *args)
        outputs, leaves = self.vmap(_like(one, name, len(types)), in_axes, (0, list(axes)))(*args)
        return outputs, Saved(leaves, (structures[-1], list(axes)))

    def run_backward(
        self,
        function: Callable[[list[Any], list[Any]], list[Any]],
        leaves: list[Any],
        axes: Sequence[Any],
        cotangents: Sequence[Any],
        mapped: Sequence[bool],
    ) -> list[Any]:
        """Map a function from saved arrays and cotangents to cotangents. Those of inputs that are not `mapped` are
        summed."""
        present = [c is not None for c in cotangents]
        if not any(present):
            return [None] * len(mapped)

        def one(leaves: list[Any], given: list[Any]) -> list[Any]:
            rest = iter(given)
            return function(leaves, [next(rest) if p else None for p in present])

        given = [c for c in cotangents if c is not None]
        found = self.vmap(one, [list(axes), 0], 0)(leaves, given)
        return [c if m or c is None else jnp.sum(c, axis=0, dtype=c.dtype) for c, m in zip(found, mapped, strict=True)]


def _like(function: Callable[..., Any], name: str, count: int) -> Callable[..., Any]:
    """The function, with the demand that it saves as many arrays as the first time."""

    def checked(*xs: Any) -> Any:
        outputs, leaves = function(*xs)
        if len(leaves) != count:
            raise RuleTypeError(
                f"a rule of {name} saved {count} arrays when it was called first and {len(leaves)} when it was called "
                "again with the same types. What a rule saves must not depend on anything but its arguments."
            )
        return outputs, leaves

    return checked


@dataclass(frozen=True, eq=False)
class BatchedRules:
    """The interface of `Rules`, over inputs of which the `mapped` ones have a further first axis."""

    inner: Any
    mapped: tuple[bool, ...]
    axis: Axis

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def in_axes(self) -> list[Any]:
        return [0 if m else None for m in self.mapped]

    def rebuilds(self, in_region: bool) -> bool:
        return self.inner.rebuilds(in_region)

    def tells_zeros(self, rebuilds: bool) -> bool:
        return self.inner.tells_zeros(rebuilds)

    def forward(self, inputs: Sequence[Any], perturbed: Sequence[bool], rebuilds: bool) -> tuple[list[Any], Saved]:
        return self.axis.run(self.name, lambda *xs: self.inner.forward(xs, perturbed, rebuilds), inputs, self.in_axes)

    def rebuild(self, saved: Saved, inputs: Sequence[Any]) -> tuple[list[Any], Saved]:
        structure, axes = saved.structure

        def one(leaves: list[Any], *xs: Any) -> tuple[list[Any], Saved]:
            return self.inner.rebuild(Saved(leaves, structure), xs)

        return self.axis.run(self.name, one, [saved.leaves, *inputs], [axes, *self.in_axes])

    def outside(self, inputs: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], Saved]:
        return self.axis.run(self.name, lambda *xs: self.inner.outside(xs, perturbed), inputs, self.in_axes)

    def backward(self, saved: Saved, cotangents: Sequence[Any], rebuilds: bool) -> list[Any]:
        structure, axes = saved.structure

        def one(leaves: list[Any], given: list[Any]) -> list[Any]:
            return self.inner.backward(Saved(leaves, structure), given, rebuilds)

        return self.axis.run_backward(one, saved.leaves, axes, cotangents, self.mapped)
