"""`checkpoint` under JAX's own transformations and under remat's: arguments, barriers, policies, effects."""

import functools
import inspect
import re
import warnings

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax
from jax.experimental import io_callback

import remat
from remat import policies
from remat.testing import assert_saved, assert_trees_close, check_gradients

X = jnp.linspace(0.1, 0.9, 3)
W = jnp.linspace(-0.5, 0.5, 9).reshape(3, 3)
P = jax.checkpoint_policies
GRADS = pytest.mark.parametrize("grad", [remat.grad, jax.grad], ids=["remat", "jax"])
POLICIES = pytest.mark.parametrize(
    "policy", [None, "nothing", "dots", "names:a", "everything", "except:a", "offload:a"]
)


def layer(w, x):
    return jnp.tanh(remat.checkpoint_name(jnp.sin(w @ x), "a") * 2)


def kept_by_jax(fun, *args):
    """What the backward pass of JAX keeps, as types; values held by the caller included.

    The leaves of `jax.vjp` are read, since that is what stays in memory.
    """
    jaxpr = jax.make_jaxpr(lambda *xs: jax.tree.leaves(jax.vjp(fun, *xs)[1]))(*args)
    return sorted(a.str_short(short_dtypes=True) for a in jaxpr.out_avals)


def kept(fun, *args):
    """Names and operations that are kept beside arguments and constants."""
    return sorted(r.origin.text for r in remat.saved_residuals(fun, *args) if r.is_new)


def barriers(fun, *args):
    """How many `optimization_barrier`s the lowered program has."""
    return jax.jit(fun).lower(*args).as_text().count("optimization_barrier")


# Static arguments.


def scaled(x, flag=False, *, mode="double"):
    assert isinstance(flag, bool)
    x = 2 * x if mode == "double" else x
    return jnp.sin(x).sum() if flag else x.sum()


@GRADS
@pytest.mark.parametrize(
    ("options", "args", "kwargs"),
    [
        ({"static_argnums": 1}, (True,), {}),
        ({"static_argnums": 1}, (), {"flag": True}),
        ({"static_argnums": (1,)}, (True,), {"mode": "single"}),
        ({"static_argnums": -1}, (), {"flag": True}),
        ({"static_argnums": [1]}, (), {}),
        ({"static_argnames": "flag"}, (True,), {}),
        ({"static_argnames": "flag"}, (), {"flag": True}),
        ({"static_argnames": ("flag", "mode")}, (True,), {"mode": "single"}),
        ({"static_argnames": "mode"}, (), {"mode": "single"}),
        ({}, (True,), {}),
        ({}, (), {"flag": True, "mode": "single"}),
    ],
)
def test_static_arguments(grad, options, args, kwargs):
    """Flags may be declared by position or by name and passed either way; booleans and strings need no declaration."""
    expected = jax.grad(scaled)(X, *args, **kwargs)
    assert_trees_close(grad(remat.checkpoint(scaled, **options))(X, *args, **kwargs), expected)


@GRADS
@pytest.mark.parametrize("static", [[1, 2], {"a": 3}, np.arange(3), {4, 5}], ids=["list", "dict", "numpy", "set"])
@pytest.mark.parametrize("by_name", [False, True])
def test_unhashable_static(grad, static, by_name):
    def fun(x, sizes):
        assert type(sizes) is type(static)
        return jnp.sin(x).sum() * len(sizes)

    region = remat.checkpoint(fun, static_argnames="sizes")
    found = grad(region)(X, sizes=static) if by_name else grad(region)(X, static)
    assert_trees_close(found, jnp.cos(X) * len(static))


def test_static_number_is_not_traced():
    """An integer is traced unless it is declared static; then Python code may use its value."""

    def repeated(x, times):
        for _ in range(times):
            x = jnp.sin(x)
        return x.sum()

    expected = jax.grad(repeated)(X, 3)
    assert_trees_close(remat.grad(remat.checkpoint(repeated, static_argnums=1))(X, 3), expected)
    assert_trees_close(jax.grad(remat.checkpoint(repeated, static_argnames="times"))(X, times=3), expected)
    with pytest.raises((TypeError, jax.errors.ConcretizationTypeError)):
        remat.checkpoint(repeated)(X, 3)


def test_static_in_varargs():
    region = remat.checkpoint(lambda x, *rest: jnp.sin(x).sum() * len(rest[1]), static_argnums=(2,))
    assert_trees_close(jax.grad(region)(X, 1.0, [1, 2]), 2 * jnp.cos(X))
    last = remat.checkpoint(lambda *args: jnp.sin(args[0]).sum() * len(args[-1]), static_argnums=-1)
    assert_trees_close(jax.grad(last)(X, 1.0, [1, 2]), 2 * jnp.cos(X))


# Arguments and results.


@GRADS
@POLICIES
def test_leaves_that_are_no_arrays(grad, policy):
    """Models carry functions, strings and flags as leaves, and functions return them."""

    def model(params, x):
        h = params["activation"](layer(params["w"], x)) if params["bias"] else x
        return h.sum(), {"kind": params["kind"], "shift": h, "none": None, "f": params["activation"]}

    params = {"w": W, "activation": jax.nn.silu, "kind": "mlp", "bias": True}

    def loss(w):
        value, rest = remat.checkpoint(model, policy=policy)({**params, "w": w}, X)
        assert rest["kind"] == "mlp"
        assert rest["none"] is None
        assert rest["f"] is jax.nn.silu
        return value + rest["shift"].sum()

    assert_trees_close(grad(loss)(W), jax.grad(lambda w: 2 * jax.nn.silu(layer(w, X)).sum())(W))


@GRADS
def test_keyword_arguments(grad):
    region = remat.checkpoint(lambda x, *, scale, shift=1.0: jnp.sin(scale["by"] * x + shift).sum(), policy="dots")
    found = grad(lambda x, s: region(x, scale={"by": s}, shift=x[0]), argnums=(0, 1))(X, 2.0)
    assert_trees_close(found, jax.grad(lambda x, s: jnp.sin(s * x + x[0]).sum(), argnums=(0, 1))(X, 2.0))


@GRADS
@POLICIES
def test_closures(grad, policy):
    """Arrays and tracers that the function closes over; the latter are differentiated."""
    constant = jnp.cos(X)

    def loss(w):
        inner = 2 * w
        return remat.checkpoint(lambda x: layer(inner, x) * constant, policy=policy)(X).sum()

    assert_trees_close(grad(loss)(W), jax.grad(lambda w: (layer(2 * w, X) * constant).sum())(W))


def test_integers_keys_and_no_arguments():
    @remat.checkpoint
    def noisy(key, index, x):
        return (x * jax.random.normal(key, x.shape))[index], jnp.add(index, 1)

    key = jax.random.key(0)
    out, pullback = remat.vjp(noisy, key, 1, X)
    expected, theirs = jax.vjp(lambda k, i, x: ((x * jax.random.normal(k, x.shape))[i], jnp.add(i, 1)), key, 1, X)
    assert_trees_close(out, expected)
    zero = np.zeros((), jax.dtypes.float0)
    assert_trees_close(pullback((1.0, zero))[2], theirs((1.0, zero))[2])
    assert_trees_close(remat.checkpoint(lambda: jnp.sin(X))(), jnp.sin(X))
    assert remat.checkpoint(lambda x: None)(X) is None


# The decorator.


def test_decorator_forms():
    @remat.checkpoint
    def bare(x):
        """Some text."""
        return jnp.sin(x).sum()

    @remat.checkpoint()
    def empty(x):
        return jnp.sin(x).sum()

    @remat.checkpoint(policy="dots", static_argnames="n")
    def full(x: jax.Array, n: int = 1) -> jax.Array:
        return jnp.sin(x).sum() * len("a" * n)

    for fun in (bare, empty, full, remat.remat(bare)):
        assert_trees_close(jax.grad(fun)(X), jnp.cos(X))
    assert bare.__name__ == "bare"
    assert bare.__doc__ == "Some text."
    assert inspect.signature(full).parameters["n"].default == 1
    assert full.__wrapped__.__annotations__["n"] is int


def test_callable_objects_and_partials():
    class Model:
        def __init__(self, w):
            self.w = w

        def __call__(self, x):
            return layer(self.w, x).sum()

        @functools.partial(remat.checkpoint, static_argnums=0)
        def method(self, x):
            return layer(self.w, x).sum()

    expected = jax.grad(lambda x: layer(W, x).sum())(X)
    model = Model(W)
    for fun in (remat.checkpoint(model), model.method, functools.partial(remat.checkpoint(layer), W)):
        assert_trees_close(remat.grad(lambda x, fun=fun: fun(x).sum())(X), expected)
        assert_trees_close(jax.grad(lambda x, fun=fun: fun(x).sum())(X), expected)


# Under JAX's transformations, with the region inside.


def loss_of(policy):
    region = remat.checkpoint(layer, policy=policy)
    return lambda w, x: region(w, region(w, x)).sum()


PLAIN = lambda w, x: layer(w, layer(w, x)).sum()  # noqa: E731

TRANSFORMED = {
    "value": lambda f: f(W, X),
    "jit": lambda f: jax.jit(f)(W, X),
    "grad": lambda f: jax.grad(f, argnums=(0, 1))(W, X),
    "jit of grad": lambda f: jax.jit(jax.grad(f))(W, X),
    "grad of jit": lambda f: jax.grad(jax.jit(f))(W, X),
    "jvp": lambda f: jax.jvp(f, (W, X), (W + 1, X)),
    "linearize": lambda f: jax.linearize(f, W, X)[1](W + 1, X),
    "vmap": lambda f: jax.vmap(f, (None, 0))(W, W),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f), (None, 0))(W, W),
    "grad of vmap": lambda f: jax.grad(lambda w: jax.vmap(f, (None, 0))(w, W).sum())(W),
    "hessian": lambda f: jax.hessian(f, argnums=1)(W, X),
    "grad of grad": lambda f: jax.grad(lambda x: jax.grad(f, argnums=1)(W, x).sum())(X),
    "scan": lambda f: jax.grad(lambda x: lax.scan(lambda c, w: (c + f(w, c), None), x, jnp.stack([W, -W]))[0].sum())(X),
    "cond": lambda f: jax.grad(lambda x: lax.cond(x[0] > 0, f, lambda w, x: x.sum(), W, x))(X),
    "in a region of JAX": lambda f: jax.grad(lambda x: jax.checkpoint(f)(W, x))(X),
    "remat.grad": lambda f: remat.grad(f, argnums=(0, 1))(W, X),
    "jit of remat.grad": lambda f: jax.jit(remat.grad(f))(W, X),
    "vmap of remat.grad": lambda f: jax.vmap(remat.grad(f), (None, 0))(W, W),
    "remat.grad of remat.grad": lambda f: remat.grad(lambda x: remat.grad(f, argnums=1)(W, x).sum())(X),
    "jax.grad of remat.grad": lambda f: jax.grad(lambda x: remat.grad(f, argnums=1)(W, x).sum())(X),
    "remat.linearize": lambda f: remat.linearize(f, W, X)[1](W + 1, X),
}


@pytest.mark.parametrize("policy", [None, "names:a", "except:a"])
@pytest.mark.parametrize("transform", TRANSFORMED.values(), ids=TRANSFORMED.keys())
def test_under_transformations(transform, policy):
    assert_trees_close(transform(loss_of(policy)), transform(PLAIN), rtol=1e-4)


@pytest.mark.parametrize("policy", [None, "dots", "except:a"])
def test_export(policy):
    """Gradients can be exported, by JAX and by remat."""
    types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (W, X)]
    exported = jax.export.export(jax.jit(jax.grad(loss_of(policy))))(*types)
    assert_trees_close(exported.call(W, X), jax.grad(PLAIN)(W, X))
    exported = jax.export.export(jax.jit(remat.grad(loss_of(policy))))(*types)
    assert_trees_close(exported.call(W, X), jax.grad(PLAIN)(W, X))


def test_traced_once_under_jit():
    """Jitted functions with regions are traced once for each signature, however often they are called."""
    count = 0

    def body(x):
        nonlocal count
        count += 1
        return jnp.sin(x).sum()

    gradient = jax.jit(remat.grad(remat.checkpoint(body, policy="dots")))
    for _ in range(3):
        gradient(X)
    once = count
    gradient(X + 1)
    assert count == once


# remat.grad over regions that others made.


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, []),
        (P.nothing_saveable, []),
        (P.dots_saveable, ["dot_general"]),
        (P.save_only_these_names("a"), ["a"]),
        (P.save_any_names_but_these("b"), ["a"]),
        (policies.dots_saveable, ["dot_general"]),
        (policies.save_only_these_names("a"), ["a"]),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
def test_regions_of_jax(policy, expected):
    fun = lambda w, x: jax.checkpoint(layer, policy=policy)(w, x).sum()  # noqa: E731
    assert kept(fun, W, X) == expected
    check_gradients(fun, W, X, policies=[None])


@pytest.mark.parametrize(("policy", "expected"), [("dots", 2), ("names:a", 2), ("nothing", 0)])
@pytest.mark.parametrize("grad", [remat.grad, jax.grad], ids=["remat", "jax"])
def test_policy_objects_in_flax(grad, policy, expected):
    """Our policy objects mean the same when a library hands them to `jax.checkpoint`."""
    policy = policies.parse(policy)

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            return jnp.tanh(remat.checkpoint_name(nn.Dense(3, use_bias=False)(x), "a"))

    class Model(nn.Module):
        wrap: bool

        @nn.compact
        def __call__(self, x):
            block = nn.remat(Block, policy=policy) if self.wrap else Block
            return block(name="second")(jnp.sin(block(name="first")(x)))

    model, plain = Model(True), Model(False)
    params = plain.init(jax.random.key(0), X)
    loss = lambda m: lambda p: m.apply(p, X).sum()  # noqa: E731
    assert_trees_close(grad(loss(model))(params), jax.grad(loss(plain))(params))
    found = kept(lambda p: loss(model)(p), params)
    assert sum(text in ("a", "dot_general") for text in found) == expected


@GRADS
@pytest.mark.parametrize(("policy", "expected"), [("dots", ["dot_general"]), ("names:a", ["a"])])
def test_policy_objects_in_nnx(grad, policy, expected):
    policy = policies.parse(policy)
    region = nnx.remat(layer, policy=policy)
    fun = lambda w: region(w, X).sum()  # noqa: E731
    assert_trees_close(grad(fun)(W), jax.grad(lambda w: layer(w, X).sum())(W))
    assert kept(fun, W) == expected


@GRADS
@pytest.mark.parametrize(("policy", "expected"), [("dots", ["dot_general"]), ("names:a", ["a"])])
def test_policy_objects_in_equinox(grad, policy, expected):
    policy = policies.parse(policy)
    region = eqx.filter_checkpoint(layer, policy=policy)
    fun = lambda w: region(w, X).sum()  # noqa: E731
    assert_trees_close(grad(fun)(W), jax.grad(lambda w: layer(w, X).sum())(W))
    assert kept(fun, W) == expected


def test_equinox_module_in_our_region():
    """A module has an activation function and static fields; our region takes it as it is."""
    mlp = eqx.nn.MLP(3, 1, 4, 2, key=jax.random.key(0))
    arrays, rest = eqx.partition(mlp, eqx.is_array)

    def loss(arrays, wrap):
        run = wrap(lambda model, x: model(x))
        return run(eqx.combine(arrays, rest), X).sum()

    expected = jax.grad(lambda a: loss(a, lambda f: f))(arrays)
    assert_trees_close(jax.grad(lambda a: loss(a, remat.checkpoint))(arrays), expected)
    assert_trees_close(remat.grad(lambda a: loss(a, remat.checkpoint(policy="dots")))(arrays), expected)


# Barriers against common subexpression elimination.


def sines(x):
    return jnp.sin(jnp.sin(x)).sum()


@GRADS
def test_barriers(grad):
    assert barriers(grad(lambda x: remat.checkpoint(sines)(x) * 2), X) >= 1
    assert barriers(grad(lambda x: remat.checkpoint(sines, prevent_cse=False)(x) * 2), X) == 0
    assert barriers(grad(sines), X) == 0


def test_no_barrier_without_a_backward_pass():
    assert barriers(remat.checkpoint(sines), X) == 0
    assert barriers(lambda x: jax.jvp(remat.checkpoint(sines), (x,), (x,)), X) == 0


def test_no_barrier_in_a_scan():
    """Nothing can be merged between the forward and the reverse loop."""
    body = remat.checkpoint(lambda c, _: (jnp.sin(jnp.sin(c)), None))
    fun = lambda x: lax.scan(body, x, None, length=4)[0].sum()  # noqa: E731
    assert barriers(remat.grad(fun), X) == 0


@GRADS
def test_barrier_by_argument(grad):
    """A tuple says for each argument whether its saved value is pinned; gradients do not depend on it."""
    region = remat.checkpoint(lambda w, x, n: layer(w, x).sum(), prevent_cse=(False, True, True), static_argnums=2)
    fun = lambda w, x: region(w, x, 3) * 2  # noqa: E731
    assert_trees_close(grad(fun, argnums=(0, 1))(W, X), jax.grad(lambda w, x: 2 * layer(w, x).sum(), (0, 1))(W, X))
    assert barriers(grad(fun), W, X) >= 1


# Policies.


def save_sines(primitive, *avals, **params):
    return primitive.name == "sin"


@GRADS
def test_callable_policy(grad):
    """A function in JAX's protocol is asked about every primitive, in each mode of JAX."""
    fun = lambda x: remat.checkpoint(lambda x: jnp.exp(jnp.exp(jnp.sin(x))), policy=save_sines)(x).sum()  # noqa: E731
    assert_trees_close(grad(fun)(X), jax.grad(lambda x: jnp.exp(jnp.exp(jnp.sin(x))).sum())(X))
    assert_saved(fun, (X,), [("f32[3]", "x"), ("f32[3]", "sin")])
    assert kept_by_jax(fun, X) == ["f32[3]", "f32[3]"]


@GRADS
def test_outer_policy_wins(grad):
    inner = remat.checkpoint(layer, policy="names:a")
    fun = remat.checkpoint(lambda w, x: jnp.sin(inner(w, x)).sum(), policy="dots")
    assert kept(fun, W, X) == ["dot_general"]
    fun = remat.checkpoint(lambda w, x: jnp.sin(inner(w, x)).sum())
    assert kept(fun, W, X) == []
    fun = remat.checkpoint(lambda w, x: jnp.sin(remat.checkpoint(layer)(w, x)).sum(), policy="names:a")
    assert kept(fun, W, X) == ["a"]
    assert_trees_close(grad(fun)(W, X), jax.grad(lambda w, x: jnp.sin(layer(w, x)).sum())(W, X))


def test_save_anything_except():
    """The excluded value is recomputed, and so is the same value under no name; the rest stays as without a region."""
    plain = lambda w, x: layer(w, x).sum()  # noqa: E731
    fun = remat.checkpoint(plain, policy=policies.save_anything_except_these_names("a"))
    assert "a" not in kept(fun, W, X)
    assert "sin" not in kept(fun, W, X)
    assert set(kept(fun, W, X)) == set(kept(plain, W, X)) - {"a", "sin"}
    check_gradients(plain, W, X, policies=["except:a"], under_jax=True)


def products(w, x):
    """The value named `a` is needed by the backward pass of the product."""
    a = remat.checkpoint_name(jnp.sin(w @ x), "a")
    return (a * jnp.exp(a)).sum()


def test_save_anything_except_a_value_that_is_needed():
    excepted = remat.checkpoint(products, policy="except:a")
    everything = remat.checkpoint(products, policy="everything")
    assert "a" in kept(everything, W, X)
    assert not {"a", "sin"} & set(kept(excepted, W, X))
    check_gradients(products, W, X, policies=["except:a", "everything"], under_jax=True)


@GRADS
@pytest.mark.parametrize("in_scan", [False, True], ids=["straight", "scan"])
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_offload(grad, in_scan, jitted):
    region = remat.checkpoint(products, policy="offload:a")
    body = remat.checkpoint(lambda x, w: (jnp.sin(w @ remat.checkpoint_name(x, "a")), None), policy="offload:a")
    stack = jnp.stack([W, -W, W.T])
    loop = lambda run: lambda w, x: lax.scan(run, x, stack * w)[0].sum()  # noqa: E731
    fun = loop(body) if in_scan else region
    plain = loop(lambda x, w: (jnp.sin(w @ x), None)) if in_scan else products
    gradient = jax.jit(grad(fun)) if jitted else grad(fun)
    assert_trees_close(gradient(W, X), jax.grad(plain)(W, X))
    found = remat.saved_residuals(fun, W, X)
    assert [r.memory for r in found if r.name == "a"] == ["pinned_host"]
    assert found.offloaded_bytes == (3 if in_scan else 1) * X.nbytes
    assert any("<host>" in text for text in kept_by_jax(fun, W, X))


@GRADS
def test_offload_and_save_together(grad):
    """JAX cannot combine a policy that offloads with one that saves."""
    policy = policies.save_from_both_policies(policies.parse("offload:a"), P.dots_saveable)
    fun = remat.checkpoint(products, policy=policy)
    assert_trees_close(grad(fun)(W, X), jax.grad(products)(W, X))
    assert sorted((r.origin.text, r.memory) for r in remat.saved_residuals(fun, W, X) if r.is_new) == [
        ("a", "pinned_host"),
        ("dot_general", "device"),
    ]


# Effects.


@GRADS
def test_debug_print(grad, capfd):
    """What is asked for is recomputed, and nothing asks for a print (JAX's own checkpoint runs the region again)."""

    def noisy(x):
        y = jnp.sin(x)
        jax.debug.print("seen {}", y[0])
        return jnp.sin(y).sum()

    found = jax.block_until_ready(grad(lambda x: remat.checkpoint(noisy)(x))(X))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("seen") == 1
    assert_trees_close(found, jax.grad(sines)(X))


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_io_callback_runs_once(ordered, jitted):
    """What reaches the outside world is not repeated: its result is kept."""
    calls = []

    def read(x):
        calls.append(float(x[0]))
        return np.asarray(x) * 2

    def fun(x):
        y = jnp.sin(x)
        z = io_callback(read, jax.ShapeDtypeStruct((3,), jnp.float32), lax.stop_gradient(y), ordered=ordered)
        return (jnp.sin(y) * z).sum()

    gradient = remat.grad(remat.checkpoint(fun))
    found = (jax.jit(gradient) if jitted else gradient)(X)
    jax.block_until_ready(found)
    jax.effects_barrier()
    assert len(calls) == 1
    y = jnp.sin(X)
    assert_trees_close(found, jnp.cos(y) * jnp.cos(X) * 2 * y)


def test_bf16_does_not_depend_on_the_policy():
    """Kept values are rounded to their type, so that all policies give one gradient."""
    x = jnp.linspace(0, 1, 64, dtype=jnp.bfloat16)
    fun = lambda x: jnp.sin(remat.checkpoint_name(jnp.sin(x * 3) * 1.7, "a")).sum()  # noqa: E731
    results = [jax.jit(remat.grad(fun, policy=p))(x) for p in ("nothing", "names:a", "everything")]
    assert all(r.dtype == jnp.bfloat16 for r in results)
    for other in results[1:]:
        assert_trees_close(other, results[0], rtol=2e-2)


def test_names_are_told_from_generated_ones():
    """Generated names (which carry decisions to JAX) show up in no report."""
    fun = remat.checkpoint(layer, policy="dots|names:a")
    text = str(remat.trace(fun)(W, X))
    assert re.findall(r"name\[(.*?)\]", text) == ["a"]
    assert all("remat:" not in str(r.name) for r in remat.saved_residuals(fun, W, X))


def test_names_in_loops_that_are_not_differentiated_are_seen():
    """No warning for a name that only stands in a loop without tangents."""

    def f(x):
        counted = jax.lax.fori_loop(0, 3, lambda i, n: remat.name(n + i, "counter"), 0)
        return jnp.sin(x) * counted

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        remat.grad(remat.checkpoint(f, policy="names:counter"))(1.0)
        remat.grad(jax.checkpoint(f, policy=jax.checkpoint_policies.save_only_these_names("counter")))(1.0)
