"""The operations of random programs: templates of Python text, and the type of what they compute.

Which types an operation takes is not written down: a template is tried on types, once, and what JAX refuses or what
gets too large is no candidate.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
from property import vocabulary
from property.programs import Type

SMOOTH = (
    "jnp.sin({0})",
    "jnp.cos({0})",
    "jnp.tanh({0})",
    "0.3 * jnp.exp(jnp.tanh({0}))",
    "jax.nn.sigmoid({0})",
    "{0} * {0} / (1 + {0} * {0})",
    "jnp.sqrt(1 + {0} * {0})",
)

UNARY = (
    "jnp.log1p({0} * {0})",
    "lax.erf({0})",
    "jax.nn.relu({0})",
    "jax.nn.silu({0})",
    "jax.nn.softmax({0})",
    "({0} - {0}.mean()) / jnp.sqrt(1 + {0}.var())",
    "lax.stop_gradient({0})",
    "({0} > 0.1) + {0}",
    "-{0}",
    "jnp.abs({0})",
    "0.8 * {0}",
    "lax.optimization_barrier({0})",
    "{0} * jax.random.uniform(jax.random.key(3), {0}.shape, {0}.dtype)",
    "{0} * np.linspace(0.5, 1.5, {0}.size).reshape({0}.shape).astype({0}.dtype)",
    "lax.reduce_precision({0}, 8, 18)",
)

NAMED = ('checkpoint_name({0}, "a")', 'checkpoint_name({0}, "b")', 'remat.checkpoint_name({0}, "c")')

CUSTOM = ("scaled_product({0}, {1})", "clipped({0}, {1})", "powered({0}, 2)")

BINARY = (
    "0.7 * ({0} + {1})",
    "0.7 * ({0} - {1})",
    "{0} * jnp.tanh({1})",
    "{0} * {1}",
    "{0} / (1 + {1} * {1})",
    "jnp.maximum({0}, {1} + 0.01)",
    "(1.5 + jnp.sin({0})) ** jnp.cos({1})",
    "jnp.where({0} > {1}, jnp.sin({0}), 0.5 * {1})",
    "jnp.arctan2({0}, 2 + {1})",
    "{0} * jnp.sin({1})",
)

LAYOUT = (
    "{0}.T",
    "{0}.reshape(-1)",
    "{0}[::-1]",
    "{0}[1:]",
    "{0}[0]",
    "{0}[None]",
    "{0}[..., :2] + {0}[..., 1:3]",
    "jnp.concatenate([{0}[1:], 2 * {0}[:1]])",
    "{0}[jnp.array([1, 0, 1])]",
    "{0}.at[1].multiply(0.5).at[0].set(0.3)",
    "{0} + lax.dynamic_index_in_dim({0}, jnp.argmax({0}.reshape(-1)) % {0}.shape[0])",
    "jnp.cumsum({0}, 0) / 3",
    "jnp.sort({0})",
    "jnp.pad({0}, 1)[..., :-2]",
    "jnp.broadcast_to({0}, (2, *{0}.shape))",
    "jnp.stack([{0}, {1}])",
    "jnp.concatenate([{0}, {1}])",
    "jnp.outer({0}, {1})",
)

INDEXED = (
    "lax.dynamic_index_in_dim({0}, {1} % {0}.shape[0], keepdims=False)",
    "lax.dynamic_update_index_in_dim({0}, {0}[0] * 0.5, {1} % {0}.shape[0], 0)",
    "lax.dynamic_slice_in_dim({0}, {1} % 2, 2)",
    "{0}[{1} % {0}.shape[0]]",
    "{0}.at[{1} % {0}.shape[0]].add(0.5)",
    "{0}.at[{1} % {0}.shape[0]].multiply(0.5)",
    "0.3 * {0} * {1}",
)

REDUCTIONS = (
    "{0}.sum(0) / 2",
    "{0}.mean()",
    "{0}.max(-1)",
    "jax.nn.logsumexp({0})",
    "jnp.prod(1 + 0.3 * jnp.tanh({0}), 0)",
)

DOTS = (
    "jnp.tanh({0}) @ {1} / 2",
    "0.5 * ({0} @ {1})",
    "jnp.einsum('bi,bi->b', {0}, jnp.tanh({1}))",
    "jnp.einsum('bi,bj->bij', {0}, {1}).sum(0) / 2",
    "jnp.matmul({0}, {1}, preferred_element_type=jnp.float32)",
    "jnp.linalg.solve(4 * jnp.eye(3) + jnp.tanh({0}), {1})",
)

CASTS = (
    "{0}.astype(jnp.bfloat16)",
    "{0}.astype(jnp.float32)",
    "({0} > 0.2)",
    "({0} > 0.1).astype(jnp.int32)",
    "jnp.int32(jnp.argmax({0}))",
    "{0} + 1",
    "~{0}",
    "jnp.where({0} ^ False, {1}, 0.2)",
)

COMPLEX = (
    "lax.complex({0}, 0.5 * jnp.sin({0}))",
    "jnp.conj({0}) * 0.8",
    "{0} * {0} * 0.5",
    "jnp.real({0})",
    "jnp.imag({0})",
    "jnp.abs(2 + {0})",
)

SHARP = ("jnp.sqrt(jax.nn.relu({0}))", "jnp.log(jnp.abs({0}))", "1 / {0}", "jnp.sqrt(jnp.abs({0} - {0}))")
"""Infinite derivatives (or values) at some input. Their results are not used."""

GROUPS: dict[str, tuple[tuple[str, ...], float]] = {
    "smooth": (SMOOTH, 4),
    "unary": (UNARY, 2),
    "binary": (BINARY, 4),
    "named": (NAMED, 1.5),
    "custom": (CUSTOM, 0.7),
    "layout": (LAYOUT, 1.5),
    "indexed": (INDEXED, 1),
    "reduce": (REDUCTIONS, 1),
    "dot": (DOTS, 2),
    "cast": (CASTS, 0.7),
    "complex": (COMPLEX, 0.3),
}
"""Templates by group, with how often the group is drawn."""


@functools.cache
def result_type(template: str, types: tuple[Type, ...]) -> Type | None:
    """The type of a template's result; None where JAX refuses the types or the result is too large."""
    text = template.format(*(f"x{i}" for i in range(len(types))))
    names = ", ".join(f"x{i}" for i in range(len(types)))
    fun = eval(f"lambda {names}: {text}", dict(vars(vocabulary)))
    try:
        with warnings.catch_warnings(action="error"):  # what JAX only warns of is refused too
            found: Any = jax.eval_shape(fun, *(jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types))
    except Exception:
        return None
    if not isinstance(found, jax.ShapeDtypeStruct) or len(found.shape) > 3 or math.prod(found.shape) > 24:
        return None
    return Type(str(jnp.dtype(found.dtype)), tuple(found.shape))


def arity(template: str) -> int:
    return 2 if "{1}" in template else 1
