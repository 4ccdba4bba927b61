"""Over how many devices the bytes of a plan are spread: by shardings of arguments, and by constraints inside."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import remat
from remat.planning.devices import parts_of, spread_of

MESH = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
KIB = 1024


def on(*axes):
    return NamedSharding(MESH, PartitionSpec(*axes))


def f32(*shape, sharding=None):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def loss(ws, x):
    for w in ws:
        x = jnp.sin(x @ w)
    return x.sum()


@pytest.mark.parametrize(
    ("axes", "parts"),
    [((), 1), (("data",), 4), (("data", "model"), 8), ((("data", "model"),), 8), ((None, "model"), 2)],
)
def test_parts_of_shardings(axes, parts):
    assert parts_of(on(*axes), (64, 64)) == parts


def test_what_has_no_parts():
    assert parts_of(None, (64, 64)) == 1
    assert parts_of(jax.sharding.SingleDeviceSharding(jax.devices()[0]), (64,)) == 1
    assert parts_of(on("data"), (6, 2)) == 1  # it does not divide: not known


def plans(ws, x, fun=loss):
    return remat.plan(fun, [ws] * 3, x, budget=1.0, target="tpu:v5e:2x2")


def test_activations_are_as_the_batch_and_gradients_as_their_parameters():
    whole = plans(f32(64, 64), f32(256, 64))
    assert whole.devices == 1
    gradients, rest = 3 * 16 * KIB, whole.choice.peak_bytes - 3 * 16 * KIB
    assert rest > 64 * KIB
    for ws, each in ((f32(64, 64), gradients), (f32(64, 64, sharding=on("data")), gradients // 4)):
        spread = plans(ws, f32(256, 64, sharding=on("data")))
        assert spread.devices == 4
        assert spread.choice.peak_bytes == each + -(-rest // 4)
        assert spread.choice.kept_bytes == -(-whole.choice.kept_bytes // 4)
        assert spread.argument_bytes == each + 256 * 64  # of four bytes, in four parts
        assert spread.choice.seconds == pytest.approx(whole.choice.seconds / 4)
        assert spread.lower_bound == pytest.approx(whole.lower_bound / 4)


def test_constraints_in_the_function_say_the_same():
    def told(ws, x):
        ws = [jax.lax.with_sharding_constraint(w, on("model")) for w in ws]
        x, _ = jax.lax.scan(lambda x, _: (jax.lax.with_sharding_constraint(jnp.sin(x), on("data")), None), x, length=1)
        return loss(ws, x)

    program = remat.trace(told)([f32(64, 64)] * 3, f32(256, 64))
    spread = spread_of(program, [True, True, True, False])
    assert (spread.gradients, spread.gradients_each, spread.parts) == (48 * KIB, 24 * KIB, 4)
    assert spread.held == 24 * KIB + 64 * KIB
    plan = plans(f32(64, 64), f32(256, 64), told)
    assert plan.devices == 4
    assert "on each of 4 devices" in str(plan)
    assert '"devices": 4' in plan.to_json()
