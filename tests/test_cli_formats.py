"""The formats of the command line: JSON that parses and Markdown that has a table, with the totals of the text."""

import json
import re
import sys

import pytest
from click.testing import CliRunner

from remat.cli import main
from remat.cli.group import main as group
from remat.units import bytes_text

EXAMPLE = """
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

def loss(w, x):
    def layer(x, w):
        return jnp.tanh(checkpoint_name(w @ x, "product")), None
    return jax.lax.scan(layer, x, w)[0].sum()

shape = jax.ShapeDtypeStruct

def pair():
    return loss, (shape((6, 256, 256), jnp.float32), shape((256,), jnp.float32))
"""
OUT_OF_MEMORY = "Ran out of memory in memory space hbm. Used 280.0K of 260.0K hbm. Exceeded hbm capacity by 20.0K."
PAIR = "example_of_formats:pair"
COMMANDS = {
    "saved": ["saved", PAIR, "--policy", "names:product"],
    "why": ["why", PAIR, "product", "--policy", "names:product"],
    "timeline": ["timeline", PAIR, "--policy", "names:product"],
    "compare": ["compare", PAIR, "--policies", "none", "names:product"],
    "check": ["check", PAIR, "--policy", "names:product"],
    "measure": ["measure", PAIR, "--policy", "names:product"],
    "plan": ["plan", PAIR, "--budget", "4MiB"],
    "pareto": ["plan", PAIR],
    "explain": ["explain", "log.txt", PAIR, "--target", "tpu:v5e:2x2"],
    "policies": ["policies"],
}


@pytest.fixture
def example(tmp_path, monkeypatch):
    """A folder with a module and a log, as the current folder."""
    (tmp_path / "example_of_formats.py").write_text(EXAMPLE)
    (tmp_path / "log.txt").write_text(OUT_OF_MEMORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "example_of_formats", raising=False)


def call(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, arguments)


def total_in(command, data):
    """A figure of the JSON, as the text writes it."""
    if command == "policies":
        return data["policies"][0]["write"]
    if command == "check":
        return f"{data['function']}, policy {data['policy']}"
    figures = {
        "saved": lambda: data["new_bytes"],
        "why": lambda: data[0]["residual"]["bytes"] * data[0]["residual"]["times"],
        "timeline": lambda: data["peak_bytes"],
        "compare": lambda: data["rows"][1]["peak_bytes"],
        "measure": lambda: data["live_bytes"],
        "plan": lambda: data["simulated"]["peak_bytes"],
        "pareto": lambda: next(r for r in data["rows"] if r["front"])["peak_bytes"],
        "explain": lambda: data["comparison"]["argument_bytes"],
    }
    return bytes_text(figures[command]())


@pytest.mark.parametrize("command", COMMANDS)
def test_formats_have_the_same_figures(example, command):
    text = call(*COMMANDS[command])
    as_json, markdown = (call(*COMMANDS[command], "--format", form) for form in ("json", "md"))
    assert text.exit_code == as_json.exit_code == markdown.exit_code == 0, as_json.output
    total = total_in(command, json.loads(as_json.stdout))
    for found in (text, markdown):
        assert total in " ".join(found.stdout.replace("\\", "").split())
    if command != "check":  # where there is nothing to find
        rows = [line for line in markdown.stdout.splitlines() if line.startswith("|")]
        assert re.fullmatch(r"\|(---\|)+", rows[1])
        assert len(rows) > 2
    assert call(*COMMANDS[command], "--format", "table").stdout.splitlines()[0] == text.stdout.splitlines()[0]


def test_findings_are_a_table(example):
    result = call("check", PAIR, "--policy", "names:produkt|names:product", "--format", "md")
    assert result.exit_code == 1
    assert re.search(r"^\|(---\|)+$", result.stdout, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_format_is_a_usage_error(command):
    result = call(*COMMANDS[command], "--format", "yaml")
    assert result.exit_code == 2
    assert "'table', 'json', 'md'" in result.stderr
    assert result.stdout == ""


def test_every_command_that_prints_a_result_has_formats():
    without = {"demo", "report", "completion"}
    for name, command in group.commands.items():
        has = any("--format" in param.opts for param in command.params)
        assert has == (name not in without), name


@pytest.mark.parametrize("command", ["timeline", "why", "measure", "plan", "explain"])
def test_json_is_short_for_a_format(example, command):
    short, long = (json.loads(call(*COMMANDS[command], *o).stdout) for o in (["--json"], ["--format", "json"]))
    if command == "measure":
        short, long = ({**d, "compile_seconds": 0} for d in (short, long))
    assert short == long


def test_json_to_a_file_stays(example, tmp_path):
    result = call(*COMMANDS["compare"], "--json", "figures.json", "--fits", "1GiB")
    assert result.exit_code == 0, result.output
    printed = call(*COMMANDS["compare"], "--format", "json", "--fits", "1GiB")
    assert json.loads((tmp_path / "figures.json").read_text())["rows"] == json.loads(printed.stdout)["rows"]
    assert "2 of 2 policies fit" in printed.stderr
    assert "2 of 2 policies fit" in result.stdout
