"""Telling JAX what to keep by names.

`jax.checkpoint` understands names in every version and mode, while functions as policies are partly ignored in some. So
for a policy that JAX has no object for, the decisions are made here on the traced function, each value to keep gets a
unique generated name, and JAX is told to keep those names. Coefficients (values that only derivative rules make, like
the `cos` of a `sin`) have no place to put a name; JAX recomputes them from the values kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from remat import jax_compat
from remat.decisions import Offload, Policy, Save, checked_decisions
from remat.errors import PolicyError
from remat.ir.ops import Checkpoint
from remat.ir.program import Equation, Program, Value
from remat.ir.rewrite import inline_all, insert_names
from remat.ir.source import UNKNOWN
from remat.ir.types import is_differentiable
from remat.lower import evaluate
from remat.trace import read_jaxpr
from remat.transforms.decide import region_views
from remat.transforms.linearize import linearize_program

_serial = itertools.count()


def named_region(region: Callable[..., Any], policy: Policy, leaves: list[Any]) -> tuple[Callable[..., Any], Any]:
    """The region with a generated name on each value to keep, and the policy in JAX's terms that keeps those names."""
    program = read_jaxpr(jax.make_jaxpr(region)(*leaves))
    prefix = f"remat:{next(_serial)}"
    saved, offloaded, memories = [], [], set()

    def tag(decision: Save | Offload) -> str:
        kept = jax_compat.GeneratedName(f"{prefix}:{len(saved) + len(offloaded)}")
        if isinstance(decision, Offload):
            memories.add((decision.source, decision.destination))
            offloaded.append(kept)
        else:
            saved.append(kept)
        return kept

    program = inline_all(program)
    named = insert_names(program, decide_alone(program, policy), tag)
    if len(memories) > 1:
        raise PolicyError(
            f"the policy {policy} moves values to several memories ({sorted(memories)}), which jax.checkpoint cannot. "
            "Use one pair of memories, or differentiate with remat.grad."
        )

    def body(*xs: Any) -> list[Any]:
        return evaluate(named, xs)

    body.__name__ = body.__qualname__ = region.__name__
    if not memories:
        return body, jax.checkpoint_policies.save_only_these_names(*saved)
    source, destination = memories.pop()
    return body, jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=saved,
        names_which_can_be_offloaded=offloaded,
        offload_src=source,
        offload_dst=destination,
    )


def decide_alone(program: Program, policy: Policy) -> dict[Value, Save | Offload]:
    """What a policy decides about the values of a program, taken as one region with all inputs differentiated."""
    closed = Program([*program.inputs, *(v for v, _ in program.constants)], program.equations, program.outputs)
    outputs = [Value(t) for t in program.output_types]
    region = Equation(Checkpoint(closed, policy), closed.inputs, outputs, UNKNOWN)
    whole = Program(program.inputs, [region], list(outputs), program.constants)
    copies: dict[Value, Any] = {}
    linearized = linearize_program(whole, [is_differentiable(v.type) for v in program.inputs], copies=copies)
    decisions: dict[Value, Any] = {}
    for view in region_views(linearized):
        decisions.update(checked_decisions(policy, replace(view, by_name=True)))
    found: dict[Value, Save | Offload] = {}
    for original, copy in copies.items():
        decision = decisions.get(copy)
        if isinstance(decision, (Save, Offload)):
            found[original] = decision
    return found
