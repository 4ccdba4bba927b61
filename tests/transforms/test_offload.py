"""Where offloaded values move: out at their last use in the forward program, back one step before their use."""

import jax
import jax.numpy as jnp
import pytest
from splitting import split

import remat
from remat.ir.ops import Barrier, ToMemory
from remat.testing import assert_trees_close

LAYERS = 4
WEIGHTS = [(jnp.full((8, 32), 0.02 * (i + 1)), jnp.full((32, 8), 0.05)) for i in range(LAYERS)]
X = jnp.linspace(-1.0, 1.0, 128).reshape(16, 8)


def layer(x, weights, name="resid"):
    x = remat.checkpoint_name(x, name)
    return x + jnp.tanh(x @ weights[0]) @ weights[1]


def mlp(weights, x):
    for pair in weights:
        x = layer(x, pair)
    return (x**2).mean()


def programs(fun=mlp, policy="offload:resid", **options):
    made = split(remat.checkpoint(fun, policy=policy, **options), WEIGHTS, X)
    return made.forward, made.second


def moves(program, kind):
    """The positions of moves to that memory, and what is moved; not of those from it to itself."""
    found = [(i, e.inputs[0]) for i, e in enumerate(program.equations) if isinstance(e.op, ToMemory)]
    to_it = [(i, a) for i, a in found if program.equations[i].op.kind == kind]
    return [(i, a) for i, a in to_it if a.type.memory_space != program.equations[i].outputs[0].type.memory_space]


def readers(program, value, name=None):
    return [i for i, e in enumerate(program.equations) if value in e.inputs and name in (None, e.op.name)]


def maker(program, value):
    return next(i for i, e in enumerate(program.equations) if value in e.outputs)


def products(program):
    return [i for i, e in enumerate(program.equations) if e.op.name == "dot_general"]


def reaches(program, start, end):
    """Whether what the equation at `start` makes leads to the one at `end`."""
    known = set(program.equations[start].outputs)
    for equation in program.equations[start + 1 : end + 1]:
        if not known.isdisjoint(equation.inputs):
            known.update(equation.outputs)
    return not known.isdisjoint(program.equations[end].inputs)


def test_a_store_stands_right_after_the_last_use():
    forward, _ = programs()
    stores = moves(forward, "pinned_host")
    assert len(stores) == LAYERS
    for position, value in stores:
        before = [i for i in readers(forward, value) if i != position]
        assert max(before) == position - 1
        assert forward.equations[position - 1].op.name == "add"


def test_the_forward_pass_goes_on_when_the_store_is_done():
    """All the work of later layers waits for it, and none of the layer that still uses the value."""
    forward, _ = programs()
    stores, heavy = [i for i, _ in moves(forward, "pinned_host")], products(forward)
    for number, position in enumerate(stores):
        earlier, later = heavy[: 2 * (number + 1)], heavy[2 * (number + 1) :]
        assert max(earlier) < position
        assert all(reaches(forward, position, i) for i in later)


def test_what_is_used_until_the_end_is_stored_at_the_end():
    def skipping(weights, x):
        first = x = remat.checkpoint_name(jnp.sin(x), "resid")
        for pair in weights:
            x = layer(x, pair, "other")
        return (jnp.tanh(x) * first).mean()

    forward, _ = programs(skipping)
    ((position, _),) = moves(forward, "pinned_host")
    assert position > max(products(forward))


def test_a_view_counts_as_a_use():
    def viewed(weights, x):
        turned = remat.checkpoint_name(jnp.sin(x), "resid").T
        y = layer(jnp.cos(x), weights[0], "other")
        return (turned @ jnp.tanh(y)).mean() + jnp.exp(turned).sum()

    forward, _ = programs(viewed)
    ((position, _),) = moves(forward, "pinned_host")
    (exponential,) = [i for i, e in enumerate(forward.equations) if e.op.name == "exp"]
    assert position > max(exponential, *products(forward))


def test_what_the_region_returns_is_not_held_up():
    def named_last(weights, x):
        y = remat.checkpoint_name(jnp.sin(x @ weights[0][0]), "resid")
        return y, (y * y).sum()

    forward, _ = programs(named_last)
    assert len(moves(forward, "pinned_host")) == 1
    assert not [e for e in forward.equations if isinstance(e.op, Barrier)]


def test_a_fetch_stands_before_the_step_before_its_use():
    _, backward = programs()
    fetches, heavy = moves(backward, "device"), products(backward)
    assert len(fetches) == LAYERS
    uses = [min(readers(backward, backward.equations[i].outputs[0])) for i, _ in fetches]
    assert uses == sorted(uses)
    for number, ((position, _), use) in enumerate(zip(fetches, uses, strict=True)):
        between = [i for i in heavy if position < i < use]
        assert bool(between) == (number > 0)  # nothing comes before the first step
        if number:
            assert position > uses[number - 1]  # no more than two at a time


def test_a_fetch_begins_no_earlier():
    """It waits for what the step before starts from, and stays behind that barrier."""
    _, backward = programs()
    fetches = moves(backward, "device")
    uses = [min(readers(backward, backward.equations[i].outputs[0])) for i, _ in fetches]
    for (position, stays), previous in zip(fetches[1:], uses, strict=False):
        stay = backward.equations[maker(backward, stays)]
        assert isinstance(stay.op, ToMemory)
        assert stay.op.kind == "pinned_host"
        barrier = maker(backward, stay.inputs[0])
        assert isinstance(backward.equations[barrier].op, Barrier)
        assert previous <= barrier < position
        assert reaches(backward, previous, barrier) or previous == barrier


def test_few_operations_for_many_bytes_begin_earlier():
    """A transfer is hidden behind as many steps as it takes, as long as only two values are there at a time."""

    def two_steps(weights, x):
        for a, b in weights:
            x = remat.checkpoint_name(x, "resid")
            x = jnp.tanh(jnp.tanh(x @ a) @ b)
        return x.sum()

    wide = [(jnp.ones((8, 16384)), jnp.ones((16384, 8)))] * 3
    started = {}
    for weights in (wide, WEIGHTS[:3]):
        made = split(remat.checkpoint(two_steps, policy="offload:resid"), weights, jnp.ones((1, 8)))
        backward = made.second
        position, _ = moves(backward, "device")[1]
        use = min(readers(backward, backward.equations[position].outputs[0]))
        started[weights is wide] = len([i for i in products(backward) if position < i < use])
    assert started[True] < started[False]


def test_without_offload_nothing_changes():
    kept = programs(policy="names:resid")
    assert not any(isinstance(e.op, ToMemory) for p in kept for e in p.equations)
    assert not [e for e in kept[0].equations if isinstance(e.op, Barrier)]


def test_nothing_is_tied_without_prevent_cse():
    for program in programs(prevent_cse=False):
        assert not [e for e in program.equations if isinstance(e.op, Barrier)]
    assert [i for i, _ in moves(programs(prevent_cse=False)[0], "pinned_host")]


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_gradients(jitted):
    regions = lambda weights, x: mlp_of(remat.checkpoint(layer, policy="offload:resid"), weights, x)  # noqa: E731
    expected = jax.grad(mlp, (0, 1))(WEIGHTS, X)
    for gradient in (
        remat.grad(mlp, (0, 1), policy="offload:resid"),
        remat.grad(regions, (0, 1)),
        jax.grad(regions, (0, 1)),
    ):
        assert_trees_close((jax.jit(gradient) if jitted else gradient)(WEIGHTS, X), expected)


def mlp_of(region, weights, x):
    for pair in weights:
        x = region(x, pair)
    return (x**2).mean()


def test_under_vmap_and_twice():
    fun = remat.checkpoint(mlp, policy="offload:resid")
    xs = jnp.stack([X, 2 * X])
    gradient = lambda f: jax.vmap(jax.grad(f, 1), (None, 0))  # noqa: E731
    assert_trees_close(gradient(fun)(WEIGHTS, xs), gradient(mlp)(WEIGHTS, xs))
    twice = lambda f: jax.grad(lambda x: (jax.grad(f, 1)(WEIGHTS, x) ** 2).sum())  # noqa: E731
    assert_trees_close(twice(fun)(X), twice(mlp)(X))
