"""Gradients inside a framework's loop over microbatches keep as little as elsewhere."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import remat
from remat.testing import assert_trees_close

WIDTH, LAYERS = 32, 8
BATCHES = jnp.asarray(np.random.default_rng(0).normal(size=(3, 256, WIDTH)), jnp.float32)


def measured(run: Any, *args: Any) -> tuple[int, Any]:
    compiled = jax.jit(run).lower(*args).compile()
    return compiled.memory_analysis().temp_size_in_bytes, compiled(*args)


def accumulated(value_and_grad: Any, params: Any) -> tuple[int, Any]:
    """The sum of gradients over microbatches in one compiled scan."""

    def run(params: Any, batches: Any) -> Any:
        def step(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, value_and_grad(params, x)), None

        return lax.scan(step, (0.0, jax.tree.map(jnp.zeros_like, params)), batches)[0]

    return measured(run, params, BATCHES)


def check(plain: tuple[int, Any], regions: dict[str, tuple[int, Any]], fraction: float = 0.6) -> None:
    for way, (size, found) in regions.items():
        assert size < fraction * plain[0], way
        assert_trees_close(found, plain[1], 1e-4, 1e-6, way)


def test_linen():
    nn = pytest.importorskip("flax.linen")

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, _: None = None) -> Any:
            h = nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))
            return x + nn.Dense(WIDTH)(nn.gelu(h)), None

    def make(block: Any) -> Any:
        return nn.scan(block, variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS)()

    plain = make(Block)

    def loss(params: Any, x: jax.Array, model: Any = plain) -> jax.Array:
        return jnp.mean(model.apply(params, x)[0] ** 2)

    def of_blocks(params: Any, x: jax.Array) -> jax.Array:
        block = remat.checkpoint(lambda x, p: Block().apply({"params": p}, x), prevent_cse=False)
        return jnp.mean(lax.scan(block, x, params["params"])[0] ** 2)

    params = plain.init(jax.random.key(0), BATCHES[0])
    both = jax.value_and_grad
    wrapped = functools.partial(loss, model=make(nn.remat(Block, policy=remat.policies.dots_saveable)))
    check(
        accumulated(both(loss), params),
        {
            "loss": accumulated(both(remat.checkpoint(loss, policy="nothing")), params),
            "balanced": accumulated(both(remat.checkpoint(loss, policy="balanced")), params),
            "remat": accumulated(remat.value_and_grad(loss, policy="nothing"), params),
            "blocks": accumulated(both(of_blocks), params),
            "nn.remat with our policy": accumulated(both(wrapped), params),
        },
    )


def test_equinox():
    eqx = pytest.importorskip("equinox")
    from remat.frameworks.equinox import filter_checkpoint, filter_value_and_grad

    def make(key: jax.Array) -> Any:
        return eqx.nn.MLP(WIDTH, WIDTH, 4 * WIDTH, 1, activation=jax.nn.gelu, key=key)

    stacked = eqx.filter_vmap(make)(jax.random.split(jax.random.key(0), LAYERS))
    params, static = eqx.partition(stacked, eqx.is_array)

    def loss(model: Any, x: jax.Array, region: Any = lambda f: f) -> jax.Array:
        arrays, rest = eqx.partition(model, eqx.is_array)
        block = region(lambda model, x: x + jax.vmap(model)(x))
        return jnp.mean(lax.scan(lambda x, a: (block(eqx.combine(a, rest), x), None), x, arrays)[0] ** 2)

    def run(value_and_grad: Any) -> Any:
        def both(params: Any, x: jax.Array) -> Any:
            value, gradient = value_and_grad(eqx.combine(params, static), x)
            return value, eqx.filter(gradient, eqx.is_array)

        return accumulated(both, params)

    both = eqx.filter_value_and_grad
    blocks = functools.partial(loss, region=functools.partial(remat.checkpoint, prevent_cse=False))
    filtered = functools.partial(loss, region=functools.partial(filter_checkpoint, policy="balanced"))
    check(
        run(both(loss)),
        {
            "loss": run(both(remat.checkpoint(loss, policy="nothing"))),
            "filter_value_and_grad": run(filter_value_and_grad(loss, policy="nothing")),
            "blocks": run(both(blocks)),
            "filter_checkpoint": run(both(filtered)),
        },
        0.7,
    )


def test_nnx():
    nnx = pytest.importorskip("flax.nnx")
    from remat.frameworks.nnx import value_and_grad

    class Block(nnx.Module):
        def __init__(self, rngs: Any):
            self.up, self.down = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs), nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)
            self.calls = nnx.BatchStat(jnp.zeros(()))

        def __call__(self, x: jax.Array) -> jax.Array:
            self.calls[...] += 1.0
            return x + self.down(nnx.gelu(self.up(x)))

    @nnx.vmap
    def make(key: jax.Array) -> Any:
        return Block(nnx.Rngs(key))

    def loss(blocks: Any, x: jax.Array, region: Any = lambda f: f) -> jax.Array:
        scan = nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        return jnp.mean(scan(lambda x, block: region(lambda block, x: block(x))(block, x))(x, blocks) ** 2)

    graph, state = nnx.split(make(jax.random.split(jax.random.key(0), LAYERS)))

    def run(value_and_grad: Any) -> Any:
        def sums(state: Any, batches: jax.Array) -> Any:
            @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
            def step(carry: Any, x: jax.Array) -> Any:
                blocks, total = carry
                return blocks, jax.tree.map(jnp.add, total, value_and_grad(blocks, x))

            blocks = nnx.merge(graph, state)
            zeros = jax.tree.map(jnp.zeros_like, nnx.state(blocks, nnx.Param))
            blocks, total = step((blocks, (0.0, zeros)), batches)
            return jax.tree.leaves((total, nnx.state(blocks, nnx.BatchStat)))

        return measured(sums, state, BATCHES)

    both = nnx.value_and_grad
    plain = run(both(loss))
    assert set(np.asarray(plain[1][-1])) == {float(len(BATCHES))}
    blocks = functools.partial(loss, region=functools.partial(remat.checkpoint, prevent_cse=False))
    check(
        plain,
        {
            "value_and_grad": run(value_and_grad(loss, policy="nothing")),
            "loss": run(both(remat.checkpoint(loss, policy="nothing"))),
            "blocks": run(both(blocks)),
        },
    )
