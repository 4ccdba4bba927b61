"""Errors and warnings of remat.

Every message says what happened, where, what was allowed and what to do. Each class also derives from the built-in
error that JAX raises in the same situation, so that code written against JAX keeps working.
"""

from __future__ import annotations

from typing import ClassVar

from jax.errors import UnexpectedTracerError


class RematError(Exception):
    """Base of all errors that remat raises."""


class ProgramError(RematError):
    """A program is not well typed: a fault in a transformation, not in a user's code."""


class ArgumentError(RematError, ValueError):
    """An argument has a value that is not allowed."""


class ArgumentTypeError(RematError, TypeError):
    """An argument has a type that is not allowed."""


class MissingArgumentError(ArgumentError, TypeError):
    """An argument that was to be differentiated was not passed by position."""


class PolicyError(RematError, ValueError):
    """A policy has parameters or a string form that mean nothing."""


class PolicyTypeError(RematError, TypeError):
    """Something that is not a policy was given as one, or a policy answered with something that is no decision."""


class DifferentiationError(RematError, TypeError):
    """A function cannot be differentiated as asked."""


class ReverseModeError(RematError, ValueError):
    """A loop of unknown length stands in the way of reverse-mode differentiation."""


class BudgetError(RematError, ValueError):
    """A number of bytes into which no plan fits."""


class PlanError(RematError, ValueError):
    """A plan that was made for another program, or a text that is none."""


class UnknownCostError(RematError, NotImplementedError):
    """What a primitive costs is not known."""


class RuleError(RematError, ValueError):
    """A rule of a custom derivative returned cotangents of the wrong shape or dtype."""


class RuleTypeError(RematError, TypeError):
    """A rule of a custom derivative returned something of the wrong structure, or results of other types."""


class MissingRuleError(RematError, AttributeError):
    """A function with custom derivatives was called before it got its rules."""


class ForwardModeError(RematError, TypeError):
    """A function with only a reverse-mode derivative was differentiated in forward mode."""

    @classmethod
    def of(cls, function: str) -> ForwardModeError:
        return cls(
            f"can't apply forward-mode differentiation (jvp) to the custom_vjp function {function}: its rules only say "
            "how to go backward. Use grad or vjp, or define the function with jax.custom_jvp."
        )


class ClosedOverError(RematError, UnexpectedTracerError):
    """A function with custom derivatives was differentiated with respect to a value that it closes over."""

    @classmethod
    def of(cls, function: str) -> ClosedOverError:
        return cls(
            f"the custom_vjp function {function} was differentiated with respect to a value that it closes over. Its "
            "rules only give cotangents for its arguments. Pass the value as an argument and let bwd return a "
            "cotangent for it, or put jax.lax.stop_gradient on it."
        )


class NondiffTracerError(RematError, UnexpectedTracerError):
    """An argument that is declared to be a Python value has a JAX tracer in it."""


class TargetError(RematError, ValueError):
    """A target that there is not, or whose devices do not fit."""


class TargetUnavailableError(RematError, RuntimeError):
    """The compiler of a target is not installed, or was kept from loading."""


class RematWarning(UserWarning):
    """Base of all warnings that remat gives. Each kind has a class, so that `warnings` and pytest filter them one by
    one, and a `code`, under which docs/findings.md explains it."""

    code: ClassVar[str] = ""


class UnknownNameWarning(RematWarning):
    """A policy asks for a name that the function never uses."""

    code = "unknown-name"


class UnknownScopeWarning(RematWarning):
    """A policy asks for a scope that the function does not have."""

    code = "unknown-scope"


class DeadNameWarning(RematWarning):
    """A `checkpoint_name` has a result that nothing reads."""

    code = "dead-name"


class UselessPolicyWarning(RematWarning):
    """A policy does nothing of what it is for: it keeps none of the products that it sees, or moves nothing away."""


class NameNotKeptWarning(UselessPolicyWarning):
    """A policy keeps a name of which the backward pass reads nothing."""

    code = "name-not-kept"


class UnmatchedProductsWarning(UselessPolicyWarning):
    """A policy for products keeps none of those that it sees."""

    code = "unmatched-products"


class NoLowerPeakWarning(UselessPolicyWarning):
    """A policy makes the step take as much memory as none, or more."""

    code = "no-lower-peak"


class KeepsMoreWarning(UselessPolicyWarning):
    """A policy keeps more bytes than there are without it."""

    code = "keeps-more"


class OverriddenPolicyWarning(RematWarning):
    """A policy around checkpoints keeps more than their own policies would."""

    code = "overridden-policy"


class IgnoredPolicyWarning(RematWarning):
    """A policy of a checkpoint has no say, since one around it has."""

    code = "ignored-policy"


class RegionWithoutPolicyWarning(RematWarning):
    """A checkpoint was made without a policy, which keeps nothing but its inputs."""

    code = "region-without-policy"


class KeptTwiceWarning(RematWarning):
    """A value is kept beside another one that it is a cast of."""

    code = "kept-twice"


class TwoNamesWarning(RematWarning):
    """A value is kept under two names."""

    code = "two-names"


class OffloadInPlaceWarning(UselessPolicyWarning):
    """A value that a policy moves away is kept in place, since a loop carries it."""

    code = "offload-in-place"


class OffloadSameMemoryWarning(UselessPolicyWarning):
    """A policy moves values to the host's memory on a target that has no other."""

    code = "offload-same-memory"


class SlowOffloadWarning(RematWarning):
    """Moving values away and back takes longer than computing them again."""

    code = "slow-offload"


class StackedInvariantWarning(RematWarning):
    """A loop returns the same value in each iteration, and stacks it."""

    code = "stacked-invariant"


class StackedExpansionWarning(RematWarning):
    """A loop stacks values that are much larger than what they follow from."""

    code = "stacked-expansion"


class CarryHistoryWarning(RematWarning):
    """A loop keeps a whole buffer for each iteration, of which an iteration changes a part."""

    code = "carry-history"


class RandomRecomputedWarning(RematWarning):
    """Random bits are drawn again in the backward pass."""

    code = "random-recomputed"


class EffectsKeptWarning(RematWarning):
    """Results of effects in a region are kept, whatever the policy is."""

    code = "effects-kept"


class TracedFlagWarning(RematWarning):
    """A Python flag was traced as an array, so that all that it chooses from is computed."""

    code = "traced-flag"
