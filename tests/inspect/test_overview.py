"""The data of the HTML report: everything in it comes from what the other reports show, and it stays small."""

import json

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.checkpoint import resolve_policy
from remat.inspect.overview import PLANNED, overview
from remat.inspect.planned import Loss
from remat.inspect.program_lines import LIMIT, programs_data
from remat.inspect.samples import COLUMNS, TextTable, samples_of
from remat.ir.printer import paired_texts
from remat.report.kept import residuals_text
from remat.units import bytes_text

X = jax.ShapeDtypeStruct((16, 16), jnp.float32)
ARGS = {"w": [X] * 3, "loop": jax.ShapeDtypeStruct((5, 16, 16), jnp.float32)}, X


def loss(params, x):
    for w in params["w"]:
        x = jnp.sin(remat.checkpoint_name(x @ w, "product"))
    x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params["loop"])
    return (x**2).sum()


def chain(count):
    def sines(w, x):
        for _ in range(count // 2):
            x = jnp.sin(x * w)
        return x.sum()

    vector = jax.ShapeDtypeStruct((64,), jnp.float32)
    return sines, (vector, vector)


@pytest.fixture(scope="module")
def found():
    return overview(loss, ARGS, {}, policy="names:product", policies=[None, "nothing", "names:product"], target="cpu")


@pytest.fixture(scope="module")
def large():
    fun, args = chain(5001)
    return overview(fun, args, {}, policies=[], target="cpu")


def test_totals_are_those_of_the_other_reports(found):
    totals = found.totals
    saved = remat.saved_residuals(loss, *ARGS, policy="names:product", argnums=0)
    saved_data = json.loads(saved.to_json())
    assert totals["kept_bytes"] == saved.new_bytes == saved_data["new_bytes"] == found.row.kept_bytes > 0
    assert f"total: {bytes_text(totals['kept_bytes'])} kept" in residuals_text(saved)
    assert totals["held_bytes"] + totals["kept_bytes"] == saved_data["total_bytes"]
    assert totals["kept_bytes"] == remat.schedule(loss, *ARGS, policy="names:product", target="cpu").kept_bytes

    timeline = remat.timeline(loss, *ARGS, policy="names:product", target="cpu")
    assert (totals["peak_bytes"], totals["set_aside_bytes"]) == (timeline.peak, timeline.set_aside)
    assert totals["argument_bytes"] == timeline.argument_bytes == found.comparison.argument_bytes
    assert totals["set_aside_bytes"] == found.row.peak_bytes
    assert totals["measured_bytes"] is None


def test_rows_add_up_to_the_totals(found):
    data = json.loads(found.to_json())
    table = data["residuals"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    assert sum(r["total_bytes"] for r in rows if r["is_new"]) == data["totals"]["kept_bytes"]
    assert all(r["total_bytes"] == r["bytes"] * r["times"] for r in rows)
    kept = remat.schedule(loss, *ARGS, policy="names:product", target="cpu").kept
    assert [r["key"] for r in rows] == [k.key for k in kept]


def test_what_is_alive_can_be_looked_up(found):
    """The page finds what is alive at a step in the list of all arrays and in what is inside of the step."""
    data = json.loads(found.to_json())["timeline"]
    assert data["columns"][:3] == ["bytes", "since", "until"]
    assert [s["step"] for s in data["samples"]] == list(range(data["steps"]))
    assert any("inside" in s for s in data["samples"])
    for sample in data["samples"]:
        at = sample["step"]
        alive = [row[0] for row in data["arrays"] if row[1] <= at <= row[2]]
        alive += [row[0] for row in sample.get("inside", [])]
        assert sorted(alive, reverse=True) == [a.bytes for a in found.timeline.alive_at(at)]
        assert sum(alive) == sample["bytes"] == found.timeline.bytes[at]


def test_samples_keep_the_maxima(found):
    live, forward = found.timeline.bytes, found.timeline.forward_steps
    for columns in (2, 7, len(live) - 1):
        samples = samples_of(found.timeline, columns)
        assert len(samples) == columns
        assert [n for s in samples for n in range(s.first, s.last + 1)] == list(range(len(live)))
        assert all(s.bytes == live[s.step.number] == max(live[s.first : s.last + 1]) for s in samples)
        assert all((s.first < forward) == (s.last < forward) for s in samples)
        assert max(s.bytes for s in samples) == found.timeline.peak


def test_programs_share_the_names_of_kept_values(found):
    data = json.loads(found.to_json())
    side = {name: data["programs"][name]["lines"] for name in ("forward", "backward")}
    assert data["programs"]["kept"] == [row[1] for row in data["residuals"]["rows"]]
    defined = {name for line in side["forward"] for name, _ in line[1]}
    entering = {name for name, _ in side["backward"][0][1]}
    assert set(data["programs"]["kept"]) <= defined & entering
    again = [line for line in side["backward"] if line[4]]
    assert len(again) == data["programs"]["recomputed"] > 0
    assert "sin" in {data["texts"][line[2]] for line in again}
    assert not any(line[4] for line in side["forward"])


def test_lines_are_those_of_the_printed_programs(found):
    planned = Loss.of("test", loss, ARGS, {}, 0).under(resolve_policy("names:product"))
    first, second = paired_texts(planned.split.forward, planned.split.second)
    for lines, texts in ((found.programs.forward, first), (found.programs.backward, second)):
        assert [str(line) for line in lines] == [text.strip() for text in texts]


def test_long_programs_are_cut_in_the_middle(found):
    side = programs_data(found.programs, TextTable(), limit=10)["backward"]
    whole = programs_data(found.programs, TextTable())["backward"]
    assert (whole["left_out"], whole["count"]) == (0, len(found.programs.backward))
    assert (len(side["lines"]), side["left_out_after"], side["left_out"]) == (10, 5, side["count"] - 10)
    assert [line[3] for line in side["lines"]] == [line[3] for line in whole["lines"][:5] + whole["lines"][-5:]]


def test_policies_and_findings():
    wanted = ["names:product", None, "dotz", "names:nobody"]
    found = overview(loss, ARGS, {}, policy="names:product", policies=wanted, target="cpu", budget="1KiB")
    assert [r.policy for r in found.comparison] == ["names:product", "none", "dotz", "names:nobody", "budget:1KiB"]
    assert found.budget_bytes == 1024
    kinds = {(f.kind, f.policy) for f in found.findings}
    assert kinds == {("error", "dotz"), ("error", "budget:1KiB"), ("warning", "names:nobody")}
    assert found.plans is not None
    rows = json.loads(found.to_json())["plans"]
    assert sorted(r["peak_bytes"] for r in rows if r["front"]) == sorted(c.peak_bytes for c in found.plans.choices)


def test_what_check_finds_is_among_the_findings():
    found = overview(loss, ARGS, {}, policy="names:prodduct", policies=[None], target="cpu")
    assert any(f.kind == "warning" and "[unknown-name]" in f.text and "'product'" in f.text for f in found.findings)


def test_large_programs_stay_small(large):
    text = large.to_json()
    data = json.loads(text)
    assert data["timeline"]["steps"] > 5000
    assert len(data["timeline"]["samples"]) == COLUMNS
    assert max(s["bytes"] for s in data["timeline"]["samples"]) == large.timeline.peak
    assert all(len(data["programs"][side]["lines"]) == LIMIT for side in ("forward", "backward"))
    assert len(data["timeline"]["arrays"]) == len(large.timeline.arrays)
    assert len(text) < 200 * data["timeline"]["steps"]
    assert data["plans"] is None
    assert f"up to {PLANNED:,} equations" in data["no_plans"]
