"""The demo: training lowers the loss, and the comparison of policies is right and readable at 80 columns."""

import io
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import remat
from remat.demo.measure import count_dot_products, largest_difference
from remat.demo.run import run_demo
from remat.demo.tables import residuals_table
from remat.demo.text import VOCABULARY, corpus, decode, encode, sample_batch
from remat.demo.train import adam_start, adam_step, train
from remat.demo.transformer import Sizes, initialize, loss, predict
from remat.testing import assert_trees_close

TINY = Sizes(context=16, width=16, heads=2, layers=2, hidden=32, batch=8)


def render(item):
    out = io.StringIO()
    Console(file=out, width=80).print(item)
    return out.getvalue()


@pytest.fixture(scope="module")
def demo():
    """A short demo with a tiny model: the result and what was printed."""
    out = io.StringIO()
    result = run_demo(40, "dots", 0, Console(file=out, width=80), Console(file=io.StringIO()), TINY)
    return result, out.getvalue()


def test_loss_falls(demo):
    losses = demo[0].losses
    assert len(losses) == 40
    assert losses[0] == pytest.approx(math.log(VOCABULARY), abs=0.3)
    assert np.mean(losses[-5:]) < losses[0] - 0.8


def test_policies_are_ordered_by_what_they_keep(demo):
    result, _ = demo
    assert [c.policy for c in result.costs] == ["none", "everything", "dots", "nothing"]
    everything, dots, nothing = (result.cost(p) for p in ("everything", "dots", "nothing"))
    assert everything.saved_bytes > dots.saved_bytes > nothing.saved_bytes
    assert everything.dot_products <= dots.dot_products < nothing.dot_products
    none = result.cost("none").saved_bytes  # a region drops views of what it keeps, so it may keep a little less
    assert 0.95 * none <= everything.saved_bytes <= none
    assert dots.saved_bytes == result.saved.new_bytes


def test_gradients_agree_with_jax(demo):
    assert all(c.gradient_difference < 1e-6 for c in demo[0].costs)


def test_compiled_memory_follows(demo):
    result, _ = demo
    everything, nothing = result.cost("everything"), result.cost("nothing")
    assert everything.compiled_bytes == everything.temporary_bytes + everything.output_bytes
    assert nothing.temporary_bytes < everything.temporary_bytes
    assert nothing.output_bytes == everything.output_bytes


def test_printed_text(demo):
    result, text = demo
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    for policy in ("everything", "dots", "nothing"):
        assert any(line.split()[:1] == [policy] for line in lines), policy
    assert "predicted" in text
    assert "measured" in text
    assert text.rstrip().endswith("(measured).")
    ratio = result.cost("everything").saved_bytes / result.saved.new_bytes
    assert f"dots keeps {ratio:.1f}x less than everything (predicted)" in " ".join(text.split())


def test_json(demo):
    result, _ = demo
    data = json.loads(result.to_json())
    assert data["schema"] == "remat.demo/1"
    assert data["policy"] == "dots"
    assert data["losses"] == list(result.losses)
    assert [row["policy"] for row in data["policies"]] == [c.policy for c in result.costs]
    assert set(data["policies"][1]["predicted"]) == {"saved_bytes", "dot_products"}
    assert set(data["policies"][1]["measured"]) == {"temporary_bytes", "output_bytes", "gradient_difference"}
    assert data["saved"]["new_bytes"] == result.saved.new_bytes


@pytest.mark.slow
def test_seed_decides(demo):
    tokens = encode(corpus())

    def first_loss(seed):
        return next(train(tokens, TINY, 40, "dots", seed))[1]

    assert first_loss(0) == demo[0].losses[0]
    assert first_loss(1) != demo[0].losses[0]


def test_text_is_enough_and_read_back():
    text = corpus()
    assert len(text) > 200_000
    tokens = encode(text)
    assert len(tokens) == len(text)
    assert tokens.min() >= 0
    assert tokens.max() < VOCABULARY
    assert decode(encode("def f(x):\n    return ~x\n")) == "def f(x):\n    return ~x\n"
    assert decode(encode("a\té")) == "a??"


def test_batches_are_pieces_of_the_text():
    tokens = np.arange(20)
    batch = sample_batch(np.random.default_rng(0), tokens, 50, 5)
    assert batch.shape == (50, 5)
    assert (np.diff(batch) == 1).all()
    assert batch.min() == 0
    assert batch.max() == 19


def test_model_does_not_look_ahead():
    parameters = initialize(jax.random.key(0), TINY)
    tokens = jnp.arange(TINY.context)[None]
    changed = tokens.at[0, 9].set(50)
    difference = jnp.abs(predict(parameters, tokens) - predict(parameters, changed)).max(axis=-1)[0]
    assert (difference[:9] == 0).all()
    assert (difference[9:] > 0).all()


def test_adam_is_adam():
    optax = pytest.importorskip("optax")
    parameters = {"a": jnp.array([1.0, -2.0]), "b": jnp.array(0.5)}
    ours, state = parameters, adam_start(parameters)
    reference = optax.adam(0.1, b1=0.9, b2=0.95)
    theirs, reference_state = parameters, reference.init(parameters)
    for i in range(3):
        gradients = jax.tree.map(lambda p, i=i: jnp.cos(p + i), parameters)
        ours, state = adam_step(ours, gradients, state, jnp.float32(0.1))
        updates, reference_state = reference.update(gradients, reference_state)
        theirs = optax.apply_updates(theirs, updates)
    assert_trees_close(ours, theirs)


def test_count_of_dot_products():
    def f(w, x):
        return jax.lax.scan(lambda x, w: (jnp.tanh(w @ x), None), w[0] @ x, w)[0]

    assert count_dot_products(remat.trace(f)(jnp.ones((5, 3, 3)), jnp.ones(3))) == 6


def test_largest_difference():
    a = {"x": jnp.zeros(3), "y": jnp.ones(2)}
    assert largest_difference(a, a) == 0
    assert largest_difference(a, {"x": jnp.zeros(3).at[1].set(-2), "y": jnp.zeros(2)}) == 2


def tiny_arguments():
    parameters = jax.eval_shape(lambda: initialize(jax.random.key(0), TINY))
    return parameters, jax.ShapeDtypeStruct((TINY.batch, TINY.context + 1), jnp.int32)


def test_tables_list_every_value_and_sum_up_the_rest():
    residuals = remat.saved_residuals(loss, *tiny_arguments())
    new = [r for r in residuals if r.is_new]
    text = render(residuals_table(residuals, 80))
    assert text.count("transformer.py:") + text.count("scan carry") >= sum(bool(r.source.file) for r in new)
    assert f"{len(new) - 3} more" in render(residuals_table(residuals, 80, rows=3))
    assert "(mlp)" not in text
    assert "(mlp)" in render(residuals_table(residuals, 120))
    assert "'hidden'" in text
    assert "parameters['layers']['up']" not in text
