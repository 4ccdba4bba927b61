"""The committed comparison with compiled programs says what the documentation claims."""

import json
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = json.loads((ROOT / "benchmarks" / "simulation.json").read_text())

# Of each target: the median error, the largest, and which part of the rows is within 10 %, at worst.
CLAIMS = {
    "cpu": (0.05, 0.15, 0.85),
    "tpu:v5e:2x2": (0.03, 0.25, 0.9),
    "tpu:v5p:2x2x1": (0.04, 0.2, 0.75),
    "gpu:H100": (0.05, 0.17, 0.8),
    "gpu:H100, cublas": (0.06, 0.17, 0.7),
}


@pytest.mark.parametrize("target", CLAIMS)
def test_accuracy(target):
    rows = TABLES[target]["rows"]
    errors = [abs(r["simulated_mib"] / r["compiled_mib"] - 1) for r in rows]
    median, largest, part = CLAIMS[target]
    assert statistics.median(errors) <= median
    assert max(errors) <= largest
    assert sum(e <= 0.1 for e in errors) >= part * len(errors)
    assert TABLES[target]["summary"] == (
        f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}; "
        f"{sum(e <= 0.1 for e in errors)} of {len(errors)} within 10%"
    )


@pytest.mark.parametrize("target", CLAIMS)
def test_figures_are_those_of_the_memory_benchmark(target):
    device, *products = target.split(", ")
    name = "-".join(["memory", *device.split(":")[:2], *products])
    figures = json.loads((ROOT / "benchmarks" / f"{name}.json").read_text())
    compiled = {(r["net"], round(r["temp_mib"] + r["output_mib"], 1)) for r in figures["rows"] if r["temp_mib"]}
    assert {(r["net"], r["compiled_mib"]) for r in TABLES[target]["rows"]} <= compiled
    assert len({(r["net"], r["who"], r["policy"]) for r in TABLES[target]["rows"]}) == len(TABLES[target]["rows"])


def test_the_document_quotes_the_summaries():
    text = " ".join((ROOT / "ARCHITECTURE.md").read_text().split())
    for target, table in TABLES.items():
        median, within, rows = re.match(r"median error (\S+)%, .*; (\d+) of (\d+)", table["summary"]).groups()
        assert f"{median} %, {within} of {rows}" in text, target
