"""Compiles a few functions for the target named on the command line, and prints the measurements as one JSON list.

A process of its own: which compilers JAX loads is decided before it is used.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import remat

jax.config.update("jax_num_cpu_devices", 2)
target = sys.argv[1]


def bf16(*shape, sharding=None):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)


def scan_loss(ws, x):
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0].astype(jnp.float32).sum()


def attention(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def convolved(x, w):
    y = lax.conv_general_dilated(x, w, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y.astype(jnp.float32).sum()


def too_large(x):
    return jnp.cos(jnp.sin(x @ x) @ x)


mesh = Mesh(np.array(jax.devices()), ("data",))
split = NamedSharding(mesh, PartitionSpec("data"))
found = [
    remat.measure(scan_loss, bf16(6, 256, 256), bf16(512, 256), target=target, policy="dots"),
    remat.measure(jax.jit(scan_loss), bf16(6, 256, 256), bf16(512, 256, sharding=split), target=target),
    remat.measure(attention, *[bf16(2, 256, 4, 64)] * 3, target=target),
    remat.measure(jax.grad(convolved, (0, 1)), bf16(2, 65, 65, 8), bf16(3, 3, 8, 16), target=target),
    remat.measure(too_large, bf16(2**18, 2**18), target=target),
]
assert max(len(line) for m in found for line in str(m).splitlines()) <= 80
print(json.dumps([json.loads(m.to_json()) for m in found]))
