"""Seconds in comparisons: predicted ones follow the operations, measured ones are of the device at hand; plots."""

import json

import jax
import jax.numpy as jnp
import pytest

import remat

F32 = jax.ShapeDtypeStruct
ARGS = [F32((64, 64), jnp.float32)] * 4, F32((64, 64), jnp.float32)


def loss(ws, x):
    for w in ws:
        x = jnp.sin(jnp.tanh(x @ w))
    return x.sum()


def test_predicted_seconds_follow_the_operations():
    rows = {r.policy: r for r in remat.compare(loss, ARGS, [None, "dots", "nothing"], target="gpu:H100")}
    assert 0 < rows["none"].seconds <= rows["dots"].seconds < rows["nothing"].seconds
    assert rows["dots"].step_seconds is None


def test_a_faster_chip_takes_less():
    slow, fast = (remat.compare(loss, ARGS, [None], target=t)[0].seconds for t in ("tpu:v5e:2x2", "tpu:v5p:2x2x1"))
    assert fast < slow


def test_steps_are_run_where_the_device_is():
    comparison = remat.compare(loss, ARGS, [None, "dots", "names:("], target="cpu", run=True)
    assert all(r.step_seconds > 0 and r.step_spread >= 0 for r in comparison[:2])
    assert comparison[2].step_seconds is None
    text = str(comparison)
    assert "step" in text
    assert max(map(len, text.splitlines())) <= 80
    again = remat.Comparison.from_json(comparison.to_json())
    assert again.rows == comparison.rows
    with pytest.raises(remat.RematError, match="cannot be run for gpu:H100"):
        remat.compare(loss, ARGS, [None], target="gpu:H100", run=True)


def test_integers_and_keys_are_made_to_run():
    def sampled(w, tokens, key):
        return (w[tokens] * jax.random.uniform(key, (3, 4))).sum()

    key = jax.eval_shape(lambda: jax.random.key(0))
    args = F32((5, 4), jnp.float32), F32((3,), jnp.int32), F32(key.shape, key.dtype)
    assert remat.compare(sampled, args, ["nothing"], target="cpu", run=True)[0].step_seconds > 0


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_plots(tmp_path, ending):
    pytest.importorskip("matplotlib")
    remat.compare(loss, ARGS, [None, "dots", "nothing"], target="cpu").plot(str(tmp_path / f"a.{ending}"))
    remat.pareto(loss, *ARGS, target="cpu").plot(str(tmp_path / f"b.{ending}"))
    for name in "ab":
        assert (tmp_path / f"{name}.{ending}").stat().st_size > 1000
    if ending == "svg":
        assert "peak besides arguments" in (tmp_path / "a.svg").read_text()


def test_json_has_seconds():
    rows = json.loads(remat.compare(loss, ARGS, [None], target="cpu").to_json())["rows"]
    assert rows[0]["seconds"] > 0
