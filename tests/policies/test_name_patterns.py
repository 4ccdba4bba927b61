"""Names by pattern: which values they keep, here and for JAX, and what is said of one that stands for nothing."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import Offloadable, Recompute, Saveable
from jax.ad_checkpoint import checkpoint_policies as jax_policies

import remat
from remat import jax_compat, policies
from remat.decisions import RECOMPUTE, SAVE, Offload
from remat.policies.base import PerEquation
from remat.testing import check_gradients

X = jnp.linspace(0.1, 1.0, 9).reshape(3, 3)
SERIAL = itertools.count(1)
NAMES = ("q_proj", "k_proj", "context", "a[0]", "a0")


def attention(x):
    for name in NAMES:
        x = remat.checkpoint_name(jnp.sin(x @ x), name)
    return x.sum()


def kept(policy):
    """The names of the values that are kept, in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", remat.RematWarning)
        found = remat.saved_residuals(attention, X, policy=policy)
    return [r.name for r in found if r.name is not None]


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ("names:*_proj", ["q_proj", "k_proj"]),
        ("names:[!q]_proj,context", ["k_proj", "context"]),
        ("names:?", []),
        ("names:a[0]", ["a[0]"]),
        ("names:a[[]0]", ["a[0]"]),
        ("names:a*", ["a[0]"]),
        ("names_but:*_proj", ["context", "a[0]"]),
        ("names:*&names_but:c*", ["q_proj", "k_proj", "a[0]"]),
        ("within:attention:names:*text", ["context"]),
    ],
)
def test_what_patterns_keep(policy, names):
    """The value named last is not needed: its sum has no use for it."""
    assert kept(policy) == names
    assert policies.parse(str(policies.parse(policy))) == policies.parse(policy)


def test_the_name_that_looks_like_a_pattern_is_meant_too():
    """`a[0]` stands for `a0`, as in file names, and for itself."""
    policy = policies.names("a[0]")
    assert [policy.decide_name(tag) for tag in ("a[0]", "a0", "a1")] == [SAVE, SAVE, RECOMPUTE]


def test_names_that_are_no_strings_are_matched_by_no_pattern():
    policy = policies.names("*", 3)
    assert policy.decide_name(3) == SAVE
    assert policy.decide_name(4) == RECOMPUTE


def test_gradients():
    for policy in ("names:*_proj", "except:*_proj", "names:*"):
        check_gradients(attention, X, policies=[policy])


def test_except_recomputes_what_a_pattern_stands_for():
    assert kept("except:*_proj") == ["context", "a[0]"]
    assert kept("except:*") == []


def offloading(moved, saved):
    return policies.save_and_offload_only_these_names(
        names_which_can_be_saved=saved,
        names_which_can_be_offloaded=moved,
        offload_src="device",
        offload_dst="pinned_host",
    )


@pytest.mark.parametrize(
    ("moved", "saved", "answers"),
    [
        (["*_proj"], [], ["offload", "offload", "recompute"]),
        (["*_proj"], ["q_proj"], ["save", "offload", "recompute"]),
        (["q_proj"], ["*"], ["offload", "save", "save"]),
        (["*_proj"], ["q*"], ["save", "offload", "recompute"]),
    ],
)
def test_written_out_names_win_over_patterns_and_saving_over_moving(moved, saved, answers):
    policy = offloading(moved, saved)
    assert policies.parse(str(policy)) == policy
    decisions = [policy.decide_name(tag) for tag in ("q_proj", "k_proj", "context")]
    words = {policies.Save: "save", Offload: "offload", policies.Recompute: "recompute"}
    assert [words[type(d)] for d in decisions] == answers
    theirs = [policy(jax_compat.name_p, jax.typeof(X), name=tag) for tag in ("q_proj", "k_proj", "context")]
    jax_words = {type(Saveable): "save", Offloadable: "offload", type(Recompute): "recompute"}
    assert [jax_words[type(t)] for t in theirs] == answers


@pytest.mark.parametrize("text", ["names:*_proj", "names_but:*_proj", "offload:*_proj", "names:q_*|names:k_*"])
def test_jax_s_own_checkpoint_is_answered_by_pattern(text):
    """JAX's objects know names only, so none stands for a policy with a pattern."""
    policy = policies.parse(text)
    assert not isinstance(policy, PerEquation) or policy.as_jax() is None
    names = {"names_but:*_proj": ("context", "a[0]", "a0")}.get(text, ("q_proj", "k_proj"))
    same = jax_policies.save_only_these_names(*names)
    if text.startswith("offload"):
        same = jax_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=list(names),
            offload_src="device",
            offload_dst="pinned_host",
        )

    def operations(p):
        text = str(jax.make_jaxpr(jax.grad(jax.checkpoint(attention, policy=p)))(X))
        return {word: text.count(f" {word}") for word in ("dot_general", "sin", "cos", "device_put")}

    assert operations(policy) == operations(same)


def told(policy):
    factor = float(next(SERIAL))  # of a function that was traced before, users are not told again
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        remat.grad(lambda x: attention(x) * factor, policy=policy)(X)
    return [str(w.message) for w in caught if w.category is remat.UnknownNameWarning]


def test_a_pattern_that_stands_for_nothing_warns():
    (text,) = told("names:*_porj,context")
    assert "asks for '*_porj', but no checkpoint_name in the function uses a name that this stands for." in text
    assert "Names used: 'q_proj', 'k_proj', 'context', 'a[0]', 'a0'." in text
    assert not told("names:*_proj")
    assert not told("names:a[0]")


def test_jax_s_policies_take_names_as_they_are():
    (text,) = told(jax_policies.save_only_these_names("*_proj"))
    assert "asks for '[*]_proj'" in text
    assert kept(jax_policies.save_only_these_names("*_proj")) == []
