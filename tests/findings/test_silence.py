"""Nothing is found in nets that are checkpointed well, or not at all."""

import importlib.util
import sys
from pathlib import Path

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from findings.finding_cases import f32
from flax import nnx

import remat
from remat import policies

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
POLICIES = (None, "nothing", "dots", "balanced")


def nets():
    """The nets of the memory benchmark, each once."""
    spec = importlib.util.spec_from_file_location("benchmark_nets", BENCHMARKS / "nets.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["benchmark_nets"] = module
    spec.loader.exec_module(module)
    found = {net.name: net for net in module.NETS}
    slow = {"ViT", "decoder unrolled"}
    return [pytest.param(n, id=n.name, marks=[pytest.mark.slow] if n.name in slow else []) for n in found.values()]


def check(fun, *args, policy, target="cpu"):
    found = remat.check(fun, *args, policy=policy, target=target)
    assert not found, str(found)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("net", nets())
def test_benchmark_nets(net, policy):
    check(net.loss(lambda f: f), *net.shapes, policy=policy, target="gpu:H100")


@pytest.mark.parametrize("net", nets())
def test_benchmark_nets_with_checkpoints_by_hand(net):
    """Under the policy that the benchmark gives them; only a policy that matches nothing is told."""
    wrap = lambda f: remat.checkpoint(f, policy=net.policy)  # noqa: E731
    check(net.loss(wrap), *net.shapes, policy=None)


def flax_block(dtype, width=256):
    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, _=None):
            h = nn.LayerNorm(dtype=dtype)(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=4, dtype=dtype)(h, mask=nn.make_causal_mask(x[..., 0]))
            h = nn.Dense(4 * width, dtype=dtype)(nn.LayerNorm(dtype=dtype)(x))
            return remat.checkpoint_name(x + nn.Dense(width, dtype=dtype)(nn.gelu(h)), "hidden"), None

    return Block


def flax_loss(make, dtype):
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return make(x)

    net, x = Net(), jax.ShapeDtypeStruct((4, 256, 256), dtype)
    variables = jax.eval_shape(net.init, jax.random.key(0), x)
    return lambda v, x: jnp.mean(net.apply(v, x).astype(jnp.float32) ** 2), variables, x


def scanned(block):
    return lambda x: nn.scan(block, variable_axes={"params": 0}, split_rngs={"params": True}, length=4)()(x, None)[0]


@pytest.mark.parametrize("policy", [*POLICIES, "names:hidden"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=lambda d: d.__name__)
@pytest.mark.parametrize(
    "loop", [pytest.param(True, id="scan"), pytest.param(False, id="unrolled", marks=pytest.mark.slow)]
)
def test_flax_transformer(dtype, loop, policy):
    block = flax_block(dtype)

    def unrolled(x):
        for _ in range(4):
            x, _ = block()(x)
        return x

    check(*flax_loss(scanned(block) if loop else unrolled, dtype), policy=policy)


@pytest.mark.parametrize("inner", ["nothing", "dots", "names:hidden"])
def test_flax_transformer_with_remat(inner):
    block = nn.remat(flax_block(jnp.float32), policy=policies.parse(inner))
    check(*flax_loss(scanned(block), jnp.float32), policy=None)


@pytest.mark.parametrize("policy", POLICIES)
def test_nnx(policy):
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([nnx.Linear(256, 256, rngs=rngs) for _ in range(16)])
            self.norm = nnx.BatchNorm(256, use_running_average=True, rngs=rngs)

        def __call__(self, x):
            for layer in self.layers:
                x = jax.nn.gelu(layer(x))
            return self.norm(x)

    graph, params, rest = nnx.split(nnx.eval_shape(lambda: Net(nnx.Rngs(0))), nnx.Param, ...)

    def loss(params, rest, x):
        return jnp.mean(nnx.merge(graph, params, rest)(x) ** 2)

    check(loss, params, rest, f32(1024, 256), policy=policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_equinox_lstm(policy):
    cell = eqx.filter_eval_shape(eqx.nn.LSTMCell, 256, 256, key=jax.random.key(0))

    def loss(cell, xs):
        def step(state, x):
            state = jax.vmap(cell)(x, state)
            return state, state[0]

        start = jnp.zeros((32, 256))
        return jnp.mean(jax.lax.scan(step, (start, start), xs)[1] ** 2)

    check(loss, cell, f32(64, 32, 256), policy=policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_equinox_attention(policy):
    layers = [
        eqx.nn.inference_mode(eqx.filter_eval_shape(eqx.nn.MultiheadAttention, 4, 256, key=jax.random.key(i)))
        for i in range(4)
    ]

    def loss(layers, x):
        for layer in layers:
            x = x + jax.vmap(lambda x, layer=layer: layer(x, x, x))(x)
        return jnp.mean(x**2)

    check(loss, layers, f32(8, 256, 256), policy=policy)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_transformers_gpt2(policy, monkeypatch):
    pytest.importorskip("transformers.models.gpt2.modeling_flax_gpt2")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gpt2 import GPT2

    check(GPT2.loss(lambda f: f), *GPT2.shapes, policy=policy)


def test_time_is_linear_in_the_equations():
    """Counted in the steps that Python takes, not in seconds: ten times the layers take ten times as many."""

    def steps(layers):
        def loss(w, x):
            for i in range(layers):
                x = remat.checkpoint_name(jnp.tanh(remat.checkpoint_name(x @ w, f"h{i % 7}")) + x * 0.5, f"x{i}")
            return x.sum()

        count = 0

        def tick(frame, event, argument):
            nonlocal count
            count += event == "call"

        policy = policies.save_only_these_names("h1", "h2", *(f"x{i}" for i in range(0, layers, 3)))
        sys.setprofile(tick)
        try:
            remat.check(loss, f32(64, 64), f32(64, 64), policy=policy, target="gpu:H100")
        finally:
            sys.setprofile(None)
        return count

    steps(8)  # what is imported and cached the first time
    few, many = steps(16), steps(160)
    assert many < 13 * few
