"""The committed comparison with torch's budgets says what the documentation claims, and the way it counts is right."""

import importlib
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from remat import policies

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    """Imports a file of the benchmarks, which import each other by name; afterwards they are gone again."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture
def figures(load):
    return load("torch_budget").Figures.from_json((BENCHMARKS / "torch-budget.json").read_text())


def test_both_sides_are_the_same_nets(figures):
    assert len(figures.nets) == 3
    assert set(figures.versions) == {"torch", "jax", "remat"}
    for net in figures.nets:
        points, peaks = figures.of(net)
        sides = [p.torch for p in points] + [p.plan for p in points] + [p.best_set for p in points]
        assert len({side.plain_flops for side in (*sides, *(p.partition for p in peaks))}) == 1
        assert len(points) == len(peaks) == 10
        assert points[0].torch.saved_bytes == 0
        assert points[-1].torch.recomputed_flops == 0


def test_best_sets_are_never_worse_than_torch(figures):
    """Nothing that torch saves is missing among what remat can keep, and no peak is higher."""
    for point in figures.points:
        assert point.best_set.saved_bytes <= point.torch.saved_bytes, point
        assert point.best_set.recomputed_flops <= 1.001 * point.torch.recomputed_flops, point
        assert point.best_set.backward_peak <= 1.001 * point.torch.backward_peak, point


def test_plans_are_within_the_bytes_of_torch(figures):
    assert all(p.plan.saved_bytes <= p.torch.saved_bytes for p in figures.points)


def test_peaks_follow_their_budget_and_those_of_torch_do_not(figures):
    for net in figures.nets:
        points, peaks = figures.of(net)
        assert all(p.peak_bytes <= p.budget_bytes for p in peaks)
        budgets = [p.budget_bytes for p in peaks]
        assert budgets == sorted(set(budgets))
        assert [p.peak_bytes for p in peaks] == sorted(p.peak_bytes for p in peaks)
        of_torch = [p.torch.backward_peak for p in points]
        assert of_torch != sorted(of_torch)


@pytest.fixture
def document():
    return " ".join((ROOT / "docs" / "budgets.md").read_text().split())


def test_the_document_quotes_the_comparison(load, figures, document):
    module = load("torch_budget")
    for net in figures.nets:
        points, _ = figures.of(net)
        plans = sum(not p.lost(p.plan) for p in points)
        sets = sum(not p.lost(p.best_set) for p in points)
        lower = sum(p.best_set.backward_peak <= module.EQUAL * p.torch.backward_peak for p in points)
        falls = module.falls([p.torch.backward_peak for p in points])
        row = f"| {net} | {plans} of 10 | {sets} of 10 | {lower} of 10 | {falls} of 9 |"
        assert row in document, row
    assert f"torch {figures.versions['torch'].split('+')[0]}" in document
    assert f"jax {figures.versions['jax']}" in document


def test_the_document_quotes_the_losses(load, figures, document):
    module = load("torch_budget")
    lost = [p for p in figures.points if p.lost(p.plan)]
    more = [(p.plan.recomputed_flops - p.torch.recomputed_flops) / 1e9 for p in lost]
    quoted = f"loses at {len(lost)} of {len(figures.points)} points, by {min(more):.2f} to {max(more):.2f} GFLOP"
    assert quoted in document, quoted
    higher = [p for p in figures.points if p.plan.backward_peak > module.EQUAL * p.torch.backward_peak]
    pairs = [(f"{p.plan.backward_peak / 2**20:.1f}", f"{p.torch.backward_peak / 2**20:.1f}") for p in higher]
    assert f"higher at {len(higher)} points" in document
    assert all(f"{ours} against {theirs} MiB" in document for ours, theirs in pairs), pairs


def test_the_document_quotes_the_peaks(figures, document):
    points, peaks = figures.of("llama, 8 blocks")
    *most, last = [f"{p.torch.backward_peak / 2**20:.1f}" for p in points]
    assert f"{', '.join(most)} and {last} MiB" in document
    lowest = min((p.torch for p in points), key=lambda p: p.backward_peak)
    ours = [p.partition for p in peaks]
    there = min((p for p in ours if p.backward_peak <= lowest.backward_peak), key=lambda p: p.recomputed_flops)
    least = min(ours, key=lambda p: p.backward_peak)
    mib, gflop = zip(
        *[(f"{p.backward_peak / 2**20:.1f} MiB", f"{p.recomputed_flops / 1e9:.2f}") for p in (lowest, there, least)]
    )
    assert (
        f"is {mib[1]} with {gflop[1]} GFLOP recomputed, where torch's lowest takes {mib[0]} with {gflop[0]}" in document
    )
    assert f"remat's lowest is {mib[2]}, with {gflop[2]}" in document


def test_losses_are_named(load):
    module = load("torch_budget")
    one = module.Partition(saved_bytes=2**20, recomputed_flops=10**9, plain_flops=10**10, backward_peak=2**20)
    worse = module.Partition(2**20, 2 * 10**9, 10**10, 2**21)
    figures = module.Figures({}, (module.Point("net", 0.5, one, one, worse),), ())
    assert list(module.losses(figures)) == [
        "net at 0.5, best set: 2.00 against 1.00 GFLOP",
        "net at 0.5, best set: backward peak 2.0 against 1.0 MiB",
    ]
    assert module.Figures.from_json(figures.to_json()) == figures
    assert re.search(r"plan equal or better at 1 of 1, best set at 0 of 1", module.summary(figures)[0])
    with pytest.raises(ValueError, match="torch-budget/1"):
        module.Figures.from_json(figures.to_json().replace(module.SCHEMA, "another"))


def test_live_bytes_of_steps(load):
    """A view keeps its memory alive, results live to the end, and what is given dies after its last reader."""
    module = load("partition")
    steps = [module.Step(("x",), (("y", 8),)), module.Step(("y",), ()), module.Step(("y",), (("z", 2),))]
    assert module.live_peak(steps, {"x": 4}, ["z"]) == 12
    assert module.live_peak([*steps, module.Step(("z",), (("u", 16),))], {"x": 4}, ["x", "z"]) == 22
    assert module.live_peak([*steps, module.Step(("z",), (("u", 16),))], {"x": 4}, ["y", "u"]) == 26
    assert module.live_peak(steps, {"unread": 100}, []) == 10


def small_mlp(module):
    def loss(weights, x):
        for w in weights:
            h = x @ w
            x = h * jax.nn.sigmoid(h)
        return x.sum()

    square = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    return module.Measured(loss, ([square] * 4, square))


def test_partition_of_a_policy(load):
    net = small_mlp(load("remat_partition"))
    product, array = 2 * 16**3, 4 * 16**2
    made = net.partition(policies.dots)
    assert made.saved_bytes == 4 * array
    assert (made.plain_flops, made.recomputed_flops) == (11 * product, 0)
    made = net.partition(policies.nothing)
    assert (made.saved_bytes, made.recomputed_flops) == (0, 4 * product)
    # Four gradients, and at the last product the two arrays that it reads.
    assert made.backward_peak >= 6 * array


@pytest.mark.parametrize("products", range(5))
def test_best_set_at_a_limit(load, products):
    """Of four products in a chain, as many are kept as there is room for, and each of the others runs once more."""
    net = small_mlp(load("remat_partition"))
    made = net.partition(net.best_for_torch(products * 4 * 16**2))
    assert made.saved_bytes == products * 4 * 16**2
    assert made.recomputed_flops == (4 - products) * 2 * 16**3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_on_small_nets(load):
    pytest.importorskip("torch")
    nets = load("torch_nets")
    measured = load("torch_budget").measured
    for twin in (nets.mlp(2, 16), nets.gpt(1, 16, 2, 8, 2)):
        points, peaks = measured(twin, (0.0, 0.5, 1.0), 2)
        assert [p.fraction for p in points] == [0.0, 0.5, 1.0]
        assert points[0].torch.saved_bytes == 0
        assert points[0].torch.recomputed_flops > points[2].torch.recomputed_flops == 0
        assert all(not p.lost(p.best_set) for p in points)
        assert all(p.peak_bytes <= p.budget_bytes for p in peaks)
        # At the start of the backward pass all is there that was saved.
        assert all(p.torch.backward_peak >= p.torch.saved_bytes for p in points)


def test_twins_are_the_same_function(load):
    """Values and gradients of torch's and of JAX's nets agree."""
    torch = pytest.importorskip("torch")
    import numpy as np

    nets, random = load("torch_nets"), load("nets").random_arguments
    for twin in (nets.mlp(2, 16), nets.gpt(1, 16, 2, 8, 2), nets.llama(1, 16, 24, 2, 8, 2)):
        args = random(twin.shapes)
        value, gradient = jax.jit(jax.value_and_grad(twin.in_jax))(*args)
        tensors = jax.tree.map(lambda a: torch.tensor(np.asarray(a), requires_grad=True), args)
        loss = twin.in_torch(*tensors)
        loss.backward()
        assert abs(loss.item() - value) <= 1e-4 * abs(value)
        for ours, tensor in zip(jax.tree.leaves(gradient), jax.tree.leaves(tensors[0]), strict=True):
            np.testing.assert_allclose(tensor.grad.numpy(), ours, rtol=1e-3, atol=1e-4)
