"""Errors and warnings of remat.

Every message says what happened, where, what was allowed and what to do. Each class also derives from the built-in
error that JAX raises in the same situation, so that code written against JAX keeps working.
"""

from __future__ import annotations


class RematError(Exception):
    """Base of all errors that remat raises."""


class ProgramError(RematError):
    """A program is not well typed: a fault in a transformation, not in a user's code."""


class ArgumentError(RematError, ValueError):
    """An argument has a value that is not allowed."""


class ArgumentTypeError(RematError, TypeError):
    """An argument has a type that is not allowed."""


class PolicyError(RematError, ValueError):
    """A policy has parameters or a string form that mean nothing."""


class PolicyTypeError(RematError, TypeError):
    """Something that is not a policy was given as one, or a policy answered with something that is no decision."""


class DifferentiationError(RematError, TypeError):
    """A function cannot be differentiated as asked."""


class ReverseModeError(RematError, ValueError):
    """A loop of unknown length stands in the way of reverse-mode differentiation."""


class RematWarning(UserWarning):
    """Base of all warnings that remat gives."""


class UnknownNameWarning(RematWarning):
    """A policy asks for a name that the function never uses."""


class UselessPolicyWarning(RematWarning):
    """A policy does nothing of what it is for: it keeps none of the products that it sees, or moves nothing away."""


class OverriddenPolicyWarning(RematWarning):
    """A policy around checkpoints keeps more than their own policies would."""
