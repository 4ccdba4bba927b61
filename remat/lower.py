"""From a `Program` back to JAX: each equation is bound again, so that jit, vmap, grad, sharding and export all work.

One table of plain functions, `lower_rules`, from the class of an op to a function `(op, equation, inputs) -> outputs`.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import dtypes, lax

from remat import jax_compat
from remat.custom_rules.primitive import bind_jaxpr
from remat.decisions import as_policy
from remat.errors import ArgumentError, ArgumentTypeError
from remat.ir.ops import (
    Barrier,
    Block,
    Call,
    Checkpoint,
    Cond,
    CustomRule,
    Name,
    Op,
    Primitive,
    Scan,
    ShardMap,
    ToMemory,
    While,
    Zeros,
)
from remat.ir.program import Equation, Literal, Program, Value
from remat.ir.source import RECOMPUTED
from remat.ir.types import short_text
from remat.region_primitive import Marks, bind_region
from remat.signature import Signature, call_text, flatten_arguments, is_array, leaf_text, words_of


def lower(program: Program) -> Callable[..., Any]:
    """Turn a program into a JAX function with the arguments and results of the function it was traced from.

    **Arguments**

    - `program`: from `remat.trace`, or made by a transformation. Without a signature, the function takes the flat
      inputs and returns the list of outputs.

    **Returns** a function that can be called, jitted, vmapped and differentiated.

    **Raises** `ArgumentTypeError` for what is not a program, and when the function is called with another structure;
    `ArgumentError` when it is called with other shapes, dtypes or static values than the program was traced for.

    >>> import jax.numpy as jnp, remat
    >>> f = remat.lower(remat.trace(lambda x: {"twice": 2 * x})(jnp.arange(3)))
    >>> f(jnp.arange(3))["twice"].tolist()
    [0, 2, 4]
    """
    if not isinstance(program, Program):
        raise ArgumentTypeError(
            f"remat.lower takes a Program, but got {program!r} of type {type(program).__name__}. Trace the function "
            "first: remat.lower(remat.trace(fun)(*args))."
        )
    signature = program.signature
    if signature is None:
        return lambda *inputs: evaluate(program, _check_count(program, inputs))

    def lowered(*args: Any, **kwargs: Any) -> Any:
        position = itertools.count()
        static = signature.inputs.statics
        given = flatten_arguments(lowered, args, kwargs, lambda leaf: next(position) not in static)
        if given.structure.tree != signature.inputs.tree:
            traced_args, traced_kwargs = words_of(signature.inputs, program.input_types)
            raise ArgumentTypeError(
                f"the program was traced for {call_text(signature.function, traced_args, traced_kwargs)}, but was "
                f"called as {call_text(signature.function, args, kwargs)}. Call it as the traced function was called, "
                "or trace again."
            )
        _check_statics(signature, given.structure.statics)
        inputs = [_check_input(v, x, n) for v, x, n in zip(program.inputs, given.leaves, signature.argument_names)]
        return signature.outputs.build(evaluate(program, inputs))

    lowered.__name__ = signature.function
    return lowered


def _check_statics(signature: Signature, given: dict[int, Any]) -> None:
    """Texts and flags that the program was traced for cannot change; other static values are not compared."""
    for i, value in signature.inputs.statics.items():
        if isinstance(value, (str, bytes, enum.Enum)) and value != given[i]:
            raise ArgumentError(
                f"the program of {signature.function} was traced with the static argument {value!r}, but was called "
                f"with {given[i]!r}. Trace the function again for other static values."
            )


def _check_count(program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    if len(inputs) != len(program.inputs):
        types = ", ".join(short_text(v.type) for v in program.inputs)
        raise ArgumentError(
            f"the program takes {len(program.inputs)} inputs ({types or 'none'}), but was called with {len(inputs)}."
        )
    return inputs


def _check_input(value: Value, x: Any, name: str) -> Any:
    if not is_array(x):
        raise ArgumentTypeError(
            f"argument {name} is {leaf_text(x)}, but the program was traced for {short_text(value.type)}. Pass an "
            "array, or trace the function again."
        )
    type = jax.typeof(x)
    if type.shape != value.type.shape or type.dtype != value.type.dtype:
        raise ArgumentError(
            f"argument {name} has type {short_text(type)}, but the program was traced for {short_text(value.type)}. "
            "Trace the function again for arguments of other shapes or dtypes."
        )
    return x


def evaluate(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Run a program on arrays or tracers. Each value is forgotten after its last use."""
    env: dict[Value, Any] = dict(program.constants)
    env.update(zip(program.inputs, inputs, strict=True))
    last_use = _last_uses(program)
    for i, equation in enumerate(program.equations):
        arguments = [a.value if isinstance(a, Literal) else env[a] for a in equation.inputs]
        again = equation.source.is_recomputed
        with jax.named_scope(RECOMPUTED) if again else contextlib.nullcontext():
            results = lower_rules[type(equation.op)](equation.op, equation, arguments)
        env.update(zip(equation.outputs, results, strict=True))
        for value in last_use.get(i, ()):
            env.pop(value, None)
    return [_as_array(a) if isinstance(a, Literal) else env[a] for a in program.outputs]


def _last_uses(program: Program) -> dict[int, list[Value]]:
    """For each equation, the values that nothing after it uses."""
    seen: set[Value] = {a for a in program.outputs if isinstance(a, Value)}
    result: dict[int, list[Value]] = {}
    for i in range(len(program.equations) - 1, -1, -1):
        equation = program.equations[i]
        for value in (*equation.outputs, *equation.inputs):
            if isinstance(value, Value) and value not in seen:
                seen.add(value)
                result.setdefault(i, []).append(value)
    return result


def _as_array(literal: Literal) -> Any:
    return jnp.asarray(literal.value, dtype=literal.type.dtype)


def _primitive(op: Primitive, equation: Equation, inputs: list[Any]) -> list[Any]:
    if jax_compat.is_barrier(op.primitive):
        return _barrier(Barrier(), equation, inputs)
    info = equation.source.info
    if op.context is not None:
        return jax_compat.bind(op.primitive, inputs, op.params, info, op.context)
    with _mesh(equation):
        return jax_compat.bind(op.primitive, inputs, op.params, info)


def _name(op: Name, equation: Equation, inputs: list[Any]) -> list[Any]:
    with _at(equation):
        return [jax_compat.checkpoint_name(inputs[0], op.tag)]


@contextlib.contextmanager
def _at(equation: Equation) -> Iterator[None]:
    """A context in which JAX records the user's line for what is bound (without it, lines of this file), and on the
    mesh that the results are on."""
    info = equation.source.info
    source = contextlib.nullcontext() if info is None else jax_compat.with_source(info)
    with source, _mesh(equation):
        yield


def _mesh(equation: Equation) -> Any:
    mapped = equation.op.axes if isinstance(equation.op, ShardMap) else ()
    return jax_compat.on_mesh_of((v.type for v in equation.outputs), mapped)


def _call(op: Call, equation: Equation, inputs: list[Any]) -> list[Any]:
    if equation.source.info is None:
        return evaluate(op.program, inputs)
    with jax_compat.with_scopes(jax_compat.scopes_of_call(equation.source.info, op.function)):
        return evaluate(op.program, inputs)


def _block(op: Block, equation: Equation, inputs: list[Any]) -> list[Any]:
    return evaluate(op.program, inputs)


def _checkpoint(op: Checkpoint, equation: Equation, inputs: list[Any]) -> list[Any]:
    def region(*xs: Any) -> list[Any]:
        return evaluate(op.program, xs)

    policy = None if op.policy is None else as_policy(op.policy)
    with _at(equation):
        return bind_region(jax.jit(region), inputs, Marks(policy, op.prevent_cse))


def _custom_rule(op: CustomRule, equation: Equation, inputs: list[Any]) -> list[Any]:
    with _at(equation):
        jaxpr = jax.make_jaxpr(lambda *xs: evaluate(op.program, xs))(*op.program.input_types)
        return bind_jaxpr(jaxpr, inputs, op.rules, op.constant_count)


def _scan(op: Scan, equation: Equation, inputs: list[Any]) -> list[Any]:
    k, n = op.constant_count, op.constant_count + op.carry_count
    constants, carry, slices = inputs[:k], inputs[k:n], inputs[n:]
    count, length = len(slices), op.length
    if not isinstance(length, int):  # a symbolic length is only known to JAX from an array
        slices, length = [*slices, jnp.zeros((length, 0))], None

    def body(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        results = evaluate(op.body, [*constants, *carry, *slices[:count]])
        return results[: op.carry_count], results[op.carry_count :]

    carry = [_typed(x, v.type) for x, v in zip(carry, op.body.inputs[k:n], strict=True)]
    with _at(equation):
        final, stacked = lax.scan(body, carry, slices, length=length, reverse=op.reverse, unroll=op.unroll)
    return [*final, *stacked]


def _typed(x: Any, type: Any) -> Any:
    """Python numbers as arrays of the declared type, so that a loop's carry keeps one type."""
    return x if isinstance(x, jax.Array) else jnp.asarray(x, dtype=type.dtype)


def _cond(op: Cond, equation: Equation, inputs: list[Any]) -> list[Any]:
    index, *operands = inputs
    branches = [lambda *xs, b=b: evaluate(b, xs) for b in op.branches]
    if len(branches) == 1:
        return branches[0](*operands)
    with _at(equation):
        if op.platforms is not None:
            return _of_platform(op.platforms, branches, operands)
        if len(branches) == 2:
            return lax.cond(index != 0, branches[1], branches[0], *operands)
        return lax.switch(index, branches, *operands)


def _of_platform(platforms: Sequence[Any], branches: Sequence[Any], operands: list[Any]) -> list[Any]:
    """Only the branch of the platform that is compiled for is lowered; JAX finds its number again."""
    default, named = None, {}
    for names, branch in zip(platforms, branches, strict=True):
        if names is None:
            default = branch
        else:
            named.update(dict.fromkeys(names, branch))
    return lax.platform_dependent(*operands, default=default, **named)


def _while(op: While, equation: Equation, inputs: list[Any]) -> list[Any]:
    m, n = op.condition_constants, op.condition_constants + op.body_constants
    of_condition, of_body, carry = inputs[:m], inputs[m:n], inputs[n:]
    carry = [_typed(x, v.type) for x, v in zip(carry, op.body.inputs[op.body_constants :], strict=True)]

    def goes_on(c: list[Any]) -> Any:
        return evaluate(op.condition, [*of_condition, *c])[0]

    def body(c: list[Any]) -> list[Any]:
        return evaluate(op.body, [*of_body, *c])

    if op.condition.output_types[0].shape == ():
        with _at(equation):
            return lax.while_loop(goes_on, body, carry)

    def body_where_it_goes_on(c: list[Any]) -> list[Any]:
        going = goes_on(c)
        return [_where(going, new, old) for new, old in zip(body(c), c, strict=True)]

    with _at(equation):
        return lax.while_loop(lambda c: jnp.any(goes_on(c)), body_where_it_goes_on, carry)


def _where(flags: Any, new: Any, old: Any) -> Any:
    """`vmap` makes a loop condition an array, one flag for each leading index: what has finished stays as it is."""
    return jnp.where(jnp.reshape(flags, flags.shape + (1,) * (jnp.ndim(old) - flags.ndim)), new, old)


def _shard_map(op: ShardMap, equation: Equation, inputs: list[Any]) -> list[Any]:
    def body(*parts: Any) -> tuple[Any, ...]:
        return tuple(evaluate(op.body, parts))

    with _at(equation):
        return list(jax_compat.shard_map(body, op)(*inputs))


def _to_memory(op: ToMemory, equation: Equation, inputs: list[Any]) -> list[Any]:
    with _mesh(equation):
        return [jax_compat.to_memory(inputs[0], op.kind)]


def _zeros(op: Zeros, equation: Equation, inputs: list[Any]) -> list[Any]:
    type = op.type
    if dtypes.issubdtype(type.dtype, dtypes.prng_key):
        return [_zero_keys(type)]
    return [jax_compat.zeros_of(type)]


def _zero_keys(type: Any) -> Any:
    found: list[Any] = []

    def look(keys: Any) -> Any:
        found.append(jax.random.key_impl(keys))  # answers for arrays and tracers, not for types
        return jax.random.key_data(keys)

    data = jax.eval_shape(look, jax.ShapeDtypeStruct(type.shape, type.dtype))
    return jax.random.wrap_key_data(jnp.zeros(data.shape, data.dtype), impl=found[0])


def _barrier(op: Barrier, equation: Equation, inputs: list[Any]) -> list[Any]:
    with _mesh(equation):
        return jax_compat.optimization_barrier(inputs)


lower_rules: dict[type[Op], Callable[[Any, Equation, list[Any]], list[Any]]] = {
    Primitive: _primitive,
    Name: _name,
    Call: _call,
    Block: _block,
    Checkpoint: _checkpoint,
    CustomRule: _custom_rule,
    Scan: _scan,
    Cond: _cond,
    While: _while,
    ShardMap: _shard_map,
    ToMemory: _to_memory,
    Zeros: _zeros,
    Barrier: _barrier,
}
