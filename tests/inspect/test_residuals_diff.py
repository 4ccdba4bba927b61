"""Two lists of kept values: what is new, gone and kept otherwise, and why from the list itself."""

import json

import jax
import jax.numpy as jnp
import pytest

import remat

W, X = jnp.ones((6, 16, 16)), jnp.ones((16, 16))


def loss(ws, x):
    def layer(x, w):
        h = remat.checkpoint_name(x @ w, "product")
        return remat.checkpoint_name(jnp.sin(jnp.tanh(h)), "out"), None

    return jax.lax.scan(layer, x, ws)[0].sum()


def saved(policy, fun=loss, ws=W):
    return remat.saved_residuals(fun, ws, X, policy=policy, target="cpu")


def test_what_is_new_and_gone():
    diff = saved("names:product").diff(saved("nothing"))
    assert [(r.key, r.total_bytes) for r in diff.gone] == [("scan#0/name[product]#0", 6 * 16 * 16 * 4)]
    assert [(r.origin.text, r.carried) for r in diff.added] == [("scan", True)]
    assert (diff.before, diff.after) == ("names:product", "nothing")
    assert diff.before_bytes == saved("names:product").new_bytes
    assert diff.bytes_added == sum(r.total_bytes for r in diff.added) - sum(r.total_bytes for r in diff.gone)


def test_the_same_is_no_difference():
    diff = saved("dots").diff(saved("dots"))
    assert not diff
    assert "the same values are kept" in str(diff)


def test_changed_sizes_and_reasons():
    longer = saved("names:product").diff(saved("names:product", ws=jnp.ones((8, 16, 16))))
    (changed,) = longer.changed
    assert (changed.key, changed.changed, changed.bytes_added) == ("scan#0/name[product]#0", ("times",), 2 * 1024)
    assert "times: 6 -> 8" in str(longer)
    assert not longer.added
    assert not longer.gone
    moved = saved("names:product").diff(saved("offload:product"))
    assert moved.changed[0].changed == ("type", "memory", "reason")
    assert "memory: device -> pinned_host" in str(moved)


def test_lines_are_no_difference():
    def moved(ws, x):
        """The same program at other lines."""

        def layer(x, w):
            h = remat.checkpoint_name(x @ w, "product")
            return remat.checkpoint_name(jnp.sin(jnp.tanh(h)), "out"), None

        return jax.lax.scan(layer, x, ws)[0].sum()

    assert not saved("names:product").diff(saved("names:product", moved))


def test_text_and_json_have_the_same_totals():
    diff = saved(None).diff(saved("names:product"))
    data = json.loads(diff.to_json())
    assert data["schema"] == "remat.residuals_diff/1"
    assert data["after_bytes"] - data["before_bytes"] == data["bytes_added"] == diff.bytes_added
    of = {part: sum(r["total_bytes"] for r in data[part]) for part in ("added", "gone")}
    assert of["added"] - of["gone"] == diff.bytes_added
    text = str(diff)
    assert "no policy -> names:product" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_why_is_that_of_remat():
    kept = saved("names:product")
    theirs = remat.why(loss, W, X, value="product", policy="names:product", target="cpu")
    (ours,) = kept.why("product")
    assert ours.dropped == theirs[0].dropped
    assert (ours.key, ours.policy, ours.target) == (theirs[0].key, "names:product", "cpu")
    assert kept.why(ours.key)[0] == ours
    (argument,) = kept.why("ws")
    assert argument.dropped is None
    with pytest.raises(remat.RematError, match="is computed, but not kept"):
        kept.why("scan#0/tanh#0")


def test_why_needs_no_scalar():
    (answer,) = remat.saved_residuals(lambda w, x: jnp.sin(x @ w), X, X, policy="dots").why("dot_general#0")
    assert answer.dropped is not None
    assert answer.dropped.dot_flops == 2 * 16**3


def test_residuals_without_a_program_say_so():
    with pytest.raises(remat.RematError, match="holds no program to ask"):
        remat.Residuals("loss", ()).why("x")
