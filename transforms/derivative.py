"""Derivative rules of primitives, taken from JAX.

For a primitive whose parameters are plain data, `jax.linearize` of its `bind` is traced once per (primitive,
parameters, types, active inputs). That gives two small programs: a *nonlinear* one with the primal outputs and the
coefficients, and a *linear* one from coefficients and tangents to tangents. Transposes of linear equations come from
`jax.linear_transpose` in the same way. The programs are cached and stamped into the caller's program with new values.

The linear program of an operation that holds functions or programs of its own (custom_vjp, shard_map, linear
solves...) is turned around as a whole, for those cotangents that are present when the backward program is made.
"""

# JAX's functions are partly untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import dtypes

from remat import jax_compat
from remat.ir.linearized import LinearEquation, Transposed
from remat.ir.ops import Block, Op, Primitive
from remat.ir.program import Atom, Literal, Program, Value
from remat.ir.rewrite import inline_calls, prune_program, select
from remat.ir.types import is_differentiable
from remat.jax_compat import cotangent_type, tangent_type
from remat.lower import lower_rules
from remat.trace import read_jaxpr


@dataclass(frozen=True, eq=False)
class Derivative:
    """`nonlinear`: inputs -> primal outputs, coefficients. `linear`: coefficients, tangents -> tangents of `active`.

    `active` marks the outputs that have a tangent. `transposed` turns `linear` around as a whole, for those of the
    cotangents that are present.
    """

    nonlinear: Program
    linear: Program
    output_count: int
    active: tuple[bool, ...]
    transposed: Callable[[tuple[bool, ...]], Transposed]


CACHE_SIZE = 8192
_cache: OrderedDict[Hashable, Any] = OrderedDict()


def cached(key: Hashable, make: Callable[[], Any]) -> Any:
    """A bounded cache. Keys hold no arrays, functions or programs, so nothing of a user's is kept alive."""
    try:
        found = _cache.get(key)
    except TypeError:  # a parameter that cannot be hashed
        return make()
    if found is None:
        found = _cache[key] = make()
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return found


def params_key(op: Primitive) -> Hashable:
    return (op.primitive, tuple(op.params.items()), op.context)


def bind_op(op: Op, inputs: Sequence[Any]) -> list[Any]:
    """Apply an op to arrays or tracers, outside any program."""
    return lower_rules[type(op)](op, _NO_EQUATION, list(inputs))


class _NoEquation:
    """Stands in for the equation where an op is applied on its own."""

    op = None
    outputs = ()

    class source:
        info = None


_NO_EQUATION: Any = _NoEquation()


def derivative(op: Op, types: Sequence[Any], active: tuple[bool, ...]) -> Derivative:
    """The derivative of an operation for inputs of these types, of which the `active` ones carry tangents."""
    if not isinstance(op, Primitive) or jax_compat.is_structured(op.params):
        return _derivative(op, types, active)
    key = ("derivative", params_key(op), tuple(types), active)
    return cached(key, lambda: _derivative(op, types, active))


def _derivative(op: Op, types: Sequence[Any], active: tuple[bool, ...]) -> Derivative:
    trees: list[Any] = []

    def nonlinear(*inputs: Any) -> list[Any]:
        def of_active(*chosen: Any) -> list[Any]:
            return bind_op(op, _merge(inputs, active, chosen))

        outputs, tangent_map = jax.linearize(of_active, *select(inputs, active))
        coefficients, tree = jax.tree.flatten(tangent_map)
        trees.append((tree, [is_differentiable(jax.typeof(o)) for o in outputs]))
        return [*outputs, *coefficients]

    first = make_program(nonlinear, types)
    tree, differentiable = trees[-1]
    count = len(differentiable)

    def linear(coefficients: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        outputs = jax.tree.unflatten(tree, coefficients)(*tangents)
        return [t for t, keep in zip(outputs, differentiable, strict=True) if keep]

    tangent_types = [tangent_type(t) for t in select(types, active)]
    coefficient_types = [a.type for a in first.outputs[count:]]
    second = make_program(linear, coefficient_types, tangent_types)
    depends = _depends_on(second, set(second.inputs[len(coefficient_types) :]))
    flags = iter(depends)
    has_tangent = tuple(d and next(flags) for d in differentiable)
    second.outputs = [o for o, d in zip(second.outputs, depends, strict=True) if d]

    def of_dependent(coefficients: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        return select(linear(coefficients, tangents), depends)

    @functools.cache
    def transposed(present: tuple[bool, ...]) -> Transposed:
        out_types = [cotangent_type(a.type) for a in second.outputs]
        block = isinstance(op, Block)
        return transpose_map(of_dependent, coefficient_types, tangent_types, out_types, present, block)

    return Derivative(prune_program(first), prune_program(second), count, has_tangent, transposed)


def forward_map(op: Op, types: Sequence[Any], active: tuple[bool, ...]) -> Program:
    """`jax.jvp` of an op as one program: (inputs, tangents of active inputs) -> tangents of the differentiable outputs.

    It computes the primal again; it serves ops whose tangents are not known as a linear program.
    """

    def pushforward(inputs: list[Any], tangents: list[Any]) -> list[Any]:
        def of_active(*chosen: Any) -> list[Any]:
            return bind_op(op, _merge(inputs, active, chosen))

        outputs, out_tangents = jax.jvp(of_active, tuple(select(inputs, active)), tuple(tangents))
        return [t for t, o in zip(out_tangents, outputs, strict=True) if is_differentiable(jax.typeof(o))]

    return prune_program(make_program(pushforward, list(types), [tangent_type(t) for t in select(types, active)]))


def transpose(
    op: Op, inputs: Sequence[Atom], linear: tuple[bool, ...], outputs: Sequence[Value], present: tuple[bool, ...]
) -> Transposed:
    """The transpose of a linear equation, for the output cotangents that are `present`."""
    types = tuple(a.type for a in inputs)
    if not isinstance(op, Primitive) or jax_compat.is_structured(op.params):
        return _transpose(op, types, linear, outputs, present)
    key = ("transpose", params_key(op), types, linear, present)
    return cached(key, lambda: _transpose(op, types, linear, outputs, present))


def _transpose(
    op: Op, types: Sequence[Any], linear: tuple[bool, ...], outputs: Sequence[Value], present: tuple[bool, ...]
) -> Transposed:
    linear_types = select(types, linear)
    coefficient_types = [t for t, is_linear in zip(types, linear, strict=True) if not is_linear]
    out_types = [cotangent_type(v.type) for v in outputs]
    if isinstance(op, Primitive) and jax_compat.is_barrier(op.primitive) and all(linear):
        # JAX 0.10 makes zeros of the cotangents that are absent.
        return _identity(select(out_types, present), present)

    def turned(coefficients: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        if isinstance(op, Primitive) and jax_compat.is_move(op.primitive, op.params) and all(present):
            # JAX leaves the cotangent where it is when the move was not told where its operand was.
            return [jax_compat.move(c, t.memory_space) for c, t in zip(cotangents, linear_types, strict=True)]

        def apply(*chosen: Any) -> list[Any]:
            # Only what has a cotangent is returned: JAX would make zeros of the others, and zero times infinity is NaN.
            return select(bind_op(op, _interleave(chosen, coefficients, linear)), floats)

        given = [c for c, t in zip(cotangents, select(out_types, present), strict=True) if is_differentiable(t)]
        return list(_turn(apply, linear_types, select(out_types, floats))(given))

    # A linear equation may have results without derivatives (the status of a solver, what a loop carries for JAX).
    floats = [p and is_differentiable(t) for p, t in zip(present, out_types, strict=True)]
    program = make_program(turned, coefficient_types, select(out_types, present))
    depends = _depends_on(program, set(program.inputs[len(coefficient_types) :]))
    return _without_zeros(program, [not d for d in depends])


def transpose_map(
    fun: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
    coefficient_types: Sequence[Any],
    linear_types: Sequence[Any],
    out_types: Sequence[Any],
    present: tuple[bool, ...],
    has_references: bool = False,
) -> Transposed:
    """The transpose of `fun(coefficients, tangents)`, for the cotangents that are `present`.

    Unlike those of an equation, its results may have nothing to do with the cotangents and yet not be zero: rules
    that users write need not be linear. And they may be of another type of floats, which JAX lets pass.
    """

    def turned(coefficients: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        def apply(*tangents: Any) -> list[Any]:
            return select(fun(coefficients, tangents), present)

        results = _turn(apply, linear_types, select(out_types, present), has_references)(list(cotangents))
        return [_cast(r, t) for r, t in zip(results, linear_types, strict=True)]

    program = make_program(turned, list(coefficient_types), select(out_types, present))
    return _without_zeros(program, _are_zero(program))


def _identity(types: Sequence[Any], present: tuple[bool, ...]) -> Transposed:
    program = make_program(lambda *cotangents: jax_compat.optimization_barrier(list(cotangents)), list(types))
    return Transposed(program, tuple(not p for p in present))


def _cast(x: Any, type: Any) -> Any:
    return x if jax.typeof(x).dtype == type.dtype else jax.lax.convert_element_type(x, type.dtype)


def _without_zeros(program: Program, zero: Sequence[bool]) -> Transposed:
    program.outputs = [o for o, z in zip(program.outputs, zero, strict=True) if not z]
    return Transposed(prune_program(program), tuple(zero))


ZERO_KEEPING = frozenset({"broadcast_in_dim", "convert_element_type", "copy", "pvary", "reshape"})
"""What JAX makes an array of zeros with."""


def _are_zero(program: Program) -> list[bool]:
    """Which outputs are plain zeros."""
    zeros: set[Value] = set()

    def is_zero(atom: Atom) -> bool:
        if not isinstance(atom, Literal):
            return atom in zeros
        return atom.type.dtype == dtypes.float0 or bool(np.all(np.asarray(atom.value) == 0))

    for equation in program.equations:
        if equation.op.name in ZERO_KEEPING and all(is_zero(a) for a in equation.inputs):
            zeros.update(equation.outputs)
    return [is_zero(a) for a in program.outputs]


def _turn(
    apply: Callable[..., Any], types: Sequence[Any], out_types: Sequence[Any], has_references: bool = False
) -> Callable[..., Any]:
    """The transpose of a linear function. `jax.linear_transpose` wants cotangents of the types of the results and no
    references inside; where those are of other types (arrays that are reduced over mesh axes) or there are references,
    it is the pullback, which is the same everywhere.
    """
    if all(cotangent_type(t) == t for t in out_types) and not has_references:
        return jax.linear_transpose(apply, *types)
    _, pullback = jax.vjp(apply, *(jax_compat.zeros_of(t) for t in types))
    return pullback


def read_coefficients(equation: LinearEquation) -> list[Value]:
    """The values other than cotangents that the transpose of a linear equation reads."""
    if equation.reads is None:
        equation.reads = _read_coefficients(equation)
    return equation.reads


def _read_coefficients(equation: LinearEquation) -> list[Value]:
    coefficients = equation.coefficients
    if isinstance(equation.op, Primitive):
        present = (True,) * len(equation.outputs)
        rule = transpose(equation.op, equation.inputs, equation.linear, equation.outputs, present)
        flags = [p in rule.used for p in rule.program.inputs[: len(coefficients)]]
        coefficients = select(coefficients, flags)
    return [a for a in coefficients if isinstance(a, Value)]


def make_program(fun: Callable[..., Any], *types: Any) -> Program:
    """Trace a function of (lists of) types into a program without calls. A single list is spread over arguments."""
    arguments = types[0] if len(types) == 1 else types
    with jax_compat.on_mesh_of(jax.tree.leaves(arguments)):
        return inline_calls(read_jaxpr(jax.make_jaxpr(fun)(*arguments)))


def _depends_on(program: Program, roots: set[Value]) -> list[bool]:
    """Which outputs depend on `roots`."""
    reached = set(roots)
    for equation in program.equations:
        if any(not isinstance(a, Literal) and a in reached for a in equation.inputs):
            reached.update(equation.outputs)
    return [not isinstance(a, Literal) and a in reached for a in program.outputs]


def _merge(items: Sequence[Any], flags: Sequence[bool], chosen: Sequence[Any]) -> list[Any]:
    """`items`, with those that are flagged replaced by `chosen`."""
    new = iter(chosen)
    return [next(new) if flag else x for x, flag in zip(items, flags, strict=True)]


def _interleave(first: Sequence[Any], second: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Items of `first` where the flag is set, of `second` elsewhere."""
    a, b = iter(first), iter(second)
    return [next(a) if flag else next(b) for flag in flags]
