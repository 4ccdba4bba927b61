"""What a program is compiled for: a platform, a chip and how many of them, as data."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from dataclasses import dataclass, field
from typing import Any

import jax

from remat.errors import ArgumentTypeError, TargetError
from remat.targets.array_rules import ARRAY_RULES, ArrayRules
from remat.targets.chips import CHIPS, Chip, chip_of_kind

RETIE_AFTER = {"cpu": 1, "tpu": 12, "gpu": 12}
EXAMPLES = {"v5e": "2x2", "v5p": "2x2x1", "v6e": "2x2", "v7x": "2x2x1"}


@dataclass(frozen=True)
class Target:
    """A compiler and the devices it compiles for.

    Figures are data sheet values of one device, None where nobody says (a CPU, a chip that remat has no entry for):
    see `remat/targets/chips.py` for sources. Other figures for a chip of your own: `dataclasses.replace`.

    **Attributes**

    - `name`: `cpu`, `tpu:v5e:2x2`, `gpu:H100`, `gpu:H100:8`.
    - `platform`: whose compiler it is: `cpu`, `tpu` or `gpu`. `chip`: the model, empty for the CPU.
    - `topology`: how the chips are arranged, `2x2x1`; of GPUs: slices, hosts, and GPUs of a host. Empty where the
      devices are those of this process. `devices`: how many JAX devices.
    - `memory_bytes`: memory of a device. `memory_bandwidth`, `host_bandwidth`: bytes/s to it, and between it and the
      host. `on_chip_bytes`: VMEM of a TPU, L2 cache of a GPU.
    - `bf16_flops`, `f32_flops`: FLOP/s of products, at JAX's default precision.
    - `retie_after`: how many rounds old a recomputed value is when a barrier holds it back again; None for never.
    - `array_rules`: what the compiler makes arrays of, for simulations.

    >>> from remat import Target
    >>> target = Target.parse("tpu:v5e:2x2")
    >>> target.platform, target.devices, target.memory_bytes // 2**30
    ('tpu', 4, 16)
    """

    name: str
    platform: str
    chip: str = ""
    topology: str = ""
    devices: int = 1
    memory_bytes: int | None = None
    bf16_flops: float | None = None
    f32_flops: float | None = None
    memory_bandwidth: float | None = None
    host_bandwidth: float | None = None
    on_chip_bytes: int | None = None
    retie_after: int | None = None
    array_rules: ArrayRules = field(default_factory=ArrayRules)

    def __str__(self) -> str:
        return self.name

    @property
    def compiler(self) -> tuple[Any, ...]:
        """All that a program that remat makes may depend on. What is kept from one trace to the next is kept by it."""
        return self.platform, self.retie_after, self.array_rules

    @classmethod
    def parse(cls, text: str) -> Target:
        """The target of that name.

        **Arguments**

        - `text`: `cpu` (or `cpu:8` for eight of them); `tpu:` with a chip and its topology, `tpu:v5e:2x2`,
          `tpu:v5p:2x2x1`; `gpu:` with a chip and how many, `gpu:H100`, `gpu:A100-80GB:8`.

        **Raises** `TargetError` that says what there is.
        """
        if not isinstance(text, str):
            raise ArgumentTypeError(
                f"a target is a text such as 'tpu:v5e:2x2' or a remat.Target, but got {text!r} of type "
                f"{type(text).__name__}."
            )
        platform, *rest = text.split(":")
        if platform == "cpu" and len(rest) <= 1:
            return _of_cpu(_count(text, *rest))
        chip = CHIPS.get(":".join([platform, *rest[:1]]))
        if chip is None or len(rest) > 2:
            raise TargetError(f"{text!r} is no target.{_hint(text)} There are: {', '.join(target_names())}.")
        return _of_tpu(text, chip, *rest[1:]) if platform == "tpu" else _of_gpu(chip, _count(text, *rest[1:]))

    @classmethod
    def of_default_device(cls) -> Target:
        """The device that JAX would run on, and how many of them this process has."""
        default = getattr(jax.config, "jax_default_device", None)
        device = jax.devices(default)[0] if isinstance(default, str) else default or jax.devices()[0]
        platform = "gpu" if device.platform in ("cuda", "rocm") else device.platform
        count = len(jax.devices(device.platform))
        if platform == "cpu":
            return _of_cpu(count)
        chip = chip_of_kind(device.device_kind)
        if chip is None:
            return cls(f"{platform}:{device.device_kind}", platform, device.device_kind, devices=count,
                       memory_bytes=_reported_memory(device), retie_after=RETIE_AFTER.get(platform),
                       array_rules=ARRAY_RULES.get(platform, ArrayRules()))  # fmt: skip
        return _with_figures(chip, f"{platform}:{chip.name}:{count}", "", count)


def as_target(target: Target | str | None) -> Target:
    """A target, or the one of that name; of None, the device that JAX would run on."""
    if target is None:
        return Target.of_default_device()
    return target if isinstance(target, Target) else Target.parse(target)


def target_names() -> list[str]:
    """A name for each kind of device: that of a few chips where a topology belongs to it."""
    return ["cpu", *map(_example, CHIPS)]


def _of_cpu(count: int) -> Target:
    name = "cpu" if count == 1 else f"cpu:{count}"
    return Target(name, "cpu", devices=count, retie_after=RETIE_AFTER["cpu"], array_rules=ARRAY_RULES["cpu"])


def _of_tpu(text: str, chip: Chip, topology: str = "") -> Target:
    numbers = topology.split("x")
    if len(numbers) != chip.layout or not all(re.fullmatch("[1-9][0-9]*", n) for n in numbers):
        shape = "x".join("ABC"[: chip.layout])
        raise TargetError(
            f"{text!r} needs the topology of the chips, {chip.layout} numbers {shape}: "
            f"'tpu:{chip.name}:{EXAMPLES[chip.name]}' is four chips."
        )
    return _with_figures(chip, text, topology, math.prod(map(int, numbers)) * chip.devices)


def _of_gpu(chip: Chip, count: int) -> Target:
    return _with_figures(chip, f"gpu:{chip.name}" + (f":{count}" if count > 1 else ""), f"1x1x{count}", count)


def _with_figures(chip: Chip, name: str, topology: str, devices: int) -> Target:
    names = {f.name for f in dataclasses.fields(Target)} - {"name", "platform", "chip", "topology", "devices"}
    figures = {f.name: getattr(chip, f.name) for f in dataclasses.fields(chip) if f.name in names}
    rules = {"retie_after": RETIE_AFTER[chip.platform], "array_rules": ARRAY_RULES[chip.platform]}
    return Target(name, chip.platform, chip.name, topology, devices, **figures, **rules)


def _count(text: str, count: str = "1") -> int:
    if not re.fullmatch("[1-9][0-9]*", count):
        raise TargetError(f"{text!r} needs a number of devices after the last colon, such as 'gpu:H100:8'.")
    return int(count)


def _hint(text: str) -> str:
    platform, _, rest = text.partition(":")
    known = (
        {"cpu": "cpu"} | {key.lower(): key for key in CHIPS} | {chip.name.lower(): key for key, chip in CHIPS.items()}
    )
    wanted = [":".join(text.split(":")[:2]), rest.split(":")[0], platform]
    begun = [key for key in CHIPS if key.lower().startswith(wanted[0].lower())]
    close = begun[-1:] + [found for word in wanted for found in difflib.get_close_matches(word.lower(), known, n=1)]
    return f" Did you mean {_example(known.get(close[0], close[0]))!r}?" if close else ""


def _example(key: str) -> str:
    chip = CHIPS.get(key)
    return f"{key}:{EXAMPLES[chip.name]}" if chip is not None and chip.platform == "tpu" else key


def _reported_memory(device: Any) -> int | None:
    return (device.memory_stats() or {}).get("bytes_limit")
