"""Plans for the peak against all that there are: every set of values in every structure, on small random nets."""

import itertools
import random

import jax
import jax.numpy as jnp
import pytest

from remat.inspect.plan import region_of
from remat.inspect.planned import Loss
from remat.planning.choice import front_of
from remat.planning.frontier import Frontier
from remat.planning.neighbours import with_neighbours
from remat.planning.structures import structures_for
from remat.targets.current import use_target

FAST = range(6)
FUNCTIONS = [jnp.sin, jnp.tanh, jax.nn.sigmoid, lambda x: x * x]


def net(seed):
    """Three or four layers of different widths, some with skip connections; and the types of its arguments."""
    draw = random.Random(seed)
    layers = [
        (draw.choice(FUNCTIONS), draw.random() < 0.4, draw.choice([32, 64, 128])) for _ in range(draw.randint(3, 4))
    ]

    def loss(weights, x):
        before = x
        for w, (function, skips, _) in zip(weights, layers, strict=True):
            x = function(x @ w)
            x = x + before if skips and before.shape == x.shape else x
            before = x
        return x.sum()

    sizes = [64, *(width for _, _, width in layers)]
    weights = [jax.ShapeDtypeStruct(pair, jnp.float32) for pair in itertools.pairwise(sizes)]
    return loss, (weights, jax.ShapeDtypeStruct((64, 64), jnp.float32))


@pytest.mark.parametrize("seed", [s if s in FAST else pytest.param(s, marks=pytest.mark.slow) for s in range(40)])
def test_plans_are_as_good_as_the_best_there_are(seed):
    loss, args = net(seed)
    with use_target("tpu:v5e:2x2" if seed % 2 else "cpu"):
        region, active, parts = region_of(Loss.of("test", loss, args, {}, 0))
        found = Frontier(region, active, parts)
        values = [v for v in found._candidates.values if v.bytes > 4]
        if len(values) > 9:
            pytest.skip("too many sets to try them all")
        sets = [s for k in range(len(values) + 1) for s in itertools.combinations(values, k)]
        every = [found.without]
        for structure in structures_for(found._program):
            every += found._each(structure, sets)
    for best in front_of(every):
        plan = found.within(int(1.001 * best.peak_bytes))
        assert plan is not None, (best, found.smallest)
        assert plan.seconds <= 1.06 * best.seconds


def test_without_neighbours_lower_peaks_are_missed():
    """Sets that are the best between the passes are not those with the lowest peak."""
    loss, args = net(2)
    with use_target("cpu"):
        found = Frontier(*region_of(Loss.of("test", loss, args, {}, 0)))
        first = [found.without]
        for structure in structures_for(found._program):
            first += found._each(structure, found._candidates.to_try(structure))
        assert found.smallest.peak_bytes < front_of(first)[-1].peak_bytes
        again = with_neighbours(first, found._candidates.values, found._candidates.equation_count, found._one)
        assert tuple(again) == found.tried
        large = with_neighbours(first, found._candidates.values, 10**9, found._one)
        assert large == first  # a program of a thousand million equations is not tried once more
