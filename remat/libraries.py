"""What is known here of the modules of Equinox and Flax nnx: which leaves are static, and what errors advise.

Neither library is imported: where it is not loaded, no argument is of it.
"""

from __future__ import annotations

import sys
from typing import Any

import jax

from remat.signature import is_number


def about_gradient(argument: Any) -> str:
    """What to do about a leaf of an argument that has no gradient."""
    if _holds(argument, "equinox", "Module"):
        return (
            "It is a leaf of an Equinox module: use filter_grad or filter_value_and_grad of remat.frameworks.equinox, "
            "which leave such leaves out as eqx.filter_grad does, or eqx.partition the module and differentiate its "
            "first part."
        )
    if _holds(argument, "flax.nnx", "Pytree", "Variable"):
        return (
            "It belongs to an nnx module: use grad or value_and_grad of remat.frameworks.nnx, which differentiate the "
            "parameters, or take them out with nnx.split(module, nnx.Param, ...)."
        )
    return (
        "Pass floating point values (1.0 instead of 1), choose other argnums, or set allow_int=True to get gradients "
        "of dtype float0."
    )


def about_value(arguments: Any) -> str:
    """What to do when Python code looks at the value of an argument, if a library has an answer."""
    if _holds(arguments, "equinox", "Module"):
        return (
            " Numbers that are leaves of an Equinox module are static in remat.checkpoint, and in filter_grad and "
            "filter_value_and_grad of remat.frameworks.equinox; or declare the field with eqx.field(static=True)."
        )
    return ""


def numbers_in_modules(tree: Any) -> frozenset[int]:
    """Which leaves of a pytree are Python numbers in Equinox modules: its transformations leave them as they are."""
    kinds = _classes("equinox", "Module")
    if not kinds:
        return frozenset()
    found, position = [], 0
    for part in jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, kinds)):
        leaves = jax.tree.leaves(part)
        if isinstance(part, kinds):
            found.extend(position + i for i, leaf in enumerate(leaves) if is_number(leaf))
        position += len(leaves)
    return frozenset(found)


def _holds(tree: Any, library: str, *names: str) -> bool:
    """Whether an object of one of these classes is somewhere in a pytree."""
    kinds = _classes(library, *names)
    if not kinds:
        return False
    return any(isinstance(x, kinds) for x in jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, kinds)))


def _classes(library: str, *names: str) -> tuple[type, ...]:
    module = sys.modules.get(library)
    return tuple(kind for kind in (getattr(module, name, None) for name in names) if kind is not None)
