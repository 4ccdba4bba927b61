"""`checkpointed_scan`: it is `jax.lax.scan`, with fewer carries kept and a bounded number of repetitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import remat
from remat.errors import ArgumentError, ArgumentTypeError
from remat.ir.costs import dot_flops
from remat.testing import assert_trees_close

GRADS = {"jax": jax.grad, "remat": remat.grad}


def step(weight, carry, x):
    """A carry of several types, and two outputs."""
    h, count = carry["h"], carry["count"]
    new = jnp.tanh(h * weight + x["a"]) + 0.1 * x["i"]
    return {"h": new, "count": count + x["i"]}, (new.sum(), count)


def inputs(length):
    values = np.random.default_rng(length).normal(size=(length, 3)).astype(np.float32)
    xs = {"a": jnp.asarray(values), "i": jnp.arange(length)}
    return jnp.array([0.9, 1.1, 0.5]), {"h": jnp.ones(3), "count": 1}, xs


def loss_of(scan, init, xs, **options):
    def loss(weight, h, a):
        carry, ys = scan(lambda c, x: step(weight, c, x), {**init, "h": h}, {**xs, "a": a}, **options)
        return (carry["h"] ** 2).sum() + (ys[0] * jnp.arange(1.0, 1 + len(a))).sum(), (carry, ys)

    return loss


def check_like_scan(length, reverse=False, **options):
    weight, init, xs = inputs(length)
    args = (weight, init["h"], xs["a"])
    found = loss_of(remat.checkpointed_scan, init, xs, reverse=reverse, **options)
    expected = loss_of(lax.scan, init, xs, reverse=reverse)
    derivative = lambda f: jax.jit(jax.value_and_grad(f, (0, 1, 2), has_aux=True))(*args)  # noqa: E731
    assert_trees_close(derivative(found), derivative(expected), 1e-4, 1e-5, f"{length} {options}")


SOME = {0, 1, 2, 5, 12}


@pytest.mark.parametrize("length", [n if n in SOME else pytest.param(n, marks=pytest.mark.slow) for n in range(21)])
def test_each_length_and_some_segments(length):
    rng = np.random.default_rng(length)
    segments = {"segments": int(rng.integers(1, length + 1))} if length % 3 and length else {}
    for option in ({"levels": int(rng.integers(1, 6))}, segments):
        check_like_scan(length, bool(rng.integers(2)), **option)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("options", [{"segments": 3}, {"levels": 3}, {"slots": 9}, {"budget": 1024}])
def test_reverse_with_a_remainder(options, reverse):
    check_like_scan(17, reverse, **options)


@pytest.mark.parametrize("policy", ["nothing", "dots", None, "everything", jax.checkpoint_policies.dots_saveable])
def test_policies_do_not_change_gradients(policy):
    check_like_scan(7, levels=2, policy=policy)


def test_no_inputs_and_no_outputs():
    found = remat.checkpointed_scan(lambda c, x: (jnp.sin(c), x), 0.5, length=10)
    assert_trees_close(found, lax.scan(lambda c, x: (jnp.sin(c), x), 0.5, length=10))
    grad = jax.grad(lambda c: remat.checkpointed_scan(lambda c, _: (jnp.sin(c), None), c, None, 10)[0])(0.5)
    assert_trees_close(grad, jax.grad(lambda c: lax.scan(lambda c, _: (jnp.sin(c), None), c, None, 10)[0])(0.5))


def test_a_weak_carry_takes_the_type_of_the_iteration():
    f = lambda c, x: (c + x, None)  # noqa: E731
    for init in (0, 0.0):
        found = remat.checkpointed_scan(f, init, jnp.ones(5))
        assert_trees_close(found, lax.scan(f, init, jnp.ones(5)))


def test_keys_are_carried_and_sliced():
    def f(key, other):
        return jax.random.fold_in(key, 1), jax.random.normal(other)

    args = (jax.random.key(0), jax.random.split(jax.random.key(1), 7))
    assert_trees_close(remat.checkpointed_scan(f, *args), lax.scan(f, *args))


def small(scan, **options):
    """A loss of the initial value through 11 iterations."""
    return lambda c: scan(lambda c, x: (jnp.sin(c) * x, c), c, jnp.linspace(0.5, 1.5, 11), **options)[0].sum()


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.vmap(jax.grad(f)),
        lambda f: jax.grad(lambda c: jax.vmap(f)(c).sum()),
        lambda f: jax.jacfwd(f),
        lambda f: remat.grad(f),
        lambda f: remat.grad(f, policy="dots"),
        lambda f: jax.grad(lambda c: remat.checkpoint(f)(c)),
        lambda f: jax.hessian(f),
        lambda f: jax.jacrev(jax.grad(f)),
        lambda f: jax.grad(lambda c: (remat.grad(f)(c) ** 2).sum()),
        lambda f: lambda c: jax.jvp(remat.grad(f), (c,), (jnp.cos(c),)),
        lambda f: jax.grad(lambda c: lax.scan(lambda c, _: (c * f(c), None), c, None, length=3)[0].sum()),
        lambda f: lambda c: jax.linearize(f, c)[1](c),
    ],
)
@pytest.mark.parametrize("options", [{}, {"levels": 3}])
def test_under_transformations(transform, options):
    c = jnp.array([0.3, 0.7])
    found = jax.jit(transform(small(remat.checkpointed_scan, **options)))(c)
    assert_trees_close(found, jax.jit(transform(small(lax.scan)))(c))


def products(length, **options):
    w = jnp.full((8, 8), 0.1)
    scan = remat.checkpointed_scan if options else lax.scan
    return lambda c: scan(lambda c, _: (jnp.tanh(jnp.sin(c) @ w), None), c, None, length, **options)[0].sum()


@pytest.mark.parametrize("grad", GRADS)
@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("length", [27, 31])
def test_each_iteration_is_repeated_once_a_level_at_most(grad, levels, length):
    c = jnp.ones((8, 8))
    count = lambda f: dot_flops(remat.trace(GRADS[grad](f))(c)) / (2 * 8**3)  # noqa: E731
    extra = count(products(length, levels=levels)) - count(products(length))
    assert length * (levels - 1) < extra <= length * levels or extra == length * levels == length


def temporaries(grad, f, *args):
    return jax.jit(GRADS[grad](f)).lower(*args).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("grad", GRADS)
def test_few_carries_are_alive(grad):
    """1,000 iterations: `lax.scan` keeps 1,000 carries, and the square root scheme 64."""
    c = jnp.ones((64, 16))
    bytes_of = lambda scan, **options: temporaries(grad, small_step(scan, **options), c) / c.nbytes  # noqa: E731
    plain = bytes_of(lax.scan)
    assert plain > 1000
    assert bytes_of(remat.checkpointed_scan, levels=1) > 1000
    assert 64 <= bytes_of(remat.checkpointed_scan) < 74
    assert 110 <= bytes_of(remat.checkpointed_scan, segments=10) < 120
    assert 30 <= bytes_of(remat.checkpointed_scan, levels=3) < 40
    assert 30 <= bytes_of(remat.checkpointed_scan, slots=40) < 40
    assert 30 <= bytes_of(remat.checkpointed_scan, budget=40 * c.nbytes) < 40


def small_step(scan, **options):
    return lambda c: scan(lambda c, _: (jnp.sin(c), None), c, None, 1000, **options)[0].sum()


def test_saved_residuals_lists_one_carry_for_each_segment():
    found = remat.saved_residuals(small_step(remat.checkpointed_scan, segments=20), jnp.ones(16))
    assert sum(r.times for r in found if r.loops) == 20


def test_the_program_is_not_unrolled():
    size = lambda n: len(str(jax.make_jaxpr(jax.grad(products(n, levels=3)))(jnp.ones((8, 8)))))  # noqa: E731
    assert size(8000) < 1.2 * size(27)


def test_a_carry_that_changes_its_type_is_named():
    with pytest.raises(ArgumentTypeError, match=r"carry\['h'\] goes in as float32\[3\] and comes out as float32\[1\]"):
        remat.checkpointed_scan(lambda c, _: ({"h": c["h"][:1]}, None), {"h": jnp.ones(3)}, None, 4)
    with pytest.raises(ArgumentTypeError, match=r"carry\[1\] goes in as int32\[\] and comes out as float32\[\]"):
        remat.checkpointed_scan(lambda c, _: ((c[0], c[1] * 0.5), None), (1.0, jnp.int32(1)), None, 4)
    with pytest.raises(ArgumentTypeError, match="same structure"):
        remat.checkpointed_scan(lambda c, _: ((c, c), None), 1.0, None, 4)
    with pytest.raises(ArgumentTypeError, match="pair"):
        remat.checkpointed_scan(lambda c, _: c, 1.0, None, 4)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"segments": 11}, ArgumentError, "10 iterations into segments=11"),
        ({"segments": 2, "levels": 2}, ArgumentError, "segments=2 and levels=2"),
        ({"slots": 3}, ArgumentError, "at least 7 carries"),
        ({"budget": "8 B"}, ArgumentError, "budget='8 B', into which 2 carries go: nested segments keep at least 7"),
        ({"budget": "1KiB", "slots": 9}, ArgumentError, "slots=9 and budget='1KiB'"),
        ({"levels": 0}, ArgumentError, "levels of .* must be 1 or more"),
        ({"segments": 2.0}, ArgumentTypeError, "must be an integer"),
        ({"length": 11}, ArgumentError, "length: 11, xs: 10"),
        ({"xs": None}, ArgumentError, "neither xs nor length"),
        ({"xs": 1.0}, ArgumentError, "no axes"),
        ({"xs": None, "length": -1}, ArgumentError, "0 or more"),
        ({"f": 1}, ArgumentTypeError, "takes a function"),
    ],
)
def test_mistakes(options, error, text):
    with pytest.raises(error, match=text):
        remat.checkpointed_scan(**{"f": lambda c, x: (c + x, None), "init": 0.0, "xs": jnp.ones(10)} | options)
