"""What the documents about Burn 0.22.1 claim, row by row.

Rows without a test, and why:

- times on Metal and Flex, memory pools and autotuning: Burn's hardware;
- the sum of the first gradient: its random numbers cannot be drawn here;
- names, equality and printing of devices, `is_autodiff`, `gradient_checkpointing()` and `autodiff()` on devices,
  merging of the contexts of operands: its device API. A policy is an argument here;
- panics of `require_grad()` and `backward()`: there are no such calls. `argnums` chooses, and what depends on nothing
  has a zero gradient (`test_burn_rules.py`);
- the no-op steps of untracked operations: they cannot be observed;
- which environment variables there are, and which pull requests introduced what: history.

Requirements are tested in `test_burn_rules.py`, the graphs of Burn's own tests in `test_burn_graphs.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat import policies
from remat.errors import RematError
from remat.ir.ops import Primitive
from remat.ir.primitive_table import BY_NAME, Bound
from remat.ir.program import Equation, Value
from remat.ir.source import UNKNOWN
from remat.policies.burn.checkpointer import Action, Checkpointer
from remat.policies.burn.tape import Node, Requirement, Step

NO, BURN = policies.burn_no_checkpointing(), policies.burn_balanced()
LAYERS = [1, 2, 3, 4, 8]


def net(*args):
    *weights, h = args
    for w in weights:
        h = h @ w
        h = h * jax.nn.sigmoid(h)
    return h.sum()


def log(layers, policy, width=64):
    shapes = [jax.ShapeDtypeStruct((width, width), jnp.float32)] * (layers + 1)
    return remat.retrieval_log(net, *shapes, policy=policy, argnums=range(layers))


# Experiment 1: two layers.


def test_nodes_are_numbered_as_in_the_document():
    found = log(2, NO)
    operations = ["args[0]", "args[1]", "args[2]", *["dot_general", "logistic", "mul"] * 2, "reduce_sum"]
    assert [n.operation for n in found.nodes] == operations
    assert [n.requirement for n in found.nodes] == ["leaf", "leaf", "constant", *["tracked"] * 7]
    assert [n.depth for n in found.nodes] == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7]


def test_retrievals_without_checkpointing():
    assert [(r.node, r.executed) for r in log(2, NO).retrievals] == [(n, (n,)) for n in (6, 7, 6, 5, 1, 3, 4, 3, 2)]


def test_retrievals_under_balanced():
    executed = {(6, 0): (6,), (7, 1): (6, 7), (5, 3): (3, 4, 5)}
    found = log(2, BURN)
    order = (6, 7, 6, 5, 1, 3, 4, 3, 2)
    assert [(r.node, r.executed) for r in found.retrievals] == [
        (n, executed.get((n, i), (n,))) for i, n in enumerate(order)
    ]
    assert found.recomputed == (7, 4, 5)
    assert len(found.text("full").splitlines()) == 21
    assert len(log(2, NO).text("full").splitlines()) == 18


def test_use_counts():
    assert log(2, NO).n_required == {6: 2, 7: 1, 5: 1, 1: 1, 3: 2, 4: 1, 2: 1}
    assert log(2, BURN).n_required == {6: 3, 7: 1, 5: 1, 3: 4, 4: 2, 1: 1, 2: 1}


def test_the_last_activation_and_the_first_weight_are_never_touched():
    for policy in (NO, BURN):
        touched = {n for r in log(2, policy).retrievals for n in (r.node, *r.executed)}
        assert not touched & {0, 8, 9}


# Experiment 2: the laws for any number of layers.


@pytest.mark.parametrize("layers", LAYERS)
def test_held_tensors(layers):
    plain, balanced = log(layers, NO), log(layers, BURN)
    assert len(plain.held) == len(plain.kept) == 3 * layers - 1
    assert len(balanced.held) == len(balanced.kept) == layers
    assert {balanced.nodes[i].operation for i in balanced.held} == {"dot_general"}


@pytest.mark.parametrize("layers", LAYERS)
def test_recomputed_operations_and_retrievals(layers):
    plain, balanced = log(layers, NO), log(layers, BURN)
    names = [balanced.nodes[i].operation for i in balanced.recomputed]
    assert (names.count("logistic"), names.count("mul")) == (layers, layers - 1)
    assert len(plain.retrievals) == len(balanced.retrievals) == 5 * layers - 1
    assert sum(len(r.executed) for r in plain.retrievals) == 5 * layers - 1
    assert sum(len(r.executed) for r in balanced.retrievals) == 7 * layers - 2
    assert sum(len(r.executed) > 1 for r in balanced.retrievals) == layers
    assert [r.node for r in plain.retrievals] == [r.node for r in balanced.retrievals]
    assert plain.drained
    assert balanced.drained


def test_bytes_of_eight_layers():
    assert log(8, NO, 1024).held_bytes == 92 * 2**20
    assert log(8, BURN, 1024).held_bytes == 32 * 2**20
    assert sum(n.bytes for n in log(8, BURN, 1024).nodes[:9]) == 36 * 2**20


@pytest.mark.parametrize(("policy", "arrays"), [(NO, 3 * 4 - 1), (BURN, 4), (policies.balanced(), 4)])
def test_the_plan_that_runs_keeps_as_much(policy, arrays):
    """Predicted, and counted on the arrays that are alive after the forward pass."""
    ws, x = [jnp.full((8, 8), 0.1 * (i + 1)) for i in range(4)], jnp.ones((8, 8))
    _, vjp_fn = remat.vjp(lambda *w: net(*w, x), *ws, policy=policy)
    given = {a.unsafe_buffer_pointer() for a in (*ws, x)}
    live = {a.unsafe_buffer_pointer() for a in jax.tree.leaves(vjp_fn)} - given
    assert len(live) == arrays
    region = remat.checkpoint(lambda *w: net(*w, x), policy=policy)
    assert remat.saved_residuals(region, *ws).new_bytes == arrays * 256


def test_gradients_are_the_same_under_both():
    arrays = [jax.random.normal(k, (8, 8)) / 3 for k in jax.random.split(jax.random.key(0), 4)]
    plain, balanced = (remat.grad(net, (0, 1, 2), policy=p)(*arrays) for p in (NO, BURN))
    for a, b in zip(plain, balanced, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# The lists of operations.

MEMORY_BOUND = (
    "add sub mul div neg exp log log1p sqrt pow integer_pow sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh abs round floor ceil sign erf atan2 rem reshape transpose slice rev broadcast_in_dim dynamic_slice "
    "dynamic_update_slice logistic"
)
COMPUTE_BOUND = (
    "dot_general conv_general_dilated reduce_sum reduce_max reduce_min reduce_prod gather scatter scatter-add cumsum "
    "cumprod cummax cummin sort convert_element_type select_n clamp device_put reduce_window_max reduce_window_sum "
    "concatenate"
)


def test_memory_bound_operations():
    assert [n for n in MEMORY_BOUND.split() if BY_NAME[n].burn_bound is not Bound.MEMORY] == []


def test_compute_bound_operations():
    assert [n for n in COMPUTE_BOUND.split() if BY_NAME[n].burn_bound is not Bound.COMPUTE] == []


# The bookkeeping itself.


def node(number, operands=()):
    made = Node(number, Value(None), Requirement.TRACKED)
    equation = Equation(Primitive(jax.lax.add_p, {}), [], [made.value], UNKNOWN)
    made.step = Step(equation.op, equation, list(operands)) if operands else None
    return made


def checkpointer(explicit, backup=()):
    return Checkpointer([Action(*a) for a in explicit], [Action(*a) for a in backup])


def test_what_is_needed_must_be_registered():
    a = node(1)
    b = node(7, [a])
    with pytest.raises(RematError, match=r"Node NodeId \{ value: 1 \} is needed but never checkpointed"):
        checkpointer([(b, False)])


def test_states_are_used_once_for_each_count():
    a = node(0)
    b = node(1, [a, a])
    states = checkpointer([(b, False), (b, False)], [(a, True)])
    assert states.n_required == {b: 2, a: 2}
    assert [len(states.retrieve(b).executed) for _ in range(2)] == [2, 1]
    assert states.is_empty
    with pytest.raises(RematError, match=r"Node NodeId \{ value: 1 \} is not in the backward_states"):
        states.retrieve(b)


def test_an_explicit_action_wins_over_a_backup_and_unused_backups_go():
    a, unused = node(0), node(5)
    b = node(1, [a])
    states = checkpointer([(b, False), (a, True)], [(unused, True), (a, True)])
    assert states.kept == [a]
    assert set(states.held) == {a, unused}


def test_each_recomputation_runs_once():
    a = node(0)
    b = node(1, [a])
    c, d = node(2, [b]), node(3, [b])
    states = checkpointer([(c, False), (d, False)], [(a, True), (b, False)])
    states.retrieve(c)
    states.retrieve(d)
    assert states.recomputed == [b, c, d]
    assert states.is_empty
