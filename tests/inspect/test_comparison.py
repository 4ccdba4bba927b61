"""`remat.compare`: rows, the front, what fits, older figures, text and JSON."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

import remat
from remat import policies
from remat.inspect.compare import _with_front
from remat.inspect.comparison import Comparison, Row

W = [jax.ShapeDtypeStruct((32, 32), jnp.float32)] * 4
X = jax.ShapeDtypeStruct((32, 32), jnp.float32)
PRODUCT = 2 * 32**3
ALL = [None, "dots", policies.nothing_saveable, "offload:product"]


def loss(ws, x):
    for w in ws:
        x = jnp.sin(jnp.tanh(remat.checkpoint_name(x @ w, "product")))
    return x.sum()


def compared(*chosen, **options):
    return remat.compare(loss, (W, X), list(chosen) or ALL, target="cpu", **options)


def test_rows():
    none, dots, nothing, offload = compared()
    assert [r.policy for r in (none, dots, nothing, offload)] == ["none", "dots", "nothing", "offload:product"]
    assert (dots.kept_bytes, dots.host_bytes, dots.recomputed_flops) == (4 * 4096, 0, 0)
    assert (nothing.kept_bytes, nothing.recomputed_flops) == (0, 4 * PRODUCT)
    assert (offload.kept_bytes, offload.host_bytes, offload.recomputed_flops) == (0, 4 * 4096, 0)
    assert none.dot_flops == 4 * PRODUCT * 3 - PRODUCT  # nobody wants the cotangent of x
    assert none.peak_bytes == remat.timeline(loss, W, X).peak > dots.peak_bytes
    assert none.total_bytes == none.peak_bytes + 5 * 4096


def test_loops_are_multiplied():
    def looped(ws, x):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0].sum()

    shapes = jax.ShapeDtypeStruct((7, 32, 32), jnp.float32), X
    (row,) = remat.compare(looped, shapes, ["nothing"])
    assert row.recomputed_flops % PRODUCT == 0
    assert 6 * PRODUCT <= row.recomputed_flops <= 7 * PRODUCT


def test_a_failing_policy_is_a_row():
    def fails(primitive, *args, **params):
        raise RuntimeError("mine")

    rows = compared("dotz", fails, "dots")
    assert "Did you mean 'dots'?" in rows[0].error
    assert "RuntimeError: mine" in rows[1].error
    assert (rows[0].peak_bytes, rows[2].error) == (None, None)
    assert "dotz failed: PolicyError" in str(rows)
    assert rows[0].policy == "dotz"
    assert not rows[0].front


def test_warnings_stand_in_the_row():
    (row,) = rows = compared("names:produkt")
    assert any("produkt" in text for text in row.warnings)
    assert "produkt" in str(rows).partition("* is on the front")[2]


def test_a_compiler_that_is_not_there_is_no_fault_of_a_policy(monkeypatch):
    def unavailable(*args, **kwargs):
        raise remat.TargetUnavailableError("not installed")

    monkeypatch.setattr("remat.inspect.compare.measure", unavailable)
    with pytest.raises(remat.TargetUnavailableError):
        compared("dots", measure=True)


def test_bad_calls_are_errors():
    with pytest.raises(TypeError, match="one tuple"):
        remat.compare(loss, W[0], ["dots"])
    with pytest.raises(TypeError, match="list of policies"):
        remat.compare(loss, (W, X), "dots")
    with pytest.raises(remat.TargetError, match="is no target"):
        remat.compare(loss, (W, X), ["dots"], target="tpu:v99")
    with pytest.raises(TypeError, match="scalar"):
        remat.compare(lambda x: x, (X,), ["dots"])


def test_front():
    points = [(10, 0), (5, 4), (5, 5), (7, 4), (1, 9), (10, 0)]
    rows = [Row(str(i), peak_bytes=b, recomputed_flops=f) for i, (b, f) in enumerate(points)]
    rows.append(Row("failed", peak_bytes=0, recomputed_flops=0, error="failed"))
    assert [r.policy for r in _with_front(rows) if r.front] == ["0", "1", "4", "5"]
    rows[1] = dataclasses.replace(rows[1], live_bytes=20)  # measured counts
    assert "1" not in [r.policy for r in _with_front(rows) if r.front]


def test_fits():
    comparison = compared()
    assert comparison.fits("1GiB").rows[0].recomputed_flops == 0
    least = min(r.total_bytes for r in comparison)
    fit = comparison.fits(least)
    assert [r.total_bytes for r in fit.rows] == [least] * len(fit.rows)
    assert fit
    assert "simulated" in str(fit)
    none = comparison.fits(least - 1)
    assert not none
    assert str(none).startswith("None of 4 policies fits")
    assert none.smallest.total_bytes == least


def test_text_and_json_are_of_the_same_figures():
    comparison = compared(*ALL, "substituting:scan_body:(dots|names:product,product_of_the_second_layer_norm)")
    text, data = str(comparison), json.loads(comparison.to_json())
    assert max(map(len, text.splitlines())) <= 80
    assert data["schema"] == "remat.compare/1"
    assert data["versions"]["jax"] == jax.__version__
    assert [r["peak_bytes"] for r in data["rows"]] == [r.peak_bytes for r in comparison]
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    for row in data["rows"][:4]:
        assert f"{row['peak_bytes'] / 1024:.1f} KiB" in lines[row["policy"]]
        assert lines[row["policy"]].endswith("*") == row["front"]
    assert "peaks are simulated" in " ".join(text.split())
    assert Comparison.from_json(comparison.to_json()) == comparison


def test_measured():
    comparison = compared(None, "nothing", measure=True)
    for row, policy in zip(comparison, (None, "nothing"), strict=True):
        measured = remat.measure(remat.value_and_grad(loss, policy=policy), W, X, target="cpu")
        assert (row.live_bytes, row.total_bytes) == (measured.live_bytes, measured.total_bytes)
        assert row.bytes == row.live_bytes
    assert "measured" in str(comparison)
    assert "(measured)" in " ".join(str(comparison.fits("1GiB")).split())


def test_against():
    now = compared("dots", "nothing")
    smaller = [dataclasses.replace(r, peak_bytes=int(r.peak_bytes / 1.1)) for r in now]
    old = dataclasses.replace(now, rows=tuple(smaller))
    assert [(c.policy, c.worse) for c in now.against(old)] == [("dots", True), ("nothing", True)]
    assert [c.worse for c in now.against(old, tolerance=0.2)] == [False, False]
    assert [c.worse for c in old.against(now)] == [False, False]
    assert "+10" in str(now.against(old)[0])
    assert now.against(now) == []
    failed = dataclasses.replace(now, rows=(Row("dots", error="failed"), Row("new", peak_bytes=1)))
    assert [(c.policy, c.after, c.worse) for c in failed.against(now)] == [("dots", None, True)]
    with pytest.raises(ValueError, match="compilers differ"):
        now.against(dataclasses.replace(now, target="gpu:H100"))


@pytest.mark.parametrize("text", ["no json", "[]", '{"schema": "remat.compare/2"}'])
def test_other_files_are_refused(text):
    with pytest.raises(ValueError, match="must be"):
        Comparison.from_json(text)
