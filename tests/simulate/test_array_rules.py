"""Each rule of a compiler, on a program that it makes a difference to. `A` is an array of 64 KiB, for a TPU too."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import remat
from remat import Target
from remat.ir.ops import Checkpoint
from remat.ir.program import Program
from remat.ir.rewrite import prune_program
from remat.simulate.flat import has_barrier
from remat.simulate.live_bytes import simulate
from remat.targets.array_rules import ARRAY_RULES, ArrayRules

NEW_MODE = bool(getattr(jax.config, "jax_remat3", False))
A = jnp.ones((128, 128))
SIZE = 2**16
CPU, TPU, GPU = Target.parse("cpu"), Target.parse("tpu:v5e:2x2"), Target.parse("gpu:H100")


def timeline(fun, *args, target, **changed):
    """The timeline for a target, some of whose rules are `changed`."""
    target = replace(target, array_rules=replace(target.array_rules, **changed))
    return simulate(remat.trace(fun)(*args), target=target)


def peak(fun, *args, target, **changed):
    """The most that is alive at once, in units of one array."""
    return timeline(fun, *args, target=target, **changed).peak / SIZE


def aside(fun, *args, target, **changed):
    return round(timeline(fun, *args, target=target, **changed).set_aside / SIZE, 1)


def names(fun, *args, target, **changed):
    """What makes the arrays."""
    return [a.operation for a in timeline(fun, *args, target=target, **changed).arrays]


def test_each_platform_has_rules():
    assert {t.platform: t.array_rules for t in (CPU, TPU, GPU)} == ARRAY_RULES
    assert len({t.compiler for t in (CPU, TPU, GPU)}) == 3
    assert replace(TPU, array_rules=ArrayRules()).compiler != TPU.compiler


# What is computed again inside each reader.


def read_by_two(act):
    """Something computed from a product is read by two equations that make arrays."""

    def f(x, w):
        h = x @ w
        a = act(h)
        return lax.optimization_barrier((a * 2.0 + x, a * 3.0 + w, h))

    return f


def test_a_cheap_value_of_one_source_is_computed_again():
    cheap = read_by_two(lambda h: 1.0 - h * 0.5)
    for target in (CPU, TPU, GPU):
        assert names(cheap, A, A, target=target) == ["dot_general", "add", "add"]
        assert names(cheap, A, A, target=target, sources_inside=0) == ["dot_general", "sub", "add", "add"]


def test_a_costly_one_is_not_on_the_cpu():
    costly = read_by_two(jnp.tanh)
    assert names(costly, A, A, target=CPU) == ["dot_general", "tanh", "add", "add"]
    assert names(costly, A, A, target=CPU, repeats_costly=True) == ["dot_general", "add", "add"]
    assert "tanh" not in names(costly, A, A, target=TPU) + names(costly, A, A, target=GPU)


def test_nor_what_is_summed_there():
    def f(x, w):
        h = x @ w
        centered = h - 1.0
        return lax.optimization_barrier((centered * 2.0 + x, (centered**2).sum(), h))

    assert names(f, A, A, target=CPU) == ["dot_general", "sub", "add", "reduce_sum"]
    assert "sub" not in names(f, A, A, target=CPU, repeats_costly=True)
    assert "sub" not in names(f, A, A, target=GPU)


def test_how_much_is_read_decides():
    """From two arrays: a TPU computes it again, a GPU does not, nor a TPU where these are twice as large."""

    def f(x, w, dtype=jnp.float32):
        g, h = (x @ w).astype(dtype), (w @ x).astype(dtype)
        g, h = lax.optimization_barrier((g, h))
        a = (g * h).astype(jnp.float32)
        return lax.optimization_barrier((a * 2.0 + x, a * 3.0 + w, g, h))

    assert peak(f, A, A, target=TPU) == 4
    assert peak(f, A, A, target=GPU) == 5
    half = A.astype(jnp.bfloat16)

    def halves(x, w):
        g, h = lax.optimization_barrier(((x @ w).astype(jnp.float32), (w @ x).astype(jnp.float32)))
        a = (g * h).astype(jnp.bfloat16)
        return lax.optimization_barrier((a * 2 + x, a * 3 + w, g, h))

    assert peak(halves, half, half, target=TPU) == 2 + 1.5
    assert peak(halves, half, half, target=TPU, sources_inside=4) == 2 + 1


def test_readers_that_are_inside_one_reader_are_one():
    """`h * sigmoid(h)` and its derivative are read once, by the product, whatever a compiler repeats."""

    def f(x, w):
        h = x @ w
        s = jax.nn.sigmoid(h)
        return (h * s + s * (1.0 - s)) @ w

    for target in (CPU, GPU):
        assert peak(f, A, A, target=target, sources_inside=0, repeats_costly=False) == 2


def test_products_compute_what_they_read():
    def f(x, w):
        return (jnp.sin(x) * 2.0) @ w

    assert peak(f, A, A, target=TPU) == 1
    assert peak(f, A, A, target=TPU, products_fuse=False) == 2
    assert peak(f, A, A, target=GPU) == 2


def test_slices_for_products_are_no_arrays_then():
    def f(x, ws):
        return lax.scan(lambda c, w: (c @ w, None), x, ws)[0]

    stack = jnp.ones((5, 128, 128))
    assert peak(f, A, stack, target=TPU) == 2
    assert peak(f, A, stack, target=TPU, products_fuse=False) == 3


def test_what_is_padded_is_not_computed_again():
    padded = read_by_two(lambda h: jnp.pad(h[1:], ((0, 1), (0, 0))) * 0.5)
    assert names(padded, A, A, target=TPU) == ["dot_general", "mul", "add", "add"]
    assert "mul" not in names(read_by_two(lambda h: h * 0.5), A, A, target=TPU)


# Parts, places, rows.


def test_parts_of_a_split():
    """A part that is an array makes the other one an array too."""

    def f(x, w):
        first, second = jnp.split(x @ w, 2)
        return lax.optimization_barrier(first), second.sum()

    half = 0.5
    assert peak(f, A, A, target=TPU) == pytest.approx(1 + 2 * half, abs=0.01)
    assert peak(f, A, A, target=TPU, splits_whole=False) == pytest.approx(1 + half, abs=0.01)
    assert peak(f, A, A, target=GPU) == pytest.approx(1 + half, abs=0.01)


INDICES = jnp.zeros((128, 1), jnp.int32)


def test_a_gather_reads_an_array():
    def f(x):
        return jnp.take_along_axis(jnp.sin(x), INDICES, 1).sum()

    assert round(peak(f, A, target=TPU)) == 1
    assert round(peak(f, A, target=TPU, looks_up_arrays=False)) == 0
    assert round(peak(f, A, target=GPU)) == 0


def test_a_scatter_of_one_element_a_row_is_element_wise():
    def diagonal(x):
        return (jnp.zeros_like(x).at[jnp.arange(128), jnp.arange(128)].set(x[0]) * x).sum()

    def one_a_row(x):
        return jax.grad(lambda x: jnp.take_along_axis(x, INDICES, 1).sum())(x) @ x

    assert round(peak(one_a_row, A, target=TPU)) == 1
    assert round(peak(one_a_row, A, target=TPU, looks_up_arrays=False)) == 2
    assert round(peak(diagonal, A, target=TPU)) == 1  # the other scatters are arrays


# Order.


def test_siblings_are_made_together():
    """Two arrays that are made of a product, one of which is dead when the other one is made in the program."""

    def f(x, w, tied=False):
        h = x @ w
        first = jnp.take_along_axis(jnp.sin(h), INDICES, 1).sum()
        if tied:
            first, h = lax.optimization_barrier((first, h))
        return first, lax.optimization_barrier(jnp.cos(h)).sum(), h

    assert round(peak(f, A, A, target=TPU, puts_off=False)) == 3
    assert round(peak(f, A, A, target=TPU, puts_off=False, fuses_siblings=False)) == 2
    assert round(peak(lambda x, w: f(x, w, tied=True), A, A, target=TPU, puts_off=False)) == 2


def test_but_not_if_the_later_one_follows_from_the_earlier_one():
    def f(x, w):
        h = x @ w
        first = lax.optimization_barrier(jnp.sin(h)) @ w
        return lax.optimization_barrier(jnp.cos(h) * first) @ w

    together, apart = (timeline(f, A, A, target=TPU, fuses_siblings=on).bytes for on in (True, False))
    assert together == apart


def test_what_is_not_needed_yet_is_put_off():
    """Sines of eight products, which are kept, are made when products read them and not where they stand."""

    def f(x, w):
        kept = []
        for _ in range(8):
            x = x @ w
            kept.append(x)
        sines = [jnp.sin(k) for k in kept]
        for k, s in zip(reversed(kept), reversed(sines), strict=True):
            x = lax.sort(x) @ s + k
        return x

    assert peak(f, A, A, target=GPU) == 8 + 3
    assert peak(f, A, A, target=GPU, puts_off=False) == 16 + 2


def test_but_no_longer_than_what_it_is_made_from():
    """The sum is made before the product dies, whenever it is read."""

    def f(x, w):
        total = jnp.sin(x @ w).sum()
        y = lax.sort(w)
        return y * total

    live = timeline(f, A, A, target=GPU).bytes
    assert live[-1] // SIZE == 1


# Copies.


def test_an_operand_in_two_orders():
    """The gradient of a weight sums over batch and length, so that one operand is transposed; the other product reads
    the same array as it is."""
    x, w = jnp.ones((2, 64, 128)), A

    def f(g, x, w):
        g = jnp.sin(g) * 2.0
        return jnp.einsum("blo,bli->oi", g, x), jnp.einsum("blo,oi->bli", g, w)

    assert names(f, x, x, w, target=CPU).count("copy") == 1
    first, without = (timeline(f, x, x, w, target=CPU, copies_operands=on).bytes[2] // SIZE for on in (True, False))
    assert (first, without) == (3, 2)

    def transposed_only(g, x):
        return jnp.einsum("blo,bli->oi", jnp.sin(g) * 2.0, x)

    assert peak(transposed_only, x, x, target=CPU) == 2
    assert peak(transposed_only, x, x, target=CPU, copies_operands=False) == 2

    def also_returned(g, x):
        g = jnp.sin(g) * 2.0
        return jnp.einsum("blo,bli->oi", g, x), g

    assert names(also_returned, x, x, target=CPU) == ["mul", "dot_general", "copy"]


def test_a_copy_lives_until_the_last_product_that_wants_it():
    x, y = jnp.ones((4, 16, 256)), jnp.ones((16, 4, 256))

    def f(x, y):
        a = lax.sort(y)
        first = jnp.einsum("bij,kbj->bik", x, a)
        b = lax.sort(a)
        return first, jnp.einsum("bij,kbj->bik", x, a), b

    copies = [a for a in timeline(f, x, y, target=CPU).arrays if a.operation == "copy"]
    assert [(a.since, a.until) for a in copies] == [(0, 3)]


def test_numbers_of_rows_are_repeated_for_a_product():
    def f(x, w):
        rows = jnp.exp(x).sum(-1, keepdims=True)
        y = lax.sort(w)
        return jnp.exp((y @ w) / rows)

    assert [a.operation for a in timeline(f, A, A, target=CPU).arrays].count("copy") == 1
    assert peak(f, A, A, target=CPU) == pytest.approx(1 + peak(f, A, A, target=CPU, copies_operands=False), abs=0.01)


# Memory.


def test_results_have_memory_from_the_start():
    """What is larger than a result is not put where the result will be."""
    wide = jnp.ones((128, 512))

    def f(x, wide):
        return jnp.sin(x @ wide) @ wide.T  # 4, then 1

    assert timeline(f, A, wide, target=GPU).bytes[-1] // SIZE == 4 + 1
    assert aside(f, A, wide, target=GPU) == 4 + 1

    def dead(x, wide):
        return lax.sort(x @ wide).sum() * x @ x

    assert peak(dead, A, wide, target=GPU) == 4 + 4
    assert aside(dead, A, wide, target=GPU) == 4 + 4 + 1
    assert aside(dead, A, wide, target=GPU, results_apart=True) == 4 + 4 + 1


def test_what_fits_is_put_where_a_result_will_be():
    def f(x, w):
        y = x
        for _ in range(3):
            y = lax.sort(y)
        return w @ w, y @ w

    assert aside(f, A, A, target=GPU) == 2 + 1
    assert aside(f, A, A, target=GPU, results_apart=True) == 2 + 2


def test_set_aside_is_at_least_what_is_alive():
    def f(x, w):
        h = lax.scan(lambda c, _: (jnp.sin(c @ w), c), x, None, length=5)[1]
        return jnp.cos(h).sum() * w, h[0]

    for target in (CPU, TPU, GPU):
        found = timeline(f, A, A, target=target)
        assert found.set_aside >= found.peak
    unfused = simulate(remat.trace(f)(A, A), fused=False)
    assert unfused.set_aside == unfused.peak


@pytest.mark.parametrize(("columns", "counted"), [(64, 128), (128, 128), (130, 256), (3, 3)])
def test_the_last_dimension_is_padded(columns, counted):
    def f(x):
        return lax.sort(x)

    x = jnp.ones((128, columns))
    assert timeline(f, x, target=TPU).peak == 128 * counted * 4
    assert timeline(f, x, target=GPU).peak == 128 * columns * 4


def test_jax_puts_a_barrier_before_what_is_recomputed():
    """So what the region starts from is kept as it is, and not computed again from what it follows from."""

    def loss(w, x, policy=jax.checkpoint_policies.nothing_saveable):
        layer = jax.checkpoint(lambda x, w: jnp.sin(x) @ w, policy=policy)
        return layer(layer(x @ w, w), w).sum()

    program = remat.trace(jax.grad(loss))(A, A)
    written = [e.op.name for e in program.equations].count("optimization_barrier")
    steps = [e.op.name for e in simulate(program, target=TPU).equations]
    assert steps.count("checkpoint") + steps.count("optimization_barrier") == 2
    assert written == (2 if NEW_MODE else 0)  # JAX's new mode writes into the program what the old one adds in lowering
    both = remat.trace(jax.grad(loss, argnums=(0, 1)))(A, A)
    pruned = prune_program(Program(both.inputs, both.equations, both.outputs[1:], both.constants))
    added = [has_barrier(e.op) for e in pruned.equations if isinstance(e.op, Checkpoint)]
    assert added == [not NEW_MODE, not NEW_MODE]
    plain = remat.trace(loss)(A, A)  # not differentiated: no barrier
    assert "checkpoint" not in [e.op.name for e in simulate(plain, target=TPU).equations]
