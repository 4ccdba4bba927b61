"""One training step; run as `python two_processes.py PROCESS COUNT PORT`, it prints the loss and the new weights.

Two devices in all: one in each of two processes, or both in one.
"""

import json
import sys

import jax


def start(process: int, count: int, port: int) -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2 // count)
    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", count, process, initialization_timeout=60)


def step() -> dict[str, list[float]]:
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    import remat

    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    data = np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)
    x = jax.make_array_from_callback(data.shape, NamedSharding(mesh, P("data")), lambda i: data[i])
    weights = np.linspace(0.1, 1, 48, dtype=np.float32).reshape(3, 4, 4)
    w = jax.make_array_from_callback(weights.shape, NamedSharding(mesh, P()), lambda i: weights[i])

    def loss(w, x):
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, w)
        return (h**2).mean()

    def mapped(w, x):
        def local(w, x):
            return jax.lax.pmean(loss(w, x), "data")

        return jax.shard_map(local, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())(w, x)

    def inside(w, x):
        value, gradient = remat.value_and_grad(lambda w: jax.lax.pmean(loss(w, x), "data"), policy="nothing")(w)
        return value, gradient

    steps = {
        "whole": remat.value_and_grad(loss, policy="dots"),
        "mapped": remat.value_and_grad(mapped, policy="nothing"),
        "inside": jax.shard_map(inside, mesh=mesh, in_specs=(P(), P("data")), out_specs=(P(), P())),
    }
    found = {}
    for name, run in steps.items():
        value, gradient = jax.jit(run, out_shardings=NamedSharding(mesh, P()))(w, x)
        new = np.asarray((w - 0.1 * gradient).addressable_data(0))
        found[name] = [float(value.addressable_data(0)), *map(float, new.ravel())]
    return found


if __name__ == "__main__":
    start(*map(int, sys.argv[1:]))
    print(json.dumps(step()))
