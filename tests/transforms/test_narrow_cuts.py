"""The cuts that `narrow_cuts` finds, against all cuts there are."""

import itertools
import random

import pytest

from remat.transforms.narrow_cuts import SLACK, Item, Made, narrow_cuts


def random_items(seed):
    """A chain with skip connections, gradients and loops."""
    draw = random.Random(seed)
    count = draw.randint(2, 9)
    items = []
    for i in range(count):
        alone = draw.random() < 0.15
        last = draw.choice([i + 1, i + 1, i + 1, draw.randint(i + 1, count)])
        first = draw.choice([None, draw.randint(i, last - 1 if last == count else last)])
        made = (Made(draw.choice([1, 4, 16, 64]), min(last, count), first),)
        gradients = draw.choice([0, 0, 8])
        items.append(Item(made, alone, False, draw.choice([0, 5]) if alone else 0, 3 if alone else 0, gradients))
    return items


def peak(items, starts):
    """What is alive at most, straight from the definition; None where an item that is alone is not."""
    ends = [*starts[1:], len(items)]
    kept, highest = 0, 0
    for start, end in zip(starts, ends, strict=True):
        if any(items[k].alone for k in range(start, end)) and end - start > 1:
            return None
        made = [(k, v) for k in range(start, end) for v in items[k].made]
        if end < len(items):
            kept += sum(v.size for _, v in made if v.last_use >= end)
        kept += sum(items[k].boundary for k in range(start, end))
        inside = sum(items[k].inside for k in range(start, end))
        inside += sum(v.size for _, v in made if v.first_read is not None and v.first_read < end)
        gradients = sum(item.gradients for item in items[start:])
        highest = max(highest, kept + inside + gradients)
    return highest


@pytest.mark.parametrize("seed", range(120))
def test_no_other_cuts_are_better(seed):
    items = random_items(seed)
    found = narrow_cuts(items)
    inner = range(1, len(items))
    every = [[0, *c] for n in range(len(items)) for c in itertools.combinations(inner, n)]
    peaks = [p for c in every if (p := peak(items, c)) is not None]
    whole = peak(items, [0])
    if found == [0]:
        assert whole is not None
        assert SLACK * min(peaks) >= 0.999 * whole
    else:
        assert peak(items, found) <= 1.001 * SLACK * min(peaks)


def test_equal_layers_are_cut_at_about_the_square_root():
    items = [Item((Made(1, i + 1, i + 1),)) for i in range(100)]
    cuts = narrow_cuts(items)
    assert 8 <= len(cuts) <= 12
    assert peak(items, cuts) <= 20


def test_a_cut_lies_behind_the_cheap_equations_that_follow():
    """Between two products stand cheap equations: what the second one reads is kept, not what the first one made."""
    layer = [False, True, True]
    items = []
    for i in range(24):
        reads = i + 1 if i < 23 else None
        items.append(Item((Made(4, min(i + 1 + (i % 3 == 0), 24), reads),), cheap=layer[i % 3]))
    assert set(narrow_cuts(items)[1:]) <= set(range(3, 24, 3))


def test_many_equations_are_cut_in_a_moment():
    items = [Item((Made(1 + 99 * (i % 50 != 0), i + 1, i + 1),)) for i in range(20_000)]
    cuts = narrow_cuts(items)
    assert len(cuts) > 10
    assert all(items[c - 1].made[0].size == 1 for c in cuts[1:])
