"""Each mistake in a rule is an error that names the rule function and says what it should return."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import SymbolicZero

import remat
from remat.errors import ArgumentError, ArgumentTypeError, MissingRuleError, RematError, RuleError, RuleTypeError

X = jnp.ones((2, 3))
TREE = {"w": X, "b": jnp.ones(3)}
PLACES = pytest.mark.parametrize(
    "differentiate",
    [
        lambda f: jax.grad(lambda *a: jnp.sum(f(*a))),
        lambda f: remat.grad(lambda *a: jnp.sum(f(*a))),
        lambda f: remat.grad(remat.checkpoint(lambda *a: jnp.sum(f(*a)))),
        lambda f: jax.jit(jax.grad(lambda *a: jnp.sum(f(*a)))),
        lambda f: jax.grad(lambda *a: jnp.sum(jax.vmap(f)(*jax.tree.map(lambda x: x[None], a)))),
        lambda f: remat.grad(lambda *a: jnp.sum(jax.vmap(f)(*jax.tree.map(lambda x: x[None], a)))),
    ],
    ids=["jax", "remat", "region", "jit", "vmap", "remat of vmap"],
)


def layer(tree, x):
    return x * tree["w"] + tree["b"]


def my_fwd(tree, x):
    return layer(tree, x), x


def my_rem(kept, tree, x):
    return layer(tree, x), kept


def my_bwd(res, g):
    return {"w": g * res, "b": g.sum(0)}, g


def with_rules(fwd=my_fwd, bwd=my_bwd, rem=None):
    f = remat.custom_vjp(layer)
    if rem is None:
        f.defvjp(fwd, bwd)
    else:
        f.defremat(fwd, rem, bwd)
    return f


def named(name, function):
    function.__name__ = name
    return function


BAD_BWDS = {
    "too few": (lambda r, g: (None,), RuleTypeError, r"one cotangent for each of the 2 .*it returned a tuple of 1"),
    "too many": (lambda r, g: (None, None, None), RuleTypeError, "it returned a tuple of 3"),
    "no tuple": (lambda r, g: g, RuleTypeError, r"but it returned f32\[2,3\]"),
    "a dict": (lambda r, g: {"w": g}, RuleTypeError, r"it returned a dict, \{'w': f32\[2,3\]\}"),
    "other keys": (
        lambda r, g: ({"w": g, "c": g}, g),
        RuleTypeError,
        r"pytree structure of the arguments, \(\{'b': f32\[3\], 'w': f32\[2,3\]\}, f32\[2,3\]\)",
    ),
    "list for dict": (lambda r, g: ([g, g], g), RuleTypeError, "None stands for a part that is zero"),
    "shape": (
        lambda r, g: ({"w": g, "b": g}, g),
        RuleError,
        r"For tree\['b'\] it returned f32\[2,3\], where f32\[3\] is needed",
    ),
    "dtype": (
        lambda r, g: ({"w": g.astype(jnp.bfloat16), "b": None}, g),
        RuleError,
        r"For tree\['w'\] it returned bf16\[2,3\], where f32\[2,3\] is needed. Use sum, reshape or astype",
    ),
    "integer": (lambda r, g: (None, jnp.ones((2, 3), jnp.int32)), RuleError, r"For x it returned i32\[2,3\]"),
    "complex": (lambda r, g: (None, g * 1j), RuleError, r"For x it returned c64\[2,3\]"),
    "float0": (
        lambda r, g: (None, np.zeros((2, 3), jax.dtypes.float0)),
        RuleError,
        r"For x it returned float0\[2,3\], where f32\[2,3\] is needed",
    ),
    "text": (lambda r, g: (None, "zero"), RuleError, "For x it returned 'zero' of type str"),
    "symbolic zero": (
        lambda r, g: (None, SymbolicZero(jax.typeof(jnp.ones(4)))),
        RuleError,
        r"For x it returned f32\[4\], where f32\[2,3\] is needed",
    ),
}


@PLACES
@pytest.mark.parametrize("kind", BAD_BWDS)
@pytest.mark.parametrize("rem", [None, my_rem], ids=["defvjp", "defremat"])
def test_cotangents(kind, rem, differentiate):
    bwd, error, text = BAD_BWDS[kind]
    f = with_rules(bwd=named("my_bad_bwd", bwd), rem=rem)
    with pytest.raises(error, match=rf"(?s)the bwd rule my_bad_bwd of layer must return .*{text}"):
        differentiate(f)(TREE, X)


def test_kinds_of_errors_are_those_of_jax():
    assert issubclass(RuleError, ValueError)
    assert issubclass(RuleTypeError, TypeError)
    assert issubclass(MissingRuleError, AttributeError)
    assert issubclass(remat.errors.NondiffTracerError, jax.errors.UnexpectedTracerError)


def test_the_comma_of_a_tuple_of_one():
    f = remat.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: g * jnp.cos(x))
    with pytest.raises(RuleTypeError, match=r"write a comma after a single one: `return \(g,\)`"):
        remat.grad(f)(1.0)


def test_what_bwd_may_return():
    """Lists, Python numbers, None and symbolic zeros for parts."""
    for found, expected in (
        ([None, 2.0], 2.0),
        ((None, SymbolicZero(jax.typeof(jnp.float32(1)))), 0.0),
        (({"w": None, "b": None}, 3), 3.0),
    ):
        f = with_rules(bwd=lambda r, g, found=found: found)
        for grad in (jax.grad, remat.grad):
            np.testing.assert_allclose(grad(f, 1)({"w": 1.0, "b": 2.0}, 1.0), expected)


BAD_PAIRS = {
    "no pair": (lambda tree, x: layer(tree, x), r"a pair \(out, residuals\).*but returned f32\[2,3\]"),
    "three": (lambda tree, x: (layer(tree, x), x, x), "but returned a tuple"),
    "tree": (
        lambda tree, x: ((layer(tree, x),), x),
        r"other pytree structure than layer returns: \(f32\[2,3\],\), where",
    ),
    "shape": (
        lambda tree, x: (layer(tree, x)[0], x),
        r"other shapes and dtypes .*: f32\[3\], where layer .* f32\[2,3\]",
    ),
    "dtype": (lambda tree, x: (layer(tree, x).astype(jnp.bfloat16), x), r"bf16\[2,3\], where layer returns f32\[2,3\]"),
    "none": (lambda tree, x: (None, x), r"other pytree structure than layer returns: None"),
}


@PLACES
@pytest.mark.parametrize("kind", BAD_PAIRS)
@pytest.mark.parametrize("role", ["fwd", "rem", "fwd before rem"])
def test_results_of_fwd_and_rem(kind, role, differentiate):
    bad, text = BAD_PAIRS[kind]
    if role == "rem":
        f = with_rules(rem=named("my_bad_rule", lambda kept, *args: bad(*args)))
    else:
        f = with_rules(fwd=named("my_bad_rule", lambda *args: bad(*args)), rem=my_rem if role != "fwd" else None)
    which = role.split(" ")[0]
    with pytest.raises(RuleTypeError, match=rf"(?s)the {which} rule my_bad_rule of layer must return .*{text}"):
        differentiate(f)(TREE, X)


def test_errors_tell_the_call():
    f = with_rules(bwd=lambda r, g: (None,))
    with pytest.raises(RuleTypeError) as caught:
        remat.grad(lambda x: f(TREE, x).sum(), policy="dots")(X)
    assert any("the custom_vjp function layer, called from" in n and __file__ in n for n in caught.value.__notes__)


def test_errors_inside_rules_come_out_as_they_are():
    def broken(r, g):
        raise KeyError("mine")

    for grad in (jax.grad, remat.grad):
        with pytest.raises(KeyError, match="mine"):
            grad(lambda x: with_rules(bwd=broken)(TREE, x).sum())(X)


def test_residuals_that_change():
    """A rule that saves more when it is called again with the same types."""
    calls = []

    def fwd(tree, x):
        calls.append(1)
        return layer(tree, x), [x] * len(calls)

    f = with_rules(fwd=fwd, bwd=lambda r, g: (None, g))
    with pytest.raises(RuleTypeError, match=r"a rule of layer saved 1 arrays .* and 2 when it was called again"):
        jax.grad(lambda x: jax.vmap(f, (None, 0))(TREE, x[None]).sum())(X)


def test_primal_objects_among_the_residuals():
    f = remat.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x.value), {"x": x}), lambda r, g: (g,), symbolic_zeros=True)
    with pytest.raises(RuleTypeError, match=r"saved an argument as it came, at residuals\['x'\].*save its value"):
        remat.grad(f)(1.0)


def test_no_rules():
    f = remat.custom_vjp(layer)
    with pytest.raises(AttributeError, match=r"no VJP is defined for the custom_vjp function layer. Call layer.defvjp"):
        f(TREE, X)


def test_tracers_in_nondiff_arguments():
    f = remat.custom_vjp(lambda n, x: n * x, nondiff_argnums=0)
    f.defvjp(lambda n, x: (n * x, None), lambda n, _, g: (g,))
    with pytest.raises(jax.errors.UnexpectedTracerError, match=r"argument 0 .* is declared in nondiff_argnums"):
        jax.jit(f)(1.0, 2.0)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: remat.custom_vjp(3), ArgumentTypeError, "takes a function"),
        (lambda: remat.custom_vjp(layer, nondiff_argnums="x"), ArgumentTypeError, "Use nondiff_argnames"),
        (lambda: remat.custom_vjp(layer, nondiff_argnames="z"), ArgumentError, "no such parameter"),
        (lambda: with_rules(bwd=3), ArgumentTypeError, "bwd of defvjp takes a function"),
        (lambda: remat.custom_vjp(layer).defremat(my_fwd, None, my_bwd), ArgumentTypeError, "rem of defremat"),
        (lambda: with_rules()(TREE), ArgumentTypeError, "missing a required argument: 'x'"),
        (lambda: with_rules()(TREE, X, y=1), ArgumentTypeError, "unexpected keyword argument 'y'"),
        (lambda: remat.custom_gradient(3), ArgumentTypeError, "takes a function"),
        (lambda: remat.custom_gradient(jnp.sin)(1.0), RuleTypeError, r"sin .*must return a pair \(out, vjp\)"),
        (lambda: remat.custom_gradient(lambda x: (x, x))(1.0), RuleTypeError, r"a function vjp\(cotangent\)"),
    ],
)
def test_wrong_calls(make, error, text):
    with pytest.raises(error, match=text) as caught:
        make()
    assert isinstance(caught.value, RematError)


def test_custom_gradient_mistakes():
    no_pair = remat.custom_gradient(lambda x: (x, lambda y: y), remat=True)
    with pytest.raises(RuleTypeError, match=r"the rem function of <lambda> .* must return a pair \(out, vjp\)"):
        remat.grad(no_pair)(1.0)
    too_many = remat.custom_gradient(lambda x: (x, lambda g: (g, g)))
    with pytest.raises(RuleTypeError, match=r"the bwd rule vjp of <lambda> .*it returned a tuple of 2"):
        remat.grad(too_many)(1.0)
