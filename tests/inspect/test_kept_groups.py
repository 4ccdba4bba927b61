"""Kept values in groups: by loop, module and scope, equal ones as one row, and nothing lost on the way."""

import inspect

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.inspect.kept_groups import group_titles, scope_path, title_text

X = jax.ShapeDtypeStruct((16, 8), jnp.float32)
W = jax.ShapeDtypeStruct((8, 8), jnp.float32)


def stack(*lengths):
    return jax.ShapeDtypeStruct((*lengths, 8, 8), jnp.float32)


def unrolled(ws, x):
    for i, w in enumerate(ws):
        with jax.named_scope(f"block_{i}"):
            with jax.named_scope("attention"):
                x = jnp.tanh(x @ w)
            with jax.named_scope("mlp"):
                x = jnp.sin(x)
    with jax.named_scope("head/logits/scaled"):
        return jnp.exp(x).sum()


def scanned(ws, x):
    def layer(x, w):
        with jax.named_scope("layer"):
            return jnp.sin(remat.checkpoint_name(x @ w, "product")), None

    with jax.named_scope("net"):
        return jax.lax.scan(layer, x, ws)[0].sum()


def test_every_value_is_in_one_row():
    for fun, args in ((unrolled, ([W] * 12, X)), (scanned, (stack(3), X))):
        kept = remat.saved_residuals(fun, *args)
        members = [id(r) for group in kept.groups for row in group.rows for r in row.residuals]
        assert sorted(members) == sorted(id(r) for r in kept if r.is_new)
        assert sum(group.total_bytes for group in kept.groups) == kept.new_bytes


def test_layers_that_differ_in_their_number_are_one_group():
    kept = remat.saved_residuals(unrolled, [W] * 12, X, policy="dots")
    (blocks,) = kept.groups
    assert (blocks.title, blocks.count) == ("block_0..11/attention", 12)
    assert [(row.value, row.count, row.total_bytes) for row in blocks.rows] == [("dot_general", 12, 12 * 16 * 8 * 4)]
    kept = remat.saved_residuals(unrolled, [W] * 2, X)
    values = {row.value for group in kept.groups if group.title == "block_0..1" for row in group.rows}
    assert {value.partition(":")[0] for value in values} == {"attention", "mlp"}
    assert "head/logits/scaled" in [group.title for group in kept.groups]  # all that its rows share


def test_numbers_with_a_gap_are_no_range():
    def fun(x):
        for i in (0, 2, 7):
            with jax.named_scope(f"h/{i}"):
                x = jnp.sin(x)
        return x

    (group,) = remat.saved_residuals(fun, X).groups
    assert (group.title, group.count) == ("h/*", 3)


def test_a_loop_is_a_group():
    kept = remat.saved_residuals(scanned, stack(3), X, policy="names:product")
    (loop,) = kept.groups
    assert title_text(loop) == "net/layer x 3"
    lines, first = inspect.getsourcelines(scanned)
    assert loop.place.line == first + next(i for i, line in enumerate(lines) if "lax.scan" in line)
    assert [(row.value, row.total_bytes) for row in loop.rows] == [("'product'", 3 * 16 * 8 * 4)]
    (loop,) = [g for g in remat.saved_residuals(scanned, stack(3), X, policy="nothing").groups if g.loops]
    assert [row.value for row in loop.rows] == ["carry"]


def test_nested_loops_multiply():
    def fun(ws, x):
        return jax.lax.scan(lambda x, ws: (scanned_rows(ws, x), None), x, ws)[0]

    def scanned_rows(ws, x):
        return jax.lax.scan(lambda x, w: (jnp.sin(x * w), None), x, ws)[0]

    ws = jax.ShapeDtypeStruct((2, 5, 8), jnp.float32)
    groups = remat.saved_residuals(fun, ws, jax.ShapeDtypeStruct((8,), jnp.float32)).groups
    (inner,) = [g for g in groups if g.loops == (2, 5)]
    assert title_text(inner) == "loop x 2x5"
    assert sum(row.total_bytes for row in inner.rows if row.value == "cos") == 2 * 5 * 8 * 4


def test_the_largest_come_first():
    kept = remat.saved_residuals(unrolled, [W] * 5, X)
    sizes = [g.total_bytes for g in kept.groups]
    assert sizes == sorted(sizes, reverse=True)
    for group in kept.groups:
        sizes = [row.total_bytes for row in group.rows]
        assert sizes == sorted(sizes, reverse=True)


def test_equal_values_are_one_row_whatever_reads_them():
    def fun(w, x):
        for _ in range(3):
            x = jnp.sin(x @ w)
        return x.sum()

    (group,) = remat.saved_residuals(fun, W, X, policy="everything").groups
    assert [(row.value, row.count, row.reads) for row in group.rows] == [
        ("cos", 3, ("mul",)),
        ("sin", 2, ("dot_general",)),
    ]
    (blocks,) = remat.saved_residuals(unrolled, [W] * 3, X, policy="dots").groups
    assert [set(row.reads) for row in blocks.rows] == [{"mul", "dot_general"}]  # that of the last layer by mul alone


def test_values_of_other_lines_sizes_and_reasons_are_other_rows():
    def fun(x):
        x = jnp.sin(x)
        x = jnp.sin(x)
        return jnp.sin(x[:8]).sum()

    (group,) = remat.saved_residuals(fun, X, policy="everything").groups
    assert sorted((row.value, row.like.type) for row in group.rows) == [
        ("cos", "f32[16,8]"),
        ("cos", "f32[16,8]"),
        ("cos", "f32[8,8]"),
    ]


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ("", ()),
        ("jit(loss)", ()),
        ("jit(step)/jit(loss)/net/mlp", ("net", "mlp")),
        ("transpose(jvp(Net))/tail_0/attention", ("Net", "tail_0", "attention")),
        ("net/checkpoint/rematted_computation/mlp", ("net", "mlp")),
        ("vmap(net)/mlp/jit(gelu)", ("net", "mlp", "jit(gelu)")),
    ],
)
def test_what_transformations_add_is_no_part_of_a_path(scope, path):
    assert scope_path(scope) == path


def test_a_function_under_jit_is_no_group():
    def fun(x):
        with jax.named_scope("mlp"):
            return jax.nn.silu(x).sum()

    titles = {group.title for group in remat.saved_residuals(jax.jit(fun), X).groups}
    assert titles == {"mlp"}


def test_titles_of_residuals_are_those_of_their_groups():
    kept = remat.saved_residuals(unrolled, [W] * 4, X)
    titles = group_titles(list(kept))
    for group in kept.groups:
        size = sum(r.total_bytes for r, title in zip(kept, titles, strict=True) if r.is_new and title == group.title)
        assert size == group.total_bytes


def test_lines_of_flax_are_those_of_the_module():
    nn = pytest.importorskip("flax.linen")

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            x = jnp.sin(nn.Dense(8, name="up")(x))
            return jnp.sin(nn.Dense(8, name="down")(x)), None

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            several = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
            return several(name="layers")(x, None)[0]

    net = Net()
    params = jax.eval_shape(net.init, jax.random.key(0), X)
    kept = remat.saved_residuals(lambda p, x: net.apply(p, x).sum(), params, X, policy="dots")
    (loop,) = [g for g in kept.groups if g.loops]
    assert title_text(loop) == "Net/layers x 3"
    assert loop.place.function.endswith("__call__")
    assert loop.place.file == __file__
    (row,) = [row for row in loop.rows if row.value == "up: dot_general"]
    assert (row.like.place.file, row.like.total_bytes) == (__file__, 3 * 16 * 8 * 4)
    assert row.like.source.file != __file__  # what JAX's own list says
