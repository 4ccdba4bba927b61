"""Why a value is kept: by whose decision, for whom, and what dropping it does, which is what another policy does."""

import json

import jax
import jax.numpy as jnp
import pytest

import remat

W, X = jnp.ones((6, 64, 64)), jnp.ones((64, 64))


def scanned(ws, x):
    def layer(x, w):
        h = remat.checkpoint_name(x @ w, "product")
        return jnp.sin(jnp.tanh(h)), None

    return jax.lax.scan(layer, x, ws)[0].sum()


def straight(ws, x):
    for i, w in enumerate(ws):
        x = jnp.sin(remat.checkpoint_name(x @ w, f"product{i}"))
    return x.sum()


def test_dropping_is_what_a_policy_without_it_does():
    (answer,) = remat.why(straight, list(W), X, value="product3", policy=names(range(6)), target="cpu")
    with_it, without = remat.compare(straight, (list(W), X), [names(range(6)), names([0, 1, 2, 4, 5])], target="cpu")
    assert answer.dropped.kept_bytes == without.kept_bytes - with_it.kept_bytes == -X.nbytes
    assert answer.dropped.dot_flops == without.dot_flops - with_it.dot_flops == 2 * 64**3
    assert answer.dropped.peak_bytes == without.peak_bytes - with_it.peak_bytes
    assert any(key.startswith("dot_general#3") for key in answer.dropped.recomputed)


def names(numbers):
    return "names:" + ",".join(f"product{i}" for i in numbers)


def test_in_a_loop_all_iterations_count():
    (answer,) = remat.why(scanned, W, X, value="product", policy="names:product", target="cpu")
    assert answer.key == "scan#0/name[product]#0"
    assert answer.residual.times == 6
    assert answer.residual.reason == "policy names:product keeps it"
    assert answer.dropped.dot_flops >= 6 * 2 * 64**3 - 2 * 64**3


def test_by_key_name_and_argument():
    by_name = remat.why(straight, list(W), X, value="product2", policy=names(range(6)))
    (key,) = [a.key for a in by_name]
    assert remat.why(straight, list(W), X, value=key, policy=names(range(6))) == by_name
    (argument,) = remat.why(straight, list(W), X, value="ws[3]", policy="nothing")
    assert argument.dropped is None
    assert "the caller holds it" in str(argument)


def test_what_is_not_kept():
    with pytest.raises(remat.RematError, match="is computed, but not kept"):
        remat.why(straight, list(W), X, value="sin#0", policy=names(range(6)))
    with pytest.raises(remat.RematError, match=r"no value .product33. is kept.*Did you mean .product3."):
        remat.why(straight, list(W), X, value="product33", policy=names(range(6)))


def test_text_and_json():
    (answer,) = remat.why(straight, list(W), X, value="product3", policy=names(range(6)), target="cpu")
    text = str(answer)
    assert max(map(len, text.splitlines())) <= 80
    assert "-16.0 KiB kept" in text
    assert "needed by the derivative of" in text
    data = json.loads(answer.to_json())
    assert data["schema"] == "remat.why/1"
    assert data["dropped"]["kept_bytes"] == -X.nbytes
