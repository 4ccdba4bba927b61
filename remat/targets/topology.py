"""The devices of a target on a machine that has none: XLA's compilers for TPU and GPU run anywhere.

Nothing can be executed on such devices; a program that is lowered for them compiles as it would there.
"""

from __future__ import annotations

import functools
import importlib.util
import mmap
import os
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from remat.errors import TargetError, TargetUnavailableError
from remat.targets.chips import CHIPS
from remat.targets.target import Target

CUDA_PLUGINS = ("xla_cuda12", "xla_cuda13")

# libtpu asks for these where it would look for a TPU; there is none, and any value is good. It also lets only one
# process of a machine have the TPUs, which compilers need not care about.
TPU_ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


def devices_of(target: Target) -> tuple[Any, ...]:
    """The JAX devices of a target, to build a mesh of or to place argument types on.

    **Raises** `TargetUnavailableError` that says what to install or to set, and `TargetError` where the compiler knows
    no such arrangement of chips.

    >>> from remat import Target
    >>> from remat.targets.topology import devices_of
    >>> [device.platform for device in devices_of(Target.parse("cpu"))]
    ['cpu']
    """
    if not target.topology:
        return _devices_here(target)
    return _tpu_devices(target) if target.platform == "tpu" else _gpu_devices(target)


def _devices_here(target: Target) -> tuple[Any, ...]:
    found = jax.devices(target.platform)
    if len(found) < target.devices:
        raise TargetError(
            f"{target} takes {target.devices} devices, and this process has {len(found)}. CPU devices are added by "
            f"jax.config.update('jax_num_cpu_devices', {target.devices}) before JAX is used."
        )
    return tuple(found[: target.devices])


@functools.lru_cache(maxsize=32)
def _tpu_devices(target: Target) -> tuple[Any, ...]:
    if importlib.util.find_spec("libtpu") is None:
        raise TargetUnavailableError(
            f"compiling for {target} needs the package libtpu, the TPU compiler; no TPU is needed. Install it with: "
            "pip install 'remat[tpu]'"
        )
    if getattr(jax.config, "jax_platforms", None) == "cpu":  # then no TPU can be in use in this process
        for name, value in TPU_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    chip = CHIPS[f"tpu:{target.chip}"]
    kind = {"v7x": "tpu7x"}.get(chip.name, chip.name)
    try:
        topology = topologies.get_topology_desc(platform="tpu", topology_name=f"{kind}:{target.topology}")
    except jax.errors.JaxRuntimeError as error:
        if "INVALID_ARGUMENT" not in str(error):
            raise TargetUnavailableError(f"libtpu, the compiler for {target}, did not start: {error}") from error
        raise TargetError(
            f"libtpu has no chips {chip.name} arranged as {target.topology}: {_first_line(error)}. Common ones are "
            f"{'2x2, 2x4, 4x4, 4x8' if chip.layout == 2 else '2x2x1, 2x2x2, 2x2x4, 2x4x4'}."
        ) from error
    return tuple(topology.devices)


@functools.lru_cache(maxsize=32)
def _gpu_devices(target: Target) -> tuple[Any, ...]:
    plugin = _gpu_plugin()
    if plugin is None:
        raise TargetUnavailableError(
            f"compiling for {target} needs JAX's CUDA plugin; no GPU, driver or CUDA is needed. Install it with: "
            "pip install 'remat[gpu]'"
        )
    try:
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=_gpu_description(plugin, target), topology=target.topology
        )
    except NotImplementedError as error:
        raise TargetUnavailableError(
            f"JAX did not load its CUDA plugin, since it looked for a GPU and found none; so it cannot compile for "
            f"{target}. Tell it to use the CPU, before JAX is used: export JAX_PLATFORMS=cpu, or "
            "jax.config.update('jax_platforms', 'cpu')."
        ) from error
    return tuple(topology.devices)


def _gpu_plugin() -> Path | None:
    """The plugin's library, which holds the compiler and descriptions of GPUs."""
    for name in CUDA_PLUGINS:
        try:
            found = importlib.util.find_spec(f"jax_plugins.{name}")
        except ModuleNotFoundError:
            return None
        for folder in found.submodule_search_locations or () if found else ():
            library = Path(folder, "xla_cuda_plugin.so")
            if library.exists():
                return library
    return None


def _gpu_description(plugin: Path, target: Target) -> str:
    """What the compiler has to know of a GPU, as text (of XLA's `GpuTargetConfigProto`). It is part of the plugin."""
    with plugin.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for kind in CHIPS[f"gpu:{target.chip}"].kinds:
            last = f'device_description_str: "{kind}"'.encode()
            end = data.find(last)
            start = data.rfind(b"gpu_device_info {", 0, max(end, 0))
            if 0 <= start < end:
                return data[start : end + len(last)].decode()
    raise TargetUnavailableError(
        f"the CUDA plugin of this JAX has no description of {target.chip}, so nothing can be compiled for it. Install "
        "a newer jax and plugin: pip install -U 'remat[gpu]'"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].removeprefix("INVALID_ARGUMENT: ")
