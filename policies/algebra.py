"""The algebra of policies: `a | b` keeps what either keeps, `a & b` what both keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat.decisions import Decision, Offload, Policy, Recompute, RegionView, Save, as_policy
from remat.errors import PolicyError, PolicyTypeError
from remat.ir.program import Value


class Combinable:
    """Base of all policies here. With `|` either of two may keep a value, with `&` both must."""

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        raise NotImplementedError

    def __or__(self, other: Any) -> Either:
        return Either.of(self, other)

    def __ror__(self, other: Any) -> Either:
        return Either.of(other, self)

    def __and__(self, other: Any) -> Both:
        return Both.of(self, other)

    def __rand__(self, other: Any) -> Both:
        return Both.of(other, self)

    @property
    def mentioned_names(self) -> frozenset[Any]:
        """Names given with `checkpoint_name` that this policy asks for."""
        return frozenset()

    def as_jax(self) -> Callable[..., Any] | None:
        """The object of JAX's own that means the same in every JAX version; None if there is none."""
        return None


@dataclass(frozen=True)
class Either(Combinable):
    """A value is kept if one of the policies keeps it. Where both do, the first policy says in which memory, except
    that keeping it in place wins over moving it away."""

    policies: tuple[Policy, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "policies", _flat(Either, self.policies))

    @classmethod
    def of(cls, *policies: Any) -> Either:
        return cls(policies)

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        result: dict[Value, Decision] = {}
        for policy in self.policies:
            for value, decision in policy.decide(view).items():
                known = result.get(value)
                if (
                    known is None
                    or isinstance(known, Recompute)
                    or (isinstance(decision, Save) and isinstance(known, Offload))
                ):
                    result[value] = decision
        return result

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return frozenset().union(*(getattr(p, "mentioned_names", ()) for p in self.policies))

    def parts(self, view: RegionView) -> list[tuple[Policy, RegionView]]:
        return [(policy, view) for policy in self.policies]

    def __str__(self) -> str:
        return "|".join(map(str, self.policies))


@dataclass(frozen=True)
class Both(Combinable):
    """A value is kept if all of the policies keep it; it is moved away if one of them says so."""

    policies: tuple[Policy, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "policies", _flat(Both, self.policies))

    @classmethod
    def of(cls, *policies: Any) -> Both:
        return cls(policies)

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        first, *rest = (policy.decide(view) for policy in self.policies)
        result: dict[Value, Decision] = {}
        for value, decision in first.items():
            answers = [decision, *(other.get(value, Recompute()) for other in rest)]
            if not any(isinstance(a, Recompute) for a in answers):
                result[value] = next((a for a in answers if isinstance(a, Offload)), decision)
        return result

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return frozenset().union(*(getattr(p, "mentioned_names", ()) for p in self.policies))

    def __str__(self) -> str:
        return "&".join(f"({p})" if isinstance(p, Either) else str(p) for p in self.policies)


def _flat(kind: Any, policies: tuple[Any, ...]) -> tuple[Policy, ...]:
    """Policies as objects, with nested combinations of the same kind opened."""
    result: list[Policy] = []
    for given in policies:
        if isinstance(given, str):
            raise PolicyTypeError(
                f"{given!r} is a string, which | and & do not read. Write policies.parse({given!r}), or the whole "
                f"combination as one string, such as policies.parse('dots|{given}')."
            )
        policy: Any = as_policy(given)
        result.extend(policy.policies if isinstance(policy, kind) else [policy])
    if len(result) < 2:
        raise PolicyError(f"{kind.__name__} combines two policies or more, but got {len(result)}: {result!r}.")
    return tuple(result)


def save_from_both_policies(policy_1: Any, policy_2: Any) -> Either:
    """Keep what either policy keeps; the same as `policy_1 | policy_2`. Unlike JAX's, it takes offload policies too.

    >>> from remat import policies
    >>> print(policies.save_from_both_policies(policies.dots_saveable, policies.save_only_these_names("a")))
    dots|names:a
    """
    return Either.of(policy_1, policy_2)


def inner_text(policy: Policy) -> str:
    """The string form of a policy inside another; combinations need parentheses."""
    return f"({policy})" if isinstance(policy, (Either, Both)) else str(policy)
