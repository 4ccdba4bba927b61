"""The functional core of reverse and forward mode: run a split program on arrays or tracers.

`vjp` and `linearize` here take functions of positional arguments; the public ones with policies are in
`remat.autodiff`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.tree_util import keystr

from remat import jax_compat
from remat.errors import ArgumentTypeError
from remat.ir.program import Program
from remat.ir.types import is_differentiable, short_text
from remat.lower import evaluate
from remat.signature import (
    Structure,
    call_text,
    flatten_arguments,
    function_name,
    is_array,
    leaf_text,
    tree_text,
    words_of,
)
from remat.trace import trace_arguments
from remat.transforms.split import Split, split_program


class Pullback:
    """What `vjp_fn` needs besides the residuals: the backward program and how to take and return pytrees."""

    def __init__(self, split: Split, program: Program, outputs: Structure):
        assert program.signature is not None
        self.split = split
        self.function = program.signature.function
        self.inputs = program.signature.inputs
        self.input_types = program.input_types
        self.outputs = outputs
        self.output_types = [a.type for a in split.linearized.outputs]

    def __call__(self, residuals: Sequence[Any], cotangent: Any) -> tuple[Any, ...]:
        found, tree = jax.tree_util.tree_flatten_with_path(cotangent)
        count = self.outputs.tree.num_leaves - len(self.outputs.statics)
        types = self.output_types[:count]
        if tree != self.outputs.tree:
            raise ArgumentTypeError(
                f"vjp_fn of {self.function}: the cotangent is {tree_text(cotangent)}, but {self.function} returned "
                f"{tree_text(words_of(self.outputs, types))}. Give one cotangent for each leaf of the result."
            )
        arrays = [(f"cotangent{keystr(p)}", x) for i, (p, x) in enumerate(found) if i not in self.outputs.statics]
        where = f"vjp_fn of {self.function}"
        given = [_check_tangent(where, name, x, t) for (name, x), t in zip(arrays, types, strict=True)]
        chosen = [c for c, take in zip(given, self.split.given) if take]
        found = iter(evaluate(self.split.second, [*residuals, *chosen]))
        results = [
            next(found) if returned else zero_tangent(t, cotangent=True)
            for returned, t in zip(self.split.returned, self.input_types, strict=True)
        ]
        statics = dict.fromkeys(self.inputs.statics)
        args, _ = Structure(self.inputs.tree, statics).build(results)
        return args


class VjpFunction:
    """`vjp_fn(cotangent) -> cotangents of the primals`. A pytree: its leaves are exactly the residuals, so that it can
    be returned from one jitted function and given to another."""

    def __init__(self, residuals: Sequence[Any], pullback: Pullback):
        self.residuals = list(residuals)
        self.pullback = pullback

    def __call__(self, cotangent: Any, *more: Any) -> tuple[Any, ...]:
        if more:
            raise ArgumentTypeError(
                f"vjp_fn of {self.pullback.function} takes one cotangent, shaped like the result, but got "
                f"{1 + len(more)} arguments. Pass several cotangents as one pytree, such as a tuple."
            )
        return self.pullback(self.residuals, cotangent)

    def __repr__(self) -> str:
        return f"<vjp of {self.pullback.function}, {len(self.residuals)} residuals>"


class Pushforward:
    """What `linear_fn` needs besides the residuals."""

    def __init__(self, split: Split, program: Program):
        assert program.signature is not None
        self.split = split
        self.function = program.signature.function
        self.signature = program.signature
        self.input_types = program.input_types
        self.output_types = [a.type for a in split.linearized.outputs]

    def __call__(self, residuals: Sequence[Any], tangents: tuple[Any, ...]) -> Any:
        leaves, tree = jax.tree.flatten((tangents, {}))
        inputs = self.signature.inputs
        if tree != inputs.tree:
            primals, _ = words_of(inputs, self.input_types)
            raise ArgumentTypeError(
                f"linear_fn was called as {call_text('linear_fn', tangents, {})}, but the primals were "
                f"{call_text(self.function, primals, {})}. Give one tangent for each leaf of the primals."
            )
        arrays = [x for i, x in enumerate(leaves) if i not in inputs.statics]
        names = [f"tangent of {name}" for name in self.signature.argument_names]
        where = f"linear_fn of {self.function}"
        given = [_check_tangent(where, *each) for each in zip(names, arrays, self.input_types, strict=True)]
        chosen = [c for c, take in zip(given, self.split.given) if take]
        found = iter(evaluate(self.split.second, [*residuals, *chosen]))
        results = [
            next(found) if returned else zero_tangent(t)
            for returned, t in zip(self.split.returned, self.output_types, strict=True)
        ]
        return self.signature.outputs.build(results)


class LinearFunction:
    """`linear_fn(*tangents) -> tangents of the result`. A pytree whose leaves are the residuals."""

    def __init__(self, residuals: Sequence[Any], pushforward: Pushforward):
        self.residuals = list(residuals)
        self.pushforward = pushforward

    def __call__(self, *tangents: Any) -> Any:
        return self.pushforward(self.residuals, tangents)

    def __repr__(self) -> str:
        return f"<linearization of {self.pushforward.function}, {len(self.residuals)} residuals>"


def _flatten_vjp(f: VjpFunction) -> tuple[list[Any], Pullback]:
    return f.residuals, f.pullback


def _flatten_linear(f: LinearFunction) -> tuple[list[Any], Pushforward]:
    return f.residuals, f.pushforward


jax.tree_util.register_pytree_node(VjpFunction, _flatten_vjp, lambda aux, leaves: VjpFunction(leaves, aux))
jax.tree_util.register_pytree_node(LinearFunction, _flatten_linear, lambda aux, leaves: LinearFunction(leaves, aux))


def vjp(fun: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool = False) -> tuple[Any, VjpFunction, Any]:
    """Returns the result, the pullback, and the auxiliary result (None without `has_aux`)."""
    program, leaves = _trace(fun, primals)
    assert program.signature is not None
    active = [is_differentiable(t) for t in program.input_types]
    main, count = program.signature.outputs, len(program.outputs)
    if has_aux:
        main, auxiliary, count = split_auxiliary(fun, program.signature.outputs, program.output_types)
    split = split_program(program, active, differentiated=count)
    results = evaluate(split.forward, leaves)
    outputs, residuals = results[: split.output_count], results[split.output_count :]
    out = main.build(outputs[:count])
    aux = auxiliary.build(outputs[count:]) if has_aux else None
    return out, VjpFunction(residuals, Pullback(split, program, main)), aux


def linearize(fun: Callable[..., Any], primals: tuple[Any, ...]) -> tuple[Any, LinearFunction]:
    """Returns the result and the linear map from tangents of the primals to tangents of the result."""
    program, leaves = _trace(fun, primals)
    assert program.signature is not None
    split = split_program(program, [is_differentiable(t) for t in program.input_types], backward=False)
    results = evaluate(split.forward, leaves)
    outputs, residuals = results[: split.output_count], results[split.output_count :]
    return program.signature.outputs.build(outputs), LinearFunction(residuals, Pushforward(split, program))


def _trace(fun: Callable[..., Any], primals: tuple[Any, ...]) -> tuple[Program, list[Any]]:
    arguments = flatten_arguments(fun, primals, {})
    program = trace_arguments(fun, arguments)
    return program, [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in arguments.leaves]


def split_auxiliary(
    fun: Callable[..., Any], outputs: Structure, types: Sequence[Any]
) -> tuple[Structure, Structure, int]:
    """Take the structure of `(result, auxiliary)` apart; also returns the number of array leaves of the result."""
    children = jax.tree_util.treedef_children(outputs.tree)
    if len(children) != 2 or outputs.tree.node_data()[0] is not tuple:
        raise ArgumentTypeError(
            f"with has_aux=True, {function_name(fun)} must return a pair (result, auxiliary data), but it returned "
            f"{tree_text(words_of(outputs, types))}. Return a tuple of two, or leave has_aux out."
        )
    first, second = children
    n = first.num_leaves
    main = Structure(first, {i: v for i, v in outputs.statics.items() if i < n})
    rest = Structure(second, {i - n: v for i, v in outputs.statics.items() if i >= n})
    return main, rest, n - len(main.statics)


def zero_tangent(type: Any, cotangent: bool = False) -> Any:
    """Zeros of the tangent (or cotangent) type: float0 for integers, booleans and keys."""
    if not is_differentiable(type):
        return np.zeros(type.shape, dtypes.float0)
    return jax_compat.zeros_of(jax_compat.cotangent_type(type) if cotangent else jax_compat.tangent_type(type))


def _check_tangent(where: str, name: str, x: Any, type: Any) -> Any:
    """A tangent or cotangent must have the shape and tangent dtype of what it belongs to."""
    if not is_array(x):
        raise ArgumentTypeError(f"{where}: {name} is {leaf_text(x)}, but an array {short_text(type)} is needed.")
    if not is_differentiable(type):
        if getattr(x, "dtype", None) != dtypes.float0:
            raise ArgumentTypeError(
                f"{where}: {name} belongs to a value of type {short_text(type)}, which has no "
                f"derivative; it must be zeros of dtype float0 (np.zeros({tuple(type.shape)}, jax.dtypes.float0))."
            )
        return x
    given = jax.typeof(jnp.asarray(x))
    if tuple(given.shape) != tuple(type.shape) or given.dtype != type.dtype:
        raise ArgumentTypeError(
            f"{where}: {name} has type {short_text(given)}, but {short_text(type)} is needed: the shape and dtype of "
            "the value it belongs to."
        )
    return jnp.asarray(x)
