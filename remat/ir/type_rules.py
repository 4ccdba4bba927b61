"""When an op is well typed: one rule for each class of ops, from the types around it to what is wrong ("" if nothing).

Structured ops are compared with their nested programs. A primitive is typed by JAX: it is bound to abstract values of
the types it is given, and what comes out has to be what the equation says.
"""

# JAX's functions are partly untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
from jax.core import ShapedArray

from remat import jax_compat
from remat.ir.linearized import LinearCond, LinearScan, LinearShardMap, Opaque
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
from remat.ir.program import Equation
from remat.ir.types import short_text
from remat.jax_compat import tangent_type

Types = Sequence[Any]


def mismatch(equation: Equation) -> str:
    """What is wrong between an op and the types around it; empty if nothing."""
    op = equation.op
    rule = type_rules.get(type(op))
    if rule is None:
        return f"{op.name}: the type checker has no rule for {type(op).__name__}; add one to type_rules"
    return rule(op, [a.type for a in equation.inputs], [v.type for v in equation.outputs])


def key(type: Any) -> Any:
    """What must agree between two types; weak types and shardings may differ."""
    return (getattr(type, "shape", None), str(getattr(type, "dtype", type)))


def compare(what: str, expected: Types, found: Types) -> str:
    if len(expected) != len(found):
        return f"{what}: {len(expected)} values expected, {len(found)} given"
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        if key(a) != key(b):
            return f"{what}: value {i} should be {a}, is {b}"
    return ""


def _stacked(what: str, length: int, slices: Types, stacked: Types) -> str:
    if len(slices) != len(stacked):
        return f"{what}: {len(slices)} values expected, {len(stacked)} given"
    for i, (a, b) in enumerate(zip(slices, stacked, strict=True)):
        if (length, *a.shape) != tuple(b.shape) or a.dtype != b.dtype:
            return f"{what}: value {i} should be {length} x {a}, is {b}"
    return ""


# Structured ops.


def _called(op: Any, given: Types, produced: Types) -> str:
    return compare(op.name, op.program.input_types, given) or compare(op.name, op.program.output_types, produced)


def _same(op: Op, given: Types, produced: Types) -> str:
    return compare(op.name, given, produced)


def _zeros(op: Zeros, given: Types, produced: Types) -> str:
    return compare(op.name, [], given) or compare(op.name, [op.type], produced)


def _cond(op: Cond, given: Types, produced: Types) -> str:
    if not given or not op.branches:
        return "cond: an index and a branch expected"
    if given[0].shape or str(given[0].dtype) not in ("int32", "bool"):
        return f"cond: the index should be i32[] or bool[], is {short_text(given[0])}"
    for k, branch in enumerate(op.branches):
        problem = compare(f"branch {k}", branch.input_types, given[1:])
        problem = problem or compare(f"branch {k}", branch.output_types, produced)
        if problem:
            return problem
    return ""


def _while(op: While, given: Types, produced: Types) -> str:
    m, n = op.condition_constants, op.condition_constants + op.body_constants
    carry = given[n:]
    problem = (
        compare("while condition", op.condition.input_types, [*given[:m], *carry])
        or compare("while constants and carry", op.body.input_types, given[m:])
        or compare("while body", op.body.output_types, carry)
        or compare("while", carry, produced)
    )
    flags = op.condition.output_types
    if not problem and [str(getattr(t, "dtype", t)) for t in flags] != ["bool"]:
        return f"while condition: one boolean expected, is {', '.join(map(short_text, flags)) or 'nothing'}"
    return problem


def _scan(op: Scan, given: Types, produced: Types) -> str:
    k, n = op.constant_count, op.constant_count + op.carry_count
    carried = op.body.output_types[: op.carry_count]
    return (
        compare("scan constants and carry", op.body.input_types[:n], given[:n])
        or compare("scan carry", op.body.input_types[k:n], carried)
        or compare("scan final carry", carried, produced[: op.carry_count])
        or _stacked("scan slices", op.length, op.body.input_types[n:], given[n:])
        or _stacked("scan outputs", op.length, op.body.output_types[op.carry_count :], produced[op.carry_count :])
    )


# Linear ops: inputs and outputs are the tangents of what is active around the equation they belong to.


def _shard_map(op: ShardMap, given: Types, produced: Types) -> str:
    counts = len(op.body.inputs), len(op.in_specs), len(given)
    results = len(op.body.outputs), len(op.out_specs), len(produced)
    if len({*counts}) > 1 or len({*results}) > 1:
        return f"shard_map: (body, specs, equation) have {counts} inputs and {results} outputs"
    return ""


def _active(what: str, values: Sequence[Any], flags: Sequence[bool], tangents: Types) -> str:
    if len(values) != len(flags):
        return f"{what}: {len(values)} values, {len(flags)} marks of active ones"
    return compare(what, [tangent_type(v.type) for v, f in zip(values, flags, strict=True) if f], tangents)


def _linear_scan(op: LinearScan, given: Types, produced: Types) -> str:
    active = (*op.active_constants, *op.active_carry, *op.active_slices)
    return _active("linear_scan", op.equation.inputs, active, given) or _active(
        "linear_scan results", op.equation.outputs, op.active_outputs, produced
    )


def _linear_cond(op: LinearCond, given: Types, produced: Types) -> str:
    return _active("linear_cond", op.equation.inputs[1:], op.active_operands, given) or _active(
        "linear_cond results", op.equation.outputs, op.active_outputs, produced
    )


def _linear_shard_map(op: LinearShardMap, given: Types, produced: Types) -> str:
    return _active("linear_shard_map results", op.equation.outputs, op.active_outputs, produced)


def _unknown(op: Op, given: Types, produced: Types) -> str:
    """What it takes is known when its programs are made."""
    return ""


# Primitives.

CACHE_SIZE = 16384
_cache: OrderedDict[Hashable, Any] = OrderedDict()


def _primitive(op: Primitive, given: Types, produced: Types) -> str:
    if not all(isinstance(t, ShapedArray) for t in (*given, *produced)):
        return ""  # references and tokens are known only to the equations around them
    found = _result_types(op, given)
    if isinstance(found, str):
        return f"{op.name} of {', '.join(map(short_text, given)) or 'nothing'}: {found}"
    return compare(op.name, found, produced)


def _result_types(op: Primitive, given: Types) -> Types | str:
    """The types of a primitive's results by JAX, or why it refuses its inputs. Cached, except for what holds programs
    and functions, which the cache would keep alive."""
    if jax_compat.is_structured(op.params):
        return _bound(op, given)
    config: Any = jax.config
    context = (config.read("jax_enable_x64"), jax.sharding.get_abstract_mesh(), op.context)
    try:
        known = (op.primitive, tuple(op.params.items()), tuple(given), context)
        found = _cache.get(known)
    except TypeError:  # a parameter that cannot be hashed
        return _bound(op, given)
    if found is None:
        found = _cache[known] = _bound(op, given)
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return found


def _bound(op: Primitive, given: Types) -> Types | str:
    def bind(*inputs: Any) -> list[Any]:
        with op.context.manager if op.context is not None else contextlib.nullcontext():
            return jax_compat.bind(op.primitive, inputs, op.params)

    try:
        return [v.aval for v in jax_compat.unwrap(jax.make_jaxpr(bind)(*given)).outputs]
    except (TypeError, ValueError) as error:
        return str(error).partition("\n")[0]


type_rules: dict[type[Op], Callable[[Any, Types, Types], str]] = {
    Primitive: _primitive,
    Name: _same,
    Barrier: _same,
    ToMemory: _same,
    Zeros: _zeros,
    Call: _called,
    Block: _called,
    Checkpoint: _called,
    CustomRule: _called,
    Scan: _scan,
    Cond: _cond,
    While: _while,
    ShardMap: _shard_map,
    LinearScan: _linear_scan,
    LinearCond: _linear_cond,
    LinearShardMap: _linear_shard_map,
    Opaque: _unknown,
}
