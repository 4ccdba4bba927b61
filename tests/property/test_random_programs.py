"""Random programs: whatever JAX can differentiate, remat differentiates to the same numbers, under every policy.

The default run has fixed seeds. `REMAT_EXPLORE_SECONDS=120` tries new ones for that long; a failure prints a small
program and the seed, and `REMAT_SEED=derivatives:1234` runs that seed alone (both with `-k` of the test's name).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import jax
import pytest
from property import cases
from property.choices import Menu
from property.generate import program_of
from property.operations import GROUPS
from property.programs import Statement, statements

pytestmark = [
    # A program may use none of the names its policy asks for; these warnings have tests of their own.
    *(
        pytest.mark.filterwarnings(f"ignore::remat.{kind}Warning")
        for kind in ("UnknownName", "UselessPolicy", "OverriddenPolicy")
    ),
    # Programs divide by zero, on purpose and where nobody looks.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def _few_optimizations() -> Iterator[None]:
    """No time spent on optimizing programs that run once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


LOOPS = tuple(dict.fromkeys((26, 253, 311, *range(28))))
"""The first of these find the faults of `test_planted_faults`."""

COUNTS = {
    "derivatives": 28,
    "lowered": 8,
    "transformed": 5,
    "linearize": 8,
    "residuals": 12,
    "strategies": 8,
    "plans": 24,
}
MANY = {
    "derivatives": 300,
    "loops": 300,
    "lowered": 40,
    "transformed": 60,
    "linearize": 60,
    "residuals": 60,
    "strategies": 40,
    "plans": 150,
}


def seeds(counts: dict[str, int], first: int) -> list[tuple[str, int]]:
    return [(name, first + i) for name, count in counts.items() for i in range(count)]


@pytest.mark.parametrize(("name", "seed"), [*(("loops", seed) for seed in LOOPS), *seeds(COUNTS, 0)])
def test_random_programs(name: str, seed: int) -> None:
    cases.check(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), seeds(MANY, 1000))
def test_many_random_programs(name: str, seed: int) -> None:
    cases.check(name, seed)


@pytest.mark.skipif("REMAT_EXPLORE_SECONDS" not in os.environ, reason="REMAT_EXPLORE_SECONDS says for how long")
def test_explore() -> None:
    first = int(time.time()) % 10**8 * 100
    count = cases.explore(float(os.environ["REMAT_EXPLORE_SECONDS"]), first)
    print(f"{count} new programs, seeds from {first}")
    assert count


@pytest.mark.skipif("REMAT_SEED" not in os.environ, reason="REMAT_SEED names a property and a seed")
def test_one_seed() -> None:
    name, seed = os.environ["REMAT_SEED"].split(":")
    print(cases.Case.of(name, int(seed)).program)
    cases.check(name, int(seed), shrink_seconds=120)


# The generator itself.


def drawn(count: int) -> list[Statement]:
    return [s for seed in range(count) for s in statements(program_of(seed).body)]


def test_programs_are_those_of_their_seeds() -> None:
    assert str(program_of(5)) == str(program_of(5))
    assert len({str(program_of(seed)) for seed in range(50)}) == 50
    assert program_of(5).argnums == program_of(5).argnums


def test_every_template_and_structure_is_reached() -> None:
    found = drawn(1200)
    templates = {s.options[0] for s in found if s.kind == "op"}
    for group, (choices, _) in GROUPS.items():
        assert set(choices) <= templates, (group, set(choices) - templates)
    assert {s.kind for s in found} == {"op", "call", "scan", "fori", "while", "branch"}
    wrappers = {s.options[0].split("(")[0] for s in found if s.kind == "call"}
    assert wrappers >= {
        *("jax.jit", "jax.named_scope", "remat.checkpoint", "jax.checkpoint", "jax.vmap"),
        *("scaled_jvp", "scaled_vjp", "inner_grad", "inner_jvp", "inner_remat_grad"),
    }


def test_loops_carry_in_every_way() -> None:
    """Delays, swaps, copies and what is passed through, emitted before and after, in loops of every length."""
    found: set[str] = set()
    for scan in (s for s in drawn(400) if s.kind == "scan"):
        (function,), (count, length, reverse, unroll) = scan.functions, scan.options
        carries, slices = function.params[:count], function.params[count:]
        new, emitted = function.results[:count], function.results[count:]
        found.update({f"length {length}", f"reverse {reverse}", f"unroll {unroll}"})
        for i, value in enumerate(new):
            kind = "slice" if value in slices else "computed"
            if value in carries:
                kind = "kept" if value == carries[i] else "delayed"
                if kind == "delayed" and new[carries.index(value)] == carries[i]:
                    found.add("swapped")
            found.update({kind} | ({f"{kind}, emitted"} if value in emitted else set()))
            found.update({f"{kind}, its carry emitted"} if carries[i] in emitted else set())
            found.update({"copied"} if value in new[:i] else set())
        found.update({"duplicate initial values"} if len(set(scan.args[:count])) < count else set())
    ways = {f"{k}{e}" for k in ("computed", "kept", "delayed", "slice") for e in ("", ", emitted")}
    lengths = {f"length {n}" for n in range(5)} | {f"unroll {n}" for n in (1, 2, 3)} | {"reverse True", "reverse False"}
    assert found >= ways | lengths | {"swapped", "copied", "duplicate initial values", "delayed, its carry emitted"}


def test_programs_for_second_order_have_only_true_derivatives() -> None:
    menu = Menu().without_rules()
    texts = [str(program_of(seed, menu)) for seed in range(100)]
    assert not any(word in text for text in texts for word in ("scaled_", "clipped", "powered"))
    assert any("exact_jvp" in text for text in texts)
