"""Compiles a net of eight layers with its residual stream kept and offloaded, for the target named on the command line,
and prints for each policy its bytes and its schedule: "product", and "store", "stored", "fetch" and "fetched".

A process of its own: which compilers JAX loads is decided before it is used.
"""

import json
import re
import sys

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

import remat
from remat.targets.current import use_target
from remat.targets.hlo import parse_hlo
from remat.targets.topology import devices_of

target = remat.Target.parse(sys.argv[1])
LAYERS, WIDTH = 8, 2048


def bf16(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=SingleDeviceSharding(devices_of(target)[0]))


def mlp(weights, x):
    for a, b in weights:
        x = remat.checkpoint_name(x, "resid")
        x = x + jnp.tanh(x @ a) @ b
    return (x.astype(jnp.float32) ** 2).mean()


def event(instruction, started):
    """What an instruction of the schedule is; None for those that are neither a product nor a transfer."""
    on_host = "S(5)" in instruction.type
    if instruction.opcode == "copy-start" and on_host:
        is_store = "S(5)" in re.split(r"\{|\}", instruction.type)[1]  # the first type is that of the result
        started[instruction.name] = "stored" if is_store else "fetched"
        return "store" if is_store else "fetch"
    if instruction.opcode == "copy-done":
        return started.get(instruction.operands[0])
    return "product" if "dot_general" in instruction.attributes and instruction.opcode == "fusion" else None


def measured(policy):
    shapes = [(bf16(WIDTH, 2 * WIDTH), bf16(2 * WIDTH, WIDTH))] * LAYERS, bf16(4 * WIDTH, WIDTH)
    with use_target(target):
        compiled = jax.jit(remat.value_and_grad(mlp, policy=policy)).lower(*shapes).compile()
    memory, started = compiled.memory_analysis(), {}
    schedule = [event(i, started) for i in parse_hlo(compiled.as_text()).entry.instructions.values()]
    return {
        "temp": memory.temp_size_in_bytes,
        "host": memory.host_temp_size_in_bytes,
        "schedule": [e for e in schedule if e is not None],
    }


print(json.dumps({policy: measured(policy) for policy in ("names:resid", "offload:resid")}))
