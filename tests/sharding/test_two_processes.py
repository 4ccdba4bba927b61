"""Two processes on this machine train one step and get what one process gets."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("two_processes.py")
SECONDS = 240


def start(process, count, port):
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    environment["PYTHONPATH"] = os.pathsep.join([str(SCRIPT.parents[2]), environment.get("PYTHONPATH", "")])
    command = [sys.executable, str(SCRIPT), str(process), str(count), str(port)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(count):
    """What each of `count` processes found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [start(i, count, port) for i in range(count)]
    try:
        texts = [p.communicate(timeout=SECONDS) for p in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(processes, texts, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in texts]


@pytest.mark.skipif(
    not hasattr(jax.config, "jax_cpu_collectives_implementation"),
    reason="this jax has no collectives between processes",
)
def test_two_processes_get_what_one_gets():
    (alone,) = run(1)
    for together in run(2):
        assert together.keys() == alone.keys()
        assert len(alone) == 3
        for name, numbers in alone.items():
            np.testing.assert_allclose(together[name], numbers, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(alone["whole"], alone["mapped"], rtol=1e-5)
    np.testing.assert_allclose(alone["whole"], alone["inside"], rtol=1e-5)
