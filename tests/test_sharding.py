"""Starts the tests of `tests/sharding`, which need another number of devices than the others."""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "sharding"


def test_the_sharding_folder_on_eight_devices():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--confcutdir={FOLDER}", str(FOLDER)]
    run = subprocess.run(command, env=environment, cwd=FOLDER.parent.parent, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert "passed" in run.stdout
