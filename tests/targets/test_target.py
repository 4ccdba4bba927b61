"""Targets as data: their names, what is known of them, and messages for names that there are not."""

import dataclasses
import types

import jax
import pytest

from remat import Target
from remat.errors import ArgumentTypeError, TargetError
from remat.targets.chips import CHIPS
from remat.targets.current import current_target, use_target
from remat.targets.topology import devices_of


@pytest.mark.parametrize(
    ("name", "platform", "devices", "gigabytes"),
    [
        ("cpu", "cpu", 1, None),
        ("cpu:8", "cpu", 8, None),
        ("tpu:v5e:2x2", "tpu", 4, 17),
        ("tpu:v5e:4x8", "tpu", 32, 17),
        ("tpu:v5p:2x2x1", "tpu", 4, 102),
        ("tpu:v6e:2x4", "tpu", 8, 34),
        ("tpu:v7x:2x2x1", "tpu", 8, 103),
        ("gpu:H100", "gpu", 1, 85),
        ("gpu:H200:8", "gpu", 8, 151),
        ("gpu:A100-40GB", "gpu", 1, 42),
        ("gpu:A100-80GB", "gpu", 1, 85),
        ("gpu:B200", "gpu", 1, 192),
    ],
)
def test_names(name, platform, devices, gigabytes):
    target = Target.parse(name)
    assert (str(target), target.platform, target.devices) == (name, platform, devices)
    assert Target.parse(str(target)) == target
    assert (target.memory_bytes and round(target.memory_bytes / 1e9)) == gigabytes


def test_figures_are_of_one_device_and_plausible():
    for chip in CHIPS.values():
        assert 1e14 < chip.f32_flops <= chip.bf16_flops < 5e15
        assert 8e11 < chip.memory_bandwidth < 1e13
        assert chip.host_bandwidth is None or 1e10 < chip.host_bandwidth < chip.memory_bandwidth
        assert 15e9 < chip.memory_bytes < 200e9


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h100", "Did you mean 'gpu:H100'?"),
        ("gpu:h100", "Did you mean 'gpu:H100'?"),
        ("gpu:A100", "Did you mean 'gpu:A100-80GB'?"),
        ("v5e:2x2", "Did you mean 'tpu:v5e:2x2'?"),
        ("tpu:v5x:2x2", "There are: cpu, tpu:v5e:2x2, tpu:v5p:2x2x1"),
        ("tpu:v5e", "'tpu:v5e:2x2' is four chips"),
        ("tpu:v5e:2x2x1", "2 numbers AxB"),
        ("tpu:v5p:2x2", "3 numbers AxBxC"),
        ("tpu:v5e:2x0", "needs the topology"),
        ("gpu:H100:many", "needs a number of devices"),
        ("cpu:0", "needs a number of devices"),
        ("", "is no target"),
    ],
)
def test_messages(name, message):
    with pytest.raises(TargetError) as caught:
        Target.parse(name)
    assert message in str(caught.value)
    assert repr(name) in str(caught.value)


def test_what_is_no_text():
    with pytest.raises(ArgumentTypeError, match=r"'tpu:v5e:2x2' or a remat\.Target, but got 3 of type int"):
        Target.parse(3)


def test_default_is_what_jax_would_run_on():
    target = Target.of_default_device()
    assert target.platform == jax.default_backend()
    assert target.devices == len(jax.devices())
    assert current_target() == target
    with jax.default_device(jax.devices()[0]):
        assert Target.of_default_device() == target


@pytest.mark.parametrize(
    ("platform", "kind", "name", "memory"),
    [
        ("gpu", "NVIDIA H100 80GB HBM3", "gpu:H100:2", 84942979072),
        ("cuda", "NVIDIA B200", "gpu:B200:2", 191514411008),
        ("tpu", "TPU v6 lite", "tpu:v6e:2", 32 * 2**30),
        ("gpu", "NVIDIA RTX 9999", "gpu:NVIDIA RTX 9999", 123),  # no data sheet; the device says what it has
    ],
)
def test_default_on_other_machines(monkeypatch, platform, kind, name, memory):
    device = types.SimpleNamespace(platform=platform, device_kind=kind, memory_stats=lambda: {"bytes_limit": 123})
    monkeypatch.setattr(jax, "devices", lambda platform=None: [device, device])
    target = Target.of_default_device()
    assert (target.name, target.platform, target.devices) == (name, platform.replace("cuda", "gpu"), 2)
    assert (target.topology, target.memory_bytes, target.retie_after) == ("", memory, 12)
    assert devices_of(target) == (device, device)


def test_a_chosen_target_holds_inside_and_nests():
    outside = current_target()
    with use_target("tpu:v5e:2x2") as outer:
        assert current_target() == outer == Target.parse("tpu:v5e:2x2")
        with use_target("gpu:H100"):
            assert current_target().chip == "H100"
        with pytest.raises(TargetError), use_target("gpu:h100"):
            pass
        assert current_target() == outer
    assert current_target() == outside


def test_programs_depend_on_the_compiler_and_nothing_else():
    v5e, v5p = Target.parse("tpu:v5e:2x2"), Target.parse("tpu:v5p:2x2x1")
    assert v5e.compiler == v5p.compiler != Target.parse("cpu").compiler
    assert dataclasses.replace(v5e, retie_after=None).compiler != v5e.compiler
