"""What data sheets say of chips: memory, peak rates and bandwidths of one JAX device."""

from __future__ import annotations

from dataclasses import dataclass

GB, GIB, TERA = 1e9, 2**30, 1e12


@dataclass(frozen=True)
class Chip:
    """One kind of chip.

    **Attributes**

    - `platform`, `name`: as in the name of a target, `tpu:v5e`.
    - `kinds`: what JAX calls it (`device_kind`).
    - `memory_bytes`, `bf16_flops`, `f32_flops`, `memory_bandwidth`, `host_bandwidth`: of one JAX device; FLOP/s and
      bytes/s at best, dense (not sparse). `f32_flops` is of products of 32-bit arrays at JAX's default precision.
    - `on_chip_bytes`: memory beside the units that compute: VMEM of a TPU, the L2 cache of a GPU.
    - `layout`: how many numbers a topology has. `devices`: how many JAX devices a chip is.
    """

    platform: str
    name: str
    kinds: tuple[str, ...]
    memory_bytes: int
    bf16_flops: float
    f32_flops: float
    memory_bandwidth: float
    host_bandwidth: float | None
    on_chip_bytes: int
    layout: int = 3
    devices: int = 1


# Memory, peak rates and bandwidths: cloud.google.com/tpu/docs/{v5e,v5p,v6e,tpu7x}. At default precision a product of
# f32 arrays is one pass of bf16. VMEM: JAX's table of TPUs; PCIe: jax-ml.github.io/scaling-book/tpus. XLA gives a
# program a little less memory (15.75 of 16 GiB on v5e).
_PCIE_OF_TPU = 15 * GB
_VMEM = 128 * 2**20
_TPUS = (
    Chip("tpu", "v5e", ("TPU v5 lite", "TPU v5e"), 16 * GIB, 197 * TERA, 197 * TERA, 819 * GB, _PCIE_OF_TPU, _VMEM, 2),
    Chip("tpu", "v5p", ("TPU v5", "TPU v5p"), 95 * GIB, 459 * TERA, 459 * TERA, 2765 * GB, _PCIE_OF_TPU, _VMEM),
    Chip("tpu", "v6e", ("TPU v6 lite", "TPU v6e"), 32 * GIB, 918 * TERA, 918 * TERA, 1640 * GB, _PCIE_OF_TPU, _VMEM, 2),
    # a chip is two devices; the data sheet's figures are halved
    Chip("tpu", "v7x", ("TPU7x",), 96 * GIB, 1153.5 * TERA, 1153.5 * TERA, 3690 * GB, None, 64 * 2**20, devices=2),
)

# Peak rates: NVIDIA's data sheets of A100, H100, H200 (SXM) and HGX B200, half of the figures "with sparsity"; f32 at
# default precision is TF32. Memory, bandwidth and cache: the device descriptions in XLA's GPU plugin, which is also
# what a program is compiled for. To the host: PCIe 4 or 5 with 16 lanes, one direction.
_PCIE_4, _PCIE_5 = 32 * GB, 64 * GB
_GPUS = (
    Chip("gpu", "A100-40GB", ("NVIDIA A100-SXM4-40GB",), 42331013120, 312e12, 156e12, 1555.2e9, _PCIE_4, 40 * 2**20),
    Chip("gpu", "A100-80GB", ("NVIDIA A100-SXM4-80GB",), 85100068864, 312e12, 156e12, 2039.04e9, _PCIE_4, 40 * 2**20),
    Chip("gpu", "H100", ("NVIDIA H100 80GB HBM3",), 84942979072, 989.4e12, 494.7e12, 3352.3e9, _PCIE_5, 50 * 2**20),
    Chip("gpu", "H200", ("NVIDIA H200", "NVIDIA H200 141GB HBM3e"), 151397597184, 989.4e12, 494.7e12, 4800e9, _PCIE_5,
         50 * 2**20),
    Chip("gpu", "B200", ("NVIDIA B200",), 191514411008, 2250e12, 1125e12, 7672.3e9, _PCIE_5, 126 * 2**20),
)  # fmt: skip

CHIPS = {f"{chip.platform}:{chip.name}": chip for chip in (*_TPUS, *_GPUS)}


def chip_of_kind(kind: str) -> Chip | None:
    """The chip that JAX calls `kind`."""
    return next((chip for chip in CHIPS.values() if kind in chip.kinds), None)
