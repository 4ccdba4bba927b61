"""`remat.timeline`: the same peak as the program that runs, what is alive at it, and its text and JSON."""

import inspect
import json
import re

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.inspect.planned import Loss
from remat.ir.costs import dot_flops
from remat.report.timeline import chart
from remat.simulate.live_bytes import simulate

W = [jnp.ones((32, 32))] * 4
X = jnp.ones((32, 32))


def unrolled(ws, x):
    for w in ws:
        x = jnp.tanh(remat.checkpoint_name(x @ w, "product"))
    return (x**2).sum()


def looped(ws, x):
    def layer(x, w):
        return jnp.sin(remat.checkpoint_name(x @ w, "product")), None

    return jax.lax.scan(layer, x, jnp.stack(ws))[0].sum()


def branching(ws, x):
    return jax.lax.cond(x.sum() > 0, lambda x: jnp.sin(x @ ws[0]) @ ws[1], lambda x: x * 2.0, x).sum()


@pytest.mark.parametrize("loss", [unrolled, looped, branching])
@pytest.mark.parametrize("policy", [None, "dots", "nothing", "segments:nothing"])
def test_it_is_the_program_that_runs(loss, policy):
    timeline = remat.timeline(loss, W, X, policy=policy)
    program = remat.trace(remat.value_and_grad(loss, policy=policy))(W, X)
    if policy is None:  # JAX's own derivative runs, and that of jax 0.10 keeps more of a branch
        assert timeline.peak <= simulate(program).peak
    else:
        assert timeline.peak == simulate(program).peak
    split = Loss.of("test", loss, (W, X), {}, 0).under(policy).split
    assert dot_flops(split.forward) + dot_flops(split.second) == dot_flops(program)


@pytest.mark.parametrize("loss", [unrolled, looped, branching])
def test_what_is_alive_adds_up_at_each_step(loss):
    timeline = remat.timeline(loss, W, X, policy="dots")
    assert 0 < timeline.forward_steps < len(timeline.bytes)
    for number, live in enumerate(timeline.bytes):
        alive = timeline.alive_at(number)
        assert sum(a.bytes for a in alive) == live
        assert all(a.since <= number <= a.until for a in alive)
    with pytest.raises(ValueError, match="there is no step"):
        timeline.alive_at(len(timeline.bytes))


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_the_peak_and_what_is_alive_are_placed_in_the_users_code():
    timeline = remat.timeline(looped, W, X, policy="names:product")
    assert timeline.peak_at.inside == ("scan",)
    assert timeline.peak_at.made in ("backward", "recomputed")
    assert timeline.peak_at.source.file == __file__
    (kept,) = [a for a in timeline.alive if a.name == "product"]
    assert (kept.times, kept.bytes, kept.made) == (4, 4 * 4096, "forward")
    assert kept.source.line == line_of(looped, "x @ w")  # in the body, not where the loop is called


def test_results_and_recomputed_values_say_what_they_are():
    timeline = remat.timeline(unrolled, W, X, policy="nothing")
    last = timeline.alive_at(len(timeline.bytes) - 1)
    assert {a.result for a in last} >= {"the value", "gradient of ws[0]", "gradient of ws[3]"}
    made = {a.made for step in range(len(timeline.bytes)) for a in timeline.alive_at(step)}
    assert made == {"forward", "backward", "recomputed"}


def test_text_is_of_the_same_figures_and_narrow():
    def a_function_with_a_name_that_is_long_enough_to_leave_the_page(ws, x):
        return unrolled(ws, x)

    timeline = remat.timeline(a_function_with_a_name_that_is_long_enough_to_leave_the_page, W, X, target="tpu:v5e:2x2")
    text = str(timeline)
    assert max(map(len, text.splitlines())) <= 80
    assert f"at step {timeline.peak_step} of {len(timeline.bytes)}" in text
    assert "tpu:v5e:2x2" in text
    assert "simulated" in text.lower()
    folded = re.search(r"^ *([\d.]+) KiB  x (\d+) .*product", text, re.MULTILINE)
    same = [a for a in timeline.alive if a.name == "product"]
    assert (float(folded[1]) * 1024, int(folded[2])) == (sum(a.bytes for a in same), len(same))


def test_json_is_of_the_same_figures():
    timeline = remat.timeline(looped, W, X, policy="dots")
    data = json.loads(timeline.to_json())
    assert data["schema"] == "remat.timeline/1"
    assert data["peak_bytes"] == timeline.peak == max(data["bytes"]) == sum(a["bytes"] for a in data["alive"])
    assert data["bytes"][data["peak_at"]["number"]] == timeline.peak
    assert data["alive"][0]["source"]["file"] == __file__


def test_settings_stay_settings_and_keywords_arrive():
    def loss(w, count, *, x, flag):
        for _ in range(count):
            x = jnp.sin(x @ w)
        return x.sum() if flag else x

    timeline = remat.timeline(loss, W[0], 3, x=X, flag=True, policy="nothing")
    assert timeline.argument_bytes == 2 * 4096
    with pytest.raises(TypeError, match="scalar"):
        remat.timeline(loss, W[0], 3, x=X, flag=False)


def test_nothing_to_do():
    timeline = remat.timeline(lambda x: x, 1.0)
    assert (timeline.bytes, timeline.peak, timeline.peak_at, timeline.alive) == ((), 0, None, ())
    assert str(timeline).endswith("no steps")


def test_many_steps():
    def long(w, x):
        for _ in range(1000):
            x = jnp.sin(x) * w
        return x.sum()

    timeline = remat.timeline(long, X, X)
    assert len(timeline.bytes) > 3000
    assert max(map(len, str(timeline).splitlines())) <= 80


def test_names_outlive_rounding_and_views():
    def loss(ws, x):
        for w in ws:
            x = jnp.sin(remat.checkpoint_name(x @ w, "product").reshape(-1)).reshape(32, 32)
        return x.sum().astype(jnp.float32)

    shape = jax.ShapeDtypeStruct((32, 32), jnp.bfloat16)
    timeline = remat.timeline(loss, [shape] * 4, shape, policy="names:product")
    at_the_border = timeline.alive_at(timeline.forward_steps)
    assert [a.type for a in at_the_border if a.name == "product" and a.made == "forward"] == ["bf16[32,32]"] * 4


def test_chart():
    lines = chart([1, 4, 8, 2], forward_steps=2, width=80, height=4)
    assert [line.partition("|")[2] for line in lines[:4]] == [
        "            ######      ",
        "            ######      ",
        "      ############      ",
        "......##################",
    ]
    assert lines[4].endswith("+------------^^^^^^------")
    assert lines[5].split() == ["forward", "backward"]
    many = chart(range(10_000), forward_steps=5_000)
    assert max(map(len, many)) <= 80
    assert many[-2].rstrip()[-1] == "^"
