"""One training step of model code from Flax, Equinox, Optax, diffrax and JAX itself.

Whatever such a library does inside (regions, loops, custom derivatives, mutable state, static leaves), the value and
the gradient under each policy are those that JAX computes without remat.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix
import pytest
from flax import nnx
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import remat
from remat.testing import assert_trees_close, check_gradients

POLICIES = (None, "nothing", "dots", "balanced", "burn")
# Models with checkpoints of their own are run under policies of the whole loss here, which may keep more.
pytestmark = pytest.mark.filterwarnings("ignore::remat.OverriddenPolicyWarning")

NAMES = "names:hidden"

NEW_MODE = bool(getattr(jax.config, "jax_remat3", False))

# These tests spend their time in XLA, which need not optimize what runs once.
quick_jit = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)


def check_step(
    loss: Callable[..., Any],
    params: Any,
    *data: Any,
    names: str | None = None,
    has_aux: bool = False,
    under_jax: bool = True,
    rtol: float = 2e-5,
    atol: float = 1e-6,
) -> None:
    """The value, auxiliary data and gradient of a jitted step under each policy are those that JAX computes.

    `under_jax` says whether the region is differentiated by `jax.grad` too. All are compiled as one program: what XLA
    merges in it is equal, so nothing wrong can hide.
    """
    policies = (*POLICIES, names) if names else POLICIES
    region = remat.checkpoint(loss, policy=policies[-1])
    ways = {f"policy {p}": remat.value_and_grad(loss, has_aux=has_aux, policy=p) for p in policies}
    if under_jax:
        ways[f"jax.grad under {policies[-1]}"] = jax.value_and_grad(region, has_aux=has_aux)
    ways["jax.grad"] = jax.value_and_grad(loss, has_aux=has_aux)
    found = quick_jit(lambda *args: {way: step(*args) for way, step in ways.items()})(params, *data)
    expected = found.pop("jax.grad")
    assert any(np.any(g) for g in jax.tree.leaves(expected[1])), "a gradient that is zero everywhere tests nothing"
    for way, result in found.items():
        assert_trees_close(result, expected, rtol, atol, f"step, {way}")


def array(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


# Flax linen.


class Block(nn.Module):
    """A transformer block with the value named that one would keep."""

    width: int = 8
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        h = nn.LayerNorm()(x)
        h = nn.MultiHeadDotProductAttention(num_heads=2)(h, mask=nn.make_causal_mask(x[..., 0]))
        x = remat.checkpoint_name(x + h, "hidden")
        h = nn.Dense(2 * self.width)(nn.LayerNorm()(x))
        h = nn.Dropout(self.dropout, deterministic=deterministic)(nn.gelu(h))
        return x + nn.Dense(self.width)(h)


def linen_variables(module: nn.Module, x: jax.Array) -> Any:
    """Variables as `module.init` would make them, without the time that compiling it takes."""
    leaves, tree = jax.tree.flatten(jax.eval_shape(module.init, jax.random.key(0), x))
    return jax.tree.unflatten(tree, [0.4 * array(*leaf.shape, seed=i) for i, leaf in enumerate(leaves)])


def linen_loss(module: nn.Module, x: jax.Array) -> tuple[Callable[..., Any], Any]:
    def loss(variables: Any, x: jax.Array) -> jax.Array:
        return jnp.mean(module.apply(variables, x) ** 2)

    return loss, linen_variables(module, x)


def test_linen_transformer_block() -> None:
    x = array(2, 5, 8)
    loss, variables = linen_loss(Block(), x)
    check_step(loss, variables, x, names=NAMES)


def test_linen_batch_norm_statistics_come_back_as_auxiliary_data() -> None:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = nn.Conv(4, (3, 3))(x)
            x = nn.BatchNorm(use_running_average=False)(x)
            x = nn.max_pool(nn.relu(x), (2, 2), strides=(2, 2))
            return nn.Dense(3)(x.reshape(x.shape[0], -1))

    net, x = Net(), array(2, 6, 6, 2)
    variables = linen_variables(net, x)

    def loss(params: Any, statistics: Any, x: jax.Array, labels: jax.Array) -> Any:
        logits, updates = net.apply({"params": params, "batch_stats": statistics}, x, mutable=["batch_stats"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), updates

    labels = jnp.array([0, 2])
    check_step(loss, variables["params"], variables["batch_stats"], x, labels, has_aux=True, atol=1e-5)


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_dropout_draws_the_same_mask_in_recomputation(implementation: str) -> None:
    block, x = Block(dropout=0.5), array(2, 5, 8)
    variables = linen_variables(block, x)

    def loss(variables: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.mean(block.apply(variables, x, deterministic=False, rngs={"dropout": key}) ** 2)

    check_step(loss, variables, x, jax.random.key(7, impl=implementation), names=NAMES)


def test_linen_remat_with_our_policy_and_without() -> None:
    class Net(nn.Module):
        policy: Any = None

        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            for _ in range(2):
                x = nn.remat(Block, policy=self.policy)()(x)
            return x

    x = array(2, 5, 8)
    plain, variables = linen_loss(Net(), x)
    for policy in (remat.policies.save_only_these_names("hidden"), remat.policies.dots_saveable):
        loss, _ = linen_loss(Net(policy), x)
        steps = (remat.value_and_grad(loss), jax.value_and_grad(loss), jax.value_and_grad(plain))
        ours, theirs, expected = quick_jit(lambda v: [step(v, x) for step in steps])(variables)  # noqa: B023
        assert_trees_close(ours, expected, 2e-5, 1e-6, f"remat.grad through linen.remat with {policy}")
        assert_trees_close(theirs, expected, 2e-5, 1e-6, f"jax.grad through linen.remat with {policy}")


def test_linen_remat_scan() -> None:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return nn.remat_scan(nn.Dense, lengths=(2, 2))(x.shape[-1])(x)

    x = array(3, 4)
    loss, variables = linen_loss(Net(), x)
    check_step(loss, variables, x)


def test_linen_scan_over_layers() -> None:
    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            x = x + Block()(x)
            return x, x.mean()

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            layers = nn.scan(
                nn.remat(Layer, prevent_cse=False), variable_axes={"params": 0}, split_rngs={"params": True}, length=3
            )
            x, means = layers()(x, None)
            return x + means.sum()

    x = array(2, 4, 8)
    loss, variables = linen_loss(Net(), x)
    check_step(loss, variables, x, names=NAMES, atol=1e-5)


def test_linen_recurrent_network() -> None:
    x = array(2, 6, 3)
    loss, variables = linen_loss(nn.RNN(nn.OptimizedLSTMCell(4)), x)
    check_step(loss, variables, x)
    loss, variables = linen_loss(nn.Bidirectional(nn.RNN(nn.GRUCell(3)), nn.RNN(nn.GRUCell(3))), x)
    check_step(loss, variables, x)


# Flax nnx.


class NnxBlock(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs):
        self.attention = nnx.MultiHeadAttention(2, width, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.statistics = nnx.BatchNorm(width, rngs=rngs)
        self.dense = nnx.Linear(width, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = remat.checkpoint_name(x + self.attention(self.norm(x)), "hidden")
        return x + self.dropout(nnx.silu(self.statistics(self.dense(x))))


def test_nnx_split_and_merge() -> None:
    graph, params, rest = nnx.split(NnxBlock(8, nnx.Rngs(0)), nnx.Param, ...)

    def loss(params: Any, rest: Any, x: jax.Array) -> Any:
        model = nnx.merge(graph, params, rest, copy=True)
        out = jnp.mean(model(x) ** 2)
        return out, nnx.state(model, nnx.BatchStat)

    check_step(loss, params, rest, array(2, 4, 8), names=NAMES, has_aux=True, atol=1e-5)


def test_nnx_remat() -> None:
    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])

        def __call__(self, x: jax.Array) -> jax.Array:
            for layer in self.layers:
                x = nnx.remat(lambda layer, x: jnp.sin(layer(x)))(layer, x)
            return x

    graph, params = nnx.split(Net(nnx.Rngs(0)))

    def loss(params: Any, x: jax.Array) -> jax.Array:
        return jnp.sum(nnx.merge(graph, params)(x))

    check_step(loss, params, array(3, 4))


# Equinox: modules carry activation functions and flags as leaves.


def check_equinox_step(
    loss: Callable[..., Any], model: Any, *data: Any, names: str | None = None, **kwargs: Any
) -> None:
    """As `check_step`, for a loss of an Equinox module: parameters partitioned, and the module given as it is."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    check_step(lambda p, *xs: loss(eqx.combine(p, static), *xs), params, *data, names=names, **kwargs)

    policies = ("nothing", names or "dots")

    @quick_jit
    def steps(params: Any, *data: Any) -> Any:
        regions = [loss, *(remat.checkpoint(loss, policy=p) for p in policies)]
        results = [eqx.filter_value_and_grad(f)(eqx.combine(params, static), *data) for f in regions]
        return [(value, eqx.filter(gradient, eqx.is_array)) for value, gradient in results]

    expected, *found = steps(params, *data)
    for policy, result in zip(policies, found, strict=True):
        assert_trees_close(result, expected, 2e-5, 1e-5, f"filtered gradient of the region under {policy}")


def test_equinox_mlp() -> None:
    model = eqx.nn.MLP(3, 2, 8, 2, activation=jax.nn.gelu, key=jax.random.key(0))

    def loss(model: eqx.nn.MLP, x: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(model)(x) ** 2)

    check_equinox_step(loss, model, array(4, 3))


def test_equinox_module_is_an_argument_of_grad_as_it_is() -> None:
    """Functions among the leaves have no gradient: None stands for it, as with `eqx.filter_grad`."""
    model = eqx.nn.MLP(3, "scalar", 8, 1, key=jax.random.key(0))

    def loss(model: eqx.nn.MLP, x: jax.Array) -> jax.Array:
        return jnp.sum(jax.vmap(model)(x) ** 2)

    x = array(4, 3)
    expected = eqx.filter_value_and_grad(loss)(model, x)
    for policy in POLICIES:
        found = remat.value_and_grad(loss, policy=policy)(model, x)
        assert_trees_close(found, expected, 2e-5, 1e-6, f"gradient of a module under {policy}")


def test_equinox_attention_and_dropout() -> None:
    class Layer(eqx.Module):
        attention: eqx.nn.MultiheadAttention
        norm: eqx.nn.LayerNorm
        dropout: eqx.nn.Dropout
        activation: Callable[..., Any]

        def __call__(self, x: jax.Array, key: jax.Array) -> jax.Array:
            first, second = jax.random.split(key)
            h = jax.vmap(self.norm)(x)
            x = remat.checkpoint_name(x + self.attention(h, h, h, key=first), "hidden")
            return self.dropout(self.activation(x), key=second)

    model = Layer(
        eqx.nn.MultiheadAttention(2, 8, dropout_p=0.2, key=jax.random.key(0)),
        eqx.nn.LayerNorm(8),
        eqx.nn.Dropout(0.5),
        jnp.tanh,
    )

    def loss(model: Layer, x: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.sum(model(x, key) ** 2)

    check_equinox_step(loss, model, array(5, 8), jax.random.key(3), names=NAMES)


def test_equinox_lstm_under_scan_with_filter_checkpoint() -> None:
    cell = eqx.nn.LSTMCell(3, 4, key=jax.random.key(0))

    def loss(cell: eqx.nn.LSTMCell, xs: jax.Array) -> jax.Array:
        step = eqx.filter_checkpoint(lambda state, x: cell(x, state))
        (h, _), hs = lax.scan(lambda s, x: (step(s, x), s[0]), (jnp.zeros(4), jnp.zeros(4)), xs)
        return jnp.sum(h**2) + jnp.sum(hs)

    check_equinox_step(loss, cell, array(6, 3))


def test_equinox_filter_checkpoint_takes_our_policies() -> None:
    model = eqx.nn.MLP(3, 2, 8, 2, final_activation=lambda x: remat.checkpoint_name(x, "hidden"), key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, x: jax.Array, policy: Any = None) -> jax.Array:
        net = eqx.combine(params, static)
        net = eqx.filter_checkpoint(net, policy=policy) if policy is not None else net
        return jnp.sum(net(x) ** 2)

    x = array(3)
    expected = jax.grad(loss)(params, x)
    for policy in (remat.policies.dots_saveable, remat.policies.save_only_these_names("hidden")):
        assert_trees_close(jax.grad(loss)(params, x, policy), expected)
        assert_trees_close(remat.grad(loss)(params, x, policy), expected)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_equinox_convolution_with_normalisation(norm: str) -> None:
    class Net(eqx.Module):
        first: eqx.nn.Conv2d
        norm: Any
        pool: eqx.nn.MaxPool2d

        def __call__(self, x: jax.Array, state: Any) -> Any:
            x = self.first(x)
            if norm == "batch":
                x, state = self.norm(x, state)
            else:
                x = self.norm(x)
            return self.pool(jax.nn.relu(x)), state

    def make(key: jax.Array) -> Net:
        layer = eqx.nn.BatchNorm(4, "batch", mode="batch") if norm == "batch" else eqx.nn.GroupNorm(2, 4)
        return Net(eqx.nn.Conv2d(2, 4, 3, key=key), layer, eqx.nn.MaxPool2d(2, 2))

    model, state = eqx.nn.make_with_state(make)(jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, state: Any, x: jax.Array) -> Any:
        net = eqx.combine(params, static)
        out, state = jax.vmap(net, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
        return jnp.mean(out**2), state

    check_step(loss, params, state, array(3, 2, 6, 6), has_aux=True, atol=1e-5)


@pytest.mark.parametrize("kind", ["checkpointed", "bounded"])
def test_equinox_while_loop(kind: str) -> None:
    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        def body(state: Any) -> Any:
            i, x = state
            return i + 1, jnp.tanh(w @ x) + x

        loop = functools.partial(eqx.internal.while_loop, kind=kind, max_steps=8, checkpoints=3)
        if kind == "bounded":
            loop = functools.partial(eqx.internal.while_loop, kind=kind, max_steps=8)
        _, x = loop(lambda s: s[0] < 5, body, (0, x))
        return jnp.sum(x**2)

    # In JAX's new mode, Equinox's custom derivatives fail inside jax.checkpoint.
    check_step(loss, 0.3 * array(4, 4), array(4, seed=1), under_jax=kind == "bounded" or not NEW_MODE)


# Optax.


def test_optax_training_steps() -> None:
    """Three steps of AdamW with gradient clipping, all inside one jitted scan."""
    model = Block()
    x, labels = array(2, 5, 8), jnp.array([[1, 2, 3, 4, 5], [0, 7, 6, 5, 4]])
    start = linen_variables(model, x)
    # Adam divides by the size of the gradient; without a large eps the rounding of tiny gradients would be seen.
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2, eps=1e-2))

    def loss(params: Any) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, x), labels).mean()

    def train(value_and_grad: Callable[..., Any]) -> Any:
        def step(state: Any, _: None) -> Any:
            params, moments = state
            value, gradient = value_and_grad(params)
            updates, moments = optimizer.update(gradient, moments, params)
            return (optax.apply_updates(params, updates), moments), value

        (params, _), values = lax.scan(step, (start, optimizer.init(start)), length=3)
        return params, values

    ways = {f"policy {p}": remat.value_and_grad(loss, policy=p) for p in (*POLICIES, NAMES)}
    expected, *found = quick_jit(lambda: [train(way) for way in (jax.value_and_grad(loss), *ways.values())])()
    assert expected[1][2] < expected[1][0]
    for way, result in zip(ways, found, strict=True):
        assert_trees_close(result, expected, 1e-4, 1e-5, f"training under {way}")


def test_optax_lbfgs_with_linesearch() -> None:
    def rosenbrock(x: jax.Array) -> jax.Array:
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    optimizer, start = optax.lbfgs(), jnp.array([-1.0, 0.5, 2.0])

    def minimize(fun: Callable[..., Any], value_and_grad: Callable[..., Any]) -> jax.Array:
        @quick_jit
        def step(params: Any, state: Any) -> Any:
            value, gradient = value_and_grad(fun)(params)
            updates, state = optimizer.update(gradient, state, params, value=value, grad=gradient, value_fn=fun)
            return optax.apply_updates(params, updates), state

        params, state = start, optimizer.init(start)
        for _ in range(3):
            params, state = step(params, state)
        return params

    expected = minimize(rosenbrock, jax.value_and_grad)
    found = minimize(remat.checkpoint(rosenbrock, policy="dots"), remat.value_and_grad)
    assert_trees_close(found, expected, 1e-3, 1e-3)


def test_optax_ctc_loss() -> None:
    labels = jnp.array([[1, 2, 2], [3, 1, 0]])
    padding = jnp.array([[0.0, 0, 0], [0, 0, 1]])

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        logits = x @ w
        return optax.ctc_loss(logits, jnp.zeros(logits.shape[:2]), labels, padding).mean()

    check_step(loss, array(3, 4), array(2, 7, 3, seed=1), rtol=1e-4, atol=1e-5)


# diffrax.

ADJOINTS = {
    "recursive": diffrax.RecursiveCheckpointAdjoint(),
    "few checkpoints": diffrax.RecursiveCheckpointAdjoint(checkpoints=2),
    "direct": diffrax.DirectAdjoint(),
}


fails_in_jax_too = pytest.mark.xfail(
    NEW_MODE, reason="Equinox's checkpointed loops have no jax.grad in JAX's new mode", raises=AttributeError
)


@pytest.mark.parametrize(
    "adjoint",
    [
        pytest.param("recursive", marks=fails_in_jax_too),
        pytest.param("few checkpoints", marks=[fails_in_jax_too, pytest.mark.slow]),
        pytest.param("direct", marks=pytest.mark.slow),
    ],
)
def test_diffrax_neural_ode(adjoint: str) -> None:
    field = eqx.nn.MLP(2, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    params, static = eqx.partition(field, eqx.is_inexact_array)

    def loss(params: Any, y0: jax.Array) -> jax.Array:
        net = eqx.combine(params, static)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: net(y)),
            diffrax.Euler(),
            t0=0.0,
            t1=1.0,
            dt0=0.25,
            y0=y0,
            saveat=diffrax.SaveAt(ts=jnp.array([0.5, 1.0])),
            adjoint=ADJOINTS[adjoint],
            max_steps=8,
        )
        return jnp.sum(solution.ys**2)

    check_step(loss, params, array(2))


def test_optimistix_root_by_implicit_differentiation() -> None:
    """The linear solve behind it returns an integer beside its solution, also where it is a linear equation."""
    solver = optimistix.Newton(1e-5, 1e-5)

    def loss(a: jax.Array) -> jax.Array:
        root = optimistix.root_find(lambda y, a: y**3 + y - a, solver, jnp.zeros(3), args=a)
        return jnp.sum(root.value**2)

    check_step(loss, jnp.array([0.5, 1.0, 2.0]), rtol=1e-4)


# JAX's own higher-level functions.


def test_dot_product_attention() -> None:
    def loss(w: Any, x: jax.Array) -> jax.Array:
        q, k, v = (jnp.einsum("btd,dnh->btnh", x, w[name]) for name in ("q", "k", "v"))
        return jnp.sum(jax.nn.dot_product_attention(q, k, v, is_causal=True) ** 2)

    check_step(loss, {name: array(6, 2, 4, seed=i) for i, name in enumerate("qkv")}, array(2, 5, 6, seed=9))


def test_conjugate_gradient_solution() -> None:
    def loss(w: jax.Array, b: jax.Array) -> jax.Array:
        def apply(x: jax.Array) -> jax.Array:
            return w.T @ (w @ x) + x

        x, _ = jax.scipy.sparse.linalg.cg(apply, b, tol=1e-7)
        return jnp.sum(jnp.sin(x))

    check_step(loss, 0.5 * array(4, 4), array(4, seed=1), rtol=1e-3, atol=1e-4)


def test_state_space_model_by_associative_scan() -> None:
    def loss(params: Any, x: jax.Array) -> jax.Array:
        decay = jax.nn.sigmoid(x @ params["decay"])
        drive = x @ params["drive"]

        def combine(left: Any, right: Any) -> Any:
            return left[0] * right[0], right[0] * left[1] + right[1]

        _, h = lax.associative_scan(combine, (decay, drive))
        return jnp.mean(remat.checkpoint_name(h, "hidden") ** 2)

    check_step(loss, {"decay": array(3, 4), "drive": array(3, 4, seed=1)}, array(9, 3, seed=2), names=NAMES)


def test_residual_block_with_convolution_and_pooling() -> None:
    convolve = functools.partial(
        lax.conv_general_dilated, window_strides=(1, 1), padding="SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )

    def block(w: Any, x: jax.Array) -> jax.Array:
        h = jax.nn.relu(convolve(x, w["first"]))
        return jax.nn.relu(x + convolve(h, w["second"]))

    def loss(w: Any, x: jax.Array) -> jax.Array:
        x = remat.checkpoint_name(block(w, block(w, x)), "hidden")
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jnp.mean(x**2)

    w = {"first": 0.3 * array(3, 3, 4, 4), "second": 0.3 * array(3, 3, 4, 4, seed=1)}
    check_step(loss, w, array(2, 6, 6, 4, seed=2), names=NAMES, atol=1e-5)


def test_mixture_of_experts_by_ragged_dot() -> None:
    def loss(params: Any, x: jax.Array) -> jax.Array:
        expert = jnp.argmax(x @ params["router"], axis=-1)
        order = jnp.argsort(expert)
        sizes = jnp.bincount(expert, length=3).astype(jnp.int32)
        h = jax.nn.silu(lax.ragged_dot(x[order], params["up"], sizes))
        weight = jax.nn.softmax(x @ params["router"])[order, expert[order]]
        out = lax.ragged_dot(h, params["down"], sizes) * weight[:, None]
        return jnp.mean(out.at[order].get() ** 2)

    params = {"router": array(4, 3), "up": array(3, 4, 6, seed=1), "down": array(3, 6, 4, seed=2)}
    check_step(loss, params, array(8, 4, seed=3))


# Several devices, and vmap.


def two_devices() -> jax.sharding.Mesh:
    return jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))


def mlp_loss(params: Any, x: jax.Array) -> jax.Array:
    h = remat.checkpoint_name(jnp.tanh(x @ params["up"]), "hidden")
    return jnp.mean((h @ params["down"]) ** 2)


MLP = {"up": array(4, 8), "down": array(8, 4, seed=1)}


@pytest.mark.parametrize("policy", [*POLICIES, NAMES])
@pytest.mark.parametrize("axis_type", ["Auto", "Explicit"])
def test_gradients_keep_the_sharding_of_the_parameters(policy: Any, axis_type: str) -> None:
    mesh = jax.make_mesh((2,), ("d",), axis_types=(getattr(AxisType, axis_type),))
    specs = {"up": P(None, "d"), "down": P("d", None)}
    if axis_type == "Explicit":  # contracting a sharded axis would need an annotation in the model
        specs = {"up": P(None, None), "down": P(None, None)}
    params = {k: jax.device_put(v, NamedSharding(mesh, specs[k])) for k, v in MLP.items()}
    x = jax.device_put(array(6, 4, seed=2), NamedSharding(mesh, P("d", None)))
    with jax.set_mesh(mesh):
        expected = quick_jit(jax.value_and_grad(mlp_loss))(params, x)
        found = quick_jit(remat.value_and_grad(mlp_loss, policy=policy))(params, x)
    assert_trees_close(found, expected)
    for key, gradient in found[1].items():
        assert gradient.sharding.is_equivalent_to(expected[1][key].sharding, gradient.ndim), key
        assert gradient.sharding.is_equivalent_to(params[key].sharding, gradient.ndim), key


def test_sharded_arrays_that_are_closed_over() -> None:
    mesh = two_devices()
    x = jax.device_put(array(6, 4, seed=2), NamedSharding(mesh, P("d", None)))
    params = jax.device_put(MLP, NamedSharding(mesh, P()))
    check_step(lambda p: mlp_loss(p, x), params, names=NAMES)


def test_shard_map_inside_the_loss() -> None:
    mesh = two_devices()

    def loss(params: Any, x: jax.Array) -> jax.Array:
        def local(params: Any, x: jax.Array) -> jax.Array:
            h = remat.checkpoint(lambda p: jnp.tanh(x @ p["up"]) @ p["down"], policy="dots")(params)
            return lax.pmean(jnp.mean(h**2), "d")

        return jax.shard_map(local, mesh=mesh, in_specs=(P(), P("d")), out_specs=P())(params, x)

    check_step(loss, MLP, array(6, 4, seed=2))


@pytest.mark.parametrize("policy", [*POLICIES, NAMES])
def test_gradient_inside_shard_map(policy: Any) -> None:
    """Data parallel training: each device differentiates its part of the batch."""
    mesh, x = two_devices(), array(6, 4, seed=2)

    def run(value_and_grad: Callable[..., Any]) -> Any:
        def local(params: Any, x: jax.Array) -> Any:
            mean = lambda p, x: lax.pmean(mlp_loss(p, x), "d")  # noqa: E731
            return value_and_grad(mean)(params, x)

        return quick_jit(jax.shard_map(local, mesh=mesh, in_specs=(P(), P("d")), out_specs=(P(), P())))(MLP, x)

    found = run(functools.partial(remat.value_and_grad, policy=policy))
    assert_trees_close(found, run(jax.value_and_grad))
    assert_trees_close(found, jax.value_and_grad(mlp_loss)(MLP, x))


@pytest.mark.parametrize("policy", [*POLICIES, NAMES])
def test_gradient_of_each_example_by_vmap(policy: Any) -> None:
    xs = array(3, 6, 4, seed=2)
    expected = jax.vmap(jax.value_and_grad(mlp_loss), in_axes=(None, 0))(MLP, xs)
    found = jax.vmap(remat.value_and_grad(mlp_loss, policy=policy), in_axes=(None, 0))(MLP, xs)
    assert_trees_close(found, expected)


def test_shardings_of_an_inner_jit_are_kept():
    """A jit with out_shardings inside a differentiated function constrains the value, also after inlining."""
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    inner = jax.jit(lambda x: jnp.sin(x) * 2, out_shardings=split)

    def loss(x: Any) -> Any:
        return (inner(x) ** 2).sum()

    x = jnp.linspace(0.1, 1.0, 8)
    for grad in (remat.grad(loss), remat.grad(loss, policy="nothing")):
        assert "sharding" in jax.jit(grad).lower(x).as_text()
    check_gradients(loss, x)
    program = remat.trace(loss)(x)
    assert "sharding_constraint" in str(program)
