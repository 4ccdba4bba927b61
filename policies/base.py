"""Policies that look at one equation at a time, and checks that several families share.

A policy is a frozen dataclass. `repr` builds it again; `str` is its short form, which `remat.policies.parse` reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from jax.ad_checkpoint import Offloadable
from jax.ad_checkpoint import Recompute as JaxRecompute
from jax.ad_checkpoint import Saveable as JaxSaveable

from remat import jax_compat
from remat.decisions import RECOMPUTE, Decision, Offload, RegionView, Save, decide_each
from remat.errors import PolicyError, PolicyTypeError
from remat.ir.ops import Name, Primitive
from remat.ir.program import Equation, Value
from remat.policies.algebra import Combinable


@dataclass(frozen=True)
class PerEquation(Combinable):
    """A policy that looks at one equation at a time, as JAX's do.

    Subclasses define `decide_primitive` and `decide_name`. Such a policy is also a function of
    `(primitive, *avals, **params)`, so it can be given to `jax.checkpoint` and to wrappers around it.
    """

    def decide_primitive(self, primitive: Any, types: tuple[Any, ...], params: dict[str, Any]) -> Decision:
        """About the outputs of `primitive` applied to inputs of these types."""
        return RECOMPUTE

    def decide_name(self, tag: Any) -> Decision:
        """About a value named with `checkpoint_name`."""
        return RECOMPUTE

    def decide_equation(self, equation: Equation) -> Decision:
        op = equation.op
        if isinstance(op, Name):
            return self.decide_name(op.tag)
        if isinstance(op, Primitive):
            return self.decide_primitive(op.primitive, tuple(a.type for a in equation.inputs), op.params)
        return RECOMPUTE

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        return decide_each(view, self.decide_equation)

    def __call__(self, primitive: Any, *types: Any, **params: Any) -> Any:
        """JAX's protocol: True, False or an Offloadable."""
        if primitive is jax_compat.name_p:
            decision = self.decide_name(params["name"])
        else:
            decision = self.decide_primitive(primitive, types, params)
        return to_jax(decision, self.may_offload)

    @property
    def may_offload(self) -> bool:
        """Whether some answer may be an `Offload`; JAX then wants its own classes in place of booleans."""
        return False


def to_jax(decision: Decision, may_offload: bool) -> Any:
    if isinstance(decision, Offload):
        return Offloadable(src=decision.source, dst=decision.destination)
    if may_offload:
        return JaxSaveable if isinstance(decision, Save) else JaxRecompute
    return isinstance(decision, Save)


def check_memory(kind: Any, parameter: str) -> str:
    """A memory space that exists.

    **Raises** `PolicyError` when it does not (JAX accepts anything and treats it as the host).
    """
    if kind not in jax_compat.MEMORY_KINDS:
        raise PolicyError(
            f"{parameter}={kind!r} is no memory space. Known spaces: {', '.join(map(repr, jax_compat.MEMORY_KINDS))}."
        )
    return kind


def check_names(names: tuple[Any, ...], constructor: str) -> frozenset[Any]:
    """Names must be hashable; a single list or tuple is the usual slip.

    **Raises** `PolicyError`, `PolicyTypeError`.
    """
    if len(names) == 1 and isinstance(names[0], (list, tuple, set, frozenset)):
        each = ", ".join(repr(name) for name in cast(Iterable[Any], names[0]))
        raise PolicyError(
            f"{constructor} takes names as separate arguments, but got {names[0]!r}. Write {constructor}({each}) or "
            f"{constructor}(*names)."
        )
    return _hashable_names(names, constructor)


def check_name_list(names: Any, parameter: str) -> frozenset[Any]:
    """Names given as one collection; a single string, which is a collection of letters, is the usual slip.

    **Raises** `PolicyTypeError`.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise PolicyTypeError(f"{parameter} must be a list of names, but is {names!r}. Write [{names!r}].")
    return _hashable_names(names, parameter)


def _hashable_names(names: Any, where: str) -> frozenset[Any]:
    names = list(names)
    wrong = next((n for n in names if not isinstance(n, Hashable)), None)
    if wrong is not None:
        raise PolicyTypeError(
            f"{where} got the name {wrong!r} of type {type(wrong).__name__}, which cannot be hashed. Names are those "
            "given to checkpoint_name; use strings."
        )
    return frozenset(names)
