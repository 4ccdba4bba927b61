"""Live bytes of small programs, computed by hand. `A` is an array of 4096 bytes."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import remat
from remat import policies
from remat.simulate.live_bytes import simulate, simulate_split
from remat.transforms.differentiate_program import split_program

A = jnp.ones((32, 32))
SIZE = 4096


def arrays(fun, *args, fused=True):
    """Live bytes at each step, in units of one array; scalars are left out."""
    return [b // SIZE for b in simulate(remat.trace(fun)(*args), fused).bytes]


def names(fun, *args):
    return [e.op.name for e in simulate(remat.trace(fun)(*args)).equations]


def test_inputs_and_constants_are_not_counted():
    assert arrays(lambda x: x @ A, A) == [1]


def test_element_wise_chains_are_no_arrays():
    def f(x, w):
        return jnp.sin(jnp.cos(x) * 2.0) @ w

    assert names(f, A, A) == ["cos", "mul", "sin", "dot_general"]
    assert arrays(f, A, A) == [0, 0, 1, 2]
    assert arrays(f, A, A, fused=False) == [1, 2, 2, 2]


def test_a_chain_keeps_what_it_is_computed_from():
    """The product lives until the sum has read it through the chain, and no longer."""

    def f(x, w):
        a = x @ w
        b = jnp.cos(a) * 2.0
        c = w @ w
        d = b.sum()
        return d * c

    assert names(f, A, A) == ["dot_general", "cos", "mul", "dot_general", "reduce_sum", "mul"]
    assert arrays(f, A, A) == [1, 1, 1, 2, 2, 1]


def test_a_result_takes_the_place_of_an_operand_that_dies():
    def f(x, w):
        return jnp.sin(x @ w) @ w

    assert arrays(f, A, A) == [1, 1, 2]
    assert arrays(f, A, A, fused=False) == [1, 2, 2]


def test_but_not_of_an_input_or_of_one_that_is_read_again():
    assert arrays(lambda x, w: jnp.sin(x) @ w, A, A) == [1, 2]

    def read_again(x, w):
        a = x @ w
        return jnp.sin(a) @ a

    assert arrays(read_again, A, A) == [1, 2, 3]


def test_nor_of_one_whose_elements_move():
    def f(x, w):
        return jnp.flip(x @ w, 0) @ w

    assert arrays(f, A, A) == [1, 2, 2]


def test_what_two_equations_read_is_an_array():
    def f(x, w):
        a = jnp.tanh(x)
        return jnp.sin(a) @ w, jnp.cos(a) @ w

    assert names(f, A, A) == ["tanh", "sin", "dot_general", "cos", "dot_general"]
    assert arrays(f, A, A) == [1, 2, 3, 2, 3]


def test_views_share_their_operand():
    def f(x, w):
        return (x @ w).reshape(16, 64).reshape(32, 32).T @ w

    assert arrays(f, A, A) == [1, 1, 1, 1, 2]


def test_constant_arrays_are_made_for_products_and_barriers_only():
    def f(x):
        return jnp.zeros((32, 32)) + x.sum() + lax.broadcasted_iota(jnp.float32, (32, 32), 0)

    assert arrays(lambda x: f(x).sum(), A) == [0] * len(names(lambda x: f(x).sum(), A))
    assert arrays(lambda x: lax.optimization_barrier(jnp.full((32, 32), 2.0)) * x, A)[-1] == 1
    assert max(arrays(lambda x: jnp.full((32, 32), 2.0) @ x, A)) == 2


def test_what_a_barrier_ties_is_an_array():
    def f(x, w):
        a = jnp.sin(x)
        b = lax.optimization_barrier(a) if tied else a
        return jnp.cos(b) @ w

    tied = False
    assert max(arrays(f, A, A)) == 2
    assert arrays(f, A, A)[0] == 0
    tied = True
    assert arrays(f, A, A)[0] == 1


def test_reductions_read_chains():
    assert arrays(lambda x: (jnp.sin(x) * 2.0).sum(), A) == [0, 0, 0]


def test_results_live_to_the_end():
    def f(x, w):
        a = x @ w
        return a, (a.sum() * w) @ w

    assert arrays(f, A, A) == [1, 1, 2, 3]


def test_unused_results_are_not_computed():
    def f(x, w):
        _ = jnp.sin(x @ w) @ w
        return x @ w

    assert arrays(f, A, A) == [0, 0, 0, 1]


def test_updates_in_place():
    def f(x, w):
        a = x @ w
        return a.at[0].set(0.0)

    assert max(arrays(f, A, A)) == 1

    def read_again(x, w):
        a = x @ w
        return a.at[0].set(0.0), a

    assert max(arrays(read_again, A, A)) == 2


def test_calls_and_regions_are_what_they_do():
    def f(x, w):
        return jax.jit(jax.checkpoint(lambda x: jnp.sin(jnp.cos(x)) @ w))(x)

    assert names(f, A, A) == ["cos", "sin", "dot_general"]
    assert arrays(f, A, A) == [0, 1, 2]


def test_a_layout_copy_of_an_operand():
    x, w = jnp.ones((4, 16, 16)), jnp.ones((16, 4, 16))
    assert arrays(lambda x, w: jnp.einsum("bij,bjk->bik", x, x), x, w) == [1]
    assert max(arrays(lambda x, w: jnp.einsum("bij,jbk->bik", x, w), x, w)) == 2


def test_a_scan():
    """Stacked results and the carry, and in the body a product and the next carry, which is not written over the last
    one, as the product reads that."""

    def f(x, w):
        return lax.scan(lambda c, _: (jnp.sin(c @ w), jnp.cos(c)), x, None, length=5)

    assert names(f, A, A) == ["scan"]
    assert arrays(f, A, A) == [5 + 1 + 1]
    assert arrays(f, A, A, fused=False) == [5 + 1 + 2]


def test_a_carry_written_over_the_last_one():
    def f(x, w):
        return lax.scan(lambda c, _: (c + w @ w, None), x, None, length=5)[0]

    assert arrays(f, A, A) == [1 + 1]
    assert arrays(lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=5)[0], A) == [1]


def test_a_carry_that_starts_from_an_array_that_dies():
    def f(x, w):
        return lax.fori_loop(0, 3, lambda i, c: jnp.sin(c), x @ w)

    assert arrays(f, A, A) == [1, 1]


def test_slices_are_copied_for_products_only():
    stack = jnp.ones((5, 32, 32))
    assert arrays(lambda x, ws: lax.scan(lambda c, w: (c * w, None), x, ws)[0], A, stack) == [1]
    assert arrays(lambda x, ws: lax.scan(lambda c, w: (c @ w, None), x, ws)[0], A, stack) == [1 + 1 + 1]


def test_branches():
    def f(x, w):
        heavy, light = lambda: jnp.sin(x @ w) @ w @ w, lambda: x * 2.0
        return lax.cond(x.sum() > 0, heavy, light) @ w

    assert names(f, A, A)[-2:] == ["cond", "dot_general"]
    assert arrays(f, A, A)[-2:] == [2, 2]


def test_a_while_loop():
    def f(x, w):
        return lax.while_loop(lambda c: (c @ w @ w).sum() > 0, lambda c: c * 0.5, x)

    assert arrays(f, A, A) == [1 + 2]


def test_a_mapped_program_counts_once_for_each_device():
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")
    f = jax.shard_map(lambda x: jnp.sin(x @ A) @ A, mesh=mesh, in_specs=spec, out_specs=spec)
    assert arrays(f, A) == [2]


def test_arrays_on_the_host_are_not_counted():
    def f(w):
        return jnp.sin(jnp.sin(w @ w) @ w).sum()

    policy = policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    program = remat.trace(remat.checkpoint(f, policy=policy))(A)
    kept = remat.trace(remat.checkpoint(f, policy="dots"))(A)
    moved, saved = (simulate_split(split_program(p, [True])) for p in (program, kept))
    middle = next(i for i, e in enumerate(saved.equations) if e.op.name == "reduce_sum")
    assert saved.bytes[middle] // SIZE == 2
    on_host = [a for a in moved.arrays if a.value.type.memory_space == jax.memory.Space.Host]
    assert not on_host


@pytest.mark.parametrize(("policy", "expected"), [("everything", 8), ("nothing", 1)])
def test_residuals_live_from_the_forward_to_the_backward(policy, expected):
    """Eight layers: what is alive when the loss is computed."""

    def loss(x, w):
        for _ in range(8):
            x = jnp.sin(x @ w)
        return x.sum()

    program = remat.trace(remat.checkpoint(loss, policy=policy))(A, A)
    timeline = simulate_split(split_program(program, [True, False]))
    turn = next(i for i, e in enumerate(timeline.equations) if e.op.name == "reduce_sum")
    assert timeline.bytes[turn] // SIZE == expected


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e:2x2", "gpu:H100"])
def test_many_equations_take_linear_work(target):
    """Sizes are asked for a bounded number of times for each equation, loops inside included."""
    counts = []
    for layers in (20, 40):
        program = remat.trace(lambda x, w, n=layers: _chain(x, w, n))(A, A)
        before = SIZES.calls
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("remat.simulate.level.device_bytes", SIZES)
            simulate(program, target=target)
        counts.append(SIZES.calls - before)
    assert counts[1] <= 2 * counts[0]


def _chain(x, w, layers):
    kept = [x]
    for _ in range(layers):
        x = lax.scan(lambda c, _: (jnp.sin(c @ w) + kept[-1], None), x, None, length=2)[0]
        kept.append(x)
    return sum(k.sum() for k in kept)


class _Sizes:
    def __init__(self):
        self.calls = 0

    def __call__(self, type):
        self.calls += 1
        return 4


SIZES = _Sizes()
