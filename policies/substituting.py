"""Keep a later value in place of an earlier one that is only needed to rebuild it.

An addend and its sum, a value and its cast, a matrix product and its reshape: if the earlier value has no other use,
keeping the later one costs no more bytes and frees the backward pass from a chain of recomputation. In a transformer
this keeps the residual stream instead of what is added to it. JAX's named policies keep their literal meaning;
`substituting(policy)` changes any policy in this way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat.decisions import SAVE, Decision, Policy, RegionView, Save
from remat.ir.ops import Op
from remat.ir.program import Equation, Value
from remat.ir.traits import is_memory_bound
from remat.ir.types import size_in_bytes
from remat.policies.algebra import Combinable, inner_text
from remat.policies.parse import WITH_ARGUMENT, parse


@dataclass(frozen=True)
class Substituting(Combinable):
    """What `policy` keeps, with later values in place of earlier ones where that costs no more bytes."""

    policy: Policy

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        return substituted(self.policy.decide(view), view)

    def parts(self, view: RegionView) -> list[tuple[Policy, RegionView]]:
        return [(self.policy, view)]

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return getattr(self.policy, "mentioned_names", frozenset())

    def __str__(self) -> str:
        return f"substituting:{inner_text(self.policy)}"


def substituted(
    decisions: dict[Value, Decision], view: RegionView, is_cheap: Callable[[Op], bool] = is_memory_bound
) -> dict[Value, Decision]:
    """The decisions with later values in place of earlier ones that only serve to rebuild them by a cheap operation."""
    decisions = dict(decisions)
    uses = view.program.use_counts
    for equation in view.equations:
        replaced = _replaceable(equation, decisions, uses) if is_cheap(equation.op) else []
        if replaced:
            for value in replaced:
                del decisions[value]
            decisions[equation.outputs[0]] = SAVE
    return decisions


def _replaceable(equation: Equation, decisions: dict[Value, Decision], uses: Counter[Value]) -> list[Value]:
    """Inputs of an equation that are kept, that nothing else uses, and that are not smaller than its result."""
    if len(equation.outputs) != 1 or equation.op.effects:
        return []
    size = size_in_bytes(equation.outputs[0].type)
    return [
        a
        for a in dict.fromkeys(equation.inputs)
        if isinstance(a, Value)
        and isinstance(decisions.get(a), Save)
        and uses[a] == 1
        and size_in_bytes(a.type) >= size
    ]


def substituting(policy: Any) -> Substituting:
    """Change a policy so that it keeps a later value in place of an earlier one that only serves to rebuild it.

    **Arguments**: any policy or its string form.

    >>> from remat import policies
    >>> print(policies.substituting("dots_no_batch"))
    substituting:dots_no_batch
    """
    return Substituting(parse(policy))


WITH_ARGUMENT["substituting"] = (lambda reader: substituting(reader.single()), "dots")
