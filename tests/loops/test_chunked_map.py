"""`chunked_map`: the function on all rows, with one chunk's residuals at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat.errors import ArgumentError, ArgumentTypeError
from remat.testing import assert_trees_close


def losses(x, labels, vocabulary):
    """A loss for each row, and its largest logit."""
    logits = x["h"] @ vocabulary
    rows = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)[:, 0]
    return {"loss": rows, "top": logits.max(1)}


def arguments(rows):
    rng = np.random.default_rng(rows)
    x = jnp.asarray(rng.normal(size=(rows, 4)), jnp.float32)
    return {"h": x}, jnp.asarray(rng.integers(0, 9, rows)), jnp.asarray(rng.normal(size=(4, 9)), jnp.float32)


REDUCED = {None: lambda y: y, "sum": lambda y: y.sum(0), "mean": lambda y: y.mean(0)}


@pytest.mark.parametrize("reduce", REDUCED)
@pytest.mark.parametrize(("rows", "size"), [(1, 1), (4, 1), (12, 4), (13, 4), (7, 4), (4, 4), (3, 4), (9, 8)])
def test_value_and_gradient(rows, size, reduce):
    x, labels, vocabulary = arguments(rows)
    chunked = remat.chunked_map(losses, size, in_axes=(0, 0, None), reduce=reduce)
    whole = lambda *args: jax.tree.map(REDUCED[reduce], losses(*args))  # noqa: E731
    loss = lambda f: lambda x, v: sum((y**2).sum() for y in jax.tree.leaves(f(x, labels, v)))  # noqa: E731
    assert_trees_close(chunked(x, labels, vocabulary), whole(x, labels, vocabulary), 1e-4)
    wanted = jax.grad(loss(whole), (0, 1))(x, vocabulary)
    for grad in (jax.grad, remat.grad):
        assert_trees_close(jax.jit(grad(loss(chunked), (0, 1)))(x, vocabulary), wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("reduce", [None, "sum"])
def test_no_rows(reduce):
    x, labels, vocabulary = arguments(0)
    found = remat.chunked_map(losses, 4, in_axes=(0, 0, None), reduce=reduce)(x, labels, vocabulary)
    assert_trees_close(found, jax.tree.map(REDUCED[reduce], losses(x, labels, vocabulary)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "int8", "bool", "complex64"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_types_of_sums(dtype, reduce):
    y = jnp.ones((300, 2), dtype)
    found = remat.chunked_map(lambda y: y, 7, reduce=reduce)(y)
    assert_trees_close(found, {"sum": jnp.sum, "mean": jnp.mean}[reduce](y, axis=0))


def test_transformations():
    x = arguments(7)[0]["h"]
    f = remat.chunked_map(jnp.sin, 2)
    square = lambda f: lambda x: (f(x) ** 2).sum()  # noqa: E731
    assert_trees_close(jax.hessian(square(f))(x), jax.hessian(square(jnp.sin))(x))
    assert_trees_close(jax.vmap(jax.jacfwd(f))(x[None]), jax.vmap(jax.jacfwd(jnp.sin))(x[None]))


@pytest.mark.parametrize("reduce", REDUCED)
def test_inside_shard_map(reduce):
    """What a loop adds up must vary over the mesh as the rows do."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = jax.sharding.PartitionSpec("i")

    def loss(f):
        inside = lambda x: jnp.atleast_1d(f(x))  # noqa: E731
        return lambda x: (jax.shard_map(inside, mesh=mesh, in_specs=spec, out_specs=spec)(x) ** 2).sum()

    x = jnp.linspace(0.0, 1.0, 8)
    found = jax.jit(jax.grad(loss(remat.chunked_map(jnp.sin, 2, reduce=reduce))))(x)
    assert_trees_close(found, jax.grad(loss(lambda x: REDUCED[reduce](jnp.sin(x))))(x))


@pytest.mark.parametrize("grad", [jax.grad, remat.grad])
@pytest.mark.parametrize("reduce", [None, "mean"])
def test_one_chunk_of_logits_is_alive(grad, reduce):
    """512 rows, 1024 words: 2 MiB of logits, 128 KiB in a chunk of 32 rows."""
    labels, vocabulary = jnp.zeros(512, int), jnp.ones((4, 1024))
    chunked = remat.chunked_map(losses, 32, in_axes=(0, 0, None), reduce=reduce)
    loss = lambda f: lambda h, v: f({"h": h}, labels, v)["loss"].mean()  # noqa: E731

    def peak(f):
        compiled = jax.jit(grad(loss(f), (0, 1))).lower(jnp.ones((512, 4)), vocabulary).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert peak(losses) >= 2 * 2**20
    assert peak(chunked) < 2**19


@pytest.mark.parametrize(
    ("options", "args", "error", "text"),
    [
        ({"size": 0}, (), ArgumentError, "1 or more"),
        ({"size": 2.0}, (), ArgumentTypeError, "must be an integer"),
        ({"reduce": "max"}, (), ArgumentError, "'sum', 'mean' or None"),
        ({"f": None}, (), ArgumentTypeError, "takes a function"),
        ({"in_axes": 1}, (jnp.ones(3),), ArgumentError, "must be 0 or None"),
        ({"in_axes": (0, 0)}, (jnp.ones(3),), ArgumentError, "for 2 arguments, but there are 1"),
        ({"in_axes": None}, (jnp.ones(3),), ArgumentError, "no argument with rows"),
        ({}, (jnp.ones(3), jnp.ones(4)), ArgumentError, "argument 0: 3, argument 1: 4"),
        ({}, (jnp.ones(3), 1.0), ArgumentError, "argument 1: no rows"),
        ({"f": lambda x: x.sum()}, (jnp.ones(3),), ArgumentError, r"given 2 rows, but its result has shape \(\)"),
        ({"f": lambda x: {"a": x[:1]}}, (jnp.ones(4),), ArgumentError, r"result\['a'\] has shape \(1,\)"),
    ],
)
def test_mistakes(options, args, error, text):
    with pytest.raises(error, match=text):
        remat.chunked_map(**{"f": lambda *a: a[0], "size": 2} | options)(*args)
