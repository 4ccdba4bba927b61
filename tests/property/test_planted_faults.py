"""The generator finds faults that once lived behind thousands of random programs: with each planted again, a case of
the default run fails, and what is left of its program is a loop that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import pytest
from faults import Patch, Plant, planted
from property.cases import Case
from property.programs import statements
from property.test_random_programs import LOOPS

import remat
from remat.transforms.rules.scan_residuals import ScanResiduals
from remat.transforms.rules.scan_shift import chain_of

pytestmark = pytest.mark.filterwarnings("ignore::remat.UnknownNameWarning", "ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _few_optimizations() -> Iterator[None]:
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


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

    right = ScanResiduals.find_chains

    def wrong(self: ScanResiduals, invariant: Any) -> Any:
        chains, residuals = right(self, invariant), self.inner.residuals
        if not chains or self.runs_again():
            return chains
        kept = {v for v, r in residuals.items() if v is r and v not in self.carry and v not in invariant}
        given = kept | set(self.constants) | set(self.slices)
        stacked = set(self.result_of)
        for carried, returned in zip(self.carry, self.body.outputs, strict=False):
            if carried in residuals and carried in stacked:
                own = {returned} if returned in stacked else set()
                chain = chain_of(self.producer, carried, returned, given, own)
                chains += [] if chain is None else [chain]
        return chains

    patch.setattr(ScanResiduals, "find_chains", wrong)


PLANTS: dict[Plant, tuple[type[Exception], str]] = {
    carried_values_are_constants: (AssertionError, "differs by"),
    chains_rebuild_what_others_define: (remat.errors.ProgramError, "value defined twice"),
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Plant) -> None:
    kind, message = PLANTS[plant]
    case, error = first_failure(plant)
    assert isinstance(error, kind)
    assert message in str(error)
    with planted(plant):
        small = case.smaller(error, seconds=15)
        assert small.problem() is not None
    assert small.problem() is None  # it is the fault that was found
    assert any(s.kind == "scan" for s in statements(small.program.body))
    assert len(str(small.program)) <= len(str(case.program))


def first_failure(plant: Plant) -> tuple[Case, Exception]:
    with planted(plant):
        for seed in LOOPS:
            case = Case.of("loops", seed)
            error = case.problem()
            if error is not None:
                return case, error
    raise AssertionError(f"no case of the default run finds {plant.__name__}")
