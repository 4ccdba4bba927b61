"""Timelines: what is alive at a step, and the text."""

import re

import jax.numpy as jnp
import pytest
from jax import lax

import remat
from remat.simulate.live_bytes import simulate

A = jnp.ones((32, 32))


def layers(x, w):
    kept = x @ w
    x = lax.scan(lambda c, v: (jnp.sin(c @ w) + v.sum(), c), kept, jnp.ones((3, 32, 32)))[1].sum(0)
    x = lax.cond(x.sum() > 0, lambda x: jnp.sin(x @ w) @ w, lambda x: x * 2.0, x)
    return jnp.where(x > 0, x @ w, kept).sum()


@pytest.mark.parametrize("fused", [True, False])
def test_what_is_alive_adds_up(fused):
    timeline = simulate(remat.trace(layers)(A, A), fused)
    for step, live in enumerate(timeline.bytes):
        alive = timeline.alive_at(step)
        assert sum(a.bytes for a in alive) == live
        assert all(a.since <= step <= a.until for a in alive)
    assert timeline.peak == max(timeline.bytes) == timeline.bytes[timeline.peak_step]


def test_arrays_say_where_they_were_made():
    timeline = simulate(remat.trace(layers)(A, A))
    array = timeline.alive_at(0)[0]
    assert (array.bytes, array.since) == (4096, 0)
    assert timeline.equations[array.until].op.name == "reduce_sum"  # through the selection
    assert re.search(r"test_timeline.py:\d+:\d+ \(layers\)", array.source.text)


def test_text():
    text = str(simulate(remat.trace(lambda x, w: jnp.sin(x @ w) @ w)(A, A)))
    assert [re.sub(r"  \S+test_timeline.py:.*", "", line) for line in text.splitlines()] == [
        "peak 8.0 KiB at step 2 of 3: dot_general",
        "     4.0 KiB  f32[32,32]                    1-2",
        "     4.0 KiB  f32[32,32]                    2-2",
    ]


def test_nothing_runs():
    timeline = simulate(remat.trace(lambda x: x)(A))
    assert (timeline.peak, timeline.peak_step, timeline.alive_at(0), str(timeline)) == (0, 0, [], "no steps")
