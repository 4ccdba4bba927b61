"""The primitive that a checkpoint region is: a traced function and what is to be kept of it, as one equation.

A region is evaluated, compiled, mapped and pruned like the `jit` of its function, by the rules of that;
`transforms.region_derivative` gives it its derivative. So it works under each of JAX's transformations, also where a
framework calls `jax.grad` itself, and `remat.trace` finds it in a jaxpr with its policy. All rules are made with
JAX's public tables.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.extend import source_info_util
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

from remat import eager, jax_compat
from remat.targets.target import Target

source_info_util.register_exclusion(__file__)

region_p = Primitive("remat_region")
region_p.multiple_results = True


@dataclass(frozen=True)
class Marks:
    """What a region has besides its traced function.

    - `policy`: what is kept for the backward pass (None: nothing but inputs).
    - `prevent_cse`: whether the recomputation is held back by barriers, for all values or for each input.
    - `auxiliary`: how many of the last results are auxiliary data, which is not differentiated.
    - `transparent`: that it is no region for policies, but one function to be differentiated as a whole, in which the
      regions inside have their own say (`remat.grad` without a policy).
    - `derived`: that it is a program that differentiation made of a region, of which users are not warned.
    - `compiled`: that it is compiled as a whole outside jit too, since the user's function is (a call of a jitted
      function, which differentiation has inlined).
    """

    policy: Any = None
    prevent_cse: bool | tuple[bool, ...] = True
    auxiliary: int = 0
    transparent: bool = False
    derived: bool = False
    compiled: bool = False
    target: Target | None = None

    def of_derived(self, jaxpr: Any) -> Marks:
        """The marks for a program that differentiation made of the region of this jaxpr."""
        flags = self.prevent_cse
        flag = flags if isinstance(flags, bool) else any(flags)
        compiled = self.compiled or jax_compat.is_mostly_a_call(jaxpr)
        transparent = self.transparent or hasattr(self.policy, "regions_of")
        return Marks(self.policy, flag, 0, transparent, True, compiled, self.target)


made_programs: weakref.WeakKeyDictionary[Any, Callable[[], Any]] = weakref.WeakKeyDictionary()
"""By its jaxpr, how to get the program that differentiation made of a transparent region. The jaxpr does not tell the
regions that were inlined in it."""


def bind_region(function: Callable[..., Any], inputs: Sequence[Any], marks: Marks) -> list[Any]:
    """Apply a jitted function, which takes arrays and returns a list of arrays, as one region.

    It is traced once for each signature, since JAX keeps the jaxpr of a jitted function. What it closes over becomes
    inputs of the region.
    """
    return bind_traced(jax_compat.trace_jitted(function, inputs), inputs, marks)


def bind_traced(
    jaxpr: Any,
    inputs: Sequence[Any],
    marks: Marks,
    recognise: Callable[[dict[str, Any]], tuple[dict[str, Any], list[Any]]] = lambda params: (params, []),
) -> list[Any]:
    """The same for a jaxpr whose one equation is the call of the jitted function.

    `recognise` may put another call in its place, with inputs before its own.
    """

    def bind(params: dict[str, Any], given: list[Any]) -> list[Any]:
        call, closed_over = recognise(params)
        arguments = [*closed_over, *given]
        return region_p.bind(*arguments, **_region_params(call, _aligned(marks, len(arguments))))

    return _with_calls(jaxpr, inputs, bind)


def bind_equations(jaxpr: Any, inputs: Sequence[Any]) -> list[Any]:
    """Bind the equations of the called function one by one, as if JAX ran it."""
    arrays = [jax_compat.array_of_number(x) for x in inputs]
    return _with_calls(jaxpr, arrays, lambda params, given: jax_compat.evaluate_jaxpr(params["jaxpr"], given))


def _with_calls(jaxpr: Any, inputs: Sequence[Any], call: Callable[[dict[str, Any], list[Any]], list[Any]]) -> list[Any]:
    """Evaluate a jaxpr whose one equation is the call of a jitted function, calling that in another way."""
    opened = jax_compat.unwrap(jaxpr)
    env: dict[Any, Any] = {**dict(opened.constants), **dict(zip(opened.inputs, inputs, strict=True))}

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jax_compat.Literal) else env[atom]

    for equation in opened.equations:
        results = call(equation.params, [read(a) for a in equation.invars])
        env.update(zip(equation.outvars, results, strict=True))
    return [read(a) for a in opened.outputs]


def _aligned(marks: Marks, count: int) -> Marks:
    """`prevent_cse` for each of `count` inputs; what is closed over comes first and is not pinned, as in JAX."""
    flags = marks.prevent_cse
    if isinstance(flags, bool):
        return marks
    return replace(marks, prevent_cse=(*(False for _ in range(count - len(flags))), *flags))


def _as_call(inputs: Sequence[Any], jaxpr: Any, call: Any) -> list[Any]:
    """Call the function of a region as the jit that it was traced as."""
    return jax_compat.bind(jax_compat.jit_p, inputs, {**dict(call), "jaxpr": jaxpr})


def _evaluate(*inputs: Any, jaxpr: Any, call: Any, marks: Marks) -> list[Any]:
    if marks.transparent:
        return _as_call(inputs, jaxpr, call)
    with jax.named_scope("checkpoint"):  # by which profilers group equations, as JAX's own checkpoint
        return _as_call(inputs, jaxpr, call)


def _run(*inputs: Any, jaxpr: Any, call: Any, marks: Marks) -> list[Any]:
    """Outside jit: operations one by one, as JAX runs them; what is mostly a call of a jitted function, as one."""
    if marks.compiled or jax_compat.is_mostly_a_call(jaxpr):
        return _as_call(inputs, jaxpr, call)
    return eager.evaluate(jaxpr, inputs) if marks.derived else jax_compat.evaluate_jaxpr(jaxpr, inputs)


def _abstract(*_: Any, jaxpr: Any, call: Any, marks: Marks) -> tuple[list[Any], Any]:
    return list(jaxpr.out_avals), _outer_effects(jaxpr.effects)


def _outer_effects(effects: Any) -> frozenset[Any]:
    """The effects that are seen outside: references that the function makes for itself are its own affair."""
    return frozenset(e for e in effects if type(e).__name__ != "InternalMutableArrayEffect")


def _batch(axis: Any, inputs: Sequence[Any], dims: Sequence[Any], *, jaxpr: Any, call: Any, marks: Marks) -> Any:
    """The region of the mapped function, with the results that do not depend on a mapped input left unmapped."""
    spmd = jax_compat.spmd_axis(axis)
    out_axes = tuple(0 if m else None for m in jax_compat.depends_on(jaxpr, [d is not None for d in dims]))
    key = (tuple(dims), axis.name, axis.size, spmd)
    known = _mapped.setdefault(jaxpr, {})
    if key not in known:
        reference = weakref.ref(jaxpr)  # what is known about a jaxpr must not keep it alive

        def apply(*xs: Any) -> list[Any]:
            return jax_compat.evaluate_jaxpr(reference(), xs)

        apply.__name__ = apply.__qualname__ = dict(call)["name"]
        known[key] = jax.jit(jax.vmap(apply, tuple(dims), list(out_axes), axis.name, axis.size, spmd))
    return bind_region(known[key], inputs, marks), out_axes


_mapped: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
"""The mapped functions of regions, by jaxpr, so that a region that is mapped again is not traced again."""


def _transpose(cotangents: Sequence[Any], *inputs: Any, jaxpr: Any, call: Any, marks: Marks) -> list[Any]:
    """A region that is linear in some inputs (`jax.linear_transpose`)."""
    linear = [ad.is_undefined_primal(x) for x in inputs]

    def apply(*chosen: Any) -> list[Any]:
        given = iter(chosen)
        return _as_call([next(given) if is_linear else x for x, is_linear in zip(inputs, linear)], jaxpr, call)

    types = [x.aval for x, is_linear in zip(inputs, linear, strict=True) if is_linear]
    found = iter(jax.linear_transpose(apply, *types)([ad.instantiate_zeros(c) for c in cotangents]))
    return [next(found) if is_linear else None for is_linear in linear]


def _prune(used: list[bool], *rest: Any) -> Any:
    """Dead-code elimination. What stands between the two arguments differs between JAX versions."""
    *live, equation = rest
    marks = equation.params["marks"]
    inputs, new = pe.dce_rules[jax_compat.jit_p](used, *live, _call_equation(equation))  # pyright: ignore[reportCallIssue]
    if new is None:
        return inputs, None
    flags, main = marks.prevent_cse, len(used) - marks.auxiliary
    if not isinstance(flags, bool):
        flags = tuple(f for f, keep in zip(flags, inputs, strict=True) if keep)
    marks = replace(marks, prevent_cse=flags, auxiliary=sum(used[main:]))
    params, effects = _region_params(new.params, marks), _outer_effects(new.effects)
    return inputs, new.replace(primitive=region_p, params=params, effects=effects)


def _partial_evaluation(saveable: Any, unknown: Any, instantiate: Any, equation: Any) -> Any:
    """A policy of JAX's own checkpoint around a region looks into it."""
    rule = pe.partial_eval_jaxpr_custom_rules[jax_compat.jit_p]
    return rule(saveable, unknown, instantiate, _call_equation(equation))


def _call_equation(equation: Any) -> Any:
    params = {**dict(equation.params["call"]), "jaxpr": equation.params["jaxpr"]}
    return equation.replace(primitive=jax_compat.jit_p, params=params)


def _region_params(call: dict[str, Any], marks: Marks) -> dict[str, Any]:
    """The parameters of a region from those of the call of its function; only the jaxpr is shown to JAX."""
    rest = CallParameters((k, v) for k, v in call.items() if k != "jaxpr")
    return {"jaxpr": call["jaxpr"], "call": rest, "marks": marks}


class CallParameters(tuple[tuple[str, Any], ...]):
    """The parameters of a call but for its jaxpr, as pairs; only its name is printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(dict(self)["name"])


region_p.def_impl(_run)
region_p.to_lojax = _evaluate  # pyright: ignore[reportAttributeAccessIssue]  # the function may have higher primitives
region_p.def_effectful_abstract_eval(_abstract)
mlir.register_lowering(region_p, mlir.lower_fun(_evaluate, multiple_results=True))
batching.fancy_primitive_batchers[region_p] = _batch
ad.primitive_transposes[region_p] = _transpose
pe.dce_rules[region_p] = _prune
pe.partial_eval_jaxpr_custom_rules[region_p] = _partial_evaluation
