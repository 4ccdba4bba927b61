"""What a policy is, and what it answers: the low-level protocol between transformations and policies.

A policy looks at the equations of a checkpoint region and says for each value whether it may be kept for the backward
pass. That a value may be kept never forces keeping it: what the backward does not need is not saved.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Protocol, runtime_checkable

import jax
from jax.ad_checkpoint import Offloadable
from jax.ad_checkpoint import Recompute as JaxRecompute
from jax.ad_checkpoint import Saveable as JaxSaveable

from remat import jax_compat
from remat.errors import PolicyError, PolicyTypeError
from remat.ir.linearized import Linearized
from remat.ir.ops import Name, Primitive
from remat.ir.program import Equation, Value
from remat.ir.region import Region
from remat.name_patterns import literally


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
    loops, branches and nested regions included; which of them are inside loops; and the linearized program around.
    """

    region: Region
    equations: Sequence[Equation]
    in_loops: frozenset[Equation]
    program: Linearized

    @property
    def place(self) -> str:
        """Where the region is, for messages: ` of FUNCTION`, ` at FILE:LINE`, or ` around` its first equation."""
        if self.region.function:
            return f" of {self.region.function}"
        if self.region.source.text:
            return f" at {self.region.source.text}"
        inside = next((e.source.text for e in self.equations if e.source.text), "")
        return inside and f" around {inside}"


@runtime_checkable
class Policy(Protocol):
    """Anything with a `decide`. Values that the answer leaves out are recomputed."""

    def decide(self, view: RegionView) -> dict[Value, Decision]: ...


def is_decision(answer: Any) -> bool:
    return isinstance(answer, (Save, Recompute, Offload))


def decide_each(view: RegionView, decide_equation: Callable[[Equation], Decision]) -> dict[Value, Decision]:
    """Decisions about the values of a region, one equation at a time."""
    decisions: dict[Value, Decision] = {}
    for equation in view.equations:
        decision = decide_equation(equation)
        if decision is not RECOMPUTE:
            decisions.update((v, decision) for v in equation.outputs)
    return decisions


@dataclass(frozen=True)
class JaxPolicy:
    """A policy written for JAX's protocol: `callable(primitive, *avals, **params) -> bool | Saveable | ...`.

    This wraps the members of `jax.checkpoint_policies` and bare callables.
    """

    callable: Callable[..., Any]

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        return decide_each(view, self.decide_equation)

    def decide_equation(self, equation: Equation) -> Decision:
        op = equation.op
        types = [a.type for a in equation.inputs]
        try:
            if isinstance(op, Name):
                answer = self.callable(jax_compat.name_p, *types, name=op.tag)
            elif isinstance(op, Primitive):
                answer = self.callable(op.primitive, *types, **op.params)
            else:
                return RECOMPUTE
        except Exception as error:
            error.add_note(
                f"remat was asking the policy {self} about {op.name} from {equation.source.text or 'an unknown line'}. "
                "A policy is a function of (primitive, *avals, **params)."
            )
            raise
        return decision_of(answer, self, equation)

    @property
    def mentioned_names(self) -> frozenset[Any]:
        """As JAX's policy reads them, to which nothing is a pattern."""
        found = jax_compat.policy_names(self.callable)
        return frozenset(map(literally, frozenset().union(*found))) if found else frozenset()

    @property
    def offloaded_names(self) -> frozenset[Any]:
        """Names of values that the user is told of when they are kept in place."""
        found = jax_compat.policy_names(self.callable)
        return frozenset(map(literally, found[1])) if found else frozenset()

    @property
    def is_about_products(self) -> bool:
        """Whether the user is told when it keeps none of the products that it sees."""
        theirs = jax.checkpoint_policies
        return self.callable in (theirs.dots_saveable, theirs.dots_with_no_batch_dims_saveable)

    def __str__(self) -> str:
        return getattr(self.callable, "__qualname__", repr(self.callable)).replace(".<locals>.policy", "")


def decision_of(answer: Any, policy: JaxPolicy, equation: Equation) -> Decision:
    """Turn what a callable policy answered about an equation into a decision."""
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
        f"the policy {policy} answered {answer!r} of type {type(answer).__name__} about {equation.op.name} from "
        f"{equation.source.text or 'an unknown line'}. A policy answers True or False, remat's Save, Recompute or "
        "Offload, or JAX's Saveable, Recompute or Offloadable."
    )


def checked_decisions(policy: Policy, view: RegionView) -> dict[Value, Decision]:
    """What a policy decides about a region.

    **Raises** `PolicyTypeError` if it is no dictionary from values to decisions, `PolicyError` if it decides about a
    value that the region does not compute.
    """
    answer: Any = policy.decide(view)
    if not isinstance(answer, dict):
        raise PolicyTypeError(
            f"decide of the policy {policy} returned {reprlib.repr(answer)} of type {type(answer).__name__}. It must "
            "return a dictionary from values to Save, Recompute or Offload; values left out are recomputed."
        )
    wrong = next(((v, d) for v, d in answer.items() if not (isinstance(v, Value) and is_decision(d))), None)
    if wrong is not None:
        raise PolicyTypeError(
            f"decide of the policy {policy} returned a dictionary with {reprlib.repr(wrong[0])}: "
            f"{reprlib.repr(wrong[1])}. Its keys must be values of the program, and what it says about them Save, "
            "Recompute or Offload."
        )
    foreign = answer.keys() - {v for e in view.equations for v in e.outputs}
    if foreign:
        raise PolicyError(_foreign_text(foreign, policy, view))
    return answer


def _foreign_text(foreign: Set[Value], policy: Policy, view: RegionView) -> str:
    found = next((e for e in view.program.all_equations() if not foreign.isdisjoint(e.outputs)), None)
    what = f"the result of {found.op.name} from {found.source.text or 'an unknown line'}" if found else "an input"
    return (
        f"the policy {policy} of the checkpoint{view.place} decided about {len(foreign)} "
        f"value{'s' if len(foreign) > 1 else ''} that its region does not compute, such as {what}. A policy decides "
        "about the outputs of view.equations and nothing else; leave the others out of the dictionary."
    )


_EQUIVALENTS: list[tuple[Any, Policy]] = []


def stands_for(theirs: Any, ours: Policy) -> None:
    """Note that an object of `jax.checkpoint_policies` means the same as a policy of ours."""
    _EQUIVALENTS.append((theirs, ours))


def as_policy(policy: Any) -> Policy:
    """Ours as they are; JAX's own and bare callables wrapped.

    **Raises** `PolicyTypeError` for anything else, with advice for the usual slips.
    """
    name = constructor_name(policy)
    if name is not None:
        raise PolicyTypeError(
            f"{name} makes a policy, but was given without being called. Write {name}(...) with its arguments."
        )
    if isinstance(policy, type):
        raise PolicyTypeError(
            f"the class {policy.__name__} is no policy, but its instances may be: write {policy.__name__}(...)."
        )
    if isinstance(policy, ModuleType):
        raise PolicyTypeError(
            f"the module {policy.__name__} is no policy. Give a member of remat.policies, such as policies.dots or "
            "policies.names('a', 'b'), or its string form, such as 'dots' or 'names:a,b'."
        )
    if not (isinstance(policy, Policy) or callable(policy)):
        raise PolicyTypeError(
            f"{policy!r} is no policy. Give a member of remat.policies, a string such as 'dots' or 'names:a,b', "
            "a member of jax.checkpoint_policies, or a function of (primitive, *avals, **params)."
        )
    if isinstance(policy, Policy):
        return policy
    return next((ours for theirs, ours in _EQUIVALENTS if theirs is policy), None) or JaxPolicy(policy)


JAX_CONSTRUCTORS = (
    "save_only_these_names",
    "save_any_names_but_these",
    "save_anything_except_these_names",
    "save_and_offload_only_these_names",
    "save_from_both_policies",
    "offload_dot_with_no_batch_dims",
)
"""The members of jax.checkpoint_policies that make policies and are none."""


def constructor_name(policy: Any) -> str | None:
    """The name of the function, if `policy` is one that makes policies, of ours or of JAX's."""
    for name in JAX_CONSTRUCTORS:
        if policy is getattr(jax.checkpoint_policies, name, None):
            return f"jax.checkpoint_policies.{name}"
    ours = isinstance(policy, FunctionType) and str(policy.__module__).startswith("remat.policies.")
    ours = ours and getattr(sys.modules.get(policy.__module__), policy.__name__, None) is policy
    return f"policies.{policy.__name__}" if ours else None


def names_in(equations: Iterable[Equation]) -> list[Any]:
    """The names given by `checkpoint_name` in some equations and in their nested programs, without repetition."""
    found: dict[Any, None] = {}
    stack = list(equations)[::-1]
    while stack:
        equation = stack.pop()
        if isinstance(equation.op, Name):
            found[equation.op.tag] = None
        for program in equation.op.programs:
            stack.extend(reversed(program.equations))
    return list(found)
