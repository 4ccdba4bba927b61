"""The kinds of findings: their codes, how serious each is, and the warning that it is given as."""

from __future__ import annotations

from dataclasses import dataclass

from remat import errors


@dataclass(frozen=True)
class Kind:
    """`level`: `warning` or `note`. `warning`: the class of the Python warning; its `code` is that of the kind."""

    level: str
    warning: type[errors.RematWarning]


_WARNINGS = (
    errors.UnknownNameWarning,
    errors.UnknownScopeWarning,
    errors.NameNotKeptWarning,
    errors.DeadNameWarning,
    errors.UnmatchedProductsWarning,
    errors.NoLowerPeakWarning,
    errors.KeepsMoreWarning,
    errors.KeptTwiceWarning,
    errors.OverriddenPolicyWarning,
    errors.OffloadInPlaceWarning,
    errors.OffloadSameMemoryWarning,
    errors.SlowOffloadWarning,
    errors.StackedInvariantWarning,
    errors.StackedExpansionWarning,
    errors.CarryHistoryWarning,
    errors.TracedFlagWarning,
)
_NOTES = (
    errors.TwoNamesWarning,
    errors.IgnoredPolicyWarning,
    errors.RegionWithoutPolicyWarning,
    errors.RandomRecomputedWarning,
    errors.EffectsKeptWarning,
)

KINDS = {
    **{warning.code: Kind("warning", warning) for warning in _WARNINGS},
    **{warning.code: Kind("note", warning) for warning in _NOTES},
}
"""From codes to kinds."""

WORTHWHILE = 2**18
"""Judgements (all but those about names) need so many bytes at stake: nobody runs out of memory for less."""
