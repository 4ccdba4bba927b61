"""What the text of random programs may use, beside JAX itself: functions with rules of their own, and small helpers.

The rules are not the true derivatives, so that differentiating the function in place of using the rule is noticed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import remat
from remat.ir.ops import Checkpoint
from remat.ir.program import Program
from remat.planning.apply import regions_of
from remat.policies.budget import Arranging, known_frontier

__all__ = ["checkpoint_name", "jax", "jnp", "lax", "np", "remat"]

Array = Any


@dataclass(frozen=True)
class AnyPlan(Arranging):
    """One of all the plans that a budget is met from, whatever it takes."""

    number: int

    def regions_of(self, op: Checkpoint, active: Sequence[bool]) -> Program:
        tried = known_frontier(op, active).tried
        chosen = tried[self.number % len(tried)]
        return regions_of(op, chosen.structure, [v.key for v in chosen.kept], str(self))

    def __str__(self) -> str:
        return f"any_plan({self.number})"


any_plan = AnyPlan


def loss(*values: Array) -> Array:
    """A scalar in which every element of every floating point value counts differently."""
    total = jnp.zeros((), jnp.float32)
    for k, value in enumerate(values):
        if jnp.iscomplexobj(value):
            value = jnp.real(value) + 0.6 * jnp.imag(value)
        number = jnp.sin(value.astype(jnp.float32) * (0.9 - 0.05 * k))
        total += jnp.vdot(np.linspace(0.4, 1.3, number.size, dtype=np.float32).reshape(number.shape), number)
    return total


def truth(x: Array) -> Array:
    """A flag computed from any value."""
    return jnp.any(jnp.real(x) > 0.2)


def index(x: Array, count: int) -> Array:
    """A branch number computed from any value."""
    total = jnp.real(lax.stop_gradient(x)).astype(jnp.float32).sum()
    return jnp.floor(count * 0.999 * jnp.abs(jnp.sin(total))).astype(jnp.int32)


def rows(x: Array, length: int) -> Array:
    """`length` different multiples of `x`."""
    factors = np.linspace(0.5, 1.2, length).reshape((length,) + (1,) * x.ndim)
    return jnp.broadcast_to(x, (length, *x.shape)) * factors.astype(x.dtype)


def counted_loop(count: int, body: Callable[..., Any], carry: Any) -> Any:
    """A while loop; reverse mode cannot go through it."""
    carry = jax.tree.map(lax.stop_gradient, carry)
    return lax.while_loop(lambda c: c[0] < count, lambda c: (c[0] + 1, body(c[0], c[1])), (jnp.int32(0), carry))[1]


# Functions with rules of their own.


def _scaled(x: Any, factor: float) -> Any:
    return x if x.dtype == jax.dtypes.float0 else (factor * x).astype(x.dtype)


def scaled_jvp(fun: Callable[..., Any]) -> Callable[..., Any]:
    """`fun` with a forward rule that halves its derivative."""
    wrapped = jax.custom_jvp(fun)

    @wrapped.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        out, dots = jax.jvp(fun, primals, tangents)
        return out, jax.tree.map(lambda x: _scaled(x, 0.5), dots)

    return wrapped


def exact_jvp(fun: Callable[..., Any]) -> Callable[..., Any]:
    """`fun` with a forward rule that is its derivative."""
    wrapped = jax.custom_jvp(fun)
    wrapped.defjvp(lambda primals, tangents: jax.jvp(fun, primals, tangents))
    return wrapped


def scaled_vjp(fun: Callable[..., Any]) -> Callable[..., Any]:
    """`fun` with a reverse rule that keeps what JAX's keeps, a constant and its inputs, and doubles the derivative."""
    wrapped = jax.custom_vjp(fun)

    def forward(*primals: Any) -> Any:
        out, pullback = jax.vjp(fun, *primals)
        return out, (pullback, {"factor": jnp.float32(2), "given": primals})

    def backward(kept: Any, cotangent: Any) -> Any:
        pullback, more = kept
        return tuple(
            _scaled(g, 1) if g.dtype == jax.dtypes.float0 else (more["factor"] * g).astype(g.dtype)
            for g in pullback(cotangent)
        )

    wrapped.defvjp(forward, backward)
    return wrapped


@jax.custom_vjp
def scaled_product(x: Array, y: Array) -> Array:
    return x * jnp.sin(y)


def _product_forward(x: Array, y: Array) -> tuple[Array, Any]:
    return x * jnp.sin(y), (x, jnp.cos(y), {"y": y})


def _product_backward(kept: Any, cotangent: Array) -> tuple[Array, Array]:
    x, cosine, rest = kept
    return 0.5 * cotangent * jnp.sin(rest["y"]), 2.0 * cotangent * jnp.tanh(x) * cosine


scaled_product.defvjp(_product_forward, _product_backward)


@jax.custom_jvp
def clipped(x: Array, y: Array) -> Array:
    return jnp.tanh(x) + 0.1 * y


@clipped.defjvp
def _clipped_rule(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x, y), (dx, dy) = primals, tangents
    return clipped(x, y), 0.5 * jnp.cos(x) * dx + dy


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def powered(x: Array, exponent: int) -> Array:
    return jnp.sin(x) ** exponent


@powered.defjvp
def _powered_rule(exponent: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    return powered(primals[0], exponent), 0.4 * exponent * jnp.cos(primals[0]) * tangents[0]


# Derivatives inside of programs.


def _scalar(fun: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: sum(jnp.sin(jnp.real(x).astype(jnp.float32)).sum() for x in fun(*args))


def inner_grad(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments -> (bounded gradient by the first,)."""
    return lambda *args: (jnp.tanh(jax.grad(_scalar(fun))(*args)),)


def inner_remat_grad(fun: Callable[..., Any], policy: str) -> Callable[..., Any]:
    return lambda *args: (jnp.tanh(remat.grad(_scalar(fun), policy=policy)(*args)),)


def inner_jvp(fun: Callable[..., Any]) -> Callable[..., Any]:
    def derivative(x: Array, *rest: Any) -> tuple[Array]:
        tangent = jax.jvp(lambda v: _scalar(fun)(v, *rest), (x,), (jnp.ones_like(x),))[1]
        return (jnp.tanh(tangent).astype(x.dtype) + x,)

    return derivative
