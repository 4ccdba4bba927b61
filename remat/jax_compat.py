"""Everything that depends on a JAX version, in one place.

Supported: jax 0.10 and newer, with the flags `jax_remat3` and `jax_custom_vjp3` off or on. With those flags, names,
checkpoint regions and custom derivatives appear in a jaxpr as `call_hi_primitive` equations that carry an object
(`_prim`) instead of primitives of their own; jax 0.12 merges `ClosedJaxpr` into `Jaxpr` and describes the operands of
a scan by trees (`ft_in`) instead of counts. All of this is read through public names and attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend import core as jex_core
from jax.extend import source_info_util
from jax.extend.core.primitives import name_p

__all__ = [
    "bind",
    "checkpoint_name",
    "dots_primitive_names",
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
CUSTOM_JVPS = frozenset({"custom_jvp_call"})
HIGH_NAMES = frozenset({"CheckpointName", "CheckpointNameFwd"})
HIGH_CHECKPOINTS = frozenset({"RematTraced"})

CUSTOM_RULE = "remat_custom_vjp"
"""The name of our own primitive, see `remat.custom_rules.primitive`."""

dots_primitive_names = frozenset({"dot_general", "conv_general_dilated", "scaled_matmul_wrapper"})


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

    Kinds: `name`, `call`, `checkpoint`, `custom_rule`, `scan`, `cond`, `while`, or `primitive` for everything else.
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
    if name in ("scan", "cond", "while"):
        return name, params
    return "primitive", params


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
    if info is not None:
        stack = source_info_util.current_name_stack() + info.name_stack
        with source_info_util.user_context(info.traceback, name_stack=stack):
            if context is not None:
                with context.manager:
                    out = primitive.bind(*inputs, **parameters)
            else:
                out = primitive.bind(*inputs, **parameters)
    else:
        out = primitive.bind(*inputs, **parameters)
    return list(out) if primitive.multiple_results else [out]


def evaluate_jaxpr(jaxpr: Any, inputs: Any, constants: Any = None) -> list[Any]:
    """Apply a closed jaxpr to arrays or tracers by binding its equations again; `constants` in place of its own."""
    given = jaxpr.consts if constants is None else constants
    return list(jax.core.eval_jaxpr(getattr(jaxpr, "jaxpr", jaxpr), given, *inputs))


def with_source(info: Any) -> Any:
    """A context in which JAX records `info` as the place that equations come from."""
    stack = source_info_util.current_name_stack() + info.name_stack
    return source_info_util.user_context(info.traceback, name_stack=stack)


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
    shape = (length, *type.shape)
    sharding = getattr(type, "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    if sharding is not None and mesh is not None and not mesh.empty:
        spec = jax.sharding.PartitionSpec(None, *sharding.spec)
        return type.update(shape=shape, sharding=sharding.update(spec=spec), weak_type=False)
    return type.update(shape=shape, weak_type=False)


def reduce_precision(dtype: Any) -> tuple[Any, dict[str, Any]]:
    """The primitive and parameters that round to a floating point type."""
    info = jnp.finfo(dtype)
    return jex_core.primitives.reduce_precision_p, {"exponent_bits": info.nexp, "mantissa_bits": info.nmant}


def policies_are_filtered() -> bool:
    """Whether JAX asks callable policies about some primitives only (jax_remat3), so that others cannot be kept."""
    return bool(getattr(jax.config, "jax_remat3", False))


class GeneratedName(str):
    """A name that remat gave to a value, to tell JAX to keep it; it does not count as a user's name."""

    __slots__ = ()


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
