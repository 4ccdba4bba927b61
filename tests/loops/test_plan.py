"""Plans hold each iteration once, in the asked for number of segments, levels and carries."""

import pytest

from remat.loops.plan import carries, depth, fewest_slots, in_levels, in_segments, in_slots, steps


def copies(plan):
    """How often the body of the loop is in the program."""
    return sum(copies(b.inside) if b.inside else 1 for b in plan)


@pytest.mark.parametrize("length", [*range(70), 997, 1000, 1024, 12345, 10**6])
def test_plans(length):
    best = length
    for levels in range(1, 8):
        plan = in_levels(length, levels)
        assert steps(plan) == length
        assert depth(plan) <= levels
        assert carries(plan) <= min(best, levels * length ** (1 / levels) + 2 * levels)
        assert copies(plan) <= levels
        best = carries(plan)
    for slots in range(fewest_slots(length), min(length, 100)):
        plan = in_slots(length, slots)
        assert plan is not None
        assert carries(plan) <= slots
        assert carries(in_levels(length, depth(plan) - 1)) > slots or depth(plan) == 1
    assert in_slots(length, fewest_slots(length) - 1) is None


def test_segments_are_even():
    for length in range(1, 30):
        for count in range(1, length + 1):
            plan = in_segments(length, count)
            assert steps(plan) == length
            assert sum(b.count for b in plan) == count
            assert max(b.size for b in plan) - min(b.size for b in plan) <= 1
