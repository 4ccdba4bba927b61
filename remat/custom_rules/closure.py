"""Functions with the arrays that they close over as their leaves, so that rules can save them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from remat import jax_compat
from remat.custom_rules.checks import float0_zeros
from remat.errors import RuleTypeError
from remat.ir.types import is_differentiable
from remat.signature import Structure, flatten_outputs, function_name, tree_text


class Closure:
    """A function that was traced. A pytree whose leaves are the arrays that it closes over."""

    def __init__(self, arrays: Sequence[Any], traced: Traced):
        self.arrays = list(arrays)
        self.traced = traced

    def __call__(self, *args: Any) -> Any:
        return self.traced(self.arrays, args)


class Traced:
    """What a `Closure` has besides its arrays."""

    def __init__(self, name: str, jaxpr: Any, inputs: Structure, outputs: Structure, is_given: list[bool]):
        self.name, self.jaxpr, self.inputs, self.outputs, self.is_given = name, jaxpr, inputs, outputs, is_given

    def __call__(self, arrays: Sequence[Any], args: tuple[Any, ...]) -> Any:
        leaves, structure = flatten_outputs(self, args)
        if structure.tree != self.inputs.tree:
            raise RuleTypeError(
                f"{self.name} was traced for other arguments than {tree_text(args)}. Return a function of one "
                "cotangent, shaped like the result, or with remat=True one of the arguments."
            )
        given = [x for x, g in zip(leaves, self.is_given, strict=True) if g]
        return self.outputs.build(jax_compat.evaluate_jaxpr(self.jaxpr, given, arrays))


jax.tree_util.register_pytree_node(
    Closure, lambda c: (c.arrays, c.traced), lambda traced, arrays: Closure(arrays, traced)
)


def closed(function: Callable[..., Any], *args: Any, cotangents: bool = False) -> Closure:
    """Trace a function for arguments of these types, or for cotangents of them."""
    leaves, inputs = flatten_outputs(function, args)
    types = [jax.typeof(x) for x in leaves]
    is_given = [not cotangents or is_differentiable(t) for t in types]
    structures: list[Structure] = []

    def flat(*chosen: Any) -> list[Any]:
        rest = iter(chosen)
        full = [next(rest) if g else float0_zeros(t) for g, t in zip(is_given, types, strict=True)]
        arrays, structure = flatten_outputs(function, function(*inputs.build(full)))
        structures.append(structure)
        return arrays

    chosen = [t.to_tangent_aval() if cotangents else t for t, g in zip(types, is_given, strict=True) if g]
    jaxpr = jax.make_jaxpr(flat)(*chosen)
    constants = [array for _, array in jax_compat.unwrap(jaxpr).constants]
    return Closure(constants, Traced(function_name(function), jaxpr, inputs, structures[-1], is_given))
