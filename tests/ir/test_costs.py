"""What equations cost: against XLA's own analysis, and counted by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import remat
from remat.errors import UnknownCostError
from remat.ir import flops
from remat.ir.costs import Cost, cost_of, dot_flops, program_cost
from remat.ir.primitive_table import BY_NAME, CHEAP_KINDS


def array(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def cost(fun, *args):
    return program_cost(remat.trace(fun)(*args))


def of_xla(fun, *args):
    analysis = jax.jit(fun).lower(*args).cost_analysis()
    return (analysis[0] if isinstance(analysis, list) else analysis)["flops"]


def convolution(stride=1, padding="SAME", lhs=1, rhs=1, groups=1, batches=1, spatial=2):
    def fun(x, w):
        letters = "HWD"[:spatial]
        return lax.conv_general_dilated(
            x,
            w,
            (stride,) * spatial,
            padding if isinstance(padding, str) else [padding] * spatial,
            lhs_dilation=(lhs,) * spatial,
            rhs_dilation=(rhs,) * spatial,
            dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
            feature_group_count=groups,
            batch_group_count=batches,
        )

    return fun


IMAGE, KERNEL = array(4, 16, 18, 8), array(3, 5, 8, 12)

PRODUCTS = {
    "matrices": (jnp.matmul, array(32, 48), array(48, 64)),
    "batches": (jnp.matmul, array(3, 32, 48), array(3, 48, 64)),
    "attention": (lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k), array(2, 20, 4, 24), array(2, 28, 4, 24)),
    "two summed dimensions": (lambda a, b: jnp.einsum("abc,bcd->ad", a, b), array(9, 10, 11), array(10, 11, 12)),
    "convolution": (convolution(), IMAGE, KERNEL),
    "strides": (convolution(stride=2), IMAGE, KERNEL),
    "no padding": (convolution(padding="VALID"), IMAGE, KERNEL),
    "much padding": (convolution(padding=(7, 2)), IMAGE, KERNEL),
    "negative padding": (convolution(padding=(-2, -1)), IMAGE, KERNEL),
    "holes in the kernel": (convolution(rhs=2), IMAGE, KERNEL),
    "holes in the image": (convolution(padding=(3, 4), lhs=3, stride=2), IMAGE, KERNEL),
    "both": (convolution(padding=(5, 4), lhs=2, rhs=3, stride=2), IMAGE, KERNEL),
    "groups": (convolution(groups=4), IMAGE, array(3, 5, 2, 12)),
    "depthwise": (convolution(groups=8), IMAGE, array(3, 5, 1, 8)),
    "groups of the batch": (convolution(batches=2), IMAGE, KERNEL),
    "one dimension": (convolution(spatial=1, stride=3), array(2, 50, 8), array(7, 8, 12)),
    "three dimensions": (convolution(spatial=3), array(2, 6, 7, 8, 4), array(3, 3, 2, 4, 5)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_what_xla_counts(name):
    fun, *args = PRODUCTS[name]
    assert cost(fun, *args).flops == of_xla(fun, *args)
    assert dot_flops(remat.trace(fun)(*args)) == cost(fun, *args).flops


@pytest.mark.parametrize("name", PRODUCTS)
def test_gradients_are_what_xla_counts(name):
    fun, *args = PRODUCTS[name]
    gradient = jax.grad(lambda x, w: (fun(x, w) ** 2).sum(), (0, 1))
    assert cost(gradient, *args).flops == pytest.approx(of_xla(gradient, *args), rel=0.05)


@pytest.mark.parametrize("activation", [jax.nn.relu, jnp.tanh, jax.nn.silu, jax.nn.softmax])
def test_networks_are_what_xla_counts(activation):
    def loss(ws, x):
        for w in ws:
            x = activation(x @ w)
        return x.sum()

    args = [array(32, 32)] * 3, array(64, 32)
    assert cost(jax.grad(loss), *args).flops == pytest.approx(of_xla(jax.grad(loss), *args), rel=0.05)


def test_loops_branches_and_calls():
    x = array(8, 8)
    one = 2 * 8**3
    assert dot_flops(remat.trace(lambda x: lax.fori_loop(0, 5, lambda i, c: c @ x, x))(x)) == 5 * one

    def branches(x):
        return lax.cond(x[0, 0] > 0, lambda: x @ x @ x, lambda: jnp.sin(x))

    assert dot_flops(remat.trace(branches)(x)) == 2 * one
    assert dot_flops(remat.trace(jax.checkpoint(jax.jit(lambda x: x @ x)))(x)) == one

    unknown = cost(lambda x: lax.while_loop(lambda c: c.sum() > 0, lambda c: c @ x, x), x)
    assert unknown.is_lower_bound
    assert unknown.flops == one + 64 + 1
    assert not cost(branches, x).is_lower_bound

    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    mapped = jax.shard_map(lambda x, w: x @ w, mesh=mesh, in_specs=(spec("i"), spec()), out_specs=spec("i"))
    assert dot_flops(remat.trace(mapped)(x, x)) == one


def test_functions_with_rules_of_their_own_are_what_they_do():
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x) * (x @ x)

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    found = cost(lambda x: lax.fori_loop(0, 3, lambda i, c: f(c), x), array(8, 8))
    assert (found.flops, found.transcendentals) == (3 * (2 * 8**3 + 64) + 3, 3 * 64)
    assert dot_flops(remat.trace(lambda x: f(x))(array(8, 8))) == 2 * 8**3


@pytest.mark.parametrize(
    ("rows", "expected"),
    [((0,), 2 * 10 * 6 * 7), ((1,), 2 * 10 * 6 * 7)],
    ids=["rows of groups", "summed rows of groups"],
)
def test_products_of_groups(rows, expected):
    numbers = lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(((1,), (1,)), ((), ())) if rows == (0,) else (((0,), (0,)), ((), ())),
        lhs_ragged_dimensions=[0],
        rhs_group_dimensions=[0] if rows == (0,) else [],
    )
    args = (array(10, 6), array(3, 6, 7)) if rows == (0,) else (array(10, 6), array(10, 7))

    def fun(x, w, sizes):
        return lax.ragged_dot_general(x, w, sizes, numbers)

    assert dot_flops(remat.trace(fun)(*args, array(3, dtype=jnp.int32))) == expected


BY_HAND = [
    ("mul", lambda x: x * x, [array(3, 4)], 12),
    ("gt", lambda x: x > 0, [array(3, 4)], 12),
    ("select_n", lambda x: lax.select(x > 0, x, x), [array(3, 4)], 12),
    ("reduce_sum", lambda x: x.sum(0), [array(3, 4)], 12),
    ("cumsum", lambda x: jnp.cumsum(x, 0), [array(3, 4)], 12),
    ("argmax", lambda x: lax.argmax(x, 0, np.int32), [array(3, 4)], 12),
    ("transpose", lambda x: x.T, [array(3, 4)], 0),
    ("convert_element_type", lambda x: x.astype(jnp.bfloat16), [array(3, 4)], 0),
    ("concatenate", lambda x: jnp.concatenate([x, x]), [array(3, 4)], 0),
    ("optimization_barrier", lax.optimization_barrier, [array(3, 4)], 0),
    ("reduce_window_sum", lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"), [array(5, 5)], 64),
    ("sort", lax.sort, [array(2, 16)], 32 * 4),
    ("top_k", lambda x: lax.top_k(x, 3), [array(2, 16)], 32 * 2),
    ("fft", jnp.fft.fft, [array(3, 16, dtype=jnp.complex64)], 5 * 48 * 4),
    ("fft", jnp.fft.rfft, [array(3, 16)], 2.5 * 48 * 4),
    ("cholesky", lambda x: lax.linalg.cholesky(x), [array(2, 6, 6)], 2 * 6**3 / 3),
    ("lu", lax.linalg.lu, [array(6, 6)], 2 * 6**3 / 3),
    ("lu", lax.linalg.lu, [array(9, 6)], 9 * 6**2 - 6**3 / 3),
    (
        "triangular_solve",
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True),
        [array(6, 6), array(6, 5)],
        180,
    ),
    ("qr", lambda x: lax.linalg.qr(x, full_matrices=False), [array(9, 6)], 4 * 9 * 6**2 - 4 * 6**3 / 3),
    ("svd", lambda x: jnp.linalg.svd(x, compute_uv=False), [array(9, 6)], 4 * 9 * 6**2 - 4 * 6**3 / 3),
    ("eigh", lax.linalg.eigh, [array(6, 6)], 9 * 6**3),
    ("scatter-add", lambda x: x.at[jnp.array([0, 2])].add(1.0), [array(3, 4)], 8),
    ("gather", lambda x: x[jnp.array([0, 2])], [array(3, 4)], 0),
    ("random_bits", lambda k: jax.random.bits(k, (4,)), [jax.random.key(0)], 4 * flops.RANDOM),
]


def equations(program):
    for equation in program.equations:
        yield equation
        for inner in equation.op.programs:
            yield from equations(inner)


@pytest.mark.parametrize(("name", "fun", "args", "expected"), BY_HAND, ids=[row[0] for row in BY_HAND])
def test_counted_by_hand(name, fun, args, expected):
    (equation,) = [e for e in equations(remat.trace(fun)(*args)) if e.op.name == name]
    assert cost_of(equation).flops == pytest.approx(expected)


def test_a_product_that_sums_over_nothing_is_element_wise():
    program = remat.trace(lambda a, b: jnp.einsum("bd,d->bd", a, b))(array(3, 4), array(4))
    assert program_cost(program).flops == 12
    assert dot_flops(program) == 0


def test_transcendental_functions_are_counted_apart():
    assert cost(lambda x: jnp.exp(x) * lax.lgamma(x), array(3, 4)) == Cost(12, 24, 48 + 48 + 96, 3 * 48)


def test_bytes():
    x, f = array(32, 32), jnp.float32
    assert (cost(lambda x: x * x, x).bytes_read, cost(lambda x: x * x, x).bytes_written) == (4096, 4096)
    assert cost(lambda x: x * 2.0, x).bytes == 8192
    assert cost(lambda x: x.reshape(-1)[None], x).bytes == 0
    assert cost(lambda x: lax.dynamic_update_slice(x, jnp.ones((1, 32), f), (0, 0)), x).bytes == 256

    def rows(x, i):
        numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
        return lax.gather(x, i, numbers, (1, 32), mode="promise_in_bounds")

    assert cost(rows, x, array(5, 1, dtype=jnp.int32)).bytes == 2 * 5 * 32 * 4 + 20


def test_every_kind_of_cheap_primitive_has_a_rule():
    assert all(flops.rule_of(name) for name, row in BY_NAME.items() if row.kind in CHEAP_KINDS)
    assert all(name in BY_NAME for name in [*flops.flop_rules, *flops.TRANSCENDENTAL])


def unknown(x):
    return jax.ffi.ffi_call("nowhere", jax.ShapeDtypeStruct((3,), jnp.float32))(x)


def test_an_unknown_primitive_is_an_error():
    with pytest.raises(UnknownCostError, match=r"the primitive 'ffi_call' costs \(operands f32\[3\]\)") as error:
        cost(unknown, array(3))
    assert error.match("flop_rules")
    assert "test_costs.py" in error.value.__notes__[0]
    assert dot_flops(remat.trace(unknown)(array(3))) == 0


def test_a_rule_of_the_user(monkeypatch):
    monkeypatch.setitem(flops.flop_rules, "ffi_call", lambda operation: 7 * operation.inputs[0].shape[0])
    assert cost(unknown, array(3)) == Cost(21, 0, 12, 12)


def test_kernels_say_what_they_cost():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    def call(x, **given):
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True, **given)(x)

    estimate = pl.CostEstimate(flops=100, transcendentals=5, bytes_accessed=64)
    assert cost(lambda x: call(x, cost_estimate=estimate), array(8)) == Cost(100, 5, 64)
    with pytest.raises(UnknownCostError, match="give the kernel a cost_estimate"):
        cost(call, array(8))
