"""The helpers of `remat.testing` are able to fail: with a fault planted in the library they say what is wrong, where.

Each fault is planted for the length of a `with` block, with an empty cache of derivative rules, so that no rule made
before it hides it and none made by it outlives it.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import dtypes, lax

import remat
from remat.decisions import RECOMPUTE, SAVE
from remat.ir.ops import Checkpoint, Name, Primitive, Scan
from remat.ir.program import Equation
from remat.lower import lower_rules
from remat.policies.dots import DotsSaveable
from remat.policies.names import SaveOnlyTheseNames
from remat.testing import assert_saved, assert_trees_close, check_gradients, random_cotangent
from remat.transforms import derivative, retrieve, walk
from remat.transforms.linearize import Linearizer, linearize_rules

X = jnp.array([0.3, 0.7, 1.1])
Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derivative, "_cache", OrderedDict())
        plant(patch)
        yield


# Functions to differentiate, one for each part of the library that a fault sits in.


def sines(x: Any) -> Any:
    return jnp.sin(jnp.sin(x))


def named_sines(x: Any) -> Any:
    return jnp.sin(remat.checkpoint_name(jnp.sin(x), "inner"))


def sum_of_two(tree: Any) -> Any:
    return {"out": tree["a"] * 2.0 + jnp.sin(tree["b"])}


def named_last(x: Any) -> Any:
    return remat.checkpoint_name(jnp.sin(x), "out")


def used_twice(x: Any) -> Any:
    return jnp.sin(x) * jnp.cos(x)


def loop(x: Any) -> Any:
    return lax.scan(lambda c, s: (jnp.sin(c * s), c), x[0], x)


# Faults.


def double_tangent_of_sin(patch: Patch) -> None:
    rule = linearize_rules[Primitive]

    def wrong(state: Linearizer, equation: Any, inputs: Any, tangents: Any) -> Any:
        outputs, found = rule(state, equation, inputs, tangents)
        if equation.op.name == "sin":
            found = _doubled(state, found)
        return outputs, found

    patch.setitem(linearize_rules, Primitive, wrong)


def double_tangents_of_regions(patch: Patch) -> None:
    rule = linearize_rules[Checkpoint]

    def wrong(state: Linearizer, equation: Any, inputs: Any, tangents: Any) -> Any:
        outputs, found = rule(state, equation, inputs, tangents)
        return outputs, _doubled(state, found)

    patch.setitem(linearize_rules, Checkpoint, wrong)


def _doubled(state: Linearizer, tangents: Any) -> list[Any]:
    add = Primitive(lax.add_p, {})
    return [
        t if t is None else state.emit_linear(add, [t, t], [True, True], [t.type], state.region)[0] for t in tangents
    ]


def lose_tangent_of_names(patch: Patch) -> None:
    rule = linearize_rules[Name]
    patch.setitem(linearize_rules, Name, lambda *given: (rule(*given)[0], [None]))


def lose_second_term_of_transposed_sums(patch: Patch) -> None:
    rule = walk.transpose_rule

    def wrong(op: Any, *given: Any) -> Any:
        found = rule(op, *given)
        if op.name not in ("add", "add_any") or len(found.zero) < 2:
            return found
        program = dataclasses.replace(found.program, outputs=found.program.outputs[:1])
        return dataclasses.replace(found, program=program, zero=(False, True))

    patch.setattr(walk, "transpose_rule", wrong)


def keep_only_last_cotangent(patch: Patch) -> None:
    def wrong(level: Any, tangent: Any, cotangent: Any) -> None:
        level.cotangents[tangent] = cotangent

    patch.setattr(walk.Level, "_accumulate", wrong)


def shift_sin(patch: Patch) -> None:
    rule = lower_rules[Primitive]

    def wrong(op: Any, equation: Any, inputs: Any) -> Any:
        results = rule(op, equation, inputs)
        return [x + 1e-4 for x in results] if op.name == "sin" else results

    patch.setitem(lower_rules, Primitive, wrong)


def lower_names_to_bfloat16(patch: Patch) -> None:
    patch.setitem(lower_rules, Name, lambda op, equation, inputs: [inputs[0].astype(jnp.bfloat16)])


def lower_names_to_another_shape(patch: Patch) -> None:
    patch.setitem(lower_rules, Name, lambda op, equation, inputs: [inputs[0][None]])


def reverse_what_loops_stack(patch: Patch) -> None:
    rule = lower_rules[Scan]

    def wrong(op: Any, equation: Any, inputs: Any) -> Any:
        return [x[::-1] if x.ndim else x for x in rule(op, equation, inputs)]

    patch.setitem(lower_rules, Scan, wrong)


def recompute_cosines_for_sines(patch: Patch) -> None:
    """Only what is recomputed is wrong, not the forward pass."""
    chain = retrieve.Retrieval._chain

    def swapped(equation: Equation) -> Equation:
        if equation.op.name != "sin":
            return equation
        op = Primitive(lax.cos_p, equation.op.params)  # type: ignore[attr-defined]
        return Equation(op, equation.inputs, equation.outputs, equation.source, equation.region)

    patch.setattr(retrieve.Retrieval, "_chain", lambda *given: [(swapped(e), home) for e, home in chain(*given)])


def shift_regions_under_jax(patch: Patch) -> None:
    patch.setattr("remat.testing.checkpoint", lambda fun, policy: lambda x: fun(x) + 1e-4)


def double_gradients_under_jax(patch: Patch) -> None:
    patch.setattr("remat.testing.checkpoint", lambda fun, policy: lambda x: 2 * fun(x) - lax.stop_gradient(fun(x)))


@dataclasses.dataclass(frozen=True)
class Fault:
    plant: Plant
    function: Callable[[Any], Any]
    message: str
    argument: Any = dataclasses.field(default_factory=lambda: X)
    under_jax: bool = False


PAIR = {"a": X, "b": X + 1}

FAULTS = [
    Fault(double_tangent_of_sin, sines, r"gradient under policy None\[0\]"),
    Fault(double_tangents_of_regions, sines, r"gradient under policy nothing\[0\]"),
    Fault(lose_tangent_of_names, named_sines, r"gradient under policy None\[0\]"),
    Fault(lose_second_term_of_transposed_sums, sum_of_two, r"gradient under policy None\[0\]\['b'\]", PAIR),
    Fault(keep_only_last_cotangent, used_twice, r"gradient under policy None\[0\]"),
    Fault(shift_sin, sum_of_two, r"value under policy None\['out'\]", PAIR),
    Fault(lower_names_to_bfloat16, named_last, "value under policy None: dtype bfloat16, expected float32"),
    Fault(lower_names_to_another_shape, named_last, r"value under policy None: shape \(1, 3\), expected \(3,\)"),
    Fault(reverse_what_loops_stack, loop, r"value under policy None\[1\]"),
    Fault(recompute_cosines_for_sines, sines, r"gradient under policy nothing\[0\]"),
    Fault(shift_regions_under_jax, sines, "value by JAX under policy nothing", under_jax=True),
    Fault(double_gradients_under_jax, sines, r"gradient by JAX under policy nothing\[0\]", under_jax=True),
]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.plant.__name__)
def test_check_gradients_finds_a_fault_and_names_the_leaf(fault: Fault, compiled: bool) -> None:
    def check() -> None:
        check_gradients(fault.function, fault.argument, under_jax=fault.under_jax, compiled=compiled)

    check()
    with planted(fault.plant), pytest.raises(AssertionError, match=fault.message):
        check()
    check()


def test_a_fault_in_one_policy_passes_where_that_policy_is_not_tried() -> None:
    with planted(recompute_cosines_for_sines):
        check_gradients(sines, X, policies=(None, "everything"))
        with pytest.raises(AssertionError, match="under policy nothing"):
            check_gradients(sines, X, policies=(None, "everything", "nothing"))


def test_check_gradients_refuses_to_check_nothing() -> None:
    with pytest.raises(AssertionError, match="no policy"):
        check_gradients(sines, X, policies=())
    with pytest.raises(AssertionError, match="name argnums"):
        check_gradients(lambda i: i * 2, jnp.arange(3))


def test_check_gradients_returns_what_jax_computes() -> None:
    value, gradients = check_gradients(lambda x, n: x**2 * n, X, jnp.arange(3))
    assert_trees_close(value, X**2 * jnp.arange(3))
    assert_trees_close(gradients, (2 * X * jnp.arange(3) * random_cotangent(value),))


# Trees.

DIFFERENT_TREES = {
    "value": ({"w": X, "b": X}, {"w": X, "b": X.at[1].add(1e-3)}, r"here\['b'\]"),
    "value of a scalar": (1.0, 1.001, "here"),
    "integer": (jnp.arange(3), jnp.arange(3).at[2].set(1), "here"),
    "boolean": (jnp.array([True, False]), jnp.array([True, True]), "here"),
    "imaginary part": (X + 1j, X + 1.001j, "here"),
    "a NaN": ([X], [X.at[0].set(jnp.nan)], r"here\[0\]"),
    "an infinity": (X.at[0].set(jnp.inf), X, "here"),
    "sign of an infinity": (jnp.inf, -jnp.inf, "here"),
    "dtype": ((X, X), (X, X.astype(jnp.bfloat16)), r"here\[1\]: dtype float32, expected bfloat16"),
    "width of an integer": (jnp.arange(3), jnp.arange(3).astype(jnp.int8), "here: dtype int32, expected int8"),
    "shape": (X, X[None], r"here: shape \(3,\), expected \(1, 3\)"),
    "structure": ([X], (X,), "here: structure"),
    "a missing leaf": ({"w": X}, {"w": X, "b": X}, "here: structure"),
    "None in place of a leaf": ([None], [X], "here: structure"),
    "float0 in place of zeros": (np.zeros(3, dtypes.float0), jnp.zeros(3), "here: dtype .*, expected float32"),
    "random key": (jax.random.key(0), jax.random.key(1), "here"),
}


@pytest.mark.parametrize("what", DIFFERENT_TREES)
def test_assert_trees_close_sees_a_difference(what: str) -> None:
    found, expected, message = DIFFERENT_TREES[what]
    assert_trees_close(found, found, what="here")
    assert_trees_close(expected, expected, what="here")
    with pytest.raises(AssertionError, match=message):
        assert_trees_close(found, expected, what="here")
    with pytest.raises(AssertionError, match="here"):
        assert_trees_close(expected, found, what="here")


def test_tolerances_of_assert_trees_close() -> None:
    assert_trees_close(X, X * (1 + 5e-4), rtol=1e-3)
    with pytest.raises(AssertionError):
        assert_trees_close(X, X * (1 + 5e-3), rtol=1e-3)
    assert_trees_close(jnp.zeros(3), jnp.full(3, 5e-4), atol=1e-3)
    with pytest.raises(AssertionError):
        assert_trees_close(jnp.zeros(3), jnp.full(3, 5e-3), atol=1e-3)


def test_random_cotangents_tell_the_elements_apart() -> None:
    """Cotangents that are equal or zero would hide gradients that are permuted or lost."""
    out = {"x": X, "n": jnp.arange(3), "z": X + 1j, "half": X.astype(jnp.bfloat16)}
    found = random_cotangent(out)
    for name in ("x", "z", "half"):
        assert found[name].dtype == out[name].dtype
        assert len(np.unique(found[name])) == 3
        assert np.all(found[name] != 0)
    assert np.all(np.imag(found["z"]) != 0)
    assert not np.array_equal(found["x"], np.real(found["z"]))
    assert found["n"].dtype == dtypes.float0


# Residuals.


def save_nothing_named(patch: Patch) -> None:
    patch.setattr(SaveOnlyTheseNames, "decide_name", lambda self, tag: RECOMPUTE)


def save_every_name(patch: Patch) -> None:
    patch.setattr(SaveOnlyTheseNames, "decide_name", lambda self, tag: SAVE)


def save_everything_for_dots(patch: Patch) -> None:
    patch.setattr(DotsSaveable, "decide", lambda self, view: {v: SAVE for e in view.equations for v in e.outputs})


def two_names(x: Any) -> Any:
    x = remat.checkpoint_name(jnp.sin(x), "first")
    return jnp.sin(remat.checkpoint_name(jnp.sin(x), "second"))


ARGUMENT, FIRST, SECOND = ("f32[3]", "x"), ("f32[3]", "first"), ("f32[3]", "second")

SAVED = [
    (save_nothing_named, "names:second", [ARGUMENT, SECOND], r"kept \[\('f32\[3\]', 'x'\)\]"),
    (save_every_name, "names:second", [ARGUMENT, SECOND], "kept .*'first'.*, expected"),
    (save_everything_for_dots, "dots", [ARGUMENT], "kept .*'cos'.*, expected"),
]


@pytest.mark.parametrize(("plant", "policy", "expected", "message"), SAVED, ids=lambda x: getattr(x, "__name__", ""))
def test_assert_saved_finds_a_policy_that_keeps_the_wrong_values(
    plant: Plant, policy: str, expected: list[tuple[str, str]], message: str
) -> None:
    function = remat.checkpoint(two_names, policy=policy)
    assert_saved(function, (X,), expected)
    with planted(plant), pytest.raises(AssertionError, match=message):
        assert_saved(function, (X,), expected)
    assert_saved(function, (X,), expected)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [ARGUMENT],
        [ARGUMENT, SECOND, FIRST],
        [ARGUMENT, SECOND, SECOND],
        [ARGUMENT, FIRST],
        [("f32[3]", "x"), ("bf16[3]", "second")],
        [("f32[3]", "x"), ("f32[4]", "second")],
    ],
    ids=["nothing", "one missing", "one too many", "one twice", "other name", "other dtype", "other shape"],
)
def test_assert_saved_sees_a_wrong_expectation(wrong: list[tuple[str, str]]) -> None:
    function = remat.checkpoint(two_names, policy="names:second")
    assert_saved(function, (X,), [SECOND, ARGUMENT])
    with pytest.raises(AssertionError, match="expected"):
        assert_saved(function, (X,), wrong)
