"""Keys of values: unique, the same from one trace to the next and in programs and what is made of them; digests."""

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.inspect.planned import Loss
from remat.ir.keys import Keys, program_digests, program_keys
from remat.ir.program import Value
from remat.ir.rewrite import inline_all
from remat.transforms.linearize import linearize_program

X = jnp.ones((8, 8))
WEIGHTS = [X] * 3


def scanned(weights, x):
    return jax.lax.scan(lambda x, w: (jnp.sin(jnp.tanh(x @ w)), None), x, weights)[0].sum()


def layers(weights, x):
    for w in weights:
        x = jax.nn.silu(x @ w)
    return x.sum()


def branches(weights, x):
    with jax.named_scope("choice"):
        return jax.lax.cond(x[0, 0] > 0, jnp.sin, lambda y: jnp.cos(y) * y, x @ weights[0]).sum()


def softmax(weights, x):
    return jax.nn.logsumexp(jax.nn.gelu(x @ weights[0]) + jax.nn.relu(x), axis=-1).sum()


def keys_of(fun, *args, policy="nothing"):
    loss = Loss.of("test", fun, args, {}, 0)
    return Keys(loss.under(remat.policies.parse(policy)).split.linearized, loss.names)


def test_keys_are_unique_and_say_where():
    def fun(ws, x):
        with jax.named_scope("attention"):
            x = remat.checkpoint_name(jax.nn.silu(x @ ws[0]), "out")
        return scanned(ws, x)

    keys = keys_of(fun, jnp.stack(WEIGHTS), X)
    assert len(keys.values) == len(keys.of)
    assert {"attention/dot_general#0", "attention/name[out]#0", "attention/jit(silu)/logistic#0"} <= keys.values.keys()
    assert "scan#0/dot_general#0" in keys.values
    assert any(key.startswith("scan#0/tanh#0~") for key in keys.values)
    assert {"argument ws", "argument x"} <= keys.values.keys()


@pytest.mark.parametrize("fun", [scanned, layers, branches, softmax])
def test_a_value_has_its_key_before_and_after_it_is_linearized(fun):
    """What only derivatives need does not shift the ordinals of the function's own equations."""
    args = (jnp.stack(WEIGHTS) if fun is scanned else WEIGHTS), X
    program = inline_all(remat.trace(fun)(*args))
    names = [f"#{i}" for i in range(len(program.inputs))]
    copies = {}
    linearized = linearize_program(program, [True] * len(program.inputs), copies=copies)
    keys = Keys(linearized, names)
    assert len(keys.values) == len(keys.of)
    compared = 0
    for value, key in program_keys(program).items():
        if isinstance(copies.get(value), Value):
            assert keys.of[copies[value]] == key
            compared += 1
    assert compared >= 4


def test_keys_of_segments_are_those_of_the_model():
    """Cutting a program into segments inlines calls; their names stay."""
    before, after = (keys_of(layers, WEIGHTS, X, policy=p) for p in ("nothing", "segments:nothing"))
    assert before.values.keys() == after.values.keys()


def digests_of(fun, *args):
    program = inline_all(remat.trace(fun)(*args))
    digests = program_digests(program)
    return {key: digests[v] for v, key in program_keys(program).items()}


def test_digests_stay_when_lines_are_reordered():
    def one(w, x):
        a = jnp.sin(x @ w)
        b = jnp.sin(w @ x)
        return (a * b).sum()

    def other(w, x):
        b = jnp.sin(w @ x)
        a = jnp.sin(x @ w)
        return (a * b).sum()

    first, second = digests_of(one, X, X), digests_of(other, X, X)
    assert first.keys() == second.keys()
    assert first["sin#0"] == second["sin#1"] != second["sin#0"]


def test_digests_tell_parameters_apart():
    def fun(x):
        return (jnp.sum(x, 0) + jnp.sum(x, 1) + jnp.max(x, 0) + jnp.max(x, 1)).sum()

    digests = {k: d for k, d in digests_of(fun, X).items() if "reduce" in k}
    assert len(set(digests.values())) == len(digests) == 5


def test_digests_tell_loop_bodies_apart():
    def looped(f):
        return lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0].sum()

    one, other = digests_of(looped(jnp.sin), X), digests_of(looped(jnp.cos), X)
    assert one["scan#0.0" if "scan#0.0" in one else "scan#0"] != other["scan#0.0" if "scan#0.0" in other else "scan#0"]
