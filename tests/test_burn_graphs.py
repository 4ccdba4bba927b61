"""The graphs of Burn's own tests of checkpointing, with what Burn holds, counts, retrieves and recomputes for each.

Sources: Burn's `burn-backend-tests/tests/autodiff/checkpoint.rs` (six graphs, which only check that all states are used
up there) and the value tests of its autodiff suite, which Burn runs under both strategies.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat import policies

POLICIES = {
    "none": None,
    "no_checkpointing": policies.burn_no_checkpointing(),
    "burn": policies.burn_balanced(),
    "balanced": policies.balanced(),
}
MASK = np.array([[True, False], [True, False]])


def D(k: int) -> np.ndarray:
    return np.array([[k / 10, 7.0], [7.0, 7.0]], np.float32)


def fill(x: Any) -> Any:
    return jnp.where(MASK, jnp.float32(11.0), x)


def pick(a: Any, b: Any) -> Any:
    """Burn's mask_where: `b` where the mask is true."""
    return jnp.where(MASK, b, a)


@dataclass(frozen=True)
class Tape:
    """What one strategy does: node ids, and retrievals as `(node, nodes gone through)`."""

    held: set[int]
    n_required: dict[int, int]
    retrievals: list[tuple[int, int]]
    recomputed: list[int] = field(default_factory=list)
    kept: set[int] | None = None


@dataclass(frozen=True)
class Graph:
    name: str
    function: Callable[..., Any]
    arguments: list[np.ndarray]
    argnums: tuple[int, ...]
    out: list[list[float]]
    gradients: list[list[list[float]]]
    plain: Tape
    balanced: Tape


def each_once(order: str) -> list[tuple[int, int]]:
    return [(int(n), 1) for n in order.split()]


def counted(text: str) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in (pair.split(":") for pair in text.split())]


def complicated(t0, t1, t2, t3, t4):
    n5 = pick(t0, t1)
    n6 = t2 @ t3
    n7 = t3 + t4
    n8 = n6 @ n7
    n9 = n7 + 11.0
    n10 = n5 * n8
    n11 = n8 * n9
    return n10 @ n11


def missing_requirement(t0, t1):
    n2 = t0 + t1
    n3 = n2 + 11.0
    n4 = n2 + 11.0
    n5 = n3 @ n4
    n6 = fill(n5)
    n7 = n5 + n2
    return n6 + n7


def many_duplicates(t0):
    n1 = t0 + t0
    n2 = pick(t0, t0)
    n3 = t0 * t0
    n4 = t0 @ t0
    n5 = n1 + t0
    n6 = t0 + n5
    n7 = n3 @ n5
    n8 = pick(n4, n2)
    n9 = n6 * n7
    n10 = t0 + n9
    n11 = n10 + 9.0
    return n8 @ n11


def long_chain(t0, t1, t2, t3, t4):
    n5 = t0 + t1
    n6 = n5 + t2
    n7 = n6 + t3
    n8 = n7 + t4
    return n8 * t1


def half_untracked(t0, t1, t2, t3, t4, t5):
    n6 = t0 * t1
    n7 = pick(n6, t2)
    n8 = t3 + t4
    n9 = n8 @ t5
    return n7 @ n9


def very_complex(t0, t1, t2, t3, t4):
    n5 = t0 + 8.0
    n6 = n5 * t1
    n7 = n6 @ n6
    n8 = t1 * n5
    n9 = n7 + 7.0
    n10 = pick(n5, n8)
    n11 = t2 + n9
    n12 = t2 * t2
    n13 = pick(n10, n11)
    n14 = jnp.where(MASK, jnp.float32(8.0), t3)
    n15 = t4 @ n12
    n16 = n10 * n7
    n17 = n13 @ t1
    n18 = n15 + n16
    n19 = pick(n14, n17)
    n20 = n18 * n19
    return n20 + 8.0


GRAPHS = [
    Graph(
        "complicated",
        complicated,
        [D(k) for k in range(5)],
        (0, 1, 2, 3, 4),
        [[343681761.8611359, 511227181.8962], [599563963.580946, 1105557953.29]],
        [
            [[0, 121670362.87], [0, 182395446.45]],
            [[32164036.6733588, 0], [61193398.817278, 0]],
            [[99713318.8291688, 180933782.197112], [214438360.885298, 333216293.70442]],
            [[186446523.3666924, 330248642.647532], [338817423.170604, 519001838.74784]],
            [[59925684.1988532, 118383651.476748], [129863874.912912, 213805311.104]],
        ],
        Tape(
            {5, 6, 7, 8, 9, 10, 11},
            {2: 1, 3: 1, 5: 1, 6: 1, 7: 1, 8: 2, 9: 1, 10: 1, 11: 1},
            each_once("10 11 8 9 5 8 6 7 2 3"),
        ),
        Tape(
            {5, 6, 8},
            {2: 1, 3: 2, 4: 1, 5: 2, 6: 1, 7: 2, 8: 4, 9: 2, 10: 1, 11: 1},
            counted("10:3 11:6 8:1 9:1 5:1 8:1 6:1 7:1 2:1 3:1"),
            [10, 7, 9, 11],
        ),
    ),
    Graph(
        "missing_requirement",
        missing_requirement,
        [D(0), D(1)],
        (0,),
        [[759.31, 1819], [927.5, 2514]],
        [[[98.2, 148.2], [112.1, 176.0]]],
        Tape({3, 4}, {3: 1, 4: 1}, each_once("3 4")),
        Tape({2, 5, 6}, {2: 2, 3: 1, 4: 1}, counted("3:2 4:2"), [3, 4], kept={2}),
    ),
    Graph(
        "many_duplicates",
        many_duplicates,
        [np.array([[4.0, 7.0], [7.0, 7.0]], np.float32)],
        (0,),
        [[3565680, 4591224], [4575459, 5916372]],
        [[[1629432, 2790227], [4920356, 7249123]]],
        Tape({3, 5, 6, 7, 8, 11}, {0: 4, 3: 1, 5: 1, 6: 1, 7: 1, 8: 1, 11: 1}, each_once("8 11 6 7 3 5 0 0 0 0")),
        Tape(
            {7, 8},
            {0: 11, 1: 1, 3: 1, 5: 2, 6: 2, 7: 2, 8: 1, 9: 1, 10: 1, 11: 1},
            counted("8:1 11:8 6:1 7:1 3:2 5:1 0:1 0:1 0:1 0:1"),
            [1, 5, 6, 9, 10, 11, 3],
        ),
    ),
    Graph(
        "long_chain",
        long_chain,
        [D(k) for k in range(5)],
        (0, 2, 3, 4),
        [[0.1, 245], [245, 245]],
        [[[0.1, 7], [7, 7]]] * 4,
        Tape(set(), {1: 1}, each_once("1")),
        Tape({5}, {1: 1}, each_once("1"), kept=set()),
    ),
    Graph(
        "half_untracked",
        half_untracked,
        [D(k) for k in range(6)],
        (3, 4, 5),
        [[5164.67, 9624.58], [5833.45, 10324.3]],
        [[[54, 100.8], [735, 1372]], [[54, 100.8], [735, 1372]], [[1377.04, 1377.04], [1472.8, 1472.8]]],
        Tape({7, 8}, {5: 1, 7: 1, 8: 1}, each_once("7 8 5")),
        Tape({7}, {3: 1, 4: 1, 5: 1, 7: 1, 8: 1}, counted("7:1 8:3 5:1"), [8]),
    ),
    Graph(
        "very_complex",
        very_complex,
        [D(k) for k in range(5)],
        (0, 2, 3, 4),
        [[11072152.265952, 1168991.2], [1420331381.244, 2320060]],
        [
            [[3900815.160976, 1680835.996], [277195305.1168, 188257459.04]],
            [[4518.11824, 725.2], [354386.06, 1372]],
            [[0, 166997.6], [0, 331436]],
            [[391.33136, 59548.916], [391.692, 59990.7]],
        ],
        Tape(
            {6, 7, 10, 12, 18, 19},
            {1: 3, 2: 2, 4: 1, 6: 2, 7: 1, 10: 1, 12: 1, 18: 1, 19: 1},
            each_once("18 19 1 10 7 6 6 1 1 4 12 2 2"),
        ),
        Tape(
            {6, 7, 10, 15, 19},
            {1: 3, 2: 4, 4: 1, 6: 2, 7: 2, 10: 2, 12: 1, 15: 1, 16: 1, 18: 1, 19: 1},
            counted("18:5 19:1 1:1 10:1 7:1 6:1 6:1 1:1 1:1 4:1 12:2 2:1 2:1"),
            [16, 18, 12],
        ),
    ),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_values_and_gradients(graph, policy):
    out = graph.function(*graph.arguments)
    np.testing.assert_allclose(out, graph.out, rtol=2e-6)
    compute = remat.grad(lambda *a: graph.function(*a).sum(), graph.argnums, policy=POLICIES[policy])
    for found, expected in zip(compute(*graph.arguments), graph.gradients, strict=True):
        np.testing.assert_allclose(found, expected, rtol=3e-6)


@pytest.mark.parametrize("strategy", ["plain", "balanced"])
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_the_tape_is_burns(graph, strategy):
    """Held sets, use counts, retrievals and recomputed nodes, and that all states are used up."""
    policy = {"plain": policies.burn_no_checkpointing(), "balanced": policies.burn_balanced()}[strategy]
    expected = getattr(graph, strategy)
    log = remat.retrieval_log(graph.function, *graph.arguments, policy=policy, argnums=graph.argnums)
    assert [(r.node, len(r.executed)) for r in log.retrievals] == expected.retrievals
    assert list(log.recomputed) == expected.recomputed
    assert log.n_required == expected.n_required
    assert set(log.held) == expected.held
    assert set(log.kept) == (expected.held if expected.kept is None else expected.kept)
    assert log.drained


@pytest.mark.parametrize("policy", ["none", "everything", "balanced", "dots", "nothing"])
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_other_policies_ask_for_the_same_and_use_everything_up(graph, policy):
    given = None if policy == "none" else policy
    log = remat.retrieval_log(graph.function, *graph.arguments, policy=given, argnums=graph.argnums)
    assert [r.node for r in log.retrievals] == [n for n, _ in graph.plain.retrievals]
    assert log.drained
    assert log.held == log.kept
    if policy in ("none", "everything"):
        assert set(log.kept) == graph.plain.held
        assert not log.recomputed
    if policy == "nothing":
        assert not log.kept


# Burn's expected numbers; the cotangent of the result is ones.

A, B = [[1, 7], [13, -3]], [[4, 7], [2, 3]]
P, Q = [[0, 1], [3, 4]], [[6, 7], [9, 10]]
U, V, W = [[1, 7], [-2, -3]], [[4, -7], [2, 3]], [[1, 7], [2, 3]]
TWOS = [[2, 2], [2, 2]]
X = [[0, 1, 2], [3, 4, 5]]
DIAGONAL = np.eye(2, dtype=bool)


def twice_minus(a, b):
    t = (a @ b) @ a
    return (t - b) + t


VALUES: dict[str, tuple[Callable[..., Any], list[Any], list[Any]]] = {
    "products": (lambda a, b: ((a @ b) @ a) * b, [A, B], [[[593, 463], [487, 539]], [[734, 294], [1414, 242]]]),
    "sums": (lambda a, b: ((a @ b) @ a) + 17.0 + b, [A, B], [[[166, 110], [212, 156]], [[113, 141], [33, 41]]]),
    "difference": (twice_minus, [A, B], [[[332, 220], [424, 312]], [[223, 279], [63, 79]]]),
    "mul": (lambda a, b, c: a * ((a * b) * c), [A, B, TWOS], [[[16, 196], [104, -36]], [[2, 98], [338, 18]]]),
    "matmul": (lambda a, b, c: a @ (a @ b @ c), [A, B, TWOS], [[[800, 792], [360, 592]], [[264, 264], [344, 344]]]),
    "one product": (lambda w, b: w @ b, [W, B], [[[11, 5], [11, 5]], [[3, 3], [10, 10]]]),
    "div": (
        lambda a, b, c: (a / b) / c,
        [A, B, TWOS],
        [
            [[0.125, 0.07142857], [0.25, 0.16666667]],
            [[-0.03125, -0.07142857], [-1.625, 0.16666667]],
            [[-0.0625, -0.25], [-1.625, 0.25]],
        ],
    ),
    "div of a product": (
        lambda p, q: (p @ q) / q,
        [P, Q],
        [[[2, 2.92857146], [1.36666667, 2]], [[0.08333334, 0.09591837], [-0.05555558, -0.06714284]]],
    ),
    "exp": (
        lambda u, v: u @ jnp.exp(v),
        [U, V],
        [[[54.5991, 27.4746]] * 2, [[-54.598, -9.1188e-4], [29.556, 80.342]]],
    ),
    "log": (
        lambda p, q: p @ jnp.log(q) @ q,
        [P, Q],
        [[[60.2652, 72.3130]] * 2, [[22.8614, 24.5043], [24.5729, 26.8507]]],
    ),
    "sqrt": (
        lambda p, q: p @ jnp.sqrt(q) @ q,
        [P, Q],
        [[[82.112640, 99.083275]] * 2, [[30.309311, 33.120457], [34.581974, 38.769463]]],
    ),
    "power by a number": (
        lambda p, q: p @ q**0.4 @ q,
        [P, Q],
        [[[68, 79.0328]] * 2, [[23.5081, 25.2779], [26.0502, 28.6383]]],
    ),
    "power": (lambda a, b: a**b, [[2, 7], [4, 2]], [[32, 14], [11.09035, 95.34960]]),
    "erf": (lambda p, q: p @ jax.lax.erf(q) @ q, [P, Q], [[[32, 32]] * 2, [[8, 8]] * 2]),
    "relu": (lambda u, v: jax.nn.relu(u @ v) @ v, [U, V], [[[-47, 9], [-35, 15]], [[15, 13], [-2, 39]]]),
    "sigmoid": (jax.nn.sigmoid, [[0.8762, -90.0]], [[0.207549, 0]]),
    "log_sigmoid": (
        jax.nn.log_sigmoid,
        [[[0.8762, -0.1423], [-300, 200]]],
        [[[0.293966, 0.535515], [1, 0]]],
    ),
    "softmax": (
        lambda p, q: jax.nn.softmax(p @ q, 1) @ q,
        [P, Q],
        [[[1.179665, 1.179661], [0.005462, 0.005463]], [[0.253469, 0.286237], [0.528630, 2.931664]]],
    ),
    "recip": (lambda x: 1.0 / x, [[2, 5, 0.4]], [[-0.25, -0.04, -6.25]]),
    "reshape": (lambda w, b: w @ b.reshape(2, 2), [W, [4, 7, 2, 3]], [[[11, 5], [11, 5]], [3, 3, 10, 10]]),
    "transpose": (lambda w, b: (w @ b.T).T, [W, B], [[[6, 10], [6, 10]], [[3, 10], [3, 10]]]),
    "slice": (
        lambda w, b: w @ b[:2, :2],
        [W, [[4, 7, 100], [2, 3, 15]]],
        [[[11, 5], [11, 5]], [[3, 3, 0], [10, 10, 0]]],
    ),
    "cumsum 0": (
        lambda u, v: (u * jnp.cumsum(u @ v, 0)).sum(),
        [U, V],
        [[[-14, 24], [17, 6]], [[3, 10], [-1, 37]]],
    ),
    "cumsum 1": (
        lambda u, v: (u * jnp.cumsum(u @ v, 1)).sum(),
        [U, V],
        [[[1, 69], [-13, -28]], [[18, 13], [71, 58]]],
    ),
    "max_dim": (
        lambda u, v: u * (u @ v).max(1, keepdims=True),
        [U, V],
        [[[50, 34], [40, -10]], [[8, 10], [56, 15]]],
    ),
    "mean": (lambda u, v: u * (u @ v).mean(), [U, V], [[[3.5, 9.5]] * 2, [[-0.75, -0.75], [3, 3]]]),
    "sum": (lambda u, v: u * (u @ v).sum(), [U, V], [[[14, 38]] * 2, [[-3, -3], [12, 12]]]),
    "sum_dim": (
        lambda p, q: ((p @ q).sum(1, keepdims=True) * (p @ q)).sum(),
        [P, Q],
        [[[494, 722], [2990, 4370]], [[690, 690], [958, 958]]],
    ),
    "mask_fill": (lambda w, b: jnp.where(DIAGONAL, 2.0, w @ b), [W, B], [[[7, 3], [4, 2]], [[2, 1], [3, 7]]]),
    "cat": (
        lambda a, c: (jnp.concatenate([a, jnp.array([[10.0, 20.0]]), c], 1) * jnp.arange(1.0, 7.0)).sum(),
        [[[1]], [[100, 200, 300]]],
        [[[1]], [[4, 5, 6]]],
    ),
    "select": (
        lambda x: (x @ x.T) @ x[jnp.array([1, 0])],
        [X],
        [[[109, 148, 187], [37, 58, 79]]],
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", VALUES)
def test_values_of_burns_suite(name, policy):
    function, arguments, expected = VALUES[name]
    arrays = [np.array(a, np.float32) for a in arguments]
    compute = remat.grad(lambda *a: jnp.sum(function(*a)), tuple(range(len(arrays))), policy=POLICIES[policy])
    for found, wanted in zip(compute(*arrays), expected, strict=False):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=5e-5)  # softmax: noise of float32
    if isinstance(POLICIES[policy], type(POLICIES["burn"])):
        log = remat.retrieval_log(function, *arrays, policy=POLICIES[policy], argnums=tuple(range(len(arrays))))
        assert log.drained


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("policy", POLICIES)
def test_power_with_one_side_untracked(side, policy):
    arrays = np.array([2.0, 7.0], np.float32), np.array([4.0, 2.0], np.float32)
    found = remat.grad(lambda a, b: (a**b).sum(), side, policy=POLICIES[policy])(*arrays)
    np.testing.assert_allclose(found, [[32, 14], [11.09035, 95.34960]][side], rtol=1e-5)
