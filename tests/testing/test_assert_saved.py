"""`assert_saved` is able to fail: with policies that keep the wrong values, and with wrong expectations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from faults import Patch, Plant, planted

import remat
from remat.decisions import RECOMPUTE, SAVE
from remat.policies.dots import DotsSaveable
from remat.policies.names import SaveOnlyTheseNames
from remat.testing import assert_saved

X = jnp.array([0.3, 0.7, 1.1])


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
