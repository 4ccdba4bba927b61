"""measure: what is compiled, on which devices, what it says of it. On the CPU."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

import remat
from remat.errors import ArgumentError, ArgumentTypeError, TargetError
from remat.targets.current import current_target
from remat.targets.topology import devices_of

KIB = 1024


def f32(*shape, sharding=None):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def loss(w, x):
    for _ in range(4):
        x = jnp.sin(x @ w)
    return x.sum()


def mesh_of(count=2, devices=None):
    return Mesh(np.array(devices or jax.devices()[:count]), ("data",), axis_types=(AxisType.Auto,))


def test_bytes_are_those_of_the_compiled_program():
    measured = remat.measure(jax.grad(loss), f32(64, 64), jnp.ones((32, 64)), target="cpu")
    memory = jax.jit(jax.grad(loss)).lower(f32(64, 64), f32(32, 64)).compile().memory_analysis()
    assert measured.argument_bytes == memory.argument_size_in_bytes == 24 * KIB
    assert measured.output_bytes == memory.output_size_in_bytes == 16 * KIB
    assert measured.temp_bytes == memory.temp_size_in_bytes > 0
    assert measured.live_bytes == measured.temp_bytes + 16 * KIB
    assert measured.total_bytes == measured.live_bytes + 24 * KIB + measured.code_bytes
    assert measured.dot_flops == (4 + 4 + 3) * 2 * 32 * 64 * 64
    assert (measured.peak_bytes, measured.fits, measured.error) == (None, None, None)
    assert dict(measured.versions)["jax"] == jax.__version__


def test_a_policy_is_around_the_loss_whose_gradient_is_measured():
    def in_loop(ws, x):
        return jax.lax.scan(lambda x, w: (jnp.sin(x @ w), None), x, ws)[0].sum()

    def with_policy(policy):
        return remat.measure(in_loop, f32(6, 64, 64), f32(32, 64), target="cpu", policy=policy)

    everything, nothing = with_policy("everything"), with_policy(remat.policies.nothing_saveable)
    assert (everything.function, everything.policy, nothing.policy) == ("in_loop", "everything", "nothing")
    assert everything.dot_flops == 6 * 3 * 2 * 32 * 64 * 64
    assert nothing.dot_flops == 6 * 4 * 2 * 32 * 64 * 64
    assert everything.temp_bytes > nothing.temp_bytes
    assert 0 <= everything.output_bytes - 6 * 16 * KIB < 100


def test_what_jit_was_told_holds():
    @functools.partial(jax.jit, donate_argnums=0, static_argnames="times")
    def step(x, *, times):
        return x * times

    measured = remat.measure(step, f32(64), times=3, target="cpu")
    assert (measured.function, measured.alias_bytes) == ("step", 256)
    assert measured.total_bytes == measured.temp_bytes + measured.code_bytes + 256


def test_leaves_that_are_no_arrays_are_static():
    def fun(options, x):
        return options["act"](x) if options["on"] else x

    measured = remat.measure(fun, {"act": jnp.sin, "on": True}, f32(8), target="cpu")
    assert measured.argument_bytes == 32


def test_shardings_move_to_the_devices_of_the_target():
    rows = PartitionSpec("data")
    x = f32(64, 64, sharding=NamedSharding(mesh_of(), rows))
    measured = remat.measure(lambda w, x: (x @ w).sum(), f32(64, 64), x, target="cpu:2")
    assert measured.argument_bytes == 64 * 64 * 4 + 32 * 64 * 4
    assert measured.dot_flops == 2 * 32 * 64 * 64
    assert [(c.kind, c.count, c.bytes) for c in measured.collectives] == [("all-reduce", 1, 4)]

    abstract = f32(64, 64, sharding=NamedSharding(AbstractMesh((2,), ("data",), axis_types=(AxisType.Auto,)), rows))
    assert remat.measure(jnp.sum, abstract, target="cpu:2").argument_bytes == 32 * 64 * 4


def test_the_mesh_around_moves_too():
    def fun(x):
        return jax.lax.with_sharding_constraint(jnp.sin(x), PartitionSpec("data"))

    with jax.set_mesh(mesh_of()):
        measured = remat.measure(fun, f32(64, sharding=NamedSharding(mesh_of(), PartitionSpec())), target="cpu:2")
    assert (measured.argument_bytes, measured.output_bytes) == (256, 128)


def test_too_few_devices():
    x = f32(64, sharding=NamedSharding(mesh_of(), PartitionSpec("data")))
    with pytest.raises(TargetError, match=r"2 devices \(data=2\), and cpu has 1\. Name a larger target, such as cpu:2"):
        remat.measure(jnp.sin, x, target="cpu")
    with pytest.raises(TargetError, match=r"jax_num_cpu_devices', 64"):
        remat.measure(jnp.sin, x, target="cpu:64")


def test_wrong_arguments():
    with pytest.raises(ArgumentError, match="no array among its arguments"):
        remat.measure(lambda: jnp.ones(3), target="cpu")
    with pytest.raises(ArgumentTypeError, match="measure takes a function"):
        remat.measure(jnp.ones(3), jnp.ones(3), target="cpu")
    with pytest.raises(TargetError, match=r"Did you mean 'tpu:v5e:2x2'\?"):
        remat.measure(jnp.sin, jnp.ones(3), target="v5e")


def test_the_function_knows_the_target_and_no_trace_for_another_is_used():
    """A jitted function inside is traced again when another compiler is to be served, and once more after that."""
    seen = []

    @jax.jit
    def inner(x):
        seen.append(current_target().retie_after)
        return jnp.sin(x)

    x = jnp.ones(3)
    other = remat.Target("cpu", "cpu", retie_after=7)
    inner(x)
    remat.measure(lambda x: inner(x) * 2, x, target="cpu")
    remat.measure(lambda x: inner(x) * 2, x, target=other)
    inner(x)
    assert seen == [1, 7, 1]


def test_json_and_text():
    x = f32(64, 64, sharding=NamedSharding(mesh_of(), PartitionSpec("data")))
    measured = remat.measure(loss, f32(64, 64), x, target="cpu:2", policy="dots")
    data = json.loads(measured.to_json())
    assert data["target"]["name"] == "cpu:2"
    assert data["live_bytes"] == measured.live_bytes
    assert {c["kind"] for c in data["collectives"]} == {"all-reduce"}
    lines = str(measured).splitlines()
    assert lines[0] == "loss (value and gradient, policy dots) for cpu:2, each of 2 devices"
    assert max(map(len, lines)) <= 80
    assert any(line.split() == ["arguments", "24.0", "KiB"] for line in lines)
    assert any(line.strip().startswith("all-reduce") for line in lines)


def test_devices_of_the_cpu_are_jax_s():
    assert devices_of(remat.Target.parse("cpu:2")) == tuple(jax.devices("cpu")[:2])
