"""The report of kept values as text, Markdown and HTML: the same rows and totals, at every width."""

import json
import re

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.units import bytes_text, parse_bytes

W, X = jnp.ones((6, 64, 64)), jnp.ones((64, 64))
SIZE = r"\d[\d.]* [KMG]?i?B"


def loss(ws, x):
    def layer(x, w):
        with jax.named_scope("layer"):
            return jnp.sin(jnp.tanh(remat.checkpoint_name(x @ w, "product"))), None

    x = jax.lax.scan(layer, x, ws)[0]
    for w in ws:
        with jax.named_scope("tail"):
            x = jnp.tanh(x @ w)
    return x.sum()


def wide(x):
    """Thirty groups, and one of thirty rows."""
    for i in range(30):
        with jax.named_scope("abcdefghijklmnopqrstuvwxyzABCD"[i]):
            x = jnp.sin(x[:-1])
    with jax.named_scope("last"):
        for _ in range(30):
            x = jnp.sin(x[:-1])
    return x.sum()


def sizes_of_rows(text):
    """The first size on each line of a row, in bytes as they are printed."""
    rows = [re.match(rf"\s+({SIZE})  ", line) for line in text.splitlines()]
    return [parse_bytes(match[1]) for match in rows if match is not None]


@pytest.mark.parametrize("policy", [None, "dots", "names:product", "nothing"])
@pytest.mark.parametrize("width", [80, 120, 200])
def test_rows_add_up_at_every_width(policy, width):
    kept = remat.saved_residuals(loss, W, X, policy=policy)
    text = kept.to_text(width=width)
    assert max(map(len, text.splitlines())) <= width
    assert sum(sizes_of_rows(text)) == kept.new_bytes
    titles = [re.search(rf"({SIZE}), \d[\d.]* %$", line) for line in text.splitlines()]
    assert sum(parse_bytes(match[1]) for match in titles if match is not None) == kept.new_bytes


def test_a_narrow_report_has_all_that_a_wide_one_has():
    kept = remat.saved_residuals(loss, W, X, policy="dots|names:product")
    assert len(sizes_of_rows(kept.to_text(width=80))) == len(sizes_of_rows(kept.to_text(width=200)))
    for text in (kept.to_text(width=80), kept.to_text(width=200)):
        text = " ".join(text.split())
        for part in (
            "'product'",
            "tail",
            "x 6",
            "6 of these",
            "dot_general",
            "test_kept.py:",
            "policy dots|names:product keeps it",
        ):
            assert part in text
    assert "made at" in kept.to_text(width=200).splitlines()[2]


def test_what_is_left_out_is_added_up():
    kept = remat.saved_residuals(wide, jnp.ones(1000))
    short = kept.to_text(rows=10, width=80)
    assert "in 20 more rows" in short
    assert "in 21 more groups" in short
    assert abs(sum(sizes_of_rows(short)) - kept.new_bytes) < 0.02 * kept.new_bytes  # sizes are rounded
    assert "more" not in kept.to_text(rows=None, width=80)
    assert kept.to_text(rows=None, width=80).count("made at") == 60


def test_arguments_stand_apart():
    kept = remat.saved_residuals(loss, W, X, policy="dots")
    assert "argument" not in kept.to_text(width=80).partition("total:")[0]
    listed = kept.to_text(held=True, width=80)
    assert "argument ws" in listed
    held = bytes_text(kept.total_bytes - kept.new_bytes)
    assert f"besides {held} of 2 arguments, which the caller holds anyway" in " ".join(listed.split())


def test_what_is_recomputed_is_told():
    kept = remat.saved_residuals(loss, W, X, policy="nothing", target="tpu:v5e:2x2")
    again = kept.recomputation
    assert again is not None
    text = " ".join(kept.to_text(width=80).split())
    assert f"recomputed in the backward pass: {again.equations} equations" in text
    assert f"{100 * again.share:.0f} % of the forward pass" in text
    assert "on tpu:v5e:2x2 by its peak rates, predicted" in text
    assert "recomputed in the backward pass: nothing" in str(remat.saved_residuals(loss, W, X))


def test_other_memories_are_told():
    kept = remat.saved_residuals(loss, W, X, policy="offload:product", target="gpu:H100")
    assert kept.memory_bytes["pinned_host"] == 6 * 64 * 64 * 4 == kept.offloaded_bytes
    assert f"of these {bytes_text(kept.offloaded_bytes)} in pinned_host (planned)" in str(kept)
    assert "'product', in pinned_host" in str(kept)


@pytest.mark.parametrize(
    "grad", [jax.grad, remat.grad, lambda f: jax.jit(jax.grad(f)), lambda f: remat.grad(f, policy="dots")]
)
def test_a_derivative_is_told(grad):
    assert "note:" not in str(remat.saved_residuals(loss, W, X))
    kept = remat.saved_residuals(grad(loss), W, X)
    assert kept.is_of_a_derivative
    assert json.loads(kept.to_json())["is_of_a_derivative"]
    for text in (str(kept), kept.to_markdown(), kept._repr_html_()):
        assert "the second derivative" in " ".join(text.split())


def test_a_step_with_a_gradient_inside_is_told():
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.sin(x @ w).sum())(w)

    assert remat.saved_residuals(step, W[0], X).is_of_a_derivative


def test_markdown_has_the_rows_of_the_text():
    kept = remat.saved_residuals(loss, W, X, policy="dots")
    lines = kept.to_markdown().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) - 2 == sum(len(group.rows) for group in kept.groups)
    sizes = [re.search(rf"\| ({SIZE}) \|", line) for line in table]
    assert sum(parse_bytes(match[1]) for match in sizes if match is not None) == kept.new_bytes
    assert len({line.count(" | ") for line in table if not line.startswith("|-")}) == 1
    assert f"- total: {bytes_text(kept.new_bytes)} kept" in kept.to_markdown()


def test_html_folds_and_escapes():
    kept = remat.saved_residuals(lambda x: jnp.sin(x).sum(), X)
    page = kept._repr_html_()
    assert "<lambda>" not in page
    assert "&lt;lambda&gt;" in page
    kept = remat.saved_residuals(loss, W, X, policy="dots")
    page = kept._repr_html_()
    assert page.count("<details") == page.count("</details>") == len(kept.groups)
    assert page.count("<tr>") == len(kept.groups) + sum(len(group.rows) for group in kept.groups)
    assert f"total: {bytes_text(kept.new_bytes)} kept" in page


def test_a_single_group_without_a_name_has_no_title():
    text = remat.saved_residuals(lambda x: jnp.sin(x), X).to_text(width=80)
    assert "(no scope)" not in text
    assert sizes_of_rows(text) == [X.nbytes]


def test_nothing_kept():
    text = remat.saved_residuals(lambda x: x.sum(), X).to_text(width=80)
    assert text.splitlines()[-2:] == [
        "total: 0 B kept for the backward pass in 0 values",
        "recomputed in the backward pass: nothing",
    ]
