"""`defremat`: what fwd saves is kept, the rest is rebuilt by rem where bwd needs it."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from splitting import count, split

import remat
from remat.ir.ops import Primitive
from remat.testing import assert_saved, assert_trees_close

X = jnp.linspace(0.2, 1.4, 5)
GRADS = pytest.mark.parametrize("grad", [jax.grad, remat.grad], ids=["jax", "remat"])


def sine():
    """Keeps the cosine."""
    f = remat.custom_vjp(jnp.sin)
    f.defremat(lambda x: (jnp.sin(x), jnp.cos(x)), lambda c, x: (jnp.sin(x), c), lambda c, g: (c * g,))
    return f


def normalized():
    """Keeps one number for each row, and rebuilds the rest from it and the argument: the use that the rule is for."""

    def fwd(x):
        scale = jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        return x * scale, scale

    def rem(scale, x):
        out = x * scale
        return out, (out, scale)

    def bwd(res, g):
        out, scale = res
        return (scale * (g - out * jnp.mean(g * out, -1, keepdims=True)),)

    f = remat.custom_vjp(lambda x: fwd(x)[0])
    f.defremat(fwd, rem, bwd)
    return f, lambda x: fwd(x)[0]


def recorded():
    """A rule that keeps nothing, with marks that tell what ran: fwd takes the sine by `sin`, rem by `tan`."""
    f = remat.custom_vjp(jnp.sin)
    f.defremat(
        lambda x: (jnp.sin(x), None),
        lambda _, x: (jnp.tan(x) * jnp.cos(x), jnp.cos(x)),
        lambda c, g: (c * g,),
    )
    return f


def kept(fun, *args):
    return sorted(r.origin.text for r in remat.saved_residuals(fun, *args))


@GRADS
def test_the_documented_example(grad):
    sin = sine()
    np.testing.assert_allclose(grad(remat.checkpoint(lambda x: sin(sin(x))))(1.0), 0.36003947, rtol=1e-6)
    np.testing.assert_allclose(grad(lambda x: sin(sin(x)))(1.0), 0.36003947, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(grad(remat.checkpoint(sin)))(1.0), jnp.cos(1.0), rtol=1e-6)


@pytest.mark.parametrize("policy", [None, "nothing", "dots", "names:other", "balanced", "burn", "everything"])
def test_what_fwd_saves_is_kept_whatever_the_policy(policy):
    sin = sine()

    def f(x):
        return remat.checkpoint_name(sin(sin(x) * 2) * 3, "other").sum()

    region = remat.checkpoint(f, policy=policy)
    assert kept(region, X).count("cos") == 2
    expected = jax.grad(lambda x: (jnp.sin(jnp.sin(x) * 2) * 3).sum())(X)
    assert_trees_close(remat.grad(region)(X), expected)
    assert_trees_close(jax.grad(region)(X), expected)


def test_nothing_else_is_kept():
    sin = sine()
    assert_saved(remat.checkpoint(lambda x: sin(sin(x) * 2).sum()), (X,), [("f32[5]", "cos"), ("f32[5]", "cos")])


@pytest.mark.parametrize("policy", [None, "everything"])
def test_what_rem_makes_is_never_kept(policy):
    f, plain = normalized()
    x = jax.random.normal(jax.random.key(0), (4, 8))
    region = remat.checkpoint(lambda x: f(f(x) + 1).sum(), policy=policy)
    shapes = sorted(r.type for r in remat.saved_residuals(region, x))
    assert shapes.count("f32[4,1]") == 2
    if policy is None:
        assert shapes == ["f32[4,1]", "f32[4,1]", "f32[4,8]"]
    made = split(region, x)
    assert_trees_close(remat.grad(region)(x), jax.grad(lambda x: plain(plain(x) + 1).sum())(x), rtol=1e-4, atol=1e-5)
    assert count(made.forward, "rsqrt") == 2
    assert count(made.second, "rsqrt") == 0


def test_a_saved_argument_is_kept_too():
    """As in JAX: what fwd hands on is kept, also where it was computed before."""
    f = remat.custom_vjp(jnp.sin)
    f.defremat(lambda x: (jnp.sin(x), x), lambda x, _: (jnp.sin(x), jnp.cos(x)), lambda c, g: (c * g,))
    assert_saved(
        remat.checkpoint(lambda x: f(f(f(x) * 2) * 3).sum()),
        (X,),
        [("f32[5]", "mul"), ("f32[5]", "mul"), ("f32[5]", "x")],
    )


def test_rem_runs_in_the_backward_pass_only():
    f = recorded()
    region = remat.checkpoint(lambda x: f(f(x)).sum())
    made = split(region, X)
    assert count(made.forward, "tan") == 0
    assert count(made.forward, "cos") == 0
    assert count(made.forward, "sin") == 2
    assert count(made.second, "cos") == 3  # one for each rule, and one to rebuild the result of the first
    assert_trees_close(remat.grad(region)(X), jax.grad(lambda x: jnp.sin(jnp.sin(x)).sum())(X))


def test_later_code_gets_the_result_from_rem():
    """The result of the call is needed again by what follows in the region: rem makes it, fwd does not run again."""
    f = recorded()
    region = remat.checkpoint(lambda x: jnp.exp(f(x) ** 3).sum())
    made = split(region, X)
    assert count(made.second, "tan") == 1
    assert count(made.second, "sin") == 0
    assert_trees_close(remat.grad(region)(X), jax.grad(lambda x: jnp.exp(jnp.sin(x) ** 3).sum())(X))


def test_rem_comes_just_before_its_bwd():
    """Bwd of the second call is done before rem of the first one begins."""
    f = remat.custom_vjp(jnp.sin)
    f.defremat(
        lambda x: (jnp.sin(x), None), lambda _, x: (jnp.sin(x), jnp.tan(x)), lambda t, g: (g * jax.lax.rsqrt(1 + t**2),)
    )
    region = remat.checkpoint(lambda x: f(f(x) * 2).sum())
    names = [e.op.name for e in split(region, X).second.equations if isinstance(e.op, Primitive)]
    first_bwd, second_rem = names.index("rsqrt"), len(names) - 1 - names[::-1].index("tan")
    assert names.count("tan") == names.count("rsqrt") == 2
    assert first_bwd < second_rem
    assert "optimization_barrier" in [e.op.name for e in split(region, X).second.equations]
    expected = jax.grad(lambda x: jnp.sin(jnp.sin(x) * 2).sum())(X * 0.5)
    assert_trees_close(remat.grad(region)(X * 0.5), expected)


def test_outside_regions_rem_runs_after_fwd():
    f = recorded()
    made = split(lambda x: f(f(x)).sum(), X)
    assert count(made.forward, "cos") == 2
    assert count(made.second, "cos") == count(made.second, "sin") == 0
    assert_saved(lambda x: f(x).sum(), (X,), [("f32[5]", "cos")])


def test_defvjp_serves_outside():
    f = sine()
    f.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda c, g: (c * g * 10,))
    assert_trees_close(remat.grad(lambda x: f(x).sum())(X), 10 * jnp.cos(X))
    assert_trees_close(jax.grad(lambda x: f(x).sum())(X), 10 * jnp.cos(X))
    assert_trees_close(remat.grad(lambda x: remat.checkpoint(f)(x).sum())(X), jnp.cos(X))
    both = remat.grad(lambda x: (f(x) + remat.checkpoint(f)(x)).sum())(X)
    assert_trees_close(both, 11 * jnp.cos(X))


@pytest.mark.parametrize(
    "wrap",
    [
        jax.jit,
        jax.vmap,
        lambda f: remat.checkpoint(lambda x: f(remat.checkpoint(lambda y: f(y) * 2)(x))),
        lambda f: lambda x: jax.lax.cond(x[0, 0] > 0, f, lambda y: y, x),
        lambda f: lambda x: jax.lax.switch(1, [lambda y: y, f, jnp.cos], x),
        lambda f: lambda x: jax.lax.scan(lambda c, y: (f(c) * y, f(c + y)), x[0], x)[1],
        lambda f: lambda x: jax.lax.scan(remat.checkpoint(lambda c, y: (f(c) * y, f(c + y))), x[0], x),
        lambda f: lambda x: jax.lax.scan(lambda c, y: (remat.checkpoint(lambda z: f(f(z)))(c), f(y)), x[0], x),
        lambda f: (
            lambda x: jax.lax.scan(lambda c, y: (f(c), jax.lax.scan(lambda d, z: (d, f(d + c)), y, c)[1]), x[0], x)
        ),
        lambda f: lambda x: jax.lax.fori_loop(0, 3, lambda i, c: f(c), x),
        lambda f: lambda x: jax.vmap(f, in_axes=1, out_axes=1)(x),
        lambda f: jax.vmap(jax.vmap(f)),
    ],
)
@pytest.mark.parametrize("region", [lambda f: f, remat.checkpoint], ids=["plain", "region"])
def test_in_structures(wrap, region):
    x = jax.random.normal(jax.random.key(0), (3, 3)) + 1
    expected = jax.grad(lambda x: sum(r.sum() for r in jax.tree.leaves(wrap(jnp.sin)(x))))(x)
    for f in (sine(), recorded()):
        loss = region(lambda x: sum(r.sum() for r in jax.tree.leaves(wrap(f)(x))))  # noqa: B023
        assert_trees_close(remat.grad(loss)(x), expected, rtol=1e-4)
        assert_trees_close(jax.grad(loss)(x), expected, rtol=1e-4)


def test_kept_in_the_loop_of_a_region():
    """The cosines of all iterations are kept, stacked; those of fwd in a branch come out of the branch."""
    sin = sine()

    def loop(x):
        return jax.lax.scan(lambda c, _: (sin(c) * 2, None), x, None, length=4)[0].sum()

    region = remat.checkpoint(loop)
    assert [(r.type, r.times) for r in remat.saved_residuals(region, X)] == [("f32[5]", 4)]
    assert count(split(region, X).second, "cos") == 0
    branch = remat.checkpoint(lambda x: jax.lax.cond(x[0] > 0, sin, lambda y: y, x).sum())
    assert count(split(branch, X).second, "cos") == 0


def test_shared_weights_under_vmap():
    """Under vmap, what is kept is mapped only where it depends on what is mapped."""
    f = remat.custom_vjp(lambda w, x: jnp.tanh(w @ x))
    f.defremat(
        lambda w, x: (jnp.tanh(w @ x), w * 2),
        lambda w2, w, x: (jnp.tanh(w @ x), (w2, jnp.tanh(w @ x), x)),
        lambda r, g: (jnp.outer(g * (1 - r[1] ** 2), r[2]), r[0].T @ (g * (1 - r[1] ** 2)) / 2),
    )
    w, x = jax.random.normal(jax.random.key(0), (4, 4)), jax.random.normal(jax.random.key(1), (7, 4))
    region = remat.checkpoint(lambda w, x: jax.vmap(f, (None, 0))(w, x).sum())
    assert sorted(r.type for r in remat.saved_residuals(region, w, x)) == ["f32[4,4]", "f32[4,4]", "f32[7,4]"]
    expected = jax.grad(lambda w, x: jnp.tanh(x @ w.T).sum(), (0, 1))(w, x)
    for grad in (jax.grad, remat.grad):
        assert_trees_close(grad(region, (0, 1))(w, x), expected, rtol=1e-4)


@pytest.mark.parametrize("region", [lambda f: f, remat.checkpoint], ids=["plain", "region"])
def test_second_order(region):
    sin = sine()
    expected = jax.grad(jax.grad(lambda x: jnp.sin(jnp.sin(x))))(0.7)
    f = region(lambda x: sin(sin(x)))
    for outer in (jax.grad, remat.grad):
        for inner in (jax.grad, remat.grad):
            np.testing.assert_allclose(outer(inner(f))(0.7), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.jacfwd(remat.grad(f))(0.7), expected, rtol=1e-5)


def test_nondiff_arguments_reach_all_three():
    f = remat.custom_vjp(lambda n, x, fun: fun(x) * n, nondiff_argnums=(0, 2))
    f.defremat(
        lambda n, x, fun: (fun(x) * n, None),
        lambda res, n, x, fun: (fun(x) * n, jnp.cos(x)),
        lambda n, fun, c, g: (g * n * c if fun is jnp.sin else None,),
    )
    for wrap in (lambda f: f, remat.checkpoint):
        loss = lambda x, wrap=wrap: wrap(lambda x: f(3, x, jnp.sin))(x).sum()  # noqa: E731
        for grad in (jax.grad, remat.grad):
            assert_trees_close(grad(loss)(X), 3 * jnp.cos(X))


def test_several_arguments_and_results_of_which_some_are_used():
    def fwd(a, n, b):
        return {"p": a * b, "n": n, "same": a}, {"half": a / 2}

    def rem(kept, a, n, b):
        return {"p": a * b, "n": n, "same": a}, (kept["half"] * 2, b, n)

    def bwd(res, ct):
        a, b, _ = res
        return ct["p"] * b + ct["same"], None, ct["p"] * a

    f = remat.custom_vjp(lambda a, n, b: fwd(a, n, b)[0])
    f.defremat(fwd, rem, bwd)
    n = jnp.arange(5)
    for key, plain in (("p", lambda a, b: (a * b * 2).sum()), ("same", lambda a, b: (a * 2).sum())):
        loss = remat.checkpoint(lambda a, b: (f(a * 1.0, n, b)[key] * 2).sum())  # noqa: B023
        for grad in (jax.grad, remat.grad):
            assert_trees_close(grad(loss, (0, 1))(X, X + 1), jax.grad(plain, (0, 1))(X, X + 1))


@pytest.mark.skipif(not os.environ.get("JAX_CUSTOM_VJP3"), reason="jax's own defremat needs its flags")
@pytest.mark.parametrize("keeps", ["cos", "argument", "nothing"])
def test_as_jax_where_jax_has_it(keeps):
    """Gradients, and how much is kept, next to jax's own `defremat`."""

    def rules(f):
        saved = {"cos": jnp.cos, "argument": lambda x: x, "nothing": lambda x: None}[keeps]
        cosine = {"cos": lambda r, x: r, "argument": lambda r, x: jnp.cos(r), "nothing": lambda r, x: jnp.cos(x)}[keeps]
        f.defremat(lambda x: (jnp.sin(x), saved(x)), lambda r, x: (jnp.sin(x), cosine(r, x)), lambda c, g: (c * g * 3,))
        return f

    theirs, ours = rules(jax.custom_vjp(jnp.sin)), rules(remat.custom_vjp(jnp.sin))
    for wrap, where in (
        (lambda f: lambda x: f(f(x) * 2).sum(), X),
        (lambda f: lambda x: jax.lax.scan(lambda c, y: (f(c) + y, None), x[0], x)[0].sum(), X[:, None] * X),
        (lambda f: lambda x: jax.vmap(f)(x).sum(), X),
    ):
        expected = jax.grad(jax.checkpoint(wrap(theirs)))(where)
        assert_trees_close(remat.grad(remat.checkpoint(wrap(ours)))(where), expected)
        assert_trees_close(jax.grad(remat.checkpoint(wrap(ours)))(where), expected)
        assert_trees_close(remat.grad(wrap(ours))(where), jax.grad(wrap(theirs))(where))

    def straight(f):
        return lambda x: f(f(f(x) * 2) * 3).sum()

    theirs_kept = jax.tree.leaves(jax.vjp(jax.checkpoint(straight(theirs)), X)[1])
    ours_kept = jax.tree.leaves(remat.vjp(remat.checkpoint(straight(ours)), X)[1])
    assert sorted(x.shape for x in ours_kept) == sorted(x.shape for x in theirs_kept)


@pytest.mark.filterwarnings("ignore::remat.OverriddenPolicyWarning")
def test_random_chains():
    """Chains of calls with and without rules, in and out of regions: gradients are those without any of it."""
    random = np.random.default_rng(0)
    pool = [(sine(), jnp.sin), (recorded(), jnp.sin), normalized(), (jnp.tanh, jnp.tanh)]
    for _ in range(6):
        steps = [(pool[i], bool(r)) for i, r in zip(random.integers(0, 4, 4), random.integers(0, 2, 4), strict=True)]

        def ours(x, steps=steps):
            for (f, _), region in steps:
                x = (remat.checkpoint(f) if region else f)(x * 0.9) + 0.1 * x
            return x.sum()

        def plain(x, steps=steps):
            for (_, f), _ in steps:
                x = f(x * 0.9) + 0.1 * x
            return x.sum()

        expected = jax.grad(plain)(X)
        for policy in (None, "nothing", "dots", "balanced", "everything"):
            assert_trees_close(remat.grad(ours, policy=policy)(X), expected, rtol=1e-4, atol=1e-5)
        assert_trees_close(jax.grad(remat.checkpoint(ours))(X), expected, rtol=1e-4, atol=1e-5)
