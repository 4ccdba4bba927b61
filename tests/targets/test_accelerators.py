"""Compiling for TPUs and GPUs on a machine without: skipped where their compilers are not installed."""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def is_installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


has_tpu = is_installed("libtpu")
has_gpu = is_installed("jax_plugins.xla_cuda12") or is_installed("jax_plugins.xla_cuda13")
TPU = pytest.param("tpu:v5e:2x2", marks=pytest.mark.skipif(not has_tpu, reason="remat[tpu] is not installed"))
GPU = pytest.param("gpu:H100:2", marks=pytest.mark.skipif(not has_gpu, reason="remat[gpu] is not installed"))


def python(*arguments, **environment):
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables, cwd=ROOT)


@functools.cache
def measurements(target):
    done = python(str(Path(__file__).with_name("compile_for.py")), target)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("target", [TPU, GPU])
def test_gradient_of_a_scan(target):
    measured = measurements(target)[0]
    assert measured["dot_flops"] == 6 * 3 * 2 * 512 * 256 * 256
    assert measured["argument_bytes"] == 2 * (6 * 256 * 256 + 512 * 256)
    assert measured["output_bytes"] >= 2 * 6 * 256 * 256
    assert (measured["fits"], measured["endless_loops"], measured["kernels"]) == (True, 0, {})
    assert {"jax", "jaxlib"} < set(measured["versions"])


@pytest.mark.parametrize("target", [TPU, GPU])
def test_sharded_arguments(target):
    measured = measurements(target)[1]
    assert measured["devices"] == 2
    assert measured["argument_bytes"] == 2 * (6 * 256 * 256 + 256 * 256)
    assert measured["dot_flops"] == 6 * 2 * 256 * 256 * 256
    assert [(c["kind"], c["count"], c["bytes"]) for c in measured["collectives"]] == [("all-reduce", 1, 4)]


@pytest.mark.parametrize("target", [TPU, GPU])
def test_batched_products(target):
    assert measurements(target)[2]["dot_flops"] == 2 * 2 * 2 * 4 * 256 * 256 * 64


@pytest.mark.parametrize("target", [TPU, GPU])
def test_convolutions(target):
    """The gradients of a linear loss take two convolutions; zeros between the positions of a stride do not count, but
    what the TPU compiler adds to fill its lanes does."""
    flops = 2 * 2 * (2 * 32 * 32 * 16) * (3 * 3 * 8)
    assert flops <= measurements(target)[3]["dot_flops"] <= (1.2 if target.startswith("tpu") else 1) * flops


@pytest.mark.parametrize("target", [TPU, GPU])
def test_what_does_not_fit_is_a_result(target):
    measured = measurements(target)[4]
    assert measured["fits"] is False
    if target.startswith("tpu"):
        assert "exceeds available HBM" in measured["error"]
        assert measured["temp_bytes"] is measured["dot_flops"] is None
    else:
        assert measured["total_bytes"] > measured["target"]["memory_bytes"]


@pytest.mark.skipif(has_tpu or has_gpu, reason="the compilers are installed")
@pytest.mark.parametrize(("target", "extra"), [("tpu:v5e:2x2", "tpu"), ("gpu:H100", "gpu")])
def test_a_missing_compiler_says_what_to_install(target, extra):
    import jax.numpy as jnp

    import remat

    with pytest.raises(remat.TargetUnavailableError, match=rf"pip install 'remat\[{extra}\]'"):
        remat.measure(jnp.sin, jnp.ones(3), target=target)


@pytest.mark.skipif(not has_gpu, reason="remat[gpu] is not installed")
def test_a_plugin_that_found_no_gpu_says_what_to_set():
    """JAX looks for GPUs when it is used first; then the plugin stays out."""
    code = "import jax, remat; remat.measure(jax.numpy.sin, jax.numpy.ones(3), target='gpu:H100')"
    done = python("-c", code, JAX_PLATFORMS="")
    if done.returncode == 0:
        pytest.skip("there is a GPU")
    assert "TargetUnavailableError" in done.stderr
    assert "export JAX_PLATFORMS=cpu" in done.stderr


@pytest.mark.skipif(not has_tpu, reason="remat[tpu] is not installed")
def test_an_arrangement_of_chips_that_there_is_not():
    code = "from remat import Target; from remat.targets.topology import devices_of; devices_of(Target.parse('%s'))"
    done = python("-c", code % "tpu:v5e:2x3")
    assert "libtpu has no chips v5e arranged as 2x3" in done.stderr
    assert "Common ones are 2x2" in done.stderr


@functools.cache
def offloaded(target):
    done = python(str(Path(__file__).with_name("offload_on.py")), target)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    return found["names:resid"], found["offload:resid"]


@pytest.mark.slow
@pytest.mark.parametrize("target", [TPU])
def test_offloading_takes_less_of_the_device_than_keeping(target):
    kept, moved = offloaded(target)
    array = 2 * 8192 * 2048
    assert moved["host"] == 8 * array
    assert moved["temp"] <= kept["temp"] - array


@pytest.mark.slow
@pytest.mark.parametrize("target", [TPU])
def test_transfers_run_while_something_is_computed(target):
    """Each layer of the forward pass begins when the value of the one before is stored, and the backward pass fetches
    one value at a time; all but the first of them come during a product."""
    _, moved = offloaded(target)
    schedule = " ".join(moved["schedule"])
    layer = "store product product stored "
    assert schedule.startswith(8 * layer)
    backward = moved["schedule"][8 * len(layer.split()) :]
    transfers = [e for e in backward if e != "product"]
    assert transfers == ["fetch", "fetched"] * 8
    starts = [i for i, e in enumerate(backward) if e == "fetch"]
    assert all(backward[i + 1] == "product" for i in starts[1:])
