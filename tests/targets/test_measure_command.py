"""`remat measure`: the table, JSON, and messages."""

import json
import sys

import pytest
from click.testing import CliRunner

import remat
from remat.cli import main

MODULE = """
import jax, jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

def loss(ws, x):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0].sum()

def shapes(sharding=None):
    x = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=sharding)
    return jax.ShapeDtypeStruct((6, 64, 64), jnp.float32), x

def example():
    return loss, shapes()

def sharded():
    mesh = AbstractMesh((2,), ("data",), axis_types=(AxisType.Auto,))
    return loss, shapes(NamedSharding(mesh, PartitionSpec("data")))
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module `measured_by_cli` in the current folder."""
    (tmp_path / "measured_by_cli.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "measured_by_cli", raising=False)


def call(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, ["measure", *arguments])


def test_table(module):
    result = call("measured_by_cli:example", "--policy", "nothing")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "loss (value and gradient, policy nothing) for cpu, one device"
    assert any(line.split() == ["products", "6.29", "MFLOP"] for line in lines)
    assert max(map(len, lines)) <= 80


def test_json_is_the_library_s(module):
    import measured_by_cli

    result = call("measured_by_cli:example", "--json")
    assert result.exit_code == 0, result.output
    expected = remat.measure(*measured_by_cli.example()[:1], *measured_by_cli.shapes(), target="cpu")
    found, wanted = json.loads(result.stdout), json.loads(expected.to_json())
    del found["compile_seconds"], wanted["compile_seconds"]
    assert found == wanted


def test_sharded_over_an_abstract_mesh(module):
    result = call("measured_by_cli:sharded", "--target", "cpu:2", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["argument_bytes"] == 4 * (6 * 64 * 64 + 16 * 64)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["measured_by_cli:example", "--target", "h100"], 2, "Did you mean 'gpu:H100'?"),
        (["measured_by_cli:exampel"], 2, "Invalid value for EXAMPLE: measured_by_cli has no attribute 'exampel'."),
        (["measured_by_cli:example", "--policy", "dotz"], 2, "Did you mean 'dots'?"),
        (["measured_by_cli:sharded"], 1, "Error: the arguments are sharded over a mesh of 2 devices (data=2)"),
    ],
)
def test_messages(module, arguments, code, message):
    result = call(*arguments)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert result.stdout == ""
