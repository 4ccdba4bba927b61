"""The algebra of policies: `a | b` keeps what either keeps, `a & b` what both keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jax.ad_checkpoint import Offloadable
from jax.ad_checkpoint import Recompute as JaxRecompute
from jax.ad_checkpoint import Saveable as JaxSaveable

from remat.decisions import Decision, JaxPolicy, Offload, Policy, Recompute, RegionView, Save, as_policy
from remat.errors import PolicyError, PolicyTypeError
from remat.ir.program import Value


class Combinable:
    """Base of all policies here. With `|` either of two may keep a value, with `&` both must."""

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        raise NotImplementedError

    def __call__(self, primitive: Any, *types: Any, **params: Any) -> Any:
        """Whoever calls a policy is JAX's own checkpoint, or a wrapper around it such as `flax.linen.remat`.

        **Raises** `PolicyTypeError`, unless the policy can answer about one equation alone.
        """
        raise PolicyTypeError(
            f"the policy {self} looks at a whole region, but jax.checkpoint (nn.remat, nnx.remat and "
            "eqx.filter_checkpoint call it) asks about one operation at a time. Use remat.checkpoint in its place, "
            "differentiate with remat.grad, or give a policy that looks at one operation (policies.dots_saveable)."
        )

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

    def __call__(self, primitive: Any, *types: Any, **params: Any) -> Any:
        """JAX's protocol."""
        answers = [_ask(p, primitive, types, params) for p in self.policies]
        if any(a is JaxSaveable for a in answers):
            return JaxSaveable
        return next((a for a in answers if isinstance(a, Offloadable)), JaxRecompute)

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return frozenset[Any]().union(*(getattr(p, "mentioned_names", ()) for p in self.policies))

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

    def __call__(self, primitive: Any, *types: Any, **params: Any) -> Any:
        """JAX's protocol."""
        answers = [_ask(p, primitive, types, params) for p in self.policies]
        if any(a is JaxRecompute for a in answers):
            return JaxRecompute
        return next((a for a in answers if isinstance(a, Offloadable)), JaxSaveable)

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return frozenset[Any]().union(*(getattr(p, "mentioned_names", ()) for p in self.policies))

    def __str__(self) -> str:
        return "&".join(f"({p})" if isinstance(p, Either) else str(p) for p in self.policies)


def _ask(policy: Any, primitive: Any, types: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """What a policy answers about one equation, as an object of JAX's."""
    answer = (policy.callable if isinstance(policy, JaxPolicy) else policy)(primitive, *types, **params)
    return (JaxSaveable if answer else JaxRecompute) if isinstance(answer, bool) else answer


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
