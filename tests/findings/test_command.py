"""`remat check` prints findings in three forms, and exits with 1 if there are warnings."""

import json
import sys

import pytest
from click.testing import CliRunner

from remat.cli import main

MODULE = """
import jax, jax.numpy as jnp, remat

def loss(w, x):
    return (jnp.tanh(remat.checkpoint_name(x @ w, "product")) @ w).sum()

def example():
    array = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    return loss, (array, array)

def checkpointed():
    fun, args = example()
    layers = jax.checkpoint(lambda w, x: jnp.sin(jnp.sin(x)) * w)
    return lambda w, x: jnp.sin(layers(w, x)).sum(), args
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "module_to_check.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield lambda *args: CliRunner().invoke(main, ["check", *args])
    sys.modules.pop("module_to_check", None)


def test_warnings_are_status_1(run):
    result = run("module_to_check:example", "--policy", "names:prodct")
    assert result.exit_code == 1
    assert result.stdout.startswith("loss, policy names:prodct, for cpu: 1 warning\n")
    assert "warning unknown-name: 'prodct'" in result.stdout
    assert "module_to_check.py:4 (loss)" in result.stdout
    assert "> Write 'product'." in result.stdout
    assert result.stderr == ""  # what remat warns of by itself is among the findings


def test_notes_are_status_0(run):
    result = run("module_to_check:checkpointed")
    assert result.exit_code == 0, result.output
    assert "note region-without-policy" in result.stdout


def test_nothing_is_status_0(run):
    result = run("module_to_check:example", "--policy", "names:product", "--target", "tpu:v5e:2x2")
    assert (result.exit_code, result.stdout) == (
        0,
        "loss, policy names:product, for tpu:v5e:2x2: nothing found\n",
    )


def test_json(run):
    result = run("module_to_check:example", "--policy", "names:prodct", "--format", "json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["schema"] == "remat.findings/1"
    assert [f["code"] for f in data["findings"]] == ["unknown-name"]


def test_markdown(run):
    result = run("module_to_check:example", "--policy", "names:prodct", "--format", "md")
    assert "| warning | unknown-name | `'prodct'` | 1.0 MiB |" in result.stdout


def test_codes_are_ignored_one_by_one(run):
    result = run("module_to_check:example", "--policy", "names:prodct", "--ignore", "unknown-name")
    assert (result.exit_code, result.stdout) == (0, "loss, policy names:prodct, for cpu: nothing found\n")
    other = run("module_to_check:example", "--ignore", "unknown_name")
    assert other.exit_code == 2
    assert "unknown-name" in other.output
