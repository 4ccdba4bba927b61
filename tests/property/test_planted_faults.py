"""The generator finds faults that once lived behind thousands of random programs: with each planted again, a case of
the default run fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import pytest
from property.cases import Case
from test_helpers_catch_bugs import planted

import remat
from remat.transforms.rules import scan_residuals
from remat.transforms.rules.scan_residuals import ScanResiduals
from remat.transforms.rules.scan_shift import chain_of

Patch = pytest.MonkeyPatch


def carried_values_are_constants(patch: Patch) -> None:
    """What a chain reads is taken from outside of the loop, also where it is carried."""
    right = ScanResiduals.add_reads_of_chains

    def wrong(self: ScanResiduals) -> None:
        constants, self.constants = self.constants, [*self.constants, *self.carry]
        try:
            right(self)
        finally:
            self.constants = constants

    patch.setattr(ScanResiduals, "add_reads_of_chains", wrong)


def chains_rebuild_what_others_define(patch: Patch) -> None:
    """A carried value that the loop also stacks is rebuilt, though another chain reads its stack."""

    def wrong(self: ScanResiduals, invariant: Any) -> Any:
        if not self.level.backward or self.op.equation.region is None or self.scan.length == 0:
            return []
        residuals = self.inner.residuals
        kept = {v for v, r in residuals.items() if v is r and v not in self.carry and v not in invariant}
        given = kept | set(self.constants) | set(self.slices)
        stacked = [] if self.runs_again() else self.body.outputs[self.scan.carry_count :]
        pairs = zip(self.carry, self.body.outputs, strict=False)
        found = [
            chain_of(self.body, carried, returned, given | ({returned} if returned in stacked else set()))
            for carried, returned in pairs
            if carried in residuals
        ]
        return [chain for chain in found if chain is not None]

    patch.setattr(ScanResiduals, "find_chains", wrong)
