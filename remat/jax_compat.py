"""Everything that depends on a JAX version, in one place.

Supported: jax 0.10 and newer, with the flags `jax_remat3` and `jax_custom_vjp3` off or on. With those flags, names,
checkpoint regions and custom derivatives appear in a jaxpr as `call_hi_primitive` equations that carry an object
(`_prim`) instead of primitives of their own; jax 0.12 merges `ClosedJaxpr` into `Jaxpr` and describes the operands of
a scan by trees (`ft_in`) instead of counts. All of this is read through public names and attributes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend import core as jex_core
from jax.extend import source_info_util
from jax.extend.core.primitives import jit_p, name_p
from jax.interpreters.ad import zeros_like_aval

__all__ = [
    "bind",
    "checkpoint_name",
    "dots_primitive_names",
    "has_batch_dims",
    "jit_p",
    "name_p",
    "optimization_barrier",
    "policy_names",
    "scan_counts",
    "to_memory",
    "unwrap",
]

Literal = jex_core.Literal
Tracer = jax.core.Tracer

CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "call", "eval_jaxpr", "core_closed_call", "remat_call"})
CHECKPOINTS = frozenset({"remat2", "checkpoint", "remat"})
REGION = "remat_region"
CUSTOM_JVPS = frozenset({"custom_jvp_call"})
HIGH_NAMES = frozenset({"CheckpointName", "CheckpointNameFwd"})
HIGH_CHECKPOINTS = frozenset({"RematTraced"})

CUSTOM_RULE = "remat_custom_vjp"
"""The name of our own primitive, see `remat.custom_rules.primitive`."""

dots_primitive_names = frozenset(
    "dot_general ragged_dot_general scaled_dot scaled_matmul scaled_matmul_wrapper symmetric_product "
    "bcoo_dot_general bcsr_dot_general conv_general_dilated".split()
)
"""Products and convolutions, by the names that equations show."""


def has_batch_dims(name: str, types: Any, params: dict[str, Any]) -> bool:
    """Whether the product `name` of operands of these types has batch dimensions.

    For a ragged product they are those of the `dot_general` it generalises: rows that are multiplied by the matrix of
    their group have none. Scaled products always have one, which is of size one where there is nothing to batch.
    """
    if name == "ragged_dot_general":
        params = {"dimension_numbers": params["ragged_dot_dimension_numbers"].dot_dimension_numbers}
    if "dimension_numbers" in params:
        _, (left, right) = params["dimension_numbers"]
        return bool(left or right)
    if name == "symmetric_product":
        return len(types[0].shape) > 2
    return types[0].shape[0] != 1


class Opened(NamedTuple):
    """A jaxpr taken apart in the same way in every version."""

    inputs: list[Any]
    constants: list[tuple[Any, Any]]
    equations: list[Any]
    outputs: list[Any]
    jaxpr: Any


def unwrap(jaxpr: Any) -> Opened:
    """Take a (closed or open) jaxpr apart. An open jaxpr with unbound constant variables has them as inputs."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    constants = list(getattr(jaxpr, "consts", ()) or ())
    variables = list(inner.constvars)
    if len(variables) != len(constants):
        return Opened(variables + list(inner.invars), [], inner.eqns, list(inner.outvars), jaxpr)
    return Opened(
        list(inner.invars), list(zip(variables, constants, strict=True)), inner.eqns, list(inner.outvars), jaxpr
    )


def kind_of(equation: Any) -> tuple[str, dict[str, Any]]:
    """What an equation is to us, with its parameters.

    Kinds: `name`, `call`, `checkpoint`, `custom_rule`, `scan`, `cond`, `while`, `shard_map`, or `primitive` for
    everything else (also for a shard_map with side effects).
    """
    name, params = equation.primitive.name, equation.params
    if name == "call_hi_primitive":
        high = params["_prim"]
        kind = type(high).__name__
        if kind in HIGH_NAMES:
            return "name", dict(high.params)
        if kind in HIGH_CHECKPOINTS:
            return "checkpoint", dict(high.params)
        return "primitive", params
    if name == "name":
        return "name", params
    if name in CALLS:
        inner = params.get("jaxpr", params.get("call_jaxpr"))
        return "call", {**params, "jaxpr": inner}
    if name in CHECKPOINTS:
        return "checkpoint", params
    if name == CUSTOM_RULE:
        return "custom_rule", params
    if name == REGION:
        marks = params["marks"]
        own = {"policy": marks.policy, "prevent_cse": marks.prevent_cse, "derived": marks.derived}
        named = {"function": dict(params["call"])["name"]}
        return "call" if marks.transparent else "checkpoint", {**params, **own, **named}
    if name in ("scan", "cond", "while") or (name == "shard_map" and not effects_of(equation)):
        return name, params
    return "primitive", params


def depends_on(jaxpr: Any, roots: Sequence[bool]) -> list[bool]:
    """Which results of a jaxpr depend on the inputs that are marked (a constant depends on none)."""
    opened = unwrap(jaxpr)
    reached = {v for v, root in zip(opened.inputs, roots, strict=True) if root}
    for equation in opened.equations:
        if equation.effects or any(not isinstance(a, Literal) and a in reached for a in equation.invars):
            reached.update(equation.outvars)
    return [not isinstance(a, Literal) and a in reached for a in opened.outputs]


def is_mostly_a_call(jaxpr: Any) -> bool:
    """Whether most equations of a jaxpr are in one call of a jitted function, also in a region or a function with rules
    of its own. (Functions of `jax.numpy` call small ones.)"""
    return 2 * _largest_call(jaxpr) > equation_count(jaxpr)


def _largest_call(jaxpr: Any) -> int:
    found = [
        equation_count(inner) if equation.primitive.name in ("jit", "pjit") else _largest_call(inner)
        for equation in unwrap(jaxpr).equations
        for inner in _called(equation)
    ]
    return max(found, default=0)


def equation_count(jaxpr: Any) -> int:
    """How many equations a jaxpr has, those of called functions and regions included."""
    equations = unwrap(jaxpr).equations
    return len(equations) + sum(equation_count(inner) for e in equations for inner in _called(e))


def holds_regions(jaxpr: Any) -> bool:
    """Whether a checkpoint region, of ours or of JAX, is anywhere in a jaxpr."""
    return any(
        kind_of(equation)[0] == "checkpoint" or any(map(holds_regions, jaxprs_in(kind_of(equation)[1])))
        for equation in unwrap(jaxpr).equations
    )


def _called(equation: Any) -> list[Any]:
    """The jaxpr that an equation calls once, as it is."""
    kind, params = kind_of(equation)
    if kind not in ("call", "checkpoint", "custom_rule") and "custom_" not in equation.primitive.name:
        return []
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    return [] if inner is None else [inner]


def spmd_axis(axis: Any) -> Any:
    """The `spmd_axis_name` of a mapped axis."""
    return axis.spmd_name


def effects_of(equation: Any) -> frozenset[Any]:
    """The side effects of an equation. That a collective needs the names of mesh axes is none."""
    return frozenset(e for e in equation.effects if type(e).__name__ != "NamedAxisEffect")


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """(number of constants, number of carried values) of a scan equation."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carry, _ = params["ft_in"].unpack()
    return len(constants), len(carry)


def is_structured(params: dict[str, Any]) -> bool:
    """Whether a primitive holds programs or functions, so that its rules must not be shared between traces."""
    if "_prim" in params or any(callable(v) and not isinstance(v, type) for v in params.values()):
        return True
    return next(iter(jex_core.jaxprs_in_params(params)), None) is not None


def jaxprs_in(params: dict[str, Any]) -> Iterable[Any]:
    """The jaxprs that an equation's parameters hold."""
    return jex_core.jaxprs_in_params(params)


def inner_primitives(params: dict[str, Any]) -> frozenset[str]:
    """The names of the primitives in the jaxprs that an equation's parameters hold, calls looked into."""
    found: set[str] = set()
    stack = list(jex_core.jaxprs_in_params(params))
    while stack:
        for equation in unwrap(stack.pop()).equations:
            name = equation.primitive.name
            if name in CALLS or name in CUSTOM_JVPS:
                stack.extend(jex_core.jaxprs_in_params(equation.params))
            else:
                found.add(name)
    return frozenset(found)


def bind(primitive: Any, inputs: Any, params: dict[str, Any], info: Any = None, context: Any = None) -> list[Any]:
    """Apply a primitive to arrays or tracers, keeping the user's source line and name scope on the new equation."""
    parameters = primitive.get_bind_params(params)
    where = contextlib.nullcontext() if info is None else with_source(info)
    with where, contextlib.nullcontext() if context is None else context.manager:
        out = primitive.bind(*inputs, **parameters)
    return list(out) if primitive.multiple_results else [out]


def evaluate_jaxpr(jaxpr: Any, inputs: Any, constants: Any = None) -> list[Any]:
    """Apply a closed jaxpr to arrays or tracers by binding its equations again; `constants` in place of its own."""
    given = jaxpr.consts if constants is None else constants
    return list(jax.core.eval_jaxpr(getattr(jaxpr, "jaxpr", jaxpr), given, *inputs))


def array_of_number(x: Any) -> Any:
    """An array in place of a Python number, also of one that is differentiated: the rules of primitives want arrays,
    and it is JAX's functions that make them."""
    primal = x
    while isinstance(primal, jax.core.Tracer) and hasattr(primal, "primal"):
        primal = primal.primal
    return jax.numpy.array(x, copy=True) if isinstance(primal, (bool, int, float, complex)) else x


def part_of_jaxpr(jaxpr: Any, equations: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    """Some equations of a closed jaxpr without constants among them, as a closed jaxpr."""
    inner = jaxpr.jaxpr
    information = inner.debug_info._replace(arg_names=None, result_paths=None)
    part = inner.replace(constvars=[], invars=inputs, outvars=outputs, eqns=equations, debug_info=information)
    return jex_core.ClosedJaxpr(part, ())


def trace_jitted(function: Any, inputs: Any) -> Any:
    """The jaxpr whose one equation is the call of a jitted function, also under `jax.disable_jit`."""
    with jax.disable_jit(False):
        return jax.make_jaxpr(function)(*inputs)


def with_source(info: Any) -> Any:
    """A context in which JAX records `info` as the place that equations come from."""
    stack = source_info_util.current_name_stack() + info.name_stack
    return source_info_util.user_context(info.traceback, name_stack=stack)


def scopes_of_call(info: Any, function: str) -> Any:
    """The name scopes around what a call of a function does: those of the call, and the one JAX adds for a jit."""
    return info.name_stack.extend(f"jit({function})") if function else info.name_stack


def scopes_added(scopes: Any, info: Any) -> Any:
    """A source record with name scopes around its own."""
    return info.replace(name_stack=scopes + info.name_stack) if len(scopes) else info


def with_scopes(scopes: Any) -> Any:
    """A context in which equations stand in these name scopes, inside the current ones."""
    return source_info_util.set_name_stack(source_info_util.current_name_stack() + scopes)


def on_mesh_of(types: Iterable[Any], mapped: Collection[Any] = ()) -> Any:
    """A context in which values of these types may be computed: code that is inlined out of `jax.sharding.auto_axes`
    has types on another mesh than its surroundings. A type that knows one of the `mapped` axes as manual comes from
    inside the `shard_map` over these, and says nothing about what is around it."""
    meshes = (getattr(getattr(type, "sharding", None), "mesh", None) for type in types)
    outside = (m for m in meshes if m is not None and not m.empty and set(m.manual_axes).isdisjoint(mapped))
    mesh = next(outside, None)
    if mesh is None:
        return contextlib.nullcontext()
    current = jax.sharding.get_abstract_mesh()
    if mesh == current or (mesh.are_all_axes_auto and (current.empty or current.are_all_axes_auto)):
        return contextlib.nullcontext()
    return jax.sharding.use_abstract_mesh(mesh)


def shard_map(fun: Callable[..., Any], op: Any) -> Callable[..., Any]:
    """The function on every device, as a `ShardMap` says; it returns a tuple."""

    def called(*inputs: Any) -> tuple[Any, ...]:
        mapped = jax.shard_map(
            fun,
            mesh=op.mesh,
            in_specs=op.in_specs,
            out_specs=op.out_specs,
            axis_names=op.axes,
            check_vma=op.check_vma,
        )
        with contextlib.nullcontext() if op.context is None else op.context.manager:
            return mapped(*inputs)

    return called


def inside_shard_map(op: Any, fun: Callable[[], Any]) -> Any:
    """What `fun` returns when it is called where the mesh axes of a `ShardMap` are known, as rules of collectives need
    it."""
    results: list[Any] = []

    def body() -> tuple[()]:
        results.append(fun())
        return ()

    jax.eval_shape(shard_map(body, dataclasses.replace(op, in_specs=(), out_specs=())))
    return results[0]


def spec_of_parts(op: Any, axes: Collection[Any], type: Any) -> Any:
    """The spec that joins values of the body of a `ShardMap` over these axes along their first dimension; of devices
    that are known to hold the same one (`check_vma`), it takes one."""
    kind = type.manual_axis_type
    axes = tuple(a for a in op.mesh.axis_names if a in axes and (not op.check_vma or a in kind.varying))
    reductions = {"unreduced": kind.unreduced, "reduced": kind.reduced} if op.check_vma else {}
    reductions = {k: v for k, v in reductions.items() if v}
    return jax.sharding.PartitionSpec(*((axes,) if axes else ()), **reductions)


def joined_type(op: Any, type: Any, spec: Any) -> Any:
    """The type, outside a `ShardMap`, of what its body returns with this type and spec."""
    with contextlib.nullcontext() if op.context is None else op.context.manager:
        return type.unshard(op.mesh, op.check_vma, spec)


def zeros_of(type: Any) -> Any:
    """Zeros of a whole type: shape, dtype, weak type, sharding, memory, and how they vary over the mesh axes that are
    manual (those of `shard_map`)."""
    with on_mesh_of([type]):
        zeros = zeros_like_aval(type)
        kind = getattr(type, "manual_axis_type", None)
        if kind is not None and kind.reduced:
            zeros = jax.lax.pcast(zeros, tuple(kind.reduced), to="reduced")
        if kind is not None and kind.unreduced:
            axes = tuple(kind.unreduced)
            zeros = jax.lax.pcast(jax.lax.pcast(zeros, axes, to="varying"), axes, to="unreduced")
        space = getattr(type, "memory_space", None)
        return zeros if space == jax.typeof(zeros).memory_space else move(zeros, space)


def tangent_type(type: Any) -> Any:
    """The type of tangents of values of this type."""
    return type.to_tangent_aval() if hasattr(type, "to_tangent_aval") else type


def cotangent_type(type: Any) -> Any:
    """The type of cotangents of values of this type, or of their tangents: what is `reduced` over mesh axes has a
    cotangent that is still to be reduced over them."""
    return type.to_ct_aval() if hasattr(type, "to_ct_aval") else tangent_type(type)


def optimization_barrier(inputs: list[Any]) -> list[Any]:
    """One barrier for all inputs, whose types stay as they are.

    Inside `shard_map`, jax 0.10 makes results of one barrier vary over all mesh axes that any of its inputs varies
    over; there, inputs that vary over different axes get barriers of their own.
    """
    results = list(jax.lax.optimization_barrier(tuple(inputs)))
    kinds = [getattr(jax.typeof(x), "manual_axis_type", None) for x in inputs]
    if kinds == [getattr(jax.typeof(x), "manual_axis_type", None) for x in results]:
        return results
    for kind in dict.fromkeys(kinds):
        places = [i for i, k in enumerate(kinds) if k == kind]
        for i, x in zip(places, jax.lax.optimization_barrier(tuple(inputs[i] for i in places)), strict=True):
            results[i] = x
    return results


def is_barrier(primitive: Any) -> bool:
    """Whether a primitive is an optimization barrier."""
    return primitive.name == "optimization_barrier"


HOST_KINDS = ("pinned_host", "unpinned_host")
MEMORY_KINDS = ("device", *HOST_KINDS)


def to_memory(x: Any, kind: str) -> Any:
    """Move an array to the memory space of that kind."""
    space = jax.memory.Space.Host if kind in HOST_KINDS else jax.memory.Space.Device
    return move(x, space)


def move(x: Any, space: Any) -> Any:
    """Move an array to a memory space. JAX transposes a move right only if it is told where the array comes from."""
    return jax.device_put(x, space, src=jax.typeof(x).memory_space)


def is_move(primitive: Any, params: dict[str, Any]) -> bool:
    """Whether a primitive moves arrays between memory spaces."""
    return primitive.name == "device_put" and all(isinstance(d, jax.memory.Space) for d in params["devices"])


def memory_type(type: Any, kind: str) -> Any:
    """`type` as it is in the memory of that kind."""
    space = jax.memory.Space.Host if kind in HOST_KINDS else jax.memory.Space.Device
    return type.update(memory_space=space)


def is_on_host(type: Any) -> bool:
    """Whether values of this type are in the host's memory."""
    return getattr(type, "memory_space", None) == jax.memory.Space.Host


def policy_names(policy: Callable[..., Any]) -> tuple[frozenset[Any], frozenset[Any]] | None:
    """The names that one of JAX's own name policies allows: (saved, offloaded). None for any other callable.

    jax 0.10 has frozen dataclasses for these, jax 0.12 closures; both keep the names where they can be read.
    """
    if hasattr(policy, "saveable_names"):
        return frozenset(policy.saveable_names), frozenset(getattr(policy, "offloadable_names", ()))
    code, cells = getattr(policy, "__code__", None), getattr(policy, "__closure__", None)
    if code is None or not getattr(policy, "__module__", "").startswith("jax"):
        return None
    closed = {k: c.cell_contents for k, c in zip(code.co_freevars, cells or (), strict=False)}
    saved = closed.get("names_which_can_be_saved")
    if saved is None:
        return None
    return frozenset(saved), frozenset(closed.get("names_which_can_be_offloaded", ()))


def stacked_type(type: Any, length: int) -> Any:
    """The type of `length` values of this type along a new leading axis."""
    return type.inc_rank(length, 0).update(weak_type=False)


def reduce_precision(dtype: Any) -> tuple[Any, dict[str, Any]]:
    """The primitive and parameters that round to a floating point type."""
    info = jnp.finfo(dtype)
    return jex_core.primitives.reduce_precision_p, {"exponent_bits": info.nexp, "mantissa_bits": info.nmant}


def with_constraints(params: dict[str, Any]) -> Any:
    """The jaxpr of a call, with the shardings that a jit asked for as constraints in it, so that it can be inlined."""
    jaxpr = params["jaxpr"]
    given, asked = params.get("in_shardings") or (), params.get("out_shardings") or ()
    if not any(isinstance(s, jax.sharding.Sharding) for s in (*given, *asked)):
        return jaxpr

    def constrained(*inputs: Any) -> list[Any]:
        inputs = tuple(_constrain(x, s) for x, s in zip(inputs, given, strict=True))
        return [_constrain(x, s) for x, s in zip(evaluate_jaxpr(jaxpr, inputs), asked, strict=True)]

    return jax.make_jaxpr(constrained)(*(v.aval for v in unwrap(jaxpr).inputs))


def _constrain(x: Any, sharding: Any) -> Any:
    return jax.lax.with_sharding_constraint(x, sharding) if isinstance(sharding, jax.sharding.Sharding) else x


def orders_by_barriers() -> bool:
    """Whether XLA's CPU compiler lets optimization barriers decide the order of work (that of jax 0.10 does not)."""
    return jax.__version_info__ >= (0, 12)


def jit_is_disabled() -> bool:
    """Whether the user runs jitted functions step by step (`jax.disable_jit`)."""
    return bool(getattr(jax.config, "jax_disable_jit", False))
