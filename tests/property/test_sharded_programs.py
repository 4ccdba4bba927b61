"""Random programs in `shard_map`. They need four devices, so they run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent


def run(first: int, count: int) -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    path = os.pathsep.join(map(str, (TESTS.parent, TESTS)))
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": path}
    command = [sys.executable, "-m", "property.sharded", str(first), str(count)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"of {count} sharded programs agree" in found.stdout


def test_sharded_programs() -> None:
    run(0, 10)


@pytest.mark.slow
def test_many_sharded_programs() -> None:
    run(100, 150)
