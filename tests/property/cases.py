"""A case: a property, a program and a policy, all chosen by a seed. Failing ones are made smaller and told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from property import properties
from property.choices import Menu
from property.generate import program_of
from property.programs import Program
from property.properties import PLANS, POLICIES
from property.shrink import shrink


@dataclass(frozen=True)
class Property:
    check: Callable[[Program, str], None]
    menu: Menu
    weight: float
    """How often it is explored."""


PROPERTIES = {
    "derivatives": Property(properties.check_derivatives, Menu(), 6),
    "loops": Property(properties.check_derivatives, Menu(statements=9, loops=True), 6),
    "lowered": Property(properties.check_lowered, Menu(), 1),
    "transformed": Property(properties.check_transformed, Menu(statements=7).without_rules(), 3),
    "linearize": Property(properties.check_linearize, replace(Menu(), forward_mode=True), 1),
    "residuals": Property(properties.check_residuals, Menu(), 2),
    "plans": Property(properties.check_derivatives, Menu(statements=9, loops=True), 2),
    "strategies": Property(properties.check_strategies, Menu(), 1),
}


@dataclass(frozen=True)
class Case:
    property: str
    program: Program
    policy: str
    seed: int

    @classmethod
    def of(cls, name: str, seed: int) -> Case:
        texts = PLANS if name == "plans" else POLICIES
        policy = texts[int(np.random.default_rng([seed, 1]).integers(len(texts)))]
        return cls(name, program_of(seed, PROPERTIES[name].menu), policy, seed)

    def run(self) -> None:
        PROPERTIES[self.property].check(self.program, self.policy)

    def problem(self) -> Exception | None:
        try:
            self.run()
        except Exception as error:
            return error
        return None

    def smaller(self, error: Exception, seconds: float) -> Case:
        """A smaller case that fails in the same way."""
        kind = _kind(error)

        def fails(program: Program) -> bool:
            found = replace(self, program=program).problem()
            return found is not None and _kind(found) == kind

        return replace(self, program=shrink(self.program, fails, seconds))


def _kind(error: Exception) -> tuple[str, bool, str]:
    """What makes two failures the same: the class, whether it is about infinity, and the words before any detail."""
    text = str(error)
    words = "" if isinstance(error, AssertionError) else "".join(c for c in text[:40] if c.isalpha() or c == " ")
    return type(error).__name__, "differs by inf" in text, words


class CaseFailed(AssertionError):
    """The message has the program and how to run it again."""


def check(name: str, seed: int, shrink_seconds: float = 20) -> None:
    """Run the case of a seed.

    **Raises** `CaseFailed` with a smaller program that fails in the same way.
    """
    case = Case.of(name, seed)
    error = case.problem()
    if error is None:
        return
    small = case.smaller(error, shrink_seconds)
    error = small.problem() or error
    raise CaseFailed(
        f"{name} of seed {seed} under {case.policy}: {type(error).__name__}: {error}\n\n{small.program}\n\n"
        f"# argnums={small.program.argnums}; the names are those of tests/property/vocabulary.py\n"
        f"# Again: REMAT_SEED={name}:{seed} python -m pytest tests/property/test_random_programs.py -k one_seed"
    ) from error


def explore(seconds: float, first: int) -> int:
    """Run cases of new seeds until the time is over; returns how many."""
    deadline, count = time.monotonic() + seconds, 0
    weights = np.array([p.weight for p in PROPERTIES.values()])
    while time.monotonic() < deadline:
        seed = first + count
        chosen = np.random.default_rng([seed, 2]).choice(len(weights), p=weights / weights.sum())
        check(list(PROPERTIES)[int(chosen)], seed)
        count += 1
    return count
