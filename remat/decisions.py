"""What a policy is, and what it answers: the low-level protocol between transformations and policies.

A policy looks at the equations of a checkpoint region and says for each value whether it may be kept for the backward
pass. That a value may be kept never forces keeping it: what the backward does not need is not saved.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jax.ad_checkpoint import Offloadable
from jax.ad_checkpoint import Recompute as JaxRecompute
from jax.ad_checkpoint import Saveable as JaxSaveable

from remat import jax_compat
from remat.errors import PolicyTypeError
from remat.ir.linearized import Linearized
from remat.ir.ops import Name, Primitive
from remat.ir.program import Equation, Value
from remat.ir.region import Region


@dataclass(frozen=True)
class Save:
    """The value may be kept where it is."""


@dataclass(frozen=True)
class Recompute:
    """The value is computed again in the backward pass."""


@dataclass(frozen=True)
class Offload:
    """The value may be kept in another memory: moved from `source` to `destination`, and back when needed."""

    source: str
    destination: str


Decision = Save | Recompute | Offload
SAVE, RECOMPUTE = Save(), Recompute()


@dataclass(frozen=True, eq=False)
class RegionView:
    """What a policy sees: the primal and coefficient equations of one outermost checkpoint region, those inside its
    loops, branches and nested regions included; which of them are inside loops; and the linearized program around."""

    region: Region
    equations: Sequence[Equation]
    in_loops: frozenset[Equation]
    program: Linearized


@runtime_checkable
class Policy(Protocol):
    """Anything with a `decide`. Values that the answer leaves out are recomputed."""

    def decide(self, view: RegionView) -> dict[Value, Decision]: ...


def is_decision(answer: Any) -> bool:
    return isinstance(answer, (Save, Recompute, Offload))


@dataclass(frozen=True)
class JaxPolicy:
    """A policy written for JAX's protocol: `callable(primitive, *avals, **params) -> bool | Saveable | ...`.

    This wraps the members of `jax.checkpoint_policies` and bare callables.
    """

    callable: Callable[..., Any]

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        decisions: dict[Value, Decision] = {}
        for equation in view.equations:
            decision = self.decide_equation(equation)
            if decision is not RECOMPUTE:
                decisions.update((v, decision) for v in equation.outputs)
        return decisions

    def decide_equation(self, equation: Equation) -> Decision:
        op = equation.op
        types = [a.type for a in equation.inputs]
        if isinstance(op, Name):
            answer = self.callable(jax_compat.name_p, *types, name=op.tag)
        elif isinstance(op, Primitive):
            answer = self.callable(op.primitive, *types, **op.params)
        else:
            return RECOMPUTE
        return decision_of(answer, self.callable)

    @property
    def mentioned_names(self) -> frozenset[Any]:
        found = jax_compat.policy_names(self.callable)
        return frozenset().union(*found) if found else frozenset()

    def __str__(self) -> str:
        return getattr(self.callable, "__qualname__", repr(self.callable)).replace(".<locals>.policy", "")


def decision_of(answer: Any, policy: Any) -> Decision:
    """Turn what a callable policy answered into a decision."""
    if is_decision(answer):
        return answer
    if isinstance(answer, bool):
        return SAVE if answer else RECOMPUTE
    if isinstance(answer, Offloadable):
        return Offload(answer.src, answer.dst)
    if answer is JaxSaveable or isinstance(answer, type(JaxSaveable)):
        return SAVE
    if answer is JaxRecompute or isinstance(answer, type(JaxRecompute)):
        return RECOMPUTE
    raise PolicyTypeError(
        f"the policy {policy!r} answered {answer!r} of type {type(answer).__name__}. A policy answers True or False, "
        "remat's Save, Recompute or Offload, or JAX's Saveable, Recompute or Offloadable."
    )


_ORIGINS: weakref.WeakKeyDictionary[Any, Policy] = weakref.WeakKeyDictionary()


def remember_origin(jax_policy: Any, policy: Policy) -> Any:
    """Record which of our policies a policy object handed to `jax.checkpoint` stands for."""
    _ORIGINS[jax_policy] = policy
    return jax_policy


def as_policy(policy: Any) -> Policy:
    """Ours as they are; objects we handed to JAX back to ours; JAX's own and bare callables wrapped.

    **Raises** `PolicyTypeError` for anything else, with advice for the usual slips.
    """
    if isinstance(policy, type) or not (isinstance(policy, Policy) or callable(policy)):
        raise PolicyTypeError(
            f"{policy!r} is no policy. Give a member of remat.policies, a string such as 'dots' or 'names:a,b', "
            "a member of jax.checkpoint_policies, or a function of (primitive, *avals, **params)."
        )
    if isinstance(policy, Policy):
        return policy
    try:
        known = _ORIGINS.get(policy)
    except TypeError:
        known = None
    return known if known is not None else JaxPolicy(policy)


def names_in(equations: Iterable[Equation]) -> list[Any]:
    """The names given by `checkpoint_name` in some equations, in order, without repetition."""
    return list(dict.fromkeys(e.op.tag for e in equations if isinstance(e.op, Name)))
