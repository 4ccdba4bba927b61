"""What users are told when they misuse the public API: the type of the error and the words that help.

Each case is a call that must fail, the class of its error, and pieces of text that must stand in the message (or in
the notes that are added to an error of JAX): what happened, where, what was allowed, and what to do.
"""

import enum
import functools
import inspect
import itertools
import re
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import remat
from remat import errors, policies
from remat.transforms import region_derivative
from remat.units import parse_bytes

X = jnp.arange(3.0)
INTEGERS = jnp.arange(3)
P = jax.checkpoint_policies


# Functions that are misused, with names to look for in messages.


def loss(x, y=1.0):
    return (x * y).sum()


def square(x):
    return x * x


def pair(x):
    return x, x.sum()


def tree(x):
    return {"w": 2 * x, "b": x.sum()}


def branch(x):
    return x if x > 0 else -x


def count(x):
    return x * len(range(int(x)))


def with_numpy(x):
    return x * np.asarray(x)


def index(x):
    return [1.0, 2.0][x.astype(int)] * x


def masked(x):
    return x[x > 0].sum()


def loop(x):
    return lax.while_loop(lambda c: c < 10.0, lambda c: 2 * c, x)


def callback(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), jnp.float32), x).sum()


def kernel(x):
    def body(source, target):
        target[...] = 2 * source[...]

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((3,), jnp.float32), interpret=True)(x).sum()


def sine(x):
    return jnp.sin(x).sum()


def by_mode(x, mode):
    return x if mode == "a" else -x


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


def none_policy(primitive, *avals, **params):
    return None


def number_policy(primitive, *avals, **params):
    return 1


def short_policy(primitive):
    return True


class NoAnswer:
    def decide(self, view):
        return None


class WrongAnswer:
    def decide(self, view):
        return {value: True for equation in view.equations for value in equation.outputs}


def offload_names(**changes):
    given = {
        "names_which_can_be_saved": ["a"],
        "names_which_can_be_offloaded": ["b"],
        "offload_src": "device",
        "offload_dst": "pinned_host",
    }
    return policies.save_and_offload_only_these_names(**{**given, **changes})


class Case(NamedTuple):
    """A call that fails, and what it says."""

    call: object
    error: type
    words: tuple


def line_of(fun, text):
    """`file:line` of the first line of the function with this text."""
    lines, first = inspect.getsourcelines(fun)
    return f"test_messages.py:{first + next(i for i, line in enumerate(lines) if text in line)}"


ARGUMENT, TYPE = errors.ArgumentError, errors.ArgumentTypeError
POLICY, POLICY_TYPE = errors.PolicyError, errors.PolicyTypeError
DIFFERENTIATION = errors.DifferentiationError
ADVICE = ("remat traces", "once", "in place of their values", "jnp.where", "jax.lax.cond", "static_argnames")

GRAD = {
    "not a function": Case(lambda: remat.grad(3), TYPE, ("remat.grad takes a function", "3 of type int")),
    "called too early": Case(lambda: remat.grad(loss(X)), TYPE, ("takes a function", "without calling it")),
    "no function for value_and_grad": Case(lambda: remat.value_and_grad(None), TYPE, ("None of type NoneType",)),
    "result is no scalar": Case(
        lambda: remat.grad(square)(X), DIFFERENTIATION, ("scalar", "square returned f32[3]", ".sum()", "remat.vjp")
    ),
    "result is an integer": Case(
        lambda: remat.grad(lambda x: x.astype(int))(1.0), DIFFERENTIATION, ("floating point result", "returned i32[]")
    ),
    "result is complex": Case(
        lambda: remat.grad(lambda x: 1j * x)(1.0), DIFFERENTIATION, ("returned c64[]", "holomorphic=True")
    ),
    "result is a string": Case(
        lambda: remat.grad(lambda x: "done")(X), DIFFERENTIATION, ("scalar result", "returned 'done' of type str")
    ),
    "result is a dict": Case(
        lambda: remat.grad(tree)(X), DIFFERENTIATION, ("tree returned {'b': f32[], 'w': f32[3]}", "has_aux=True")
    ),
    "result is a pair without has_aux": Case(
        lambda: remat.grad(lambda x: (x.sum(), x))(X), DIFFERENTIATION, ("returned (f32[], f32[3])", "has_aux=True")
    ),
    "result is None": Case(lambda: remat.grad(lambda x: None)(X), DIFFERENTIATION, ("returned None", "scalar")),
    "integer argument": Case(
        lambda: remat.grad(loss)(INTEGERS), DIFFERENTIATION, ("grad of loss", "x is i32[3]", "1.0", "allow_int=True")
    ),
    "integer leaf": Case(
        lambda: remat.grad(lambda params: params["w"].sum())({"w": X, "n": 3}),
        DIFFERENTIATION,
        ("argument params['n'] is i32[]", "argnums", "allow_int=True"),
    ),
    "Python boolean": Case(lambda: remat.grad(square)(True), DIFFERENTIATION, ("x is bool[]", "no gradient")),
    "complex result": Case(
        lambda: remat.grad(lambda z: z)(1j), DIFFERENTIATION, ("floating point result", "returned c64[]", "holomorphic")
    ),
    "holomorphic with real argument": Case(
        lambda: remat.grad(square, holomorphic=True)(1.0),
        DIFFERENTIATION,
        ("x is f32[]", "complex", "Leave holomorphic"),
    ),
    "holomorphic with real result": Case(
        lambda: remat.grad(lambda z: z.real, holomorphic=True)(1j),
        DIFFERENTIATION,
        ("complex result", "returned f32[]"),
    ),
    "string argument": Case(
        lambda: remat.grad(loss)("abc"), DIFFERENTIATION, ("grad of loss", "argument 0", "'abc' of type str", "argnums")
    ),
    "function argument": Case(
        lambda: remat.grad(loss)(square), DIFFERENTIATION, ("argument 0", "square", "of type function", "no gradient")
    ),
    "argnums is a name": Case(
        lambda: remat.grad(loss, argnums="x"), TYPE, ("argnums must be an integer", "'x'", "by position")
    ),
    "argnums is a float": Case(lambda: remat.grad(loss, argnums=1.0), TYPE, ("argnums", "1.0")),
    "argnums is None": Case(lambda: remat.grad(loss, argnums=None), TYPE, ("argnums", "None")),
    "argnums has a name": Case(lambda: remat.grad(loss, argnums=(0, "y")), TYPE, ("(0, 'y')", "keyword argument")),
    "argnums too large": Case(
        lambda: remat.grad(loss, argnums=2)(X, 1.0),
        ARGUMENT,
        ("argnums=2", "loss was called with 2 positional arguments"),
    ),
    "argnums too small": Case(lambda: remat.grad(loss, argnums=-3)(X, 1.0), ARGUMENT, ("argnums=-3", "out of range")),
    "argnums of a keyword argument": Case(
        lambda: remat.grad(loss, argnums=1)(X, y=2.0),
        ARGUMENT,
        ("argnums=1", "1 positional argument and y=... by keyword", "must be passed by position"),
    ),
    "argnums twice": Case(lambda: remat.grad(loss, argnums=(0, 0))(X), ARGUMENT, ("(0, 0)", "twice")),
    "argnums twice, once from the end": Case(
        lambda: remat.grad(loss, argnums=(0, -1))(X), ARGUMENT, ("(0, -1)", "Name each argument once")
    ),
    "argnums empty": Case(lambda: remat.grad(loss, argnums=()), ARGUMENT, ("argnums is empty", "at least one")),
    "has_aux without a pair": Case(
        lambda: remat.grad(loss, has_aux=True)(X),
        TYPE,
        ("has_aux=True, loss", "a pair", "returned f32[]", "tuple of two"),
    ),
    "has_aux with three": Case(
        lambda: remat.grad(lambda x: (x.sum(), 1, 2), has_aux=True)(X), TYPE, ("returned (f32[], i32[], i32[])",)
    ),
    "misspelt policy": Case(lambda: remat.grad(loss, policy="dotz"), POLICY, ("'dotz'", "Did you mean 'dots'?")),
}

VALUES = {
    "if": Case(
        lambda: remat.grad(branch, policy="dots")(1.0),
        jax.errors.TracerBoolConversionError,
        (*ADVICE, "leaves[0] is the argument x", f"branch at {__file__}"),
    ),
    "int": Case(lambda: remat.grad(count, policy="dots")(2.0), jax.errors.ConcretizationTypeError, (*ADVICE, "count")),
    "numpy": Case(
        lambda: remat.grad(with_numpy, policy="dots")(2.0),
        jax.errors.TracerArrayConversionError,
        (*ADVICE, "jax.numpy"),
    ),
    "index": Case(lambda: remat.grad(index, policy="dots")(1.0), jax.errors.TracerIntegerConversionError, ADVICE),
    "mask": Case(lambda: remat.grad(masked, policy="dots")(X), jax.errors.NonConcreteBooleanIndexError, ADVICE),
    "inside params": Case(
        lambda: remat.vjp(lambda params: branch(params["w"]), {"w": 1.0, "b": 2.0}, policy="dots"),
        jax.errors.TracerBoolConversionError,
        (*ADVICE, "the argument params['w']"),
    ),
    "trace": Case(lambda: remat.trace(branch)(1.0), jax.errors.TracerBoolConversionError, ADVICE),
    "saved_residuals": Case(
        lambda: remat.saved_residuals(branch, jax.ShapeDtypeStruct((), "float32")),
        jax.errors.TracerBoolConversionError,
        ADVICE,
    ),
    "checkpoint": Case(lambda: remat.checkpoint(branch)(1.0), jax.errors.TracerBoolConversionError, ADVICE),
    "checkpoint, named by hand": Case(
        lambda: remat.checkpoint(branch, policy="dots|names:a")(1.0), jax.errors.TracerBoolConversionError, ADVICE
    ),
    "jax.grad of checkpoint": Case(
        lambda: jax.grad(remat.checkpoint(branch))(1.0), jax.errors.TracerBoolConversionError, ADVICE
    ),
}

VJP = {
    "no function": Case(lambda: remat.vjp(3, X), TYPE, ("remat.vjp takes a function", "3 of type int")),
    "structure": Case(lambda: remat.vjp(pair, X)[1](X), ValueError, ("tree structure", "pair", __file__)),
    "None": Case(lambda: remat.vjp(square, X)[1](None), ValueError, ("tree structure", "square", "NoneType")),
    "several arguments": Case(lambda: remat.vjp(pair, X)[1](X, 1.0), TypeError, ("pair", "2 arguments")),
    "shape": Case(lambda: remat.vjp(tree, X)[1]({"w": X, "b": X}), ValueError, ("float32[3]", "float32[]")),
    "dtype": Case(lambda: remat.vjp(square, X)[1](INTEGERS), ValueError, ("int32[3]", "float32[3]")),
    "not an array": Case(lambda: remat.vjp(square, X)[1]("one"), TypeError, ("'one'", "str")),
    "has_aux": Case(lambda: remat.vjp(loss, X, has_aux=True), TYPE, ("loss must return a pair", "f32[]")),
    "linear_fn shape": Case(lambda: remat.linearize(loss, X, X)[1](X, jnp.ones(2)), ValueError, ("float32[2]",)),
    "linear_fn of statics": Case(
        lambda: remat.linearize(by_mode, X, "a")[1](X), TYPE, ("tangents (f32[3],) of 1 leaves", "primals had 2")
    ),
    "linearize without a function": Case(lambda: remat.linearize(X, X), TYPE, ("remat.linearize takes a function",)),
    "jvp without tuples": Case(lambda: remat.jvp(loss, X, X), TypeError, ("must be tuples or lists",)),
    "jvp without a function": Case(lambda: remat.jvp(3, (X,), (X,)), TYPE, ("remat.jvp takes a function", "3")),
}

NO_DERIVATIVE = {
    "while": Case(
        lambda: remat.grad(loop, policy="dots")(1.0),
        errors.ReverseModeError,
        ("while loop", line_of(loop, "while_loop"), "(loop)", "jax.lax.scan", "remat.jvp", "stop_gradient"),
    ),
    "while without a policy": Case(lambda: remat.grad(loop)(1.0), ValueError, (line_of(loop, "while_loop"), "(loop)")),
    "while in a region": Case(
        lambda: remat.grad(remat.checkpoint(loop))(1.0), errors.ReverseModeError, (line_of(loop, "while_loop"),)
    ),
    "saved_residuals of while": Case(
        lambda: remat.saved_residuals(loop, 1.0), errors.ReverseModeError, (line_of(loop, "while_loop"),)
    ),
    "callback": Case(
        lambda: remat.grad(callback)(X),
        ValueError,
        ("differentiating pure_callback", line_of(callback, "pure_callback"), "jax.custom_vjp", "stop_gradient"),
    ),
    "kernel": Case(
        lambda: remat.grad(kernel)(X),
        ValueError,
        ("differentiating pallas_call", line_of(kernel, "pallas_call"), "jax.custom_vjp"),
    ),
}

CHECKPOINT = {
    "not a function": Case(lambda: remat.checkpoint(3), TYPE, ("remat.checkpoint takes a function", "3 of type int")),
    "string first": Case(lambda: remat.checkpoint("dots"), TYPE, ("'dots' of type str", "policy=...")),
    "policy first": Case(
        lambda: remat.checkpoint(policies.dots_saveable), TYPE, ("DotsSaveable", "@remat.checkpoint(policy=...)")
    ),
    "JAX's policy first": Case(lambda: remat.checkpoint(P.dots_saveable), TYPE, ("takes a function", "policy=...")),
    "constructor first": Case(
        lambda: remat.checkpoint(policies.save_only_these_names), TYPE, ("takes a function", "policy=...")
    ),
    "policy class": Case(
        lambda: remat.checkpoint(loss, policy=type(policies.dots_saveable)),
        POLICY_TYPE,
        ("the class DotsSaveable is no policy", "write DotsSaveable(...)"),
    ),
    "constructor": Case(
        lambda: remat.checkpoint(loss, policy=policies.save_only_these_names),
        POLICY_TYPE,
        ("without being called", "Write policies.save_only_these_names(...)"),
    ),
    "scope constructor": Case(
        lambda: remat.checkpoint(loss, policy=policies.within), POLICY_TYPE, ("Write policies.within(...)",)
    ),
    "JAX's constructor": Case(
        lambda: remat.checkpoint(loss, policy=P.save_only_these_names),
        POLICY_TYPE,
        ("without being called", "Write jax.checkpoint_policies.save_only_these_names(...)"),
    ),
    "number": Case(
        lambda: remat.checkpoint(loss, policy=3),
        POLICY_TYPE,
        ("3 is no policy", "remat.policies", "'names:a,b'", "(primitive, *avals, **params)"),
    ),
    "list of names": Case(
        lambda: remat.checkpoint(loss, policy=["a"]), POLICY_TYPE, ("['a'] is no policy", "'names:a,b'")
    ),
    "misspelt": Case(
        lambda: remat.checkpoint(loss, policy="dots_savable"),
        POLICY,
        ("'dots_savable'", "Did you mean 'dots_saveable'?", "names:..."),
    ),
    "no answer": Case(
        lambda: remat.grad(remat.checkpoint(sine, policy=none_policy))(X),
        POLICY_TYPE,
        ("none_policy answered None", "about sin", line_of(sine, "jnp.sin"), "True or False", "Offload"),
    ),
    "number for an answer": Case(
        lambda: remat.grad(remat.checkpoint(sine, policy=number_policy))(X),
        POLICY_TYPE,
        ("number_policy answered 1 of type int", "about sin"),
    ),
    "no answer, under jax.grad": Case(
        lambda: jax.grad(remat.checkpoint(sine, policy=none_policy))(X), TypeError, ("None", "olicy", "Saveable")
    ),
    "policy of too few arguments": Case(
        lambda: remat.grad(remat.checkpoint(sine, policy=short_policy))(X),
        TypeError,
        ("asking the policy short_policy about sin", line_of(sine, "jnp.sin"), "(primitive, *avals, **params)"),
    ),
    "decide without an answer": Case(
        lambda: remat.grad(remat.checkpoint(sine, policy=NoAnswer()))(X),
        POLICY_TYPE,
        ("NoAnswer", "returned None", "a dictionary", "Save, Recompute or Offload"),
    ),
    "decide without an answer, under jax.grad": Case(
        lambda: jax.grad(remat.checkpoint(sine, policy=NoAnswer()))(X), POLICY_TYPE, ("NoAnswer", "returned None")
    ),
    "decide with booleans": Case(
        lambda: remat.grad(remat.checkpoint(sine, policy=WrongAnswer()))(X),
        POLICY_TYPE,
        ("WrongAnswer", "True", "Save"),
    ),
    "prevent_cse is a string": Case(
        lambda: remat.checkpoint(loss, prevent_cse="yes"), TYPE, ("prevent_cse must be True, False", "'yes'")
    ),
    "prevent_cse is a number": Case(lambda: remat.checkpoint(loss, prevent_cse=1), TYPE, ("prevent_cse", "is 1")),
    "prevent_cse is None": Case(lambda: remat.checkpoint(loss, prevent_cse=None), TYPE, ("prevent_cse", "is None")),
    "prevent_cse is a dict": Case(
        lambda: remat.checkpoint(loss, prevent_cse={"x": True}), TYPE, ("a tuple", "each positional argument")
    ),
    "prevent_cse does not fit": Case(
        lambda: remat.checkpoint(loss, prevent_cse=(True, False, True))(X, X),
        ARGUMENT,
        ("prevent_cse=(True, False, True)", "loss(f32[3], f32[3])", "each positional argument"),
    ),
    "prevent_cse does not fit an argument": Case(
        lambda: remat.checkpoint(loss, prevent_cse=((True, False), True))(X, X),
        ARGUMENT,
        ("does not fit", "loss(f32[3]"),
    ),
    "static_argnums out of range": Case(
        lambda: remat.checkpoint(loss, static_argnums=5),
        ARGUMENT,
        ("static_argnums has 5", "loss takes 2 positional arguments (x, y)", "static_argnames"),
    ),
    "static_argnums below range": Case(
        lambda: remat.checkpoint(loss, static_argnums=(0, -3)), ARGUMENT, ("static_argnums has -3", "(x, y)")
    ),
    "static_argnums is a name": Case(
        lambda: remat.checkpoint(loss, static_argnums="x"), TYPE, ("static_argnums", "'x'", "static_argnames for names")
    ),
    "static_argnames unknown": Case(
        lambda: remat.checkpoint(loss, static_argnames="z"),
        ARGUMENT,
        ("static_argnames has 'z'", "loss has no such parameter", "'x', 'y'"),
    ),
    "static_argnames is a number": Case(
        lambda: remat.checkpoint(loss, static_argnames=1), TYPE, ("static_argnames", "is 1", "static_argnums")
    ),
    "static_argnames has a number": Case(
        lambda: remat.checkpoint(loss, static_argnames=("x", 1)), TYPE, ("('x', 1)", "static_argnums for positions")
    ),
}

POLICIES = {
    "list of names": Case(
        lambda: policies.save_only_these_names(["a", "b"]),
        POLICY,
        ("separate arguments", "['a', 'b']", "save_only_these_names('a', 'b')", "(*names)"),
    ),
    "name that cannot be hashed": Case(
        lambda: policies.save_any_names_but_these("a", ["b"]), POLICY_TYPE, ("['b'] of type list", "hashed", "strings")
    ),
    "string for a list": Case(
        lambda: offload_names(names_which_can_be_saved="layer"),
        POLICY_TYPE,
        ("names_which_can_be_saved must be a list", "'layer'", "['layer']"),
    ),
    "overlap": Case(
        lambda: offload_names(names_which_can_be_offloaded=["a", "b"]),
        POLICY,
        ("'a'", "both names_which_can_be_saved and names_which_can_be_offloaded", "take each name out of one"),
    ),
    "no memory space": Case(
        lambda: offload_names(offload_dst="disk"), POLICY, ("offload_dst='disk'", "'device', 'pinned_host'")
    ),
    "no memory space to come from": Case(
        lambda: policies.offload_dot_with_no_batch_dims("gpu", "pinned_host"), POLICY, ("offload_src='gpu'", "'device'")
    ),
    "no memory space, as text": Case(lambda: policies.parse("offload:a@disk"), POLICY, ("'disk'", "'pinned_host'")),
    "unknown word": Case(lambda: policies.parse("nmaes:a"), POLICY, ("'nmaes:a'", "Did you mean 'names'?", "dots")),
    "unknown word, nothing near": Case(
        lambda: policies.parse("xyzzy"), POLICY, ("'xyzzy'", "Known: auto, balanced", "| and &")
    ),
    "unknown word inside": Case(lambda: policies.parse("scan_body:dotz"), POLICY, ("'dotz'", "Did you mean 'dots'?")),
    "missing argument": Case(lambda: policies.parse("names"), POLICY, ("'names' needs an argument", "'names:a,b'")),
    "empty argument": Case(lambda: policies.parse("names: ,"), POLICY, ("needs names", "separated by commas")),
    "needless argument": Case(lambda: policies.parse("dots:a"), POLICY, ("'dots' takes no argument", "'dots:a'")),
    "scope without a policy": Case(
        lambda: policies.parse("within:attention"), POLICY, ("a scope and a policy", "'within:attention:dots'")
    ),
    "parentheses not closed": Case(
        lambda: policies.parse("(dots|names:a"), POLICY, ("parentheses", "'(dots|names:a'", "do not match")
    ),
    "parentheses not opened": Case(lambda: policies.parse("dots)|names:a"), POLICY, ("parentheses", "do not match")),
    "empty": Case(lambda: policies.parse(""), POLICY, ("empty", "Known: auto, balanced")),
    "one side empty": Case(lambda: policies.parse("dots|"), POLICY, ("'dots|'", "nothing on one side of '|'")),
    "neither text nor policy": Case(lambda: policies.parse(3), POLICY_TYPE, ("3 is no policy", "remat.policies")),
    "or with a number": Case(lambda: policies.dots_saveable | 3, POLICY_TYPE, ("3 is no policy", "'dots'")),
    "number or": Case(lambda: 3 | policies.dots_saveable, POLICY_TYPE, ("3 is no policy",)),
    "and with None": Case(lambda: policies.dots_saveable & None, POLICY_TYPE, ("None is no policy",)),
    "or with a text": Case(
        lambda: policies.dots_saveable | "nothing", POLICY_TYPE, ("'nothing' is a string", "policies.parse('nothing')")
    ),
    "or with a constructor": Case(
        lambda: policies.dots_saveable | policies.save_only_these_names, POLICY_TYPE, ("without being called",)
    ),
    "both with JAX's constructor": Case(
        lambda: policies.save_from_both_policies(policies.dots_saveable, P.save_only_these_names),
        POLICY_TYPE,
        ("jax.checkpoint_policies.save_only_these_names", "without being called"),
    ),
    "scope is a number": Case(lambda: policies.within(3, "dots"), POLICY, ("scope of within is 3", "named_scope")),
    "scope has no name": Case(
        lambda: policies.within(functools.partial(loss), "dots"),
        POLICY,
        ("functools.partial", "a function with a name"),
    ),
}

NAMES_OF_VALUES = {
    "cannot be hashed": Case(lambda: remat.checkpoint_name(X, ["a"]), TYPE, ("must be hashable", "['a']", "a string")),
    "array for a name": Case(lambda: remat.checkpoint_name(X, X), TYPE, ("must be hashable", "a string")),
    "the wrong way round": Case(
        lambda: remat.checkpoint_name("a", X), TYPE, ("'a' of type str", "no array", "The value comes first")
    ),
    "the wrong way round, traced": Case(
        lambda: remat.grad(lambda x: remat.checkpoint_name("a", x))(1.0), TYPE, ("'a' of type str", "comes first")
    ),
    "no array": Case(
        lambda: remat.checkpoint_name(jnp.sin, "a"), TYPE, ("sin", "no array", "checkpoint_name(x, 'name')")
    ),
}

PROGRAMS = {
    "other structure": Case(
        lambda: remat.lower(remat.trace(loss)(X))(X, y=X),
        TYPE,
        ("traced for loss(f32[3])", "called as loss(f32[3], y=f32[3])", "trace again"),
    ),
    "other shape": Case(
        lambda: remat.lower(remat.trace(loss)(X))(jnp.ones(2)),
        ARGUMENT,
        ("argument x has type f32[2]", "traced for f32[3]", "Trace the function again"),
    ),
    "other dtype": Case(lambda: remat.lower(remat.trace(loss)(X))(INTEGERS), ARGUMENT, ("x has type i32[3]", "f32[3]")),
    "string for an array": Case(
        lambda: remat.lower(remat.trace(loss)(X))("s"), TYPE, ("argument x is 's' of type str", "f32[3]")
    ),
    "other static text": Case(
        lambda: remat.lower(remat.trace(by_mode)(X, "a"))(X, "b"),
        ARGUMENT,
        ("by_mode", "static argument 'a'", "'b'", "Trace the function again"),
    ),
    "other static member": Case(
        lambda: remat.lower(remat.trace(by_mode)(X, Mode.FAST))(X, Mode.SLOW), ARGUMENT, ("Mode.FAST", "Mode.SLOW")
    ),
    "flat program, other count": Case(
        lambda: remat.lower(remat.Program([], [], []))(X), ARGUMENT, ("takes 0 inputs", "called with 1")
    ),
    "lower of a function": Case(
        lambda: remat.lower(loss), TYPE, ("takes a Program", "of type function", "remat.lower(remat.trace(fun)(*args))")
    ),
    "trace of a number": Case(lambda: remat.trace(3)(X), TYPE, ("takes a function", "3 of type int")),
    "saved_residuals of a number": Case(lambda: remat.saved_residuals(3, X), TYPE, ("takes a function", "3")),
    "fwd_bwd of a number": Case(lambda: remat.print_fwd_bwd(3, X), TYPE, ("takes a function", "3")),
    "recursive of a function": Case(
        lambda: remat.recursive_checkpoint(jnp.sin), TYPE, ("a list of functions", "recursive_checkpoint([f, g])")
    ),
    "recursive with a number": Case(
        lambda: remat.recursive_checkpoint([jnp.sin, 3]), TYPE, ("recursive_checkpoint", "3 of type int")
    ),
}

SIZES = {
    "word": Case(lambda: parse_bytes("lots"), ARGUMENT, ("'lots' is no size", "GiB", "8GiB")),
    "unit": Case(lambda: parse_bytes("8 GG"), ARGUMENT, ("'8 GG'", "KiB, MiB, GiB")),
    "empty": Case(lambda: parse_bytes(""), ARGUMENT, ("'' is no size", "8GiB")),
    "negative": Case(lambda: parse_bytes(-3), ARGUMENT, ("zero or more bytes", "-3")),
    "not a number": Case(lambda: parse_bytes(float("nan")), ARGUMENT, ("nan",)),
    "infinite": Case(lambda: parse_bytes(float("inf")), ARGUMENT, ("inf",)),
    "None": Case(lambda: parse_bytes(None), TYPE, ("'8GiB'", "None of type NoneType")),
    "boolean": Case(lambda: parse_bytes(True), TYPE, ("a number of bytes", "True")),
}

TABLES = {
    "grad": GRAD,
    "values": VALUES,
    "vjp": VJP,
    "no derivative": NO_DERIVATIVE,
    "checkpoint": CHECKPOINT,
    "policies": POLICIES,
    "checkpoint_name": NAMES_OF_VALUES,
    "programs": PROGRAMS,
    "sizes": SIZES,
}
CASES = {f"{table}: {name}": case for table, cases in TABLES.items() for name, case in cases.items()}


def text_of(error):
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


@pytest.mark.filterwarnings("ignore::remat.UnknownNameWarning")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_error(case):
    with pytest.raises(case.error) as caught:
        case.call()
    text = text_of(caught.value)
    missing = [w for w in case.words if w not in text]
    assert not missing, f"{missing} not in: {text}"
    if issubclass(case.error, errors.RematError):
        assert "PyTreeDef" not in text
        assert text[-1] in ".:", "messages are sentences"


@pytest.mark.parametrize(("ours", "builtin"), [(TYPE, TypeError), (ARGUMENT, ValueError), (DIFFERENTIATION, TypeError)])
def test_errors_are_those_of_jax_too(ours, builtin):
    assert issubclass(ours, errors.RematError)
    assert issubclass(ours, builtin)


def test_note_is_added_once():
    """A region inside a differentiated function inside a trace: the innermost function is the one that is meant."""
    outer = lambda x: remat.checkpoint(branch)(2 * x)  # noqa: E731
    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        remat.trace(remat.grad(outer))(1.0)
    notes = [n for n in caught.value.__notes__ if n.startswith("remat traces")]
    assert len(notes) == 1
    assert "remat traces branch once" in notes[0]


def test_control_flow_on_other_arguments_is_fine():
    """Arguments that are not differentiated keep their values."""
    power = lambda x, n: x if n < 1 else x**n  # noqa: E731
    assert float(remat.grad(power)(3.0, 2)) == 6.0


# Names: a warning where the policy asks for what nothing is called.


def named(x):
    return remat.checkpoint_name(jnp.sin(x), "hidden") * remat.checkpoint_name(jnp.cos(x), "gate")


def summed(fun):
    return lambda x: fun(x).sum()


def scanned(fun):
    return lambda x: lax.scan(lambda c, _: (fun(c), None), x, None, length=3)[0].sum()


SERIAL = itertools.count(1)


def anew():
    """A function that was never traced: of one, users are told once."""
    factor = float(next(SERIAL))
    return lambda x: named(x) * factor


MISSPELT = {
    "text": lambda: summed(remat.checkpoint(anew(), policy="names:hiden")),
    "policy": lambda: summed(remat.checkpoint(anew(), policy=policies.save_only_these_names("hiden"))),
    "JAX's policy": lambda: summed(remat.checkpoint(anew(), policy=P.save_only_these_names("hiden"))),
    "not to save": lambda: summed(remat.checkpoint(anew(), policy=policies.save_any_names_but_these("hiden"))),
    "excepted": lambda: summed(remat.checkpoint(anew(), policy="except:hiden")),
    "offloaded": lambda: summed(
        remat.checkpoint(
            anew(), policy=offload_names(names_which_can_be_saved=[], names_which_can_be_offloaded=["hiden"])
        )
    ),
    "one of two": lambda: summed(remat.checkpoint(anew(), policy="names:gate,hiden")),
    "combined": lambda: summed(remat.checkpoint(anew(), policy="dots|names:hiden")),
    "in a scan": lambda: scanned(remat.checkpoint(anew(), policy="names:hiden")),
    "around a scan": lambda: remat.checkpoint(scanned(anew()), policy="names:hiden"),
    "jitted": lambda: jax.jit(summed(remat.checkpoint(anew(), policy="names:hiden"))),
}
"""Functions to differentiate; each is made anew so that nothing is cached."""


def name_warnings(call):
    region_derivative._known.clear()  # a function that is known from another test is not warned of again
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    caught = [w for w in caught if w.category is not remat.OverriddenPolicyWarning]
    assert all(w.category is remat.UnknownNameWarning for w in caught), [str(w.message) for w in caught]
    return caught


def assert_told(caught):
    assert len(caught) == 1, [str(w.message) for w in caught]
    text = str(caught[0].message)
    for word in ("'hiden'", "no checkpoint_name", "Names used: 'hidden', 'gate'", "Did you mean 'hidden'?"):
        assert word in text
    assert caught[0].filename == __file__, f"the warning points at {caught[0].filename}"
    return text


@pytest.mark.parametrize("grad", [remat.grad, jax.grad], ids=["remat", "jax"])
@pytest.mark.parametrize("make", MISSPELT.values(), ids=MISSPELT.keys())
def test_misspelt_name(make, grad):
    text = assert_told(name_warnings(lambda: grad(make())(X)))
    assert re.search(r"the policy .+ of the checkpoint of (named|<lambda>) asks for", text)


def test_misspelt_name_in_a_region_of_jax():
    """The line of the region is told, since remat did not make it."""
    policy = P.save_only_these_names("hiden")
    text = assert_told(name_warnings(lambda: remat.grad(summed(jax.checkpoint(named, policy=policy)))(X)))
    assert "of the checkpoint at" in text
    assert "test_messages.py" in text


def test_misspelt_name_with_one_policy_object_twice():
    """A region of ours was fine; one of JAX with the same policy object is not."""
    policy = P.save_only_these_names("hidden")
    other = lambda x: remat.checkpoint_name(jnp.sin(x), "hiddem")  # noqa: E731
    assert not name_warnings(lambda: remat.grad(summed(remat.checkpoint(named, policy=policy)))(X))
    caught = name_warnings(lambda: remat.grad(summed(jax.checkpoint(other, policy=policy)))(X))
    assert len(caught) == 1
    assert "Did you mean 'hiddem'?" in str(caught[0].message)


@pytest.mark.parametrize(
    "call",
    [
        lambda: remat.grad(summed(named), policy="names:hiden")(X),
        lambda: remat.vjp(named, X, policy="names:hiden"),
        lambda: remat.saved_residuals(remat.checkpoint(named, policy="names:hiden"), X),
    ],
    ids=["grad", "vjp", "saved_residuals"],
)
def test_misspelt_name_elsewhere(call):
    assert_told(name_warnings(call))


def test_no_names_at_all():
    caught = name_warnings(lambda: remat.grad(summed(remat.checkpoint(jnp.sin, policy="names:a")))(X))
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "Names used: none at all" in text
    assert "remat.checkpoint_name" in text


@pytest.mark.parametrize("grad", [remat.grad, jax.grad], ids=["remat", "jax"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: summed(remat.checkpoint(named, policy="names:hidden")),
        lambda: summed(remat.checkpoint(named, policy=P.save_only_these_names("hidden", "gate"))),
        lambda: summed(jax.checkpoint(named, policy=P.save_only_these_names("hidden"))),
        lambda: scanned(remat.checkpoint(named, policy="names:hidden,gate")),
        lambda: remat.checkpoint(scanned(named), policy="names:gate"),
        lambda: remat.checkpoint(scanned(jax.jit(named)), policy="names:gate|dots"),
        lambda: summed(remat.checkpoint(remat.checkpoint(named), policy="except:gate")),
    ],
    ids=["ours", "JAX's policy", "JAX's region", "in a scan", "around a scan", "in a jit", "in a nested region"],
)
def test_names_that_exist(make, grad):
    assert not name_warnings(lambda: grad(make())(X))
