"""What keeps XLA from undoing the schedule of recomputation, and how much: the barriers of the backward program."""

import jax
import jax.numpy as jnp
import pytest
from splitting import MATRIX, VECTOR, count, split

import remat
from remat.ir.ops import Barrier
from remat.ir.program import Equation, Program


def barriers(program: Program) -> list[int]:
    return [len(e.inputs) for e in program.equations if isinstance(e.op, Barrier)]


def producers(program: Program) -> dict:
    return {v: e for e in program.equations for v in e.outputs}


def is_behind(program: Program, equation: Equation, before: Equation) -> bool:
    """Whether `equation` cannot run before `before` has: some path of inputs leads from one to the other."""
    made, stack, seen = producers(program), [equation], set()
    while stack:
        current = stack.pop()
        if current is before:
            return True
        for a in current.inputs:
            if a in made and a not in seen:
                seen.add(a)
                stack.append(made[a])
    return False


def test_barriers_only_where_needed():
    def f(w, x):
        return jnp.sin(jnp.exp(w * x)).sum()

    assert barriers(split(f, VECTOR, VECTOR).second) == []
    assert len(barriers(split(remat.checkpoint(f), VECTOR, VECTOR).second)) >= 1
    assert barriers(split(remat.checkpoint(f, prevent_cse=False), VECTOR, VECTOR).second) == []
    assert count(split(remat.checkpoint(f), VECTOR, VECTOR).forward, "optimization_barrier") == 0


def test_no_barriers_in_loops_and_branches():
    body = remat.checkpoint(lambda x, w: (jnp.sin(jnp.exp(w * x)), None))
    scanned = split(lambda x, ws: jax.lax.scan(body, x, ws)[0], VECTOR, MATRIX).second
    assert count(scanned, "optimization_barrier") == 0
    branch = remat.checkpoint(lambda x: jnp.sin(jnp.exp(x)))
    chosen = split(lambda x: jax.lax.cond(x.sum() > 0, branch, jnp.cos, x), VECTOR).second
    assert count(chosen, "optimization_barrier") == 0


@pytest.mark.parametrize("layers", [8, 64])
def test_barriers_do_not_grow_with_the_number_of_parameters(layers):
    layer = remat.checkpoint(lambda w, x: jnp.sin(w * jnp.exp(x)))

    def f(weights, x):
        for w in weights:
            x = layer(w, x)
        return x.sum()

    widths = barriers(split(f, [VECTOR] * layers, VECTOR).second)
    assert layers <= len(widths) <= 2 * layers
    assert max(widths) <= 6


def test_parallel_regions_each_wait_for_their_turn():
    """Two regions that start from the same value: each has a barrier of its own, so that neither starts early."""
    first = remat.checkpoint(lambda x: jnp.sin(jnp.exp(x)))
    second = remat.checkpoint(lambda x: jnp.cos(jnp.exp(x)))
    assert len(barriers(split(lambda x: (first(x) + second(x)).sum(), VECTOR).second)) == 2


def test_a_kept_value_is_pinned_once_in_a_region():
    def f(w, x):
        h = w @ x
        return jnp.tanh(jnp.sin(h) * jnp.cos(h)).sum()

    widths = barriers(split(remat.checkpoint(f, policy="dots"), MATRIX, VECTOR).second)
    assert len(widths) == 1


def test_what_was_recomputed_long_ago_waits_again():
    """A chain of sums is recomputed at the start; what is needed of each sum must still wait for its turn."""

    def f(ws, x):
        for w in ws:
            x = x + w @ jnp.sin(x)
        return jnp.sin(x).sum()

    backward = split(remat.checkpoint(f, policy="dots"), [MATRIX] * 6, VECTOR).second
    sines = [e for e in backward.equations if e.op.name == "sin"]
    gradients = [e for e in backward.equations if e.op.name == "dot_general" and len(e.outputs[0].type.shape) == 2]
    assert len(sines) == len(gradients) == 6
    for earlier, later in zip(gradients[:-3], sines[2:-1], strict=True):  # the last starts from an argument
        assert is_behind(backward, later, earlier)


def test_the_gradient_of_a_weight_is_done_before_the_backward_pass_goes_on():
    """Otherwise XLA may leave it for later, with what was recomputed for it in memory."""

    def f(w, x):
        return (w @ jnp.repeat(jnp.sin(x), 2)).sum()

    backward = split(remat.checkpoint(f), jnp.ones((4, 8)), VECTOR).second
    gradient = next(e for e in backward.equations if e.op.name == "dot_general" and e.outputs[0].type.shape == (4, 8))
    on = next(e for e in backward.equations if e.op.name == "reduce_sum")
    assert is_behind(backward, on, gradient)
    free = split(remat.checkpoint(f, prevent_cse=False), jnp.ones((4, 8)), VECTOR).second
    gradient = next(e for e in free.equations if e.op.name == "dot_general" and e.outputs[0].type.shape == (4, 8))
    assert not is_behind(free, next(e for e in free.equations if e.op.name == "reduce_sum"), gradient)


def test_small_kept_values_that_spread_are_pinned():
    """A kept row sum that the backward divides by: XLA would repeat it over the columns as soon as it is there."""

    def f(x):
        return (x / jnp.cumsum(x, 1)[:, -1:]).sum()

    backward = split(remat.checkpoint(f, policy="balanced"), MATRIX).second
    divided = [e for e in backward.equations if e.op.name == "div" and e.inputs[1].type.shape == (4, 1)]
    pinned = {v for e in backward.equations if isinstance(e.op, Barrier) for v in e.outputs}
    assert divided
    assert all(e.inputs[1] in pinned for e in divided)


def test_kept_element_wise_results_are_read_as_pinned():
    """XLA would fuse the addition with its use in the backward pass, and keep the product as well."""

    def f(w, b, x):
        h = w @ x + b
        return (jnp.tanh(h) * jnp.sin(h) * h).sum()

    backward = split(remat.checkpoint(f, policy="substituting:dots"), MATRIX, VECTOR, VECTOR).second
    (kept,) = [v for v in backward.inputs if v.type.shape == (4,) and any(_pins(e, v) for e in backward.equations)]
    first = next(i for i, e in enumerate(backward.equations) if _pins(e, kept))
    assert not [e for e in backward.equations[first + 1 :] if kept in e.inputs]


def _pins(equation: Equation, value) -> bool:
    return isinstance(equation.op, Barrier) and value in equation.inputs


def test_views_are_pinned_where_xla_could_share_them():
    """A transposed product or argument is a matter of reading it; a transposed sum would be kept as a copy."""

    def f(w, x, b):
        h = w @ x + b
        return (h.T @ x + h * x).sum()

    def g(w, x, b):
        h = w @ x
        return (h.T @ x + h * x + b).sum()

    assert barriers(split(remat.checkpoint(f, policy="substituting:dots"), MATRIX, MATRIX, VECTOR).second)
    assert not barriers(split(remat.checkpoint(g, policy="dots"), MATRIX, MATRIX, VECTOR).second)


def test_what_starts_from_views_that_did_not_wait_waits():
    """A view of a kept value needs no barrier. A product of such views, recomputed later, would be merged with that of
    the forward pass if they did not go through one then."""

    def f(w, x):
        view = (w @ x).reshape(2, 2, 4)
        return jnp.einsum("bij,bik->bjk", view, jnp.sin(jnp.einsum("bij,bkj->bik", view, view))).sum()

    program = split(remat.checkpoint(f, policy="dots_no_batch"), MATRIX, MATRIX).second
    (product,) = [e for e in program.equations if e.source.is_recomputed and e.op.name == "dot_general"]
    assert any(is_behind(program, product, e) for e in program.equations if isinstance(e.op, Barrier))


@pytest.mark.parametrize("layout", ["chain", "branches", "one value for all"])
def test_all_barriers_together_grow_linearly(layout):
    def f(ws, x):
        h = remat.checkpoint_name(jnp.exp(x), "h")
        parts = []
        for i, w in enumerate(ws):
            if layout == "chain":
                h = remat.checkpoint_name(jnp.sin(w * h), "h")
            elif layout == "branches":
                parts.append(jnp.sin(w * jnp.cos(h * i)))
            else:
                parts.append(w * jnp.sin(h * i))
        return jnp.stack([*parts, h]).sum()

    def total_width(count):
        region = remat.checkpoint(f, policy="names:h")
        return sum(barriers(split(region, [VECTOR] * count, VECTOR).second))

    assert total_width(64) <= 5 * total_width(16)
