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

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from remat.decisions import SAVE, Decision, RegionView
from remat.ir.linearized import Derivation, Linearized
from remat.ir.ops import Name
from remat.ir.primitive_table import Bound, Retrieves
from remat.ir.program import Equation, Value
from remat.ir.traits import is_memory_bound
from remat.ir.types import is_differentiable
from remat.policies.algebra import Combinable
from remat.policies.burn.checkpointer import Action, Checkpointer
from remat.policies.burn.tape import Node, Step, Tape, build_tape, burn_mark
from remat.policies.parse import WORDS


@dataclass(frozen=True)
class Strategy(Combinable):
    """The rules that Burn's two strategies share."""

    def may_recompute(self, step: Step) -> bool:
        """Whether the results of an operation are recomputed when they are asked for."""
        raise NotImplementedError

    def checkpointer(
        self, tape: Tape, steps: Iterable[Step], inside: Collection[Equation] | None = None
    ) -> Checkpointer:
        """The states at the beginning of a backward pass through `steps`; operations that are not `inside` (None: all
        are) belong to somebody else and count as inputs."""
        recomputed = {s: (inside is None or s.equation in inside) and self.may_recompute(s) for s in tape.steps}

        def action(node: Node) -> Action:
            return Action(node, node.step is None or not recomputed[node.step])

        steps = list(steps)
        explicit = [action(n) for s in steps for n in s.explicit]
        backup = [action(n) for s in steps if recomputed[s] for n in s.operands]
        operands = {n: s.operands for s in tape.steps for n in s.outputs}
        return Checkpointer(explicit, backup, lambda n: operands.get(n, []))

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        inside = set(view.equations)
        held: dict[Value, Decision] = {}
        for level in view.program.levels():
            if not inside.isdisjoint(level.equations):
                held.update((v, SAVE) for v in self._held(level, inside))
        return held

    def _held(self, level: Linearized, inside: Collection[Equation]) -> set[Value]:
        tape = build_tape(level)
        steps = [s for s in tape.visited() if s.equation in inside]
        held = {n.value for n in self.checkpointer(tape, steps, inside).kept if not n.is_leaf}
        recomputed = {n.value for s in tape.steps if self.may_recompute(s) for n in s.outputs}
        return held | _never_run_again(level, tape, inside, held, recomputed)


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


def _never_run_again(
    level: Linearized, tape: Tape, inside: Collection[Equation], held: set[Value], recomputed: set[Value]
) -> set[Value]:
    """What has to be kept, beyond what is held, for JAX's derivatives to run no operation again that Burn would not."""
    producer = {v: e for e in level.equations for v in e.outputs}
    step_of = {n.value: s for s in tape.steps for n in s.outputs}
    live = set(level.live_linear())
    found: set[Value] = set()
    seen: set[tuple[Value, Derivation | None]] = set()
    for derivation in level.derivations:
        own = {*derivation.primal, *derivation.coefficients}
        stack: list[tuple[Value, Derivation | None]] = [
            (a, derivation)
            for e in derivation.linear
            if e in live
            for a, is_linear in zip(e.inputs, e.linear, strict=True)
            if isinstance(a, Value) and not is_linear
        ]
        holds_masks = burn_mark(derivation.op, derivation.inputs)[1] is Retrieves.OWN
        while stack:
            value, context = stack.pop()
            equation = producer.get(value)
            if value in held or value in found or (value, context) in seen or equation not in inside:
                continue
            seen.add((value, context))
            assert equation is not None
            is_coefficient = equation in derivation.coefficients and context is not None
            if is_coefficient and holds_masks and not is_differentiable(value.type):
                found.add(value)
            elif (
                is_coefficient
                or value in recomputed
                or _stands_for_another(equation, value, tape)
                or _asks_for_operands(equation, own, step_of.get(value))
            ):
                inner = context if equation in own else None
                stack.extend((a, inner) for a in equation.inputs if isinstance(a, Value))
            else:
                found.add(value)
    return found


def _stands_for_another(equation: Equation, value: Value, tape: Tape) -> bool:
    """Whether a value is another one under a name, or repeats a constant of no dimensions."""
    return isinstance(equation.op, Name) or (value in tape.scalars and value.type.shape != ())


def _asks_for_operands(equation: Equation, own: Collection[Equation], step: Step | None) -> bool:
    """Whether the backward step of an operation has what it needs to compute the operation's own result, or a part of
    an operation that JAX takes apart is cheap to compute."""
    if step is None:
        return equation in own and is_memory_bound(equation.op)
    return equation in own and len(step.explicit) >= len(step.operands) > 0


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

    It decides while the forward pass runs, one operation at a time. An operation with a constant operand is kept after
    all; so are casts and whatever selects by a mask. `policies.balanced()` is the same idea without these limits.

    >>> from remat import policies
    >>> print(policies.burn_balanced())
    burn
    """
    return BalancedCheckpointing()


WORDS.update({"burn": BalancedCheckpointing(), "burn_balanced": BalancedCheckpointing()})
WORDS["burn_no_checkpointing"] = NoCheckpointing()
