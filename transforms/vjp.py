"""What `vjp` and `linearize` return for arguments with static leaves (strings, functions, flags).

JAX's own pullbacks and linear functions are for arrays only; these take and return the arguments as they were given.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import dtypes

from remat.errors import ArgumentTypeError
from remat.signature import Structure, tree_text


def without_statics(structure: Structure, has_integers: bool = True) -> Structure:
    """The structure of gradients: None in place of static leaves, but for booleans where integers have gradients."""
    found = {i: _FLOAT0 if has_integers and isinstance(v, bool) else None for i, v in structure.statics.items()}
    return Structure(structure.tree, found)


_FLOAT0 = np.zeros((), dtypes.float0)


class _WithStatics:
    """What JAX returns for the array leaves of some arguments, for the arguments as they were given. A pytree."""

    def __init__(self, function: Any, structure: Structure):
        self.function = function
        self.structure = structure

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.function!r}>"


@jax.tree_util.register_pytree_node_class
class VjpFunction(_WithStatics):
    """`vjp_fn` of a function whose arguments have static leaves; their cotangents are None (float0 for booleans)."""

    def __call__(self, cotangent: Any) -> tuple[Any, ...]:
        return without_statics(self.structure).build(self.function(cotangent))[0]

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.function,), self.structure

    @classmethod
    def tree_unflatten(cls, structure: Structure, children: Any) -> VjpFunction:
        return cls(children[0], structure)


@jax.tree_util.register_pytree_node_class
class LinearFunction(_WithStatics):
    """`linear_fn` of a function whose arguments have static leaves; what stands there in tangents is not looked at."""

    def __call__(self, *tangents: Any) -> Any:
        leaves = jax.tree.leaves((tangents, {}), is_leaf=lambda x: x is None)
        if len(leaves) != self.structure.tree.num_leaves:
            raise ArgumentTypeError(
                f"linear_fn was called with the tangents {tree_text(tangents)} of {len(leaves)} leaves, but the "
                f"primals had {self.structure.tree.num_leaves}. Give one tangent for each leaf of the primals."
            )
        return self.function(*(x for i, x in enumerate(leaves) if i not in self.structure.statics))

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.function,), self.structure

    @classmethod
    def tree_unflatten(cls, structure: Structure, children: Any) -> LinearFunction:
        return cls(children[0], structure)
