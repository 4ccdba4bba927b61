"""The JAX primitive of a call that has rules of its own, and the linear map that its derivative consists of.

`remat_custom_vjp` computes the function. Differentiated by JAX, it runs the forward rule and leaves a
`remat_custom_vjp_linear`, which is the backward rule once it is transposed, and an error in forward mode. In our own
programs it is the op `CustomRule`, whose derivative is in `remat.transforms.rules.custom_rule`.

The function is held as a jaxpr. Where it cannot be traced, since it looks at values, it is held as it is (`fallback`),
which works as long as JAX knows the values too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core as jex_core
from jax.extend import source_info_util
from jax.interpreters import ad, batching, mlir

from remat import jax_compat
from remat.custom_rules.batched import Axis, BatchedRules
from remat.custom_rules.rule import Saved
from remat.errors import ClosedOverError, ForwardModeError
from remat.ir.types import is_differentiable
from remat.trace import VALUE_ERRORS

source_info_util.register_exclusion(__file__)  # a call is reported at the line that makes it

rule_p = jex_core.Primitive(jax_compat.CUSTOM_RULE)
rule_p.multiple_results = True
linear_p = jex_core.Primitive(f"{jax_compat.CUSTOM_RULE}_linear")
linear_p.multiple_results = True


def bind_function(function: Callable[..., list[Any]], inputs: Sequence[Any], rules: Any) -> list[Any]:
    """Call a flat function that has rules. Tracers that it closes over become inputs, which have no derivative."""
    try:
        jaxpr = jax.make_jaxpr(function)(*inputs)
    except VALUE_ERRORS:
        return rule_p.bind(*inputs, jaxpr=None, fallback=function, rules=rules, constant_count=0)
    jaxpr, constants = _hoisted(jaxpr, inputs)
    return rule_p.bind(*constants, *inputs, jaxpr=jaxpr, fallback=None, rules=rules, constant_count=len(constants))


def bind_jaxpr(jaxpr: Any, inputs: Sequence[Any], rules: Any, constant_count: int) -> list[Any]:
    return rule_p.bind(*inputs, jaxpr=jaxpr, fallback=None, rules=rules, constant_count=constant_count)


def _hoisted(jaxpr: Any, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The jaxpr with the tracers among its constants as inputs in front, and these tracers."""
    arrays = [array for _, array in jax_compat.unwrap(jaxpr).constants]
    tracers = [a for a in arrays if isinstance(a, jax_compat.Tracer)]
    if not tracers:
        return jaxpr, []

    def lifted(given: list[Any], *inputs: Any) -> list[Any]:
        rest = iter(given)
        constants = [next(rest) if isinstance(a, jax_compat.Tracer) else a for a in arrays]
        return jax_compat.evaluate_jaxpr(jaxpr, inputs, constants)

    return jax.make_jaxpr(lifted)(tracers, *inputs), tracers


def _function(jaxpr: Any, fallback: Any) -> Callable[..., list[Any]]:
    return fallback if jaxpr is None else lambda *inputs: jax_compat.evaluate_jaxpr(jaxpr, inputs)


def _evaluate(*inputs: Any, jaxpr: Any, fallback: Any, rules: Any, constant_count: int) -> list[Any]:
    return _function(jaxpr, fallback)(*inputs)


def _types(*inputs: Any, jaxpr: Any, fallback: Any, rules: Any, constant_count: int) -> tuple[list[Any], Any]:
    if jaxpr is None:
        jaxpr = jax.make_jaxpr(fallback)(*inputs)  # raises what it raised before
    return [v.aval for v in jax_compat.unwrap(jaxpr).outputs], jaxpr.effects


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Any, fallback: Any, rules: Any, constant_count: int
) -> tuple[list[Any], list[Any]]:
    active = [not _is_zero(t) for t in tangents]
    if any(active[:constant_count]):
        raise ClosedOverError.of(rules.name)
    perturbed = active[constant_count:]
    outputs, saved = rules.outside(primals[constant_count:], perturbed)
    leaves, structure = saved.leaves, saved.structure
    types = [jax.typeof(o) for o in outputs]
    given = [t for t, a in zip(tangents, active, strict=True) if a]
    has_tangent = [is_differentiable(t) for t in types]
    rebuilds = rules.rebuilds(False)

    def backward(leaves: list[Any], cotangents: list[Any]) -> list[Any]:
        rest = iter(cotangents)
        full = [next(rest) if h else None for h in has_tangent]
        found = rules.backward(Saved(leaves, structure), full, rebuilds)
        return [c for c, a in zip(found, perturbed, strict=True) if a]

    out_types = tuple(t.to_tangent_aval() for t, h in zip(types, has_tangent, strict=True) if h)
    found = iter(linear_p.bind(*leaves, *given, backward=backward, count=len(leaves), types=out_types, name=rules.name))
    zeros = [ad.Zero(t.to_tangent_aval()) for t in types]
    return outputs, [next(found) if h else z for h, z in zip(has_tangent, zeros, strict=True)]


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, ad.Zero) or not is_differentiable(jax.typeof(tangent))


def _batch(
    axis_data: Any,
    values: Sequence[Any],
    dims: Sequence[Any],
    *,
    jaxpr: Any,
    fallback: Any,
    rules: Any,
    constant_count: int,
) -> tuple[list[Any], list[int]]:
    axis = Axis.of(axis_data)
    mapped = [d is not None for d in dims]
    if constant_count < len(mapped) and not any(mapped[constant_count:]):
        mapped[constant_count] = True  # only what the function closes over is mapped
    inputs = [axis.at_front(x, d) if m else x for x, d, m in zip(values, dims, mapped, strict=True)]
    function = axis.vmap(_function(jaxpr, fallback), [0 if m else None for m in mapped], 0)
    batched = BatchedRules(rules, tuple(mapped[constant_count:]), axis)
    if jaxpr is None:
        outputs = rule_p.bind(*inputs, jaxpr=None, fallback=function, rules=batched, constant_count=constant_count)
    else:
        outputs = bind_jaxpr(jax.make_jaxpr(function)(*inputs), inputs, batched, constant_count)
    return outputs, [0] * len(outputs)


def _no_forward_mode(*args: Any, name: str, **params: Any) -> Any:
    raise ForwardModeError.of(name)


def _transpose(cotangents: Sequence[Any], *inputs: Any, backward: Any, count: int, types: Any, name: str) -> list[Any]:
    given = [None if isinstance(c, ad.Zero) else c for c in cotangents]
    found = backward(list(inputs[:count]), given)
    tangents = inputs[count:]
    return [None] * count + [ad.Zero(x.aval) if c is None else c for c, x in zip(found, tangents, strict=True)]


def _batch_linear(
    axis_data: Any, values: Sequence[Any], dims: Sequence[Any], *, backward: Any, count: int, types: Any, name: str
) -> tuple[list[Any], list[int]]:
    axis = Axis.of(axis_data)
    mapped = [d is not None for d in dims[count:]]
    tangents = [axis.at_front(x, d) if m else x for x, d, m in zip(values[count:], dims[count:], mapped, strict=True)]

    def mapped_backward(leaves: list[Any], cotangents: list[Any]) -> list[Any]:
        return axis.run_backward(backward, leaves, dims[:count], cotangents, mapped)

    out_types = tuple(jax_compat.stacked_type(t, axis.size) for t in types)
    outputs = linear_p.bind(
        *values[:count], *tangents, backward=mapped_backward, count=count, types=out_types, name=name
    )
    return outputs, [0] * len(outputs)


rule_p.def_impl(_evaluate)
rule_p.to_lojax = _evaluate  # pyright: ignore[reportAttributeAccessIssue]  # the function has higher primitives in it
rule_p.def_effectful_abstract_eval(_types)
mlir.register_lowering(rule_p, mlir.lower_fun(_evaluate, multiple_results=True))
ad.primitive_jvps[rule_p] = _jvp
batching.fancy_primitive_batchers[rule_p] = _batch

linear_p.def_impl(_no_forward_mode)
linear_p.def_abstract_eval(lambda *inputs, backward, count, types, name: list(types))
mlir.register_lowering(linear_p, mlir.lower_fun(_no_forward_mode, multiple_results=True))
ad.primitive_jvps[linear_p] = lambda primals, tangents, **params: _no_forward_mode(**params)
ad.primitive_transposes[linear_p] = _transpose
batching.fancy_primitive_batchers[linear_p] = _batch_linear
