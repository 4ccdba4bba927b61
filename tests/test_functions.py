"""Value and gradient of many functions of `jax.numpy`, `jax.lax`, `jax.nn` and `jax.scipy` equal JAX's.

One row is a name, a function of arrays, and one builder for each argument that keeps it where the function is smooth:
away from kinks, poles, ties and branch cuts. Integer arguments are not differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.image
import jax.numpy as jnp
import jax.scipy as jsp
import jax.scipy.integrate
import jax.scipy.interpolate
import jax.scipy.linalg
import jax.scipy.ndimage
import jax.scipy.signal
import jax.scipy.special
import jax.scipy.stats
import numpy as np
import pytest
from jax import lax

from remat.testing import check_gradients

POLICIES = (None, "nothing", "dots")

Build = Callable[[np.random.Generator], np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Row:
    name: str
    function: Callable[..., Any]
    arguments: tuple[Build, ...]
    rtol: float = 2e-5
    atol: float = 2e-6


def row(name: str, function: Callable[..., Any], *arguments: Build, **tolerance: float) -> Row:
    return Row(name, function, arguments, **tolerance)


# Builders of arguments. Few shapes, so that most operations are compiled once for the whole table.


def uniform(low: float, high: float, *shape: int) -> Build:
    return lambda random: random.uniform(low, high, shape or (4,)).astype(np.float32)


def real(*shape: int) -> Build:
    """Away from zero, of both signs."""
    return lambda random: (random.uniform(0.3, 1.5, shape or (4,)) * random.choice([-1, 1], shape or (4,))).astype(
        np.float32
    )


def positive(*shape: int) -> Build:
    return uniform(0.5, 2.0, *shape)


def fraction(*shape: int) -> Build:
    return uniform(0.15, 0.85, *shape)


def distinct(*shape: int) -> Build:
    """Far from ties, and from each other's opposites."""

    def build(random: np.random.Generator) -> np.ndarray[Any, Any]:
        count = int(np.prod(shape or (4,)))
        values = random.permutation(np.arange(count)) * 0.37 - 0.31 * count / 2
        return values.reshape(shape or (4,)).astype(np.float32)

    return build


def increasing(count: int = 4) -> Build:
    return lambda random: np.cumsum(random.uniform(0.5, 1.0, count)).astype(np.float32)


def probabilities(count: int = 4) -> Build:
    return lambda random: random.dirichlet(np.full(count, 5.0)).astype(np.float32)


def matrix(*shape: int) -> Build:
    """Square and well conditioned, with distinct real eigenvalues and singular values."""

    def build(random: np.random.Generator) -> np.ndarray[Any, Any]:
        n = (shape or (3, 3))[-1]
        noise = random.uniform(-0.3, 0.3, shape or (3, 3))
        return (noise + np.diag(np.arange(n) + 1.5)).astype(np.float32)

    return build


def symmetric(*shape: int) -> Build:
    """Symmetric and positive definite."""

    def build(random: np.random.Generator) -> np.ndarray[Any, Any]:
        x = matrix(*shape)(random)
        return (x + np.swapaxes(x, -1, -2)) / 2

    return build


def complex_(*shape: int) -> Build:
    """In the right half plane, away from branch cuts and from the unit circle's poles."""

    def build(random: np.random.Generator) -> np.ndarray[Any, Any]:
        parts = random.uniform(0.3, 0.8, (2, *(shape or (4,))))
        return (parts[0] + 1j * parts[1]).astype(np.complex64)

    return build


def integers(*values: Any) -> Build:
    return lambda random: np.asarray(values, np.int32)


# Functions that do not fit in a row.


def key(seed: int = 0) -> jax.Array:
    return jax.random.key(seed)


@jax.custom_jvp
def scaled_sine(x: Any, scale: Any) -> Any:
    return scale * jnp.sin(x)


@scaled_sine.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, scale), (dx, dscale) = primals, tangents
    return scaled_sine(x, scale), scale * jnp.cos(x) * dx + jnp.sin(x) * dscale


@jax.custom_vjp
def clipped_gradient(x: Any) -> Any:
    return x**3


clipped_gradient.defvjp(lambda x: (x**3, x), lambda x, g: (jnp.clip(3 * x**2 * g, -1.1, 1.1),))


def square_root_by_newton(x: Any) -> Any:
    """A root whose derivative comes from the implicit function theorem."""

    def solve(f: Any, start: Any) -> Any:
        return lax.fori_loop(0, 8, lambda _, y: y - f(y) / (2 * y), start)

    return lax.custom_root(lambda y: y * y - x, jnp.ones_like(x), solve, lambda g, y: y / g(jnp.ones_like(y)))


def solve_by_custom_rule(a: Any, b: Any) -> Any:
    return lax.custom_linear_solve(
        lambda v: a @ v, b, lambda _, v: jnp.linalg.solve(a, v), lambda _, v: jnp.linalg.solve(a.T, v)
    )


def scan_with_outputs(w: Any, x: Any) -> Any:
    return lax.scan(lambda c, s: (jnp.tanh(c * w + s), c * s), x[0], x)


def compose(first: Any, second: Any) -> Any:
    """Affine maps composed: associative, and not commutative."""
    return first[0] * second[0], second[0] * first[1] + second[1]


def pool(x: Any, initial: float, function: Any) -> Any:
    return lax.reduce_window(x, initial, function, (2, 2), (1, 1), "VALID")


NUMBERS = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))


ELEMENTWISE = [
    row("abs", jnp.abs, real()),
    row("add", jnp.add, real(), real()),
    row("arccos", jnp.arccos, fraction()),
    row("arccosh", jnp.arccosh, uniform(1.2, 3.0)),
    row("arcsin", jnp.arcsin, fraction()),
    row("arcsinh", jnp.arcsinh, real()),
    row("arctan", jnp.arctan, real()),
    row("arctan2", jnp.arctan2, real(), positive()),
    row("arctanh", jnp.arctanh, fraction()),
    row("cbrt", jnp.cbrt, positive()),
    row("clip both sides", lambda x: jnp.clip(x, -0.5, 0.4), distinct()),
    row(
        "clip to arrays",
        lambda x, low, high: jnp.clip(x, low, high),
        distinct(),
        uniform(-0.4, -0.3),
        uniform(0.2, 0.3),
    ),
    row("lax.clamp", lambda low, x, high: lax.clamp(low, x, high), uniform(-0.4, -0.3), distinct(), uniform(0.2, 0.3)),
    row("copysign", lambda x: jnp.copysign(x, jnp.float32(-1.0)), real()),
    row("cos", jnp.cos, real()),
    row("cosh", jnp.cosh, real()),
    row("deg2rad", jnp.deg2rad, real()),
    row("divide", jnp.divide, real(), positive()),
    row("exp", jnp.exp, real()),
    row("exp2", jnp.exp2, real()),
    row("expm1", jnp.expm1, real()),
    row("float_power", jnp.float_power, positive(), real()),
    row("fmax", jnp.fmax, distinct(), uniform(-0.05, 0.05)),
    row("fmin", jnp.fmin, distinct(), uniform(-0.05, 0.05)),
    row("fmod", lambda x: jnp.fmod(x, 0.7), uniform(0.8, 1.3)),
    row("hypot", jnp.hypot, real(), real()),
    row("integer_pow 0 to 5", lambda x: sum(lax.integer_pow(x, n) for n in (2, 3, 5)), real()),
    row("integer_pow negative", lambda x: lax.integer_pow(x, -2), real()),
    row("ldexp", lambda x: jnp.ldexp(x, jnp.array([1, 0, -1, 2])), real()),
    row("log", jnp.log, positive()),
    row("log10", jnp.log10, positive()),
    row("log1p", jnp.log1p, positive()),
    row("log2", jnp.log2, positive()),
    row("logaddexp", jnp.logaddexp, real(), real()),
    row("logaddexp2", jnp.logaddexp2, real(), real()),
    row("maximum", jnp.maximum, distinct(), uniform(-0.05, 0.05)),
    row("maximum of a tie", lambda x: jnp.maximum(x, x), real()),
    row("minimum", jnp.minimum, distinct(), uniform(-0.05, 0.05)),
    row("mod", lambda x, y: jnp.mod(x, y), uniform(0.8, 1.3), uniform(0.6, 0.7)),
    row("multiply", jnp.multiply, real(), real()),
    row("multiply with broadcasting", jnp.multiply, real(3, 1), real(4)),
    row("nan_to_num", jnp.nan_to_num, real()),
    row("negative", jnp.negative, real()),
    row("power", jnp.power, positive(), real()),
    row("power of a constant", lambda x: 2.0**x, real()),
    row("reciprocal", jnp.reciprocal, real()),
    row("lax.reduce_precision", lambda x: lax.reduce_precision(x, 8, 10) * x, real()),
    row("rsqrt", lax.rsqrt, positive()),
    row("sin", jnp.sin, real()),
    row("sinc", jnp.sinc, real()),
    row("sinh", jnp.sinh, real()),
    row("sqrt", jnp.sqrt, positive()),
    row("square", jnp.square, real()),
    row("stop_gradient", lambda x: lax.stop_gradient(x) * jnp.sin(x), real()),
    row("subtract", jnp.subtract, real(), real()),
    row("tan", jnp.tan, real()),
    row("tanh", jnp.tanh, real()),
    row("convert to bfloat16 and back", lambda x: x.astype(jnp.bfloat16).astype(jnp.float32) * x, real()),
]

SELECTION = [
    row("where", lambda x, y: jnp.where(x > 0, x * y, y - x), real(), real()),
    row("where that guards a pole", lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0), real()),
    row("select", lambda x, y: jnp.select([x > 0.7, x > 0.0], [x * y, jnp.sin(x)], y), real(), real()),
    row("lax.select_n", lambda i, x, y, z: lax.select_n(i, x, y, z), integers(0, 2, 1, 0), real(), real(), real()),
    row("piecewise", lambda x: jnp.piecewise(x, [x < 0], [jnp.sin, jnp.exp]), real()),
    row("choose", lambda i, x, y: jnp.choose(i, [x, y], mode="clip"), integers(0, 1, 1, 0), real(), real()),
    row("tril", jnp.tril, real(3, 3)),
    row("triu", lambda x: jnp.triu(x, 1), real(3, 3)),
]

REDUCTIONS = [
    row("sum", lambda x: jnp.sum(x, axis=1), real(3, 3)),
    row("sum where", lambda x: jnp.sum(x, where=x > 0), real(3, 3)),
    row("mean", lambda x: jnp.mean(x * x, axis=0), real(3, 3)),
    row("average with weights", lambda x, w: jnp.average(x, weights=w), real(), positive()),
    row("prod", lambda x: jnp.prod(x, axis=0), real(3, 3)),
    row("prod with one zero", lambda x: jnp.prod(x - lax.stop_gradient(x[1])), real()),
    row("max", lambda x: jnp.max(x, axis=1), distinct(3, 3)),
    row("max of ties", lambda x: jnp.max(jnp.stack([x, x]), axis=0), real()),
    row("min", lambda x: jnp.min(x, axis=0), distinct(3, 3)),
    row("ptp", lambda x: jnp.ptp(x, axis=0), distinct(3, 3)),
    row("var", jnp.var, real()),
    row("std", lambda x: jnp.std(x, ddof=1), real()),
    row("median", jnp.median, distinct()),
    row("quantile", lambda x: jnp.quantile(x, jnp.array([0.2, 0.7])), distinct()),
    row("percentile midpoint", lambda x: jnp.percentile(x, 40.0, method="midpoint"), distinct()),
    row("nansum", lambda x: jnp.nansum(jnp.where(x > 0, x * x, jnp.nan)), real()),
    row("nanmean", jnp.nanmean, real()),
    row("norm 2", jnp.linalg.norm, real()),
    row("norm 3", lambda x: jnp.linalg.norm(x, ord=3), positive()),
    row("norm infinity", lambda x: jnp.linalg.norm(x, ord=jnp.inf), distinct()),
    row("logsumexp", lambda x: jax.nn.logsumexp(x, axis=0), real(3, 3)),
    row("logsumexp with weights", lambda x, b: jax.nn.logsumexp(x, b=b), real(), positive()),
    row("logmeanexp", jax.nn.logmeanexp, real()),
    row("lax.reduce with a monoid", lambda x: lax.reduce(x, 1.0, lax.mul, (0,)), real(3, 3)),
    row("lax.reduce with max", lambda x: lax.reduce(x, -jnp.inf, lax.max, (1,)), distinct(3, 3)),
    row("cov", jnp.cov, real(3, 4)),
    row("corrcoef", jnp.corrcoef, real(3, 4)),
    row("trapezoid", jnp.trapezoid, real(), increasing()),
    row("integrate.trapezoid", lambda y: jsp.integrate.trapezoid(y, dx=0.1), real()),
]

CUMULATIVE = [
    row("cumsum", lambda x: jnp.cumsum(x, axis=1), real(3, 3)),
    row("cumprod", jnp.cumprod, real()),
    row("lax.cummax", lambda x: lax.cummax(x), distinct()),
    row("lax.cummin reversed", lambda x: lax.cummin(x, reverse=True), distinct()),
    row("lax.cumlogsumexp", lambda x: lax.cumlogsumexp(x), real()),
    row("diff", jnp.diff, real()),
    row("ediff1d", jnp.ediff1d, real()),
    row("gradient", jnp.gradient, real()),
    row("associative_scan with add", lambda x: lax.associative_scan(jnp.add, x), real()),
    row("associative_scan of a pair", lambda a, b: lax.associative_scan(compose, (a, b)), real(), real()),
]

SORTING = [
    row("sort", lambda x: jnp.sort(x) * jnp.arange(4.0), distinct()),
    row("sort on axis 0", lambda x: jnp.sort(x, axis=0, descending=True), distinct(3, 3)),
    row("lax.sort with several operands", lambda x, y: lax.sort((x, y), num_keys=1), distinct(), real()),
    row("lax.sort_key_val", lambda i, x: lax.sort_key_val(i, x)[1], integers(2, 0, 3, 1), real()),
    row("argsort and take", lambda x: x[jnp.argsort(x)] * jnp.arange(4.0), distinct()),
    row("partition", lambda x: jnp.partition(x, 2)[2] * 2.0, distinct()),
    row("lax.top_k", lambda x: lax.top_k(x, 2), distinct(3, 4)),
    row("lax.approx_max_k", lambda x: lax.approx_max_k(x, 2), distinct(1, 4)),
    row("argmax as an index", lambda x: x[jnp.argmax(x)] ** 2, distinct()),
    row("sort_complex", jnp.sort_complex, complex_()),
]

SHAPES = [
    row("reshape", lambda x: jnp.reshape(x, (2, 2)), real()),
    row("ravel", jnp.ravel, real(3, 3)),
    row("transpose", lambda x: jnp.transpose(x, (1, 2, 0)), real(2, 3, 4)),
    row("swapaxes", lambda x: jnp.swapaxes(x, 0, 2), real(2, 3, 4)),
    row("moveaxis", lambda x: jnp.moveaxis(x, 0, -1), real(2, 3, 4)),
    row("squeeze and expand_dims", lambda x: jnp.expand_dims(jnp.squeeze(x), (0, 2)), real(3, 1, 2)),
    row("broadcast_to", lambda x: jnp.broadcast_to(x, (3, 4)), real()),
    row("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (4, 2), (0,)), real()),
    row("concatenate", lambda x, y: jnp.concatenate([x, y * 2, x]), real(), real()),
    row("stack", lambda x, y: jnp.stack([x, y], axis=1), real(), real()),
    row("block", lambda x, y: jnp.block([[x, y], [y, x]]), real(2, 2), real(2, 2)),
    row("split", lambda x: jnp.split(x, 2), real()),
    row("lax.split", lambda x: lax.split(x, (1, 3)), real()),
    row("unstack", lambda x: jnp.unstack(x), real(3, 3)),
    row("tile", lambda x: jnp.tile(x, (2, 3)), real()),
    row("repeat", lambda x: jnp.repeat(x, 2, axis=0), real(3, 3)),
    row("repeat by counts", lambda x: jnp.repeat(x, jnp.array([1, 0, 2, 1]), total_repeat_length=4), real()),
    row("flip", jnp.flip, real(3, 3)),
    row("lax.rev", lambda x: lax.rev(x, (0,)), real(3, 3)),
    row("roll", lambda x: jnp.roll(x, 1, axis=1), real(3, 3)),
    row("rot90", jnp.rot90, real(3, 3)),
    row("diag of a vector", jnp.diag, real()),
    row("diagonal", lambda x: jnp.diagonal(x, offset=1), real(3, 3)),
    row("trace", jnp.trace, real(3, 3)),
    row("meshgrid", lambda x, y: jnp.meshgrid(x, y), real(), real(3)),
    row("vander", lambda x: jnp.vander(x, 3), real()),
    row("pad with a constant", lambda x: jnp.pad(x, ((1, 0), (0, 2))), real(3, 3)),
    row("pad with the edge", lambda x: jnp.pad(x, 1, mode="edge"), real()),
    row("pad by reflection", lambda x: jnp.pad(x, 2, mode="reflect"), real()),
    row("pad by wrapping", lambda x: jnp.pad(x, 1, mode="wrap"), real()),
    row("lax.pad interior and negative", lambda x, v: lax.pad(x, v, ((-1, 2, 1),)), real(), lambda r: np.float32(0.7)),
    row("insert and delete", lambda x, y: jnp.delete(jnp.insert(x, 2, y[0]), 1), real(), real()),
]

INDEXING = [
    row("static slice", lambda x: x[1:4:2], real()),
    row("ellipsis and newaxis", lambda x: x[..., None, 1], real(2, 3, 4)),
    row("lax.slice", lambda x: lax.slice(x, (0, 1), (3, 3), (2, 1)), real(3, 3)),
    row("lax.dynamic_slice", lambda i, x: lax.dynamic_slice(x, (i[0], i[1]), (2, 2)), integers(1, 5), real(3, 3)),
    row("lax.dynamic_index_in_dim", lambda i, x: lax.dynamic_index_in_dim(x, i[0]), integers(2), real(3, 3)),
    row(
        "lax.dynamic_update_slice",
        lambda i, x, y: lax.dynamic_update_slice(x, y, (i[0], i[0])),
        integers(1),
        real(3, 3),
        real(2, 2),
    ),
    row("index by integers with repeats", lambda i, x: x[i], integers(0, 2, 2, -1), real()),
    row("index by a mask", lambda x: x[np.array([True, False, True, True])], real()),
    row("index by two arrays", lambda i, x: x[i, i[::-1]], integers(0, 2, 2), real(3, 3)),
    row("take", lambda i, x: jnp.take(x, i, axis=1), integers(0, 2, 2), real(3, 3)),
    row("take filling with numbers", lambda i, x: jnp.take(x, i, mode="fill", fill_value=0.5), integers(0, 9), real()),
    row("take clipped", lambda i, x: jnp.take(x, i, mode="clip"), integers(1, 9), real()),
    row("take_along_axis", lambda i, x: jnp.take_along_axis(x, i[:, None], 1), integers(0, 2, 1), real(3, 3)),
    row("lax.gather", lambda i, x: lax.gather(x, i[:, None], NUMBERS, (1, 3)), integers(2, 0, 2), real(3, 3)),
    row(".at[].set", lambda i, x, y: x.at[i].set(y), integers(3, 1), real(), real(2)),
    row(".at[].set a slice", lambda x, y: x.at[1:3].set(y * 2), real(), real(2)),
    row(".at[].add", lambda i, x, y: x.at[i].add(y), integers(1, 1, 0), real(), real(3)),
    row(".at[].multiply", lambda i, x, y: x.at[i].multiply(y, unique_indices=True), integers(2, 0), real(), real(2)),
    row(".at[].divide", lambda i, x: x.at[i].divide(2.0), integers(2, 0), real()),
    row(".at[].power", lambda i, x: x.at[i].power(2.0), integers(2, 0), positive()),
    row(".at[].min", lambda i, x, y: x.at[i].min(y), integers(1, 2), distinct(), uniform(-0.05, 0.05, 2)),
    row(".at[].max", lambda i, x, y: x.at[i].max(y), integers(1, 2), distinct(), uniform(-0.05, 0.05, 2)),
    row(".at[].get out of bounds", lambda i, x: x.at[i].get(mode="fill", fill_value=0), integers(0, 7), real()),
    row(".at[].add dropping", lambda i, x, y: x.at[i].add(y, mode="drop"), integers(0, 7), real(), real(2)),
    row("segment_sum", lambda i, x: jax.ops.segment_sum(x, i, 3), integers(0, 2, 2, 0), real()),
    row("segment_max", lambda i, x: jax.ops.segment_max(x, i, 2), integers(0, 1, 1, 0), distinct()),
    row("bincount with weights", lambda i, w: jnp.bincount(i, w, length=3), integers(0, 2, 2, 1), real()),
    row("interp", lambda x, xp, fp: jnp.interp(x, xp, fp), uniform(1.1, 1.4), increasing(), real()),
    row("interp of the values only", lambda fp: jnp.interp(jnp.array([0.2, 1.3]), jnp.arange(4.0), fp), real()),
    row(
        "RegularGridInterpolator",
        lambda v, x: jsp.interpolate.RegularGridInterpolator((jnp.arange(3.0), jnp.arange(3.0)), v)(x),
        real(3, 3),
        uniform(0.2, 0.8, 2, 2),
    ),
    row(
        "ndimage.map_coordinates",
        lambda x, c: jsp.ndimage.map_coordinates(x, list(c), order=1),
        real(3, 3),
        uniform(0.2, 0.8, 2, 4),
    ),
]

PRODUCTS = [
    row("dot", jnp.dot, real(), real()),
    row("vdot", jnp.vdot, real(), real()),
    row("inner", jnp.inner, real(3, 3), real(3, 3)),
    row("outer", jnp.outer, real(), real(3)),
    row("kron", jnp.kron, real(2, 2), real(2, 2)),
    row("cross", jnp.cross, real(3), real(3)),
    row("matmul", jnp.matmul, real(3, 3), real(3, 3)),
    row("matmul with itself", lambda x: x @ x, real(3, 3)),
    row("matmul of a matrix and a vector", jnp.matmul, real(3, 3), real(3)),
    row("matmul batched", jnp.matmul, real(2, 3, 4), real(2, 4, 3)),
    row("matmul batch broadcast", jnp.matmul, real(2, 3, 4), real(4, 2)),
    row("tensordot", lambda x, y: jnp.tensordot(x, y, ((1, 2), (0, 1))), real(2, 3, 4), real(3, 4)),
    row("vecdot", jnp.vecdot, real(3, 3), real(3, 3)),
    row("einsum transposed", lambda x, y: jnp.einsum("ij,kj->ki", x, y), real(3, 3), real(3, 3)),
    row("einsum diagonal", lambda x: jnp.einsum("ii->i", x), real(3, 3)),
    row("einsum batch", lambda x, y: jnp.einsum("bij,bjk->bk", x, y), real(2, 3, 4), real(2, 4, 3)),
    row("einsum of three", lambda x, y, z: jnp.einsum("i,ij,j->", x, y, z), real(3), real(3, 3), real(3)),
    row("linalg.multi_dot", lambda x, y: jnp.linalg.multi_dot([x, y, x]), real(3, 3), real(3, 3)),
    row(
        "lax.dot_general with batch dimensions",
        lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))),
        real(2, 3, 4),
        real(2, 4, 3),
    ),
    row(
        "lax.dot_general with two contractions",
        lambda x, y: lax.dot_general(x, y, (((1, 2), (2, 1)), ((0,), (0,)))),
        real(2, 3, 4),
        real(2, 4, 3),
    ),
    row(
        "lax.dot_general in bfloat16 to float32",
        lambda x, y: lax.dot_general(
            x.astype(jnp.bfloat16),
            y.astype(jnp.bfloat16),
            (((1,), (0,)), ((), ())),
            preferred_element_type=jnp.float32,
        ),
        real(3, 3),
        real(3, 3),
        rtol=2e-2,
        atol=2e-2,
    ),
    row("lax.dot at highest precision", lambda x, y: lax.dot(x, y, precision="highest"), real(3, 3), real(3, 3)),
    row("lax.ragged_dot", lambda n, x, y: lax.ragged_dot(x, y, n), integers(2, 2), real(4, 3), real(2, 3, 2)),
    row("correlate", lambda x, y: jnp.correlate(x, y, mode="full"), real(), real(3)),
    row("convolve", lambda x, y: jnp.convolve(x, y, mode="same"), real(), real(3)),
    row("polyval", jnp.polyval, real(3), real()),
    row("polymul", jnp.polymul, real(3), real()),
]

CONVOLUTIONS = [
    row("lax.conv", lambda x, k: lax.conv(x, k, (1, 1), "SAME"), real(1, 2, 4, 4), real(2, 2, 2, 2)),
    row("lax.conv with stride", lambda x, k: lax.conv(x, k, (2, 2), "VALID"), real(1, 2, 4, 4), real(2, 2, 2, 2)),
    row(
        "lax.conv_general_dilated dilated",
        lambda x, k: lax.conv_general_dilated(x, k, (1,), [(1, 2)], lhs_dilation=(2,), rhs_dilation=(2,)),
        real(1, 2, 4),
        real(3, 2, 2),
    ),
    row(
        "lax.conv_general_dilated in groups",
        lambda x, k: lax.conv_general_dilated(x, k, (1,), "VALID", feature_group_count=2),
        real(1, 2, 4),
        real(2, 1, 2),
    ),
    row(
        "lax.conv_general_dilated channels last",
        lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        real(1, 3, 3, 2),
        real(2, 2, 2, 3),
    ),
    row("lax.conv_transpose", lambda x, k: lax.conv_transpose(x, k, (2,), "SAME"), real(1, 4, 2), real(3, 2, 3)),
    row(
        "lax.conv_general_dilated_patches",
        lambda x: lax.conv_general_dilated_patches(x, (2,), (1,), "VALID"),
        real(1, 2, 4),
    ),
    row("reduce_window of max", lambda x: pool(x, -jnp.inf, lax.max), distinct(3, 3)),
    row("reduce_window of min", lambda x: pool(x, jnp.inf, lax.min), distinct(3, 3)),
    row("reduce_window of sum", lambda x: pool(x * x, 0.0, lax.add), real(3, 3)),
    row("average pooling", lambda x: lax.reduce_window(x, 0.0, lax.add, (2,), (2,), "SAME") / 2, real()),
    row("signal.convolve", lambda x, y: jsp.signal.convolve(x, y), real(), real(3)),
    row("signal.convolve2d", lambda x, y: jsp.signal.convolve2d(x, y, mode="same"), real(3, 3), real(2, 2)),
    row("signal.correlate", lambda x, y: jsp.signal.correlate(x, y, mode="valid"), real(), real(3)),
    row("signal.fftconvolve", jsp.signal.fftconvolve, real(), real(3)),
    row("signal.detrend", jsp.signal.detrend, real(), rtol=1e-4, atol=1e-5),
]

FOURIER = [
    row("fft.fft", jnp.fft.fft, complex_()),
    row("fft.fft of real numbers", lambda x: jnp.abs(jnp.fft.fft(x)), positive()),
    row("fft.ifft", jnp.fft.ifft, complex_()),
    row("fft.rfft", jnp.fft.rfft, real()),
    row("fft.irfft", lambda x: jnp.fft.irfft(x, 6), complex_()),
    row("fft.fft2", jnp.fft.fft2, complex_(3, 3)),
    row("fft.rfftn", jnp.fft.rfftn, real(3, 3)),
    row("fft.fftshift", jnp.fft.fftshift, real()),
]

COMPLEX = [
    row("complex of two", lax.complex, real(), real()),
    row("real and imag", lambda z: jnp.real(z) * jnp.imag(z), complex_()),
    row("abs of complex", jnp.abs, complex_()),
    row("angle", jnp.angle, complex_()),
    row("conj", jnp.conj, complex_()),
    row("multiply complex", jnp.multiply, complex_(), complex_()),
    row("divide complex", jnp.divide, complex_(), complex_()),
    row("exp complex", jnp.exp, complex_()),
    row("log complex", jnp.log, complex_()),
    row("sqrt complex", jnp.sqrt, complex_()),
    row("sin complex", jnp.sin, complex_()),
    row("tanh complex", jnp.tanh, complex_()),
    row("power complex", jnp.power, complex_(), complex_()),
    row("vdot complex", jnp.vdot, complex_(), complex_()),
    row("matmul complex", jnp.matmul, complex_(3, 3), complex_(3, 3)),
    row(
        "solve complex",
        lambda a, b: jnp.linalg.solve(a + 2 * jnp.eye(3), b),
        complex_(3, 3),
        complex_(3),
        rtol=1e-4,
        atol=1e-5,
    ),
    row("from real to complex and back", lambda x: jnp.real(jnp.exp(1j * x) * x), real()),
]

LINEAR_ALGEBRA = [
    row(r.name, r.function, *r.arguments, rtol=2e-4, atol=2e-5)
    for r in (
        row("inv", jnp.linalg.inv, matrix()),
        row("inv batched", jnp.linalg.inv, matrix(2, 3, 3)),
        row("pinv", jnp.linalg.pinv, real(3, 2)),
        row("det", jnp.linalg.det, matrix()),
        row("slogdet", jnp.linalg.slogdet, matrix()),
        row("solve", jnp.linalg.solve, matrix(), real(3)),
        row("lstsq", lambda a, b: jnp.linalg.lstsq(a, b)[0], real(4, 2), real(4)),
        row("matrix_power", lambda x: jnp.linalg.matrix_power(x, 3), matrix()),
        row("cholesky", jnp.linalg.cholesky, symmetric()),
        row("cholesky of a product", lambda x: jnp.linalg.cholesky(x @ x.T), matrix()),
        row("qr", lambda x: jnp.linalg.qr(x), matrix()),
        row("svd", lambda x: jnp.linalg.svd(x, full_matrices=False), matrix()),
        row("singular values", lambda x: jnp.linalg.svd(x, compute_uv=False), matrix()),
        row("nuclear norm", lambda x: jnp.linalg.norm(x, ord="nuc"), matrix()),
        row("eigh", jnp.linalg.eigh, symmetric()),
        row("eigvalsh", jnp.linalg.eigvalsh, symmetric()),
        row("eigvals", lambda x: jnp.abs(jnp.linalg.eigvals(x)), matrix()),
        row("expm", lambda x: jsp.linalg.expm(x, max_squarings=1), symmetric()),
        row("lu", lambda x: jsp.linalg.lu(x)[1:], matrix()),
        row("lu_solve", lambda a, b: jsp.linalg.lu_solve(jsp.linalg.lu_factor(a), b), matrix(), real(3)),
        row("cho_solve", lambda a, b: jsp.linalg.cho_solve(jsp.linalg.cho_factor(a), b), symmetric(), real(3)),
        row("solve_triangular", lambda a, b: jsp.linalg.solve_triangular(a, b, lower=True), matrix(), real(3)),
        row("solve_triangular transposed", lambda a, b: jsp.linalg.solve_triangular(a, b, trans=1), matrix(), real(3)),
        row("solve positive definite", lambda a, b: jsp.linalg.solve(a, b, assume_a="pos"), symmetric(), real(3)),
        row("tridiagonal_solve", lax.linalg.tridiagonal_solve, fraction(), uniform(3, 4), fraction(), real(4, 2)),
        row("block_diag", jsp.linalg.block_diag, real(2, 2), real(3, 3)),
        row("toeplitz", jsp.linalg.toeplitz, real(3)),
    )
]

SPECIAL = [
    row(r.name, r.function, *r.arguments, rtol=1e-4, atol=1e-5)
    for r in (
        row("special.betainc in x", lambda x: jsp.special.betainc(1.5, 2.5, x), fraction()),
        row("special.betaln", jsp.special.betaln, positive(), positive()),
        row("special.digamma", jsp.special.digamma, positive()),
        row("special.entr", jsp.special.entr, positive()),
        row("special.erf", jsp.special.erf, real()),
        row("special.erfc", jsp.special.erfc, real()),
        row("special.erfinv", jsp.special.erfinv, fraction()),
        row("special.exp1", jsp.special.exp1, positive()),
        row("special.expi", jsp.special.expi, positive()),
        row("special.expit", jsp.special.expit, real()),
        row("special.gamma", jsp.special.gamma, positive()),
        row("special.gammainc", jsp.special.gammainc, positive(), positive()),
        row("special.gammaincc in x", lambda x: jsp.special.gammaincc(1.5, x), positive()),
        row("special.gammaln", jsp.special.gammaln, positive()),
        row("special.i0", jsp.special.i0, positive()),
        row("special.i0e", jsp.special.i0e, positive()),
        row("special.i1", jsp.special.i1, positive()),
        row("special.i1e", jsp.special.i1e, positive()),
        row("special.kl_div", jsp.special.kl_div, positive(), positive()),
        row("special.log_ndtr", jsp.special.log_ndtr, real()),
        row("special.logit", jsp.special.logit, fraction()),
        row("special.multigammaln", lambda x: jsp.special.multigammaln(x, 2), positive()),
        row("special.ndtr", jsp.special.ndtr, real()),
        row("special.ndtri", jsp.special.ndtri, fraction()),
        row("special.polygamma", lambda x: jsp.special.polygamma(1, x), positive()),
        row("special.rel_entr", jsp.special.rel_entr, positive(), positive()),
        row("special.spence", jsp.special.spence, fraction()),
        row("special.xlog1py", jsp.special.xlog1py, positive(), positive()),
        row("special.xlogy", jsp.special.xlogy, positive(), positive()),
        row("special.xlogy at zero", lambda y: jsp.special.xlogy(jnp.zeros(4), y) + y, positive()),
        row("special.zeta in q", lambda q: jsp.special.zeta(2.5, q), positive()),
    )
]

STATISTICS = [
    row(r.name, r.function, *r.arguments, rtol=1e-4, atol=1e-5)
    for r in (
        row("stats.norm.logpdf", jsp.stats.norm.logpdf, real(), real(), positive()),
        row("stats.norm.cdf", jsp.stats.norm.cdf, real()),
        row("stats.cauchy.logpdf", jsp.stats.cauchy.logpdf, real(), real(), positive()),
        row("stats.expon.logpdf", lambda x, s: jsp.stats.expon.logpdf(x, 0.0, s), positive(), positive()),
        row("stats.gamma.logpdf", jsp.stats.gamma.logpdf, positive(), positive()),
        row("stats.laplace.logpdf", jsp.stats.laplace.logpdf, real(), uniform(-0.1, 0.1), positive()),
        row("stats.logistic.logpdf", jsp.stats.logistic.logpdf, real()),
        row("stats.t.logpdf", jsp.stats.t.logpdf, real(), positive()),
        row(
            "stats.poisson.logpmf", lambda k, rate: jsp.stats.poisson.logpmf(k, rate), integers(0, 2, 1, 3), positive()
        ),
        row("stats.bernoulli.logpmf", lambda k, p: jsp.stats.bernoulli.logpmf(k, p), integers(0, 1, 1, 0), fraction()),
        row("stats.dirichlet.logpdf", jsp.stats.dirichlet.logpdf, probabilities(), positive()),
        row("stats.multivariate_normal.logpdf", jsp.stats.multivariate_normal.logpdf, real(3), real(3), symmetric()),
        row("stats.vonmises.logpdf", jsp.stats.vonmises.logpdf, real(), positive()),
        row("stats.gaussian_kde", lambda d, x: jsp.stats.gaussian_kde(d)(x), distinct(), real()),
    )
]

ACTIVATIONS = [
    row("nn.celu", jax.nn.celu, real()),
    row("nn.elu", jax.nn.elu, real()),
    row("nn.gelu", jax.nn.gelu, real()),
    row("nn.gelu exact", lambda x: jax.nn.gelu(x, approximate=False), real()),
    row("nn.glu", jax.nn.glu, real()),
    row("nn.hard_sigmoid", jax.nn.hard_sigmoid, real()),
    row("nn.hard_silu", jax.nn.hard_silu, real()),
    row("nn.hard_tanh", jax.nn.hard_tanh, uniform(-0.9, 1.9)),
    row("nn.identity", lambda x: jax.nn.identity(x) * x, real()),
    row("nn.leaky_relu", jax.nn.leaky_relu, real()),
    row("nn.log1mexp", jax.nn.log1mexp, positive()),
    row("nn.log_sigmoid", jax.nn.log_sigmoid, real()),
    row("nn.log_softmax", jax.nn.log_softmax, real(3, 3)),
    row("nn.mish", jax.nn.mish, real()),
    row("nn.relu", jax.nn.relu, real()),
    row("nn.relu at zero", lambda x: jax.nn.relu(x * jnp.array([0.0, 1.0, 1.0, 0.0])) + x, real()),
    row("nn.relu6", jax.nn.relu6, uniform(4.0, 8.0)),
    row("nn.selu", jax.nn.selu, real()),
    row("nn.sigmoid", jax.nn.sigmoid, real()),
    row("nn.silu", jax.nn.silu, real()),
    row("nn.soft_sign", jax.nn.soft_sign, real()),
    row("nn.softmax", lambda x: jax.nn.softmax(x, axis=0), real(3, 3)),
    row("nn.softmax where", lambda x: jax.nn.softmax(x, where=jnp.array([True, True, False, True])), real()),
    row("nn.softplus", jax.nn.softplus, real()),
    row("nn.sparse_plus", jax.nn.sparse_plus, uniform(-0.9, 0.9)),
    row("nn.sparse_sigmoid", jax.nn.sparse_sigmoid, uniform(-0.9, 0.9)),
    row("nn.squareplus", jax.nn.squareplus, real()),
    row("nn.standardize", lambda x: jax.nn.standardize(x, axis=0), distinct(3, 3), rtol=1e-4, atol=1e-5),
    row("nn.swish", jax.nn.swish, real()),
    row("nn.tanh", jax.nn.tanh, real()),
    row("nn.one_hot as a table", lambda i, w: jax.nn.one_hot(i, 3) @ w, integers(0, 2, 1), real(3, 3)),
    row("nn.dot_product_attention", jax.nn.dot_product_attention, real(1, 3, 1, 2), real(1, 3, 1, 2), real(1, 3, 1, 2)),
    row(
        "nn.dot_product_attention causal",
        lambda q: jax.nn.dot_product_attention(q, 2 * q, jnp.sin(q), is_causal=True),
        real(1, 3, 1, 2),
    ),
]

CONTROL_FLOW = [
    row("lax.scan", scan_with_outputs, real(), real(3, 4)),
    row("lax.scan reversed", lambda x: lax.scan(lambda c, s: (c * s, c), 1.5, x, reverse=True), positive()),
    row("lax.map", lambda x: lax.map(lambda y: jnp.sin(y) * y, x), real()),
    row("lax.map in batches", lambda x: lax.map(lambda y: jnp.exp(y).sum(), x, batch_size=2), real(3, 4)),
    row("lax.fori_loop", lambda x: lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) * (i + 1), x), real()),
    row("lax.cond", lambda x: lax.cond(x[0] > 0, jnp.sin, lambda y: y * y, x), real()),
    row("lax.switch", lambda i, x: lax.switch(i[0], [jnp.sin, jnp.cos, jnp.exp], x), integers(2), real()),
    row("while_loop of integers", lambda x: x * lax.while_loop(lambda n: n < 5, lambda n: n + 2, 0), real()),
    row("lax.custom_root", square_root_by_newton, positive()),
    row("lax.custom_linear_solve", solve_by_custom_rule, matrix(), real(3), rtol=1e-4, atol=1e-5),
    row("jax.custom_jvp", scaled_sine, real(), real()),
    row("jax.custom_vjp", clipped_gradient, real()),
    row("jax.custom_jvp under vmap", jax.vmap(scaled_sine, (0, None)), real(3, 4), real()),
    row("jax.jit", jax.jit(lambda x, y: jnp.sin(x) @ y), real(), real()),
    row("jax.vmap of a gradient", jax.vmap(jax.grad(lambda x: jnp.sin(x) * x**2)), real()),
    row("jax.jvp inside", lambda x, t: jax.jvp(jnp.sin, (x,), (t,)), real(), real()),
    row("jax.hessian inside", jax.hessian(lambda x: jnp.sum(jnp.sin(x) * x[0])), real()),
    row("jax.checkpoint inside", jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), real()),
    row(
        "jax.linear_transpose inside",
        lambda x, g: jax.linear_transpose(lambda t: jnp.cumsum(t) * x, g)(g),
        real(),
        real(),
    ),
    row(
        "sparse.linalg.cg",
        lambda a, b: jsp.sparse.linalg.cg(lambda v: a @ v, b)[0],
        symmetric(),
        real(3),
        rtol=1e-3,
        atol=1e-4,
    ),
]

SAMPLING = [
    row("random.normal", lambda m, s: m + s * jax.random.normal(key(), (4,)), real(), positive()),
    row("random.uniform", lambda a, b: jax.random.uniform(key(), (4,), minval=a, maxval=b), fraction(), uniform(1, 2)),
    row("random.exponential", lambda s: s * jax.random.exponential(key(), (4,)), positive()),
    row("random.gumbel softmax", lambda x: jax.nn.softmax((x + jax.random.gumbel(key(), (4,))) / 0.5), real()),
    row("random.laplace", lambda s: s * jax.random.laplace(key(1), (4,)), positive()),
    row("random.cauchy", lambda m: m * jax.random.cauchy(key(), (4,)), real()),
    row(
        "random.truncated_normal",
        lambda a: jax.random.truncated_normal(key(), a, 2.0),
        fraction(),
        rtol=1e-4,
        atol=1e-5,
    ),
    row("random.gamma", lambda a: jax.random.gamma(key(), a), positive(), rtol=1e-4, atol=1e-5),
    row(
        "random.multivariate_normal",
        lambda m, c: jax.random.multivariate_normal(key(), m, c, method="cholesky"),
        real(3),
        symmetric(),
        rtol=1e-4,
        atol=1e-5,
    ),
    row("dropout", lambda x: jnp.where(jax.random.bernoulli(key(2), 0.5, (4,)), jnp.sin(x) / 0.5, 0.0) + x, real()),
    row("random.permutation", lambda x: jax.random.permutation(key(), x) * jnp.arange(4.0), real()),
]

IMAGES = [
    row("image.resize linear", lambda x: jax.image.resize(x, (4, 5), "linear"), real(3, 3)),
    row("image.resize cubic", lambda x: jax.image.resize(x, (2, 2), "cubic"), real(3, 3)),
    row("image.resize nearest", lambda x: jax.image.resize(x, (5, 2), "nearest"), real(3, 3)),
    row(
        "image.scale_and_translate",
        lambda x, s, t: jax.image.scale_and_translate(x, (3, 3), (0, 1), s, t, "linear", antialias=False),
        real(3, 3),
        uniform(1.1, 1.2, 2),
        uniform(0.1, 0.2, 2),
    ),
]

ROWS = [
    *ELEMENTWISE,
    *SELECTION,
    *REDUCTIONS,
    *CUMULATIVE,
    *SORTING,
    *SHAPES,
    *INDEXING,
    *PRODUCTS,
    *CONVOLUTIONS,
    *FOURIER,
    *COMPLEX,
    *LINEAR_ALGEBRA,
    *SPECIAL,
    *STATISTICS,
    *ACTIVATIONS,
    *CONTROL_FLOW,
    *SAMPLING,
    *IMAGES,
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_value_and_gradient_are_those_of_jax(row: Row) -> None:
    random = np.random.default_rng(7)
    arguments = [jnp.asarray(build(random)) for build in row.arguments]
    _, gradients = check_gradients(
        row.function, *arguments, policies=POLICIES, compiled=True, rtol=row.rtol, atol=row.atol
    )
    # A gradient of zeros or NaNs would make the row pass for the wrong reason.
    for number, gradient in enumerate(gradients):
        assert np.isfinite(gradient).all(), f"differentiated argument {number}: the gradient is not finite"
        assert np.any(gradient), f"differentiated argument {number}: the gradient is zero"
