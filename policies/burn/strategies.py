"""Burn's two strategies: `NoCheckpointing` and `BalancedCheckpointing`, as policies.

They differ in two places only. *No checkpointing* takes every operation for compute-bound. *Balanced* lets memory-bound
operations be recomputed, and registers their operands as backups for that; if an operand is a constant, it forgets the
backups and takes the operation for compute-bound after all, since while the forward pass runs it cannot know whether
the constant will be there.

What the strategy holds is what the policy permits to keep. JAX's derivatives then read other values than Burn's
backward steps (the `tanh` of a `tanh`, where Burn keeps its input): those are computed from what is held. Where that
would run a compute-bound operation again, which Burn never does, its result is permitted too; that is the counterpart
of what Burn's steps hold themselves (masks, indices, the operands of a cumulative product).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from remat.decisions import SAVE, Decision, RegionView
from remat.ir.linearized import Derivation
from remat.ir.ops import Name
from remat.ir.primitive_table import Bound, Retrieves
from remat.ir.program import Equation, Value
from remat.ir.traits import is_memory_bound
from remat.ir.types import is_differentiable
from remat.policies.algebra import Combinable
from remat.policies.burn.checkpointer import Action, Checkpointer
from remat.policies.burn.level import LevelFacts, facts_of
from remat.policies.burn.tape import Node, Step, burn_mark
from remat.policies.parse import WORDS
from remat.transforms.derivative import read_coefficients


@dataclass(frozen=True)
class Strategy(Combinable):
    """The rules that Burn's two strategies share."""

    def may_recompute(self, step: Step) -> bool:
        """Whether the results of an operation are recomputed when they are asked for."""
        raise NotImplementedError

    def checkpointer(self, visited: Sequence[Step], inside: Collection[Equation] | None = None) -> Checkpointer:
        """The states at the beginning of a backward pass that comes to these operations, in this order.

        Operations that are not `inside` (None: all are) belong to somebody else and count as inputs.
        """

        def is_recomputed(step: Step) -> bool:
            return (inside is None or step.equation in inside) and self.may_recompute(step)

        def action(node: Node) -> Action:
            return Action(node, node.step is None or not is_recomputed(node.step))

        explicit = [action(n) for s in visited for n in s.explicit]
        backup = [action(n) for s in visited if is_recomputed(s) for n in s.operands]
        return Checkpointer(explicit, backup)

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        inside = set(view.equations)
        held: dict[Value, Decision] = {}
        for level in view.program.levels():
            facts = facts_of(level)
            if view.region in facts.steps or view.region in facts.derivations:
                found = self._held(facts, view, inside)
                held.update((v, SAVE) for v in found if facts.producer.get(v) in inside)
        return held

    def _held(self, facts: LevelFacts, view: RegionView, inside: Collection[Equation]) -> set[Value]:
        visited = [s for s in facts.steps.get(view.region, ()) if s.equation in inside]
        held = {n.value for n in self.checkpointer(visited, inside).kept if not n.is_given}
        return held | self._never_run_again(facts, facts.derivations.get(view.region, ()), inside, held)

    def _never_run_again(
        self, facts: LevelFacts, derivations: Iterable[Derivation], inside: Collection[Equation], held: set[Value]
    ) -> set[Value]:
        """What has to be kept, beyond what is held, for JAX's derivatives to run nothing again that Burn would not."""
        found: set[Value] = set()
        seen: set[tuple[Value, Derivation | None]] = set()
        for derivation in derivations:
            holds_masks = burn_mark(derivation.op, derivation.inputs)[1] is Retrieves.OWN
            coefficients = (a for e in derivation.linear if e in facts.live for a in read_coefficients(e))
            stack = [(value, True) for value in coefficients]
            while stack:
                value, within = stack.pop()  # within: reached by way of this derivation's own equations only
                equation = facts.producer.get(value)
                visit = value, derivation if within else None
                if value in held or value in found or visit in seen or equation not in inside:
                    continue
                seen.add(visit)
                assert equation is not None
                is_own = within and equation in derivation.made
                is_mask = is_own and equation in facts.coefficients and not is_differentiable(value.type)
                if (holds_masks and is_mask) or not self._runs_again(value, equation, is_own, facts):
                    found.add(value)
                else:
                    stack.extend((a, is_own) for a in equation.inputs if isinstance(a, Value))
        return found

    def _runs_again(self, value: Value, equation: Equation, is_own: bool, facts: LevelFacts) -> bool:
        """Whether a value that a derivative reads is computed from what is held. `is_own` says that it is a coefficient
        or result of the very operation that is differentiated."""
        step = facts.step_of.get(value)
        if isinstance(equation.op, Name) or equation.op.name == "stop_gradient":
            return True
        if value in facts.tape.scalars:
            return value.type.shape != ()
        if step is None:  # a coefficient, or a part of an operation that JAX takes apart
            return is_own and (equation in facts.coefficients or is_memory_bound(equation.op))
        return self.may_recompute(step) or (is_own and len(step.explicit) >= len(step.operands) > 0)


@dataclass(frozen=True)
class NoCheckpointing(Strategy):
    """Everything that a backward step asks for is held."""

    def may_recompute(self, step: Step) -> bool:
        return False

    def __str__(self) -> str:
        return "burn_no_checkpointing"


@dataclass(frozen=True)
class BalancedCheckpointing(Strategy):
    """Memory-bound operations are recomputed, unless an operand is a constant."""

    def may_recompute(self, step: Step) -> bool:
        return step.bound is Bound.MEMORY and all(n.is_tracked for n in step.operands)

    def __str__(self) -> str:
        return "burn"


def burn_no_checkpointing() -> NoCheckpointing:
    """What Burn's `NoCheckpointing` does: hold every array that a backward step asks for.

    Burn's steps ask for the inputs of operations (`remat.ir.primitive_table` says which), not for what JAX's
    derivatives read, so this is not quite what `jax.grad` keeps.

    >>> from remat import policies
    >>> print(policies.burn_no_checkpointing())
    burn_no_checkpointing
    """
    return NoCheckpointing()


def burn_balanced() -> BalancedCheckpointing:
    """What Burn's `BalancedCheckpointing` does: recompute element-wise operations and data movement.

    It decides while the forward pass runs, one operation at a time. The result of an operation with a constant operand
    is held after all; so are those of casts and of whatever selects by a mask. (Where the source of a cast is held too,
    `remat` drops the cast.) `policies.balanced()` is the same idea without these limits.

    >>> from remat import policies
    >>> print(policies.burn_balanced())
    burn
    """
    return BalancedCheckpointing()


WORDS.update({"burn": BalancedCheckpointing(), "burn_balanced": BalancedCheckpointing()})
WORDS["burn_no_checkpointing"] = NoCheckpointing()
