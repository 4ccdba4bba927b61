"""`remat.custom_vjp` with `defvjp`: as `jax.custom_vjp`, under our transformations and JAX's."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import SymbolicZero

import remat
from remat.testing import assert_trees_close

GRADS = pytest.mark.parametrize("grad", [jax.grad, remat.grad], ids=["jax", "remat"])
X = jnp.linspace(0.2, 1.4, 5)


def scaled(custom_vjp, factor=3.0):
    """x -> sin(x) with a derivative that is wrong by a factor, so that one sees which derivative was used."""
    f = custom_vjp(lambda x: jnp.sin(x))
    f.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda c, g: (factor * c * g,))
    return f


def both_ways(make, *args, argnums=0):
    """The gradient of what `make` builds from a `custom_vjp`: by JAX with JAX's, and with ours in both ways."""
    expected = jax.grad(make(jax.custom_vjp), argnums)(*args)
    ours = make(remat.custom_vjp)
    for grad in (jax.grad, remat.grad):
        assert_trees_close(grad(ours, argnums)(*args), expected)
    assert_trees_close(ours(*args), make(jax.custom_vjp)(*args))
    return expected


def test_the_rule_is_used():
    expected = both_ways(lambda c: lambda x: scaled(c)(x).sum(), X)
    for grad in (jax.grad, remat.grad):
        assert_trees_close(jax.jit(grad(lambda x: scaled(remat.custom_vjp)(x).sum()))(X), expected)
    np.testing.assert_allclose(expected, 3 * jnp.cos(X), rtol=1e-6)


@pytest.mark.parametrize(
    "wrap",
    [
        jax.jit,
        remat.checkpoint,
        remat.checkpoint(policy="everything"),
        remat.checkpoint(policy="dots"),
        jax.checkpoint,
        jax.vmap,
        lambda f: jax.vmap(remat.checkpoint(f)),
        lambda f: remat.checkpoint(jax.vmap(f)),
        lambda f: jax.jit(jax.vmap(jax.jit(f))),
        lambda f: lambda x: jax.lax.map(f, x),
        lambda f: lambda x: jax.lax.cond(x[0] > 0, f, lambda y: y, x),
        lambda f: lambda x: jax.lax.switch(1, [lambda y: y, f, jnp.cos], x),
        lambda f: lambda x: jax.lax.scan(lambda c, y: (f(c) * y, f(y)), 1.0, x)[1],
        lambda f: lambda x: jax.lax.scan(remat.checkpoint(lambda c, y: (f(c) * y, f(c + y))), 1.0, x)[1],
        lambda f: remat.checkpoint(lambda x: jax.lax.scan(lambda c, y: (f(c) * y, f(c + y)), 1.0, x)[1]),
        lambda f: lambda x: jax.lax.fori_loop(0, 3, lambda i, c: f(c), x),
        lambda f: remat.checkpoint(lambda x: f(remat.checkpoint(lambda y: f(y) * 2)(x))),
    ],
)
def test_in_structures(wrap):
    both_ways(lambda c: lambda x: wrap(scaled(c))(x).sum(), X)


def test_inside_custom_jvp():
    def make(custom_vjp):
        inner = scaled(custom_vjp)
        f = jax.custom_jvp(lambda x: x * 2)
        f.defjvp(lambda p, t: (p[0] * 2, inner(p[0]) * t[0]))
        g = jax.custom_jvp(lambda x: x)
        g.defjvps(lambda t, ans, x: inner(t))
        return lambda x: f(x).sum()

    both_ways(make, X)


def test_rule_calls_a_function_with_a_rule():
    def make(custom_vjp):
        inner = scaled(custom_vjp)
        f = custom_vjp(lambda x: inner(x) ** 2)
        f.defvjp(lambda x: (f(x), x), lambda x, g: (2 * inner(x) * g,))
        return lambda x: f(x).sum()

    both_ways(make, X)
    expected = jax.grad(lambda x: jax.grad(make(jax.custom_vjp))(x).sum())(X)
    for outer, inner in itertools.product((jax.grad, remat.grad), repeat=2):
        assert_trees_close(outer(lambda x, inner=inner: inner(make(remat.custom_vjp))(x).sum())(X), expected)


@pytest.mark.parametrize("region", [lambda f: f, remat.checkpoint], ids=["plain", "region"])
def test_second_and_third_order(region):
    def make(custom_vjp):
        return lambda x: region(scaled(custom_vjp))(x)

    expected = jax.grad(jax.grad(jax.grad(scaled(jax.custom_vjp))))(0.3)
    f = make(remat.custom_vjp)
    for a, b, c in [(jax.grad,) * 3, (remat.grad,) * 3, (jax.grad, remat.grad, jax.grad)]:
        np.testing.assert_allclose(a(b(c(f)))(0.3), expected, rtol=1e-5)
    second = jax.grad(jax.grad(scaled(jax.custom_vjp)))(0.3)
    np.testing.assert_allclose(jax.jacfwd(remat.grad(f))(0.3), second, rtol=1e-5)


def test_pytrees_keywords_defaults_and_none():
    def make(custom_vjp):
        def f(tree, scale=2.0, *, extra=None):
            return {"out": tree["a"] * scale, "twice": (tree["b"][0] * 2, None)}

        def positional(tree, scale=2.0, extra=None):
            return f(tree, scale, extra=extra)

        g = custom_vjp(positional)

        def fwd(tree, scale, extra):
            return positional(tree, scale, extra), (tree, scale, None)

        def bwd(res, ct):
            (_, scale, nothing), (first, rest) = res, ct["twice"]
            assert nothing is None
            assert rest is None
            return {"a": ct["out"] * scale * 5, "b": [first * 7, None]}, None, None

        g.defvjp(fwd, bwd)

        def loss(tree):
            out = g(scale=4.0, tree=tree)
            return out["out"].sum() + out["twice"][0].sum()

        return loss

    tree = {"a": X, "b": [X * 2, jnp.ones(2)]}
    expected = both_ways(make, tree)
    np.testing.assert_allclose(expected["a"], 20.0)
    np.testing.assert_allclose(expected["b"][1], 0.0)


def test_integer_arguments_take_float0_or_none():
    for zero in (None, np.zeros((5,), jax.dtypes.float0)):

        def make(custom_vjp, zero=zero):
            f = custom_vjp(lambda n, x: (n * 2, x * n))
            f.defvjp(lambda n, x: ((n * 2, x * n), n), lambda n, ct: (zero, ct[1] * n))
            return lambda x: f(jnp.arange(5), x)[1].sum()

        np.testing.assert_allclose(both_ways(make, X), jnp.arange(5.0))


def test_integer_result_has_a_float0_cotangent():
    seen = []
    f = remat.custom_vjp(lambda x: (x, jnp.int32(3)))
    f.defvjp(lambda x: ((x, jnp.int32(3)), None), lambda _, ct: (seen.append(ct[1].dtype), (ct[0],))[1])
    for grad in (jax.grad, remat.grad):
        np.testing.assert_allclose(grad(lambda x: f(x)[0])(2.0), 1.0)
    assert seen
    assert all(d == jax.dtypes.float0 for d in seen)


def test_nondiff_arguments():
    def make(custom_vjp):
        def apply(fun, x, n):
            return fun(x) * n

        f = custom_vjp(apply, nondiff_argnums=(0, 2))
        f.defvjp(lambda fun, x, n: (fun(x) * n, x), lambda fun, n, x, g: (g * fun(x) * n * 10,))
        return lambda x: f(jnp.cos, x, 3).sum()

    np.testing.assert_allclose(both_ways(make, X), jnp.cos(X) * 30, rtol=1e-6)


@pytest.mark.parametrize("how", [{"nondiff_argnames": "n"}, {"nondiff_argnames": ["n"]}, {"nondiff_argnums": [1]}])
def test_nondiff_names_and_lists(how):
    f = remat.custom_vjp(lambda x, n: x * n, **how)
    f.defvjp(lambda x, n: (x * n, None), lambda n, _, g: (g * n * 2,))
    for grad in (jax.grad, remat.grad):
        np.testing.assert_allclose(grad(lambda x: f(x, n=4))(1.0), 8.0)


def test_unhashable_nondiff_argument():
    f = remat.custom_vjp(lambda x, table: x * table[0], nondiff_argnums=1)
    f.defvjp(lambda x, table: (x * table[0], None), lambda table, _, g: (g * table[1],))
    np.testing.assert_allclose(jax.grad(lambda x: f(x, [2.0, 5.0]))(1.0), 5.0)
    np.testing.assert_allclose(remat.grad(lambda x: f(x, np.array([2.0, 6.0])))(1.0), 6.0)


def test_static_leaves_pass_through():
    """Leaves that are no arrays are static, as in the rest of remat."""
    f = remat.custom_vjp(lambda x, mode: x * (2 if mode["kind"] == "double" else 1))
    f.defvjp(lambda x, mode: (f(x, mode), "kept as it is"), lambda res, g: (g * len(res), None))
    for grad in (jax.grad, remat.grad):
        np.testing.assert_allclose(grad(lambda x: f(x, {"kind": "double"}))(1.0), 13.0)


@pytest.mark.parametrize(
    "wrap", [lambda f: f, jax.jit, remat.checkpoint, jax.vmap], ids=["plain", "jit", "region", "vmap"]
)
def test_symbolic_zeros(wrap):
    seen = []

    def fwd(x, y):
        seen.append((x.perturbed, y.perturbed))
        return (x.value * y.value, jnp.sin(y.value)), (x.value, y.value)

    def bwd(res, ct):
        _, y = res
        seen.append(tuple(isinstance(c, SymbolicZero) for c in ct))
        return ct[0] * y, (None if isinstance(ct[1], SymbolicZero) else ct[1] * 100)

    f = remat.custom_vjp(lambda x, y: (x * y, jnp.sin(y)))
    f.defvjp(fwd, bwd, symbolic_zeros=True)
    for grad in (jax.grad, functools.partial(remat.grad, policy="nothing")):
        seen.clear()
        np.testing.assert_allclose(grad(lambda x: wrap(f)(x, X + 1)[0].sum())(X), X + 1, rtol=1e-6)
        assert (True, False) in seen
        assert (False, True) in seen
        # A region is split for all its results before it is known which are used, and then for those.
        assert set(seen) - {(False, False)} == {(True, False), (False, True)}
        seen.clear()
        both = grad(lambda x, y: sum(r.sum() for r in wrap(f)(x, y)), argnums=(0, 1))(X, X)
        np.testing.assert_allclose(both[1], 100.0)
        assert set(seen) == {(True, True), (False, False)}


AXES = [(0, 0), (1, 0), (-1, None), (None, 1), (None, 0), (2, 1)]


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("region", [lambda f: f, remat.checkpoint], ids=["plain", "region"])
def test_vmap_over_all_axes(axes, region):
    def make(custom_vjp):
        f = product(custom_vjp)

        def loss(w, x):
            first, second = jax.vmap(region(f), in_axes=axes)(w, x)
            return (first**2).sum() + second.sum()

        return loss

    shapes = [(3, 3, 3) if axes[0] is not None else (3, 3), (3, 3) if axes[1] is not None else (3,)]
    w, x = (jax.random.normal(jax.random.key(i), s) for i, s in enumerate(shapes))
    if axes[0] is None:  # JAX either refuses a result that is shared by all examples or counts it once for each
        ours = [grad(make(remat.custom_vjp), (0, 1))(w, x) for grad in (jax.grad, remat.grad)]
        mapped = jnp.broadcast_to(w, (3, 3, 3))
        expected = jax.grad(lambda m, x: jax_loss(m, x, axes), (0, 1))(mapped, x)
        for found in ours:
            assert_trees_close(found, (expected[0].sum(0), expected[1]), rtol=1e-4)
        return
    both_ways(make, w, x, argnums=(0, 1))
    expected = jax.vmap(jax.grad(make(jax.custom_vjp), (0, 1)))(w[None], x[None])
    assert_trees_close(jax.vmap(jax.jit(jax.grad(make(remat.custom_vjp), (0, 1))))(w[None], x[None]), expected)


def product(custom_vjp):
    f = custom_vjp(lambda w, x: (w @ x, w.sum()))

    def bwd(res, g):
        w, x = res
        return jnp.outer(g[0], x) + 2 * g[1], w.T @ g[0] * 3

    f.defvjp(lambda w, x: ((w @ x, w.sum()), (w, x)), bwd)
    return f


def jax_loss(w, x, axes):
    first, second = jax.vmap(product(jax.custom_vjp), in_axes=(0, axes[1]))(w, x)
    return (first**2).sum() + second.sum()


def test_nested_vmap_and_axis_names():
    def loss(x, in_bwd):
        f = remat.custom_vjp(lambda x: x - jax.lax.pmean(x, "rows"))
        f.defvjp(lambda x: (f(x), jax.lax.axis_index("rows") + 1.0), lambda i, g: ((g - in_bwd(g)) * i,))
        return (jax.vmap(jax.vmap(f), axis_name="rows")(x) ** 2).sum()

    x = jax.random.normal(jax.random.key(0), (3, 4))
    centred = 2 * (x - x.mean(0))
    for grad in (jax.grad, remat.grad):
        plain = grad(lambda x: loss(x, lambda g: 0.0))(x)
        np.testing.assert_allclose(plain, centred * jnp.array([[1.0], [2.0], [3.0]]), rtol=1e-4, atol=1e-6)
        with_mean = grad(lambda x: loss(x, lambda g: jax.lax.pmean(g, "rows")))(x)
        np.testing.assert_allclose(with_mean, plain, rtol=1e-4, atol=1e-5)  # the mean of the centred is zero


def test_shared_residuals_are_not_repeated_under_vmap():
    """The weight that the rule saves is the one array that the caller has."""
    f = remat.custom_vjp(lambda w, x: w @ x)
    f.defvjp(lambda w, x: (w @ x, (w, x)), lambda r, g: (jnp.outer(g, r[1]), r[0].T @ g))
    w, x = jnp.ones((4, 4)), jnp.ones((7, 4))
    _, vjp = remat.vjp(lambda w, x: jax.vmap(f, (None, 0))(w, x), w, x)
    assert sorted(r.shape for r in jax.tree.leaves(vjp)) == [(4, 4), (7, 4)]


@GRADS
def test_closed_over_tracer_is_an_error_when_it_is_differentiated(grad):
    def outer(s, x):
        f = remat.custom_vjp(lambda y: y * s)
        f.defvjp(lambda y: (y * s, s), lambda s, g: (g * s * 10,))
        return f(x)

    for loss in (lambda s: outer(s, 3.0), lambda s: outer(s, s), jax.jit(lambda s: outer(s, s))):
        with pytest.raises(jax.errors.UnexpectedTracerError, match=r"closes over.*Pass the value as an argument"):
            grad(loss)(2.0)


def test_closed_over_tracer_without_derivative():
    def outer(x, s):
        f = remat.custom_vjp(lambda y: y * s)
        f.defvjp(lambda y: (y * s, s), lambda s, g: (g * s * 10,))
        return f(x) * 2

    np.testing.assert_allclose(jax.jit(outer)(2.0, 3.0), 12.0)
    np.testing.assert_allclose(jax.jit(jax.grad(outer))(2.0, 3.0), 60.0)
    np.testing.assert_allclose(remat.grad(outer)(2.0, 3.0), 60.0)
    np.testing.assert_allclose(jax.vmap(jax.grad(outer), (None, 0))(2.0, jnp.array([1.0, 3.0])), [20.0, 60.0])


def test_python_control_flow_on_values():
    """As with JAX: where values are known, the functions may look at them."""

    def f(x):
        return jnp.sin(x) if x > 0 else jnp.cos(x)

    g = remat.custom_vjp(f)
    g.defvjp(lambda x: (g(x), x), lambda x, ct: ((2 if x > 0 else 3) * ct,))
    np.testing.assert_allclose([g(1.0), g(-1.0)], [jnp.sin(1.0), jnp.cos(-1.0)], rtol=1e-6)
    np.testing.assert_allclose([jax.grad(g)(1.0), jax.grad(g)(-1.0)], [2.0, 3.0])
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(g)(1.0)


@pytest.mark.parametrize("transform", [jax.jvp, remat.jvp], ids=["jax", "remat"])
def test_forward_mode_is_a_type_error(transform):
    with pytest.raises(TypeError, match="can't apply forward-mode differentiation"):
        transform(scaled(remat.custom_vjp), (X,), (X,))


def test_linearize_and_vjp_of_jax():
    out, pullback = jax.vjp(jax.jit(scaled(remat.custom_vjp)), X)
    np.testing.assert_allclose(pullback(X)[0], 3 * jnp.cos(X) * X, rtol=1e-6)
    np.testing.assert_allclose(out, jnp.sin(X), rtol=1e-6)
    _, linear = jax.linearize(scaled(remat.custom_vjp), X)
    np.testing.assert_allclose(jax.linear_transpose(linear, X)(X)[0], 3 * jnp.cos(X) * X, rtol=1e-6)
    with pytest.raises(TypeError, match="forward-mode"):
        linear(X)


@GRADS
def test_policies_see_into_fwd(grad):
    """With `defvjp`, fwd is ordinary code of the region: what the policy names is kept."""
    f = remat.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x), remat.checkpoint_name(jnp.cos(x), "c")), lambda c, g: (c * g,))
    region = remat.checkpoint(lambda x: f(f(x) * 2).sum(), policy="names:c")
    np.testing.assert_allclose(grad(region)(X), jax.grad(lambda x: jnp.sin(jnp.sin(x) * 2).sum())(X), rtol=1e-5)
    assert [r.name for r in remat.saved_residuals(region, X)] == ["c", "c"]
    nothing = remat.checkpoint(lambda x: f(f(x) * 2).sum())
    assert len(remat.saved_residuals(nothing, X)) == 1


def test_keys_as_arguments():
    f = remat.custom_vjp(lambda key, x: x * jax.random.uniform(key, x.shape))
    f.defvjp(lambda key, x: (f(key, x), key), lambda key, g: (None, g * jax.random.uniform(key, g.shape)))
    key = jax.random.key(3)
    for grad in (jax.grad, remat.grad):
        for wrap in (lambda f: f, remat.checkpoint):
            found = grad(lambda x, wrap=wrap: wrap(f)(key, x).sum())(X)
            np.testing.assert_allclose(found, jax.random.uniform(key, X.shape), rtol=1e-6)


def test_lowered_programs_keep_the_rule():
    f = scaled(remat.custom_vjp)
    program = remat.trace(lambda x: f(x).sum())(X)
    assert "custom_vjp[<lambda>]" in str(program)
    np.testing.assert_allclose(jax.grad(remat.lower(program))(X), 3 * jnp.cos(X), rtol=1e-6)
    table = jnp.arange(5.0)
    g = remat.custom_vjp(lambda x: x * table)
    g.defvjp(lambda x: (x * table, None), lambda _, ct: (ct * table * 2,))
    lowered = remat.lower(remat.trace(lambda x: g(x).sum())(X))
    np.testing.assert_allclose(lowered(X), (X * table).sum(), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lowered)(X), table * 2, rtol=1e-6)
    np.testing.assert_allclose(remat.grad(lowered)(X), table * 2, rtol=1e-6)


def test_bwd_is_not_run_where_no_cotangent_comes():
    def fail(res, ct):
        raise AssertionError("bwd ran")

    f = remat.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, None), fail)
    for grad in (jax.grad, remat.grad):
        np.testing.assert_allclose(grad(lambda x: x * 3 + 0 * len([f(x)]))(1.0), 3.0)


def test_wrapper_keeps_name_and_docstring():
    @remat.custom_vjp
    def documented(x):
        """What it does."""
        return x

    assert documented.__name__ == "documented"
    assert documented.__doc__ == "What it does."
    assert repr(documented) == "<custom_vjp documented>"


@GRADS
def test_no_tracer_is_left_behind(grad):
    f = scaled(remat.custom_vjp)
    with jax.checking_leaks():
        found = jax.jit(grad(lambda x: jax.vmap(remat.checkpoint(lambda y: f(y) * y))(x).sum()))(X)
    np.testing.assert_allclose(found, 3 * jnp.cos(X) * X + jnp.sin(X), rtol=1e-6)
