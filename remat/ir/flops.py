"""How many operations a primitive does: one table of rules, beside the table of what primitives are like.

A rule takes an `Operation`, which is a primitive with the types of its operands and results, and returns how many
floating point operations that is. As in XLA's own analysis, an addition and a multiplication are one each, a
comparison, a selection and an operation on integers count like them, and so do complex numbers. Transcendental
functions (`exp`, `tanh`...) are counted apart, since they cost several operations, how many depends on the machine.
Moving, repeating and casting elements is none.

Factorizations have the counts of textbooks (Golub and Van Loan), of which iterative ones are estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from remat.ir.primitive_table import BY_NAME
from remat.ir.types import SYMBOLIC_SIZE, element_count


class Operation(NamedTuple):
    """A primitive, its parameters, and the types of what it reads and makes."""

    name: str
    params: dict[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


Rule = Callable[[Operation], float]

RANDOM = 58
"""Operations for each 32 random bits: twenty rounds of threefry make two words of that."""

TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log1p log2 pow sqrt rsqrt cbrt logistic erf erfc erf_inv sin cos tan asin acos atan atan2 "
    "sinh cosh tanh asinh acosh atanh".split()
)


def is_transcendental(name: str) -> bool:
    return name in TRANSCENDENTAL or (name in BY_NAME and BY_NAME[name].kind == "special function")


def rule_of(name: str) -> Rule | None:
    """The rule of a primitive: its own, or the one of its kind. None if there is none."""
    if name in flop_rules:
        return flop_rules[name]
    return kind_rules.get(BY_NAME[name].kind) if name in BY_NAME else None


# Counting elements.


def nothing(operation: Operation) -> float:
    return 0.0


def each_result(operation: Operation) -> float:
    return elements(operation.outputs[0])


def each_operand(operation: Operation) -> float:
    """Those of the first half: reductions of several arrays have as many starting values."""
    return elements(operation.inputs[0])


def elements(type: Any) -> float:
    return float(element_count(getattr(type, "shape", ())))


def _sizes(shape: Any) -> list[int]:
    return [d if isinstance(d, int) else SYMBOLIC_SIZE for d in shape]


def _several_operands(operation: Operation) -> float:
    return sum(map(elements, operation.inputs[: len(operation.outputs)]))


# Products.


def _dot_general(operation: Operation) -> float:
    (contracted, _), _ = operation.params["dimension_numbers"]
    if not contracted:
        return each_result(operation)
    return 2 * elements(operation.outputs[0]) * _product(operation.inputs[0], contracted)


def _ragged_dot_general(operation: Operation) -> float:
    """Each row belongs to one group. If the rows are summed over, the groups are a dimension of the result."""
    numbers = operation.params["ragged_dot_dimension_numbers"]
    (contracted, _), _ = numbers.dot_dimension_numbers
    count = 2 * elements(operation.outputs[0]) * _product(operation.inputs[0], contracted)
    if set(numbers.lhs_ragged_dimensions) & set(contracted):
        count /= _sizes(operation.outputs[0].shape)[0]
    return count


def _last_dimension(operation: Operation) -> float:
    """A product that sums over the last dimension of its first operand."""
    return 2 * elements(operation.outputs[0]) * _sizes(operation.inputs[0].shape)[-1]


def _product(type: Any, dimensions: Iterable[int]) -> float:
    sizes = _sizes(type.shape)
    return float(math.prod(sizes[i] for i in dimensions))


def _conv_general_dilated(operation: Operation) -> float:
    """Only products of elements count, not those with padding and with the holes of a dilated operand."""
    params, numbers = operation.params, operation.params["dimension_numbers"]
    image, kernel = (_sizes(t.shape) for t in operation.inputs)
    result = _sizes(operation.outputs[0].shape)
    of_image: Sequence[int] = numbers.lhs_spec
    of_kernel: Sequence[int] = numbers.rhs_spec
    of_result: Sequence[int] = numbers.out_spec
    count = 2.0 * result[of_result[0]] * result[of_result[1]] * kernel[of_kernel[1]]
    for d in range(len(params["window_strides"])):
        count *= _positions(
            image=image[of_image[d + 2]],
            kernel=kernel[of_kernel[d + 2]],
            result=result[of_result[d + 2]],
            stride=params["window_strides"][d],
            start=-params["padding"][d][0],
            holes=params["lhs_dilation"][d],
            step=params["rhs_dilation"][d],
        )
    return count


def _positions(image: int, kernel: int, result: int, stride: int, start: int, holes: int, step: int) -> float:
    """In one dimension: how many pairs of a place in the result and one in the kernel meet an element of the image.

    They meet at `start + stride * i + step * j`, which has to be a multiple of `holes` inside the dilated image. For
    each `j`, the `i` that fit are every `holes`-th of some of the first `holes`.
    """
    if stride * result < step * kernel:
        kernel, result, stride, step = result, kernel, step, stride
    first = start + step * np.arange(kernel, dtype=np.int64)
    last_inside = (image - 1) * holes
    period, found = holes // math.gcd(stride, holes), 0
    for i in range(min(period, result)):
        fits = (first + stride * i) % holes == 0
        low = np.maximum(-((first + stride * i) // (stride * period)), 0)
        high = np.minimum((last_inside - first - stride * i) // (stride * period), (result - 1 - i) // period)
        found += int(np.where(fits, np.maximum(high - low + 1, 0), 0).sum())
    return float(found)


def _attention(operation: Operation) -> float:
    """Two products of all queries and keys for the forward pass, five for the backward pass."""
    query, key = operation.inputs[:2]
    keys = _sizes(key.shape)[2 if operation.params.get("layout") else 1]
    products = 5 if "_bwd" in operation.name else 2
    return 2 * products * elements(query) * keys


# Windows, sorting, transforms.


def _windows(operation: Operation) -> float:
    return elements(operation.outputs[0]) * math.prod(operation.params["window_dimensions"])


def _scattered_windows(operation: Operation) -> float:
    return elements(operation.inputs[0]) * math.prod(operation.params["window_dimensions"])


def _updates(operation: Operation) -> float:
    return elements(operation.inputs[2])


def _sort(operation: Operation) -> float:
    sizes = _sizes(operation.inputs[0].shape)
    dimension: int = operation.params.get("dimension", -1)
    return elements(operation.inputs[0]) * _log2(sizes[dimension])


def _top_k(operation: Operation) -> float:
    return elements(operation.inputs[0]) * _log2(operation.params["k"] + 1)


def _log2(n: int) -> float:
    return math.log2(n) if n > 1 else 1.0


def _fft(operation: Operation) -> float:
    """`5 n log2 n` for each complex transform of `n` elements, half of it where one side is real."""
    lengths = _sizes(operation.params["fft_lengths"])
    points = max(elements(operation.inputs[0]), elements(operation.outputs[0]))
    is_complex = operation.inputs[0].dtype.kind == operation.outputs[0].dtype.kind == "c"
    return (5.0 if is_complex else 2.5) * points * math.log2(max(math.prod(lengths), 2))


# Linear algebra.


def _of_matrix(count: Callable[[float, float], float]) -> Rule:
    """From the operations for one matrix of some rows and columns to those for a batch of them."""

    def rule(operation: Operation) -> float:
        *batch, rows, columns = _sizes(operation.inputs[0].shape)
        return math.prod(batch) * count(rows, columns)

    return rule


def _elimination(m: float, n: float) -> float:
    k = min(m, n)
    return 2 * (m * n * k - (m + n) * k**2 / 2 + k**3 / 3)


def _svd(operation: Operation) -> float:
    *batch, rows, columns = _sizes(operation.inputs[0].shape)
    m, n = max(rows, columns), min(rows, columns)
    vectors = operation.params.get("compute_uv", True)
    return math.prod(batch) * (6 * m * n**2 + 20 * n**3 if vectors else 4 * m * n**2 - 4 * n**3 / 3)


def _triangular_solve(operation: Operation) -> float:
    triangle, right = operation.inputs
    return _sizes(triangle.shape)[-1] * elements(right)


def _tridiagonal_solve(operation: Operation) -> float:
    return 8 * elements(operation.outputs[0])


def _ormqr(operation: Operation) -> float:
    return 4 * elements(operation.outputs[0]) * _sizes(operation.inputs[1].shape)[-1]


def _random_bits(operation: Operation) -> float:
    bits = sum(elements(t) * getattr(t.dtype, "itemsize", 8) * 8 for t in operation.outputs)
    return RANDOM * bits / 32


kind_rules: dict[str, Rule] = {
    "elementwise": each_result,
    "special function": each_result,
    "cast": nothing,
    "view": nothing,
    "move": nothing,
    "reduction": each_operand,
    "indexing": nothing,
    "random": nothing,
    "sharding": nothing,
    "collective": nothing,
    "token": nothing,
    "effect": nothing,
    "reference": nothing,
}
"""What holds for all primitives of a kind that have no rule of their own."""

flop_rules: dict[str, Rule] = {
    "dot_general": _dot_general,
    "scaled_dot": _dot_general,
    "ragged_dot_general": _ragged_dot_general,
    "scaled_matmul": _last_dimension,
    "symmetric_product": _last_dimension,
    "conv_general_dilated": _conv_general_dilated,
    "reduce": _several_operands,
    "reduce_window": _windows,
    "reduce_window_sum": _windows,
    "reduce_window_max": _windows,
    "reduce_window_min": _windows,
    "select_and_gather_add": _windows,
    "select_and_scatter": _scattered_windows,
    "select_and_scatter_add": _scattered_windows,
    "scatter-add": _updates,
    "scatter-sub": _updates,
    "scatter-mul": _updates,
    "scatter-min": _updates,
    "scatter-max": _updates,
    "sort": _sort,
    "top_k": _top_k,
    "approx_top_k": each_operand,
    "fft": _fft,
    "cholesky": _of_matrix(lambda m, n: n**3 / 3),
    "cholesky_update": _of_matrix(lambda m, n: 6 * n**2),
    "lu": _of_matrix(_elimination),
    "geqrf": _of_matrix(lambda m, n: 2 * _elimination(m, n)),
    "geqp3": _of_matrix(lambda m, n: 2 * _elimination(m, n)),
    "householder_product": _of_matrix(lambda m, n: 2 * _elimination(m, n)),
    "qr": _of_matrix(lambda m, n: 4 * _elimination(m, n)),
    "ormqr": _ormqr,
    "svd": _svd,
    "eigh": _of_matrix(lambda m, n: 9 * n**3),
    "eig": _of_matrix(lambda m, n: 25 * n**3),
    "schur": _of_matrix(lambda m, n: 25 * n**3),
    "hessenberg": _of_matrix(lambda m, n: 10 * n**3 / 3),
    "tridiagonal": _of_matrix(lambda m, n: 4 * n**3 / 3),
    "triangular_solve": _triangular_solve,
    "tridiagonal_solve": _tridiagonal_solve,
    "lu_pivots_to_permutation": nothing,
    "psum": _several_operands,
    "psum_invariant": _several_operands,
    "pmax": _several_operands,
    "pmin": _several_operands,
    "reduce_scatter": each_operand,
    "addupdate": lambda operation: elements(operation.inputs[1]),
    **dict.fromkeys(
        "random_bits random_fold_in random_split rng_bit_generator rng_uniform threefry2x32 threefry4x32 philox2x32 "
        "philox4x32".split(),
        _random_bits,
    ),
    "random_gamma": each_result,
    **{name: _attention for name in BY_NAME if name.startswith("dot_product_attention")},
}
"""Rules by the name of the primitive. One for a primitive of your own is added by `flop_rules[name] = rule`."""
