"""Applying primitives and jaxprs again, with the lines and scopes that they had."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.extend import core as jex_core
from jax.extend import source_info_util

from remat.jax_compat.equations import unwrap


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


def frames_of(info: Any) -> list[tuple[str, int, str]]:
    """The stack that a source record was made in, innermost frame first: file, line and function."""
    traceback = getattr(info, "traceback", None)
    frames = [] if traceback is None else traceback.frames
    return [(f.file_name, f.line_num, f.function_name) for f in frames]


def scopes_of_call(info: Any, function: str) -> Any:
    """The name scopes around what a call of a function does: those of the call, and the one JAX adds for a jit."""
    return info.name_stack.extend(f"jit({function})") if function else info.name_stack


def scopes_added(scopes: Any, info: Any) -> Any:
    """A source record with name scopes around its own."""
    return info.replace(name_stack=scopes + info.name_stack) if len(scopes) else info


def with_scopes(scopes: Any) -> Any:
    """A context in which equations stand in these name scopes, inside the current ones."""
    return source_info_util.set_name_stack(source_info_util.current_name_stack() + scopes)


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
