"""What equations and jaxprs are, read in the same way in every version and mode of JAX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
from jax.extend import core as jex_core

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
    for kind, params in map(kind_of, unwrap(jaxpr).equations):
        if kind == "checkpoint" or any(map(holds_regions, jaxprs_in(params))):
            return True
    return False


def _called(equation: Any) -> list[Any]:
    """The jaxpr that an equation calls once, as it is."""
    kind, params = kind_of(equation)
    if kind not in ("call", "checkpoint", "custom_rule") and "custom_" not in equation.primitive.name:
        return []
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    return [] if inner is None else [inner]


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
