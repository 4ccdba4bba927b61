"""Faults to plant in the library, so that tests can show that they are noticed.

Each is planted for the length of a `with` block, with an empty cache of derivative rules, so that no rule made before
it hides it and none made by it outlives it.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

from remat import recognition, regions
from remat.ir.ops import Checkpoint, Name, Primitive, Scan
from remat.ir.program import Equation
from remat.lower import lower_rules
from remat.transforms import derivative, liveness, region_derivative, retrieve, walk
from remat.transforms.linearize import Linearizer, linearize_rules

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derivative, "_cache", OrderedDict())
        for module, name in ((recognition, "_known"), (recognition, "_answers"), (region_derivative, "_known")):
            patch.setattr(module, name, weakref.WeakKeyDictionary())
        patch.setattr(regions, "_flat_functions", weakref.WeakKeyDictionary())
        plant(patch)
        yield


def double_tangent_of_sin(patch: Patch) -> None:
    rule = linearize_rules[Primitive]

    def wrong(state: Linearizer, equation: Any, inputs: Any, tangents: Any) -> Any:
        outputs, found = rule(state, equation, inputs, tangents)
        if equation.op.name == "sin":
            found = _doubled(state, found)
        return outputs, found

    patch.setitem(linearize_rules, Primitive, wrong)


def double_tangents_of_regions(patch: Patch) -> None:
    rule = linearize_rules[Checkpoint]

    def wrong(state: Linearizer, equation: Any, inputs: Any, tangents: Any) -> Any:
        outputs, found = rule(state, equation, inputs, tangents)
        return outputs, _doubled(state, found)

    patch.setitem(linearize_rules, Checkpoint, wrong)


def _doubled(state: Linearizer, tangents: Any) -> list[Any]:
    add = Primitive(lax.add_p, {})
    return [
        t if t is None else state.emit_linear(add, [t, t], [True, True], [t.type], state.region)[0] for t in tangents
    ]


def lose_tangent_of_names(patch: Patch) -> None:
    rule = linearize_rules[Name]
    patch.setitem(linearize_rules, Name, lambda *given: (rule(*given)[0], [None]))


def lose_second_term_of_transposed_sums(patch: Patch) -> None:
    rule = liveness.transpose

    def wrong(op: Any, *given: Any) -> Any:
        found = rule(op, *given)
        if op.name not in ("add", "add_any") or len(found.zero) < 2:
            return found
        program = dataclasses.replace(found.program, outputs=found.program.outputs[:1])
        return dataclasses.replace(found, program=program, zero=(False, True))

    patch.setattr(liveness, "transpose", wrong)


def keep_only_last_cotangent(patch: Patch) -> None:
    def wrong(level: Any, tangent: Any, cotangent: Any, context: Any = None) -> None:
        level.cotangents[tangent] = cotangent

    patch.setattr(walk.Level, "_accumulate", wrong)


def shift_sin(patch: Patch) -> None:
    rule = lower_rules[Primitive]

    def wrong(op: Any, equation: Any, inputs: Any) -> Any:
        results = rule(op, equation, inputs)
        return [x + 1e-4 for x in results] if op.name == "sin" else results

    patch.setitem(lower_rules, Primitive, wrong)


def lower_names_to_bfloat16(patch: Patch) -> None:
    patch.setitem(lower_rules, Name, lambda op, equation, inputs: [inputs[0].astype(jnp.bfloat16)])


def lower_names_to_another_shape(patch: Patch) -> None:
    patch.setitem(lower_rules, Name, lambda op, equation, inputs: [inputs[0][None]])


def reverse_what_loops_stack(patch: Patch) -> None:
    rule = lower_rules[Scan]

    def wrong(op: Any, equation: Any, inputs: Any) -> Any:
        return [x[::-1] if x.ndim else x for x in rule(op, equation, inputs)]

    patch.setitem(lower_rules, Scan, wrong)


def recompute_cosines_for_sines(patch: Patch) -> None:
    """Only what is recomputed is wrong, not the forward pass."""
    chain = retrieve.Retrieval._chain

    def swapped(equation: Equation) -> Equation:
        if equation.op.name != "sin":
            return equation
        op = Primitive(lax.cos_p, equation.op.params)  # type: ignore[attr-defined]
        return Equation(op, equation.inputs, equation.outputs, equation.source, equation.region)

    patch.setattr(retrieve.Retrieval, "_chain", lambda *given: [(swapped(e), home) for e, home in chain(*given)])


def shift_regions_under_jax(patch: Patch) -> None:
    patch.setattr("remat.testing.checkpoint", lambda fun, policy: lambda x: fun(x) + 1e-4)


def double_gradients_under_jax(patch: Patch) -> None:
    patch.setattr("remat.testing.checkpoint", lambda fun, policy: lambda x: 2 * fun(x) - lax.stop_gradient(fun(x)))
