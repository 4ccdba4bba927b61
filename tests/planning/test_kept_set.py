"""The best set of values to keep, against all sets there are, on random graphs."""

import itertools
import random

import pytest

from remat.planning.kept_set import KeptSets
from remat.planning.problem import GIVEN, Problem


def random_problem(seed: int) -> Problem:
    """A chain with side branches: values of some bytes, made by equations of some seconds, some of them needed."""
    draw = random.Random(seed)
    problem = Problem()

    def value(made_by: int, is_free: bool = False, carried: bool = False) -> int:
        problem.values.append(None)  # type: ignore[arg-type]  # a graph of numbers has no program
        problem.bytes.append(0 if is_free else draw.randint(1, 9))
        problem.is_choice.append(not carried and draw.random() < 0.9)
        problem.is_carried.append(carried)
        problem.is_free.append(is_free)
        problem.made_by.append(made_by)
        return len(problem.values) - 1

    known = [value(GIVEN, is_free=True) for _ in range(2)]
    if draw.random() < 0.3:
        known.append(value(GIVEN, carried=True))
    for number in range(draw.randint(4, 8)):
        problem.inputs.append(draw.sample(known, min(len(known), draw.randint(1, 2))))
        problem.seconds.append(draw.choice([0.0, 0.1, 1.0, 1.0, 3.0]))
        known.append(value(number))
    carried = [i for i, c in enumerate(problem.is_carried) if c]
    for c in carried:
        problem.made_before[c] = known[-1]
    problem.needed.extend(draw.sample(known, draw.randint(2, min(5, len(known)))))
    return problem


def seconds_of(problem: Problem, kept: frozenset[int]) -> float | None:
    """What is recomputed with these values kept; None if something needed cannot be had."""
    again: set[int] = set()
    stack = list(problem.needed)
    while stack:
        value = stack.pop()
        if problem.is_free[value] or value in kept:
            continue
        if problem.is_carried[value]:
            if problem.made_before.get(value, GIVEN) in kept:
                continue
            return None
        made_by = problem.made_by[value]
        if made_by == GIVEN or made_by in problem.fixed:
            return None
        if made_by not in again:
            again.add(made_by)
            stack.extend(problem.inputs[made_by])
    return sum(problem.seconds[e] for e in again)


def best_of_all(problem: Problem, limit: int) -> float | None:
    options = [i for i in range(len(problem.values)) if problem.is_choice[i] or problem.is_carried[i]]
    options = [i for i in options if not problem.is_free[i]]
    found = None
    for count in range(len(options) + 1):
        for kept in itertools.combinations(options, count):
            if problem.kept_bytes(kept) <= limit:
                seconds = seconds_of(problem, frozenset(kept))
                found = seconds if found is None or (seconds is not None and seconds < found) else found
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_best_of_all_sets_is_found(seed):
    problem = random_problem(seed)
    solver = KeptSets(problem)
    total = sum(problem.bytes)
    for limit in sorted({0, total // 4, total // 2, total}):
        best, found = best_of_all(problem, limit), solver.within(limit)
        if best is None:
            assert found is None
            continue
        assert found is not None
        assert found.bytes == problem.kept_bytes(found.kept) <= limit
        assert seconds_of(problem, found.kept) == pytest.approx(found.seconds, abs=1e-6)
        assert found.seconds <= best * 1.001 + 1e-5
        assert solver.bound(limit) <= best + 1e-6
        assert found.bound <= found.seconds


@pytest.mark.parametrize("seed", range(20))
def test_fewest_bytes_is_the_smallest_limit_with_a_solution(seed):
    problem = random_problem(seed)
    solver = KeptSets(problem)
    fewest = solver.fewest_bytes()
    assert solver.within(fewest) is not None
    assert fewest == 0 or best_of_all(problem, fewest - 1) is None


def test_what_never_runs_again_is_kept():
    """A loop whose results are needed, and do not come from running it again."""
    problem = Problem(
        [None, None], [0, 5], [False, False], [False] * 2, [True, False], [GIVEN, 0], {}, [1.0], [[0]], {0}, [1]
    )
    found = KeptSets(problem).within(5)
    assert found is not None
    assert found.kept == {1}
    assert KeptSets(problem).within(4) is None
