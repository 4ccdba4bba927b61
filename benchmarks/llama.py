"""Budgets on a decoder of 8 billion parameters, against the policies that people train it with.

    python benchmarks/llama.py [--target tpu:v5p:2x2x1] [--layers 32] [--json [FILE]]

The net has the shape of Llama 3 8B: 32 scanned layers, grouped-query attention by JAX's flash attention kernel for TPUs
inside `shard_map`, 32-bit parameters computed with in bfloat16, 4 sequences of 2048 tokens a device, parameters and
batch sharded over all devices. Everything is worked out on shapes and compiled without a device.

By hand, `jax.checkpoint` stands on the layer and keeps the names that MaxText's policies of that name keep. At the
bytes that each of these takes once compiled, and halfway between, `remat.plan` is given that budget for the model
without any checkpoint in it. Shown are temporaries and results in MiB of one device, and TFLOP in products.

A row where a plan takes more than 1.02 of its budget, or more products than the policy by hand, is marked `!`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import remat

MIB, TFLOP = 2**20, 1e12
WIDTH, HIDDEN, HEADS, PAIRS, HEAD, VOCABULARY = 4096, 14336, 32, 8, 128, 128256
"""Of the model; `PAIRS` are the heads of keys and values."""
SEQUENCES, TOKENS = 4, 2048
"""A device's part of the batch."""
WITHIN = 1.02

PROJECTIONS = ("query_proj", "key_proj", "value_proj")
BY_HAND: dict[str, tuple[str, ...]] = {
    "full": (),
    "save_out_proj": ("out_proj",),
    "save_qkv_proj": PROJECTIONS,
    "save_dot_except_mlp": (*PROJECTIONS, "out_proj"),
    "custom": (*PROJECTIONS, "out_proj", "mlpwi_0"),
    "minimal": (*PROJECTIONS, "out_proj", "mlpwi_0", "mlpwi_1", "mlpwo"),
}
"""What is kept of each layer."""


@dataclass(frozen=True)
class Llama:
    """The model on a mesh with one axis, `fsdp`."""

    devices: int
    layers: int

    @property
    def mesh(self) -> AbstractMesh:
        return AbstractMesh((self.devices,), ("fsdp",), axis_types=(AxisType.Auto,))

    def placed(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def shapes(self) -> tuple[Any, Any]:
        """The types of the parameters and of the tokens."""

        def weight(*shape: int, dimension: int = 1) -> jax.ShapeDtypeStruct:
            axes = [None] * len(shape)
            axes[dimension] = "fsdp"  # type: ignore[call-overload]
            return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=self.placed(*axes))

        n = self.layers
        layers = {
            "before_attention": weight(n, WIDTH),
            "query": weight(n, WIDTH, HEADS, HEAD),
            "key": weight(n, WIDTH, PAIRS, HEAD),
            "value": weight(n, WIDTH, PAIRS, HEAD),
            "out": weight(n, HEADS, HEAD, WIDTH, dimension=3),
            "before_mlp": weight(n, WIDTH),
            "gate": weight(n, WIDTH, HIDDEN),
            "up": weight(n, WIDTH, HIDDEN),
            "down": weight(n, HIDDEN, WIDTH, dimension=2),
        }
        params = {
            "embedding": weight(VOCABULARY, WIDTH),
            "layers": layers,
            "norm": weight(WIDTH, dimension=0),
            "head": weight(WIDTH, VOCABULARY, dimension=0),
        }
        tokens = jax.ShapeDtypeStruct((SEQUENCES * self.devices, TOKENS), jnp.int32, sharding=self.placed("fsdp"))
        return params, tokens

    def loss(self, wrap: Callable[[Any], Any] = lambda layer: layer) -> Callable[..., Any]:
        """The loss, with each layer wrapped."""
        shapes = self.shapes()[0]

        def loss(params: Any, tokens: Any) -> Any:
            params = jax.tree.map(lambda p, t: lax.with_sharding_constraint(p, t.sharding), params, shapes)
            x = self.along_batch(params["embedding"].astype(jnp.bfloat16)[tokens])
            x, _ = lax.scan(wrap(self.layer), x, params["layers"])
            logits = normed(x, params["norm"]) @ params["head"].astype(jnp.bfloat16)
            chances = jax.nn.log_softmax(self.along_batch(logits).astype(jnp.float32)[:, :-1])
            return -jnp.take_along_axis(chances, tokens[:, 1:, None], axis=-1).mean()

        return loss

    def along_batch(self, x: Any) -> Any:
        return lax.with_sharding_constraint(x, self.placed("fsdp"))

    def layer(self, x: Any, p: Any) -> tuple[Any, None]:
        """One layer; what MaxText has names for has the same names."""
        p = jax.tree.map(lambda w: w.astype(jnp.bfloat16), p)
        x = checkpoint_name(self.along_batch(x), "decoder_layer_input")
        h = normed(x, p["before_attention"])
        q = checkpoint_name(jnp.einsum("btd,dhk->bhtk", h, p["query"]), "query_proj")
        k = checkpoint_name(jnp.einsum("btd,dhk->bhtk", h, p["key"]), "key_proj")
        v = checkpoint_name(jnp.einsum("btd,dhk->bhtk", h, p["value"]), "value_proj")
        attended = self.attention(rotated(q) * HEAD**-0.5, rotated(k), v)
        x = x + checkpoint_name(jnp.einsum("bhtk,hkd->btd", attended, p["out"]), "out_proj")
        h = normed(self.along_batch(x), p["before_mlp"])
        gate = checkpoint_name(h @ p["gate"], "mlpwi_0")
        up = checkpoint_name(h @ p["up"], "mlpwi_1")
        return self.along_batch(x + checkpoint_name((jax.nn.silu(gate) * up) @ p["down"], "mlpwo")), None

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        """Causal attention by a kernel, which runs on each device for its sequences."""
        along = PartitionSpec("fsdp")

        @jax.shard_map(mesh=self.mesh, in_specs=(along, along, along), out_specs=along, check_vma=False)
        def attend(q: Any, k: Any, v: Any) -> Any:
            mask = splash_attention_mask.MultiHeadMask([splash_attention_mask.CausalMask((TOKENS, TOKENS))] * HEADS)
            kernel = splash_attention_kernel.make_splash_mha(mask, head_shards=1, q_seq_shards=1)
            return jax.vmap(kernel)(q, k, v)

        return attend(q, k, v)


def normed(x: Any, gain: Any) -> Any:
    """Divided by the root of the mean square, in 32 bits."""
    wide = x.astype(jnp.float32)
    scale = lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-5)
    return (wide * scale).astype(x.dtype) * gain.astype(x.dtype)


def rotated(x: Any) -> Any:
    """With rotary position embeddings."""
    angle = jnp.arange(TOKENS)[:, None] * 500_000.0 ** -(jnp.arange(0, HEAD, 2) / HEAD)
    sin, cos = jnp.sin(angle).astype(x.dtype), jnp.cos(angle).astype(x.dtype)
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


# The comparison.


@dataclass
class Row:
    """A budget: what the policy by hand takes, or one between two of them. MiB of one device, TFLOP in products."""

    budget: str
    budget_mib: float
    by_hand_tflop: float | None
    simulated_mib: float | None = None
    compiled_mib: float | None = None
    tflop: float | None = None
    structure: str = ""
    corrections: int = 0
    planning_seconds: float | None = None
    error: str | None = None

    @property
    def is_lost(self) -> bool:
        if self.error is not None or self.compiled_mib is None or self.tflop is None:
            return True
        more = self.by_hand_tflop is not None and self.tflop > self.by_hand_tflop * 1.001
        return more or self.compiled_mib > WITHIN * self.budget_mib

    def __str__(self) -> str:
        hand = "" if self.by_hand_tflop is None else f"{self.by_hand_tflop:8.1f}"
        if self.error is not None:
            return f"  {self.budget:24s} {self.budget_mib:9.0f} {hand:8s} ! {self.error[:60]}"
        figures = f"{self.simulated_mib:9.0f} {self.compiled_mib:9.0f} {self.tflop:8.1f}"
        mark = " !" if self.is_lost else ""
        return f"  {self.budget:24s} {self.budget_mib:9.0f} {hand:8s} {figures}  {self.structure}{mark}"


def by_hand(model: Llama, name: str, target: str) -> Row | None:
    """What a policy takes once compiled; None if the compiler refuses it."""
    policy = jax.checkpoint_policies.save_only_these_names(*BY_HAND[name])
    loss = model.loss(lambda layer: jax.checkpoint(layer, policy=policy))
    taken = remat.measure(jax.value_and_grad(loss), *model.shapes(), target=target)
    if taken.live_bytes is None:
        print(f"  {name}: {taken.error}", flush=True)
        return None
    return Row(name, taken.live_bytes / MIB, (taken.dot_flops or 0) / TFLOP)


def row_for(model: Llama, hand: Row, target: str) -> Row:
    """The plan at the bytes of a policy by hand."""
    limit = int(hand.budget_mib * MIB)
    row = Row(hand.budget, hand.budget_mib, hand.by_hand_tflop)
    start = time.perf_counter()
    try:
        plan = remat.plan(model.loss(), *model.shapes(), budget=limit, target=target)
        row.planning_seconds = time.perf_counter() - start
        plan = plan.verify()
    except remat.BudgetError as error:
        row.error = str(error)
        return row
    assert plan.compiled is not None
    row.simulated_mib, row.compiled_mib = plan.choice.peak_bytes / MIB, (plan.compiled_bytes or 0) / MIB
    row.tflop = (plan.compiled.dot_flops or 0) / TFLOP
    row.structure, row.corrections = plan.choice.structure, plan.corrections
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="tpu:v5p:2x2x1")
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--only", default=",".join(BY_HAND), help="policies by hand whose bytes are budgets")
    parser.add_argument("--between", action="store_true", help="budgets halfway between two policies, too")
    parser.add_argument("--plans", action="store_true", help="take figures by hand from the file, if it has them")
    parser.add_argument("--json", nargs="?", const="", help="write figures to this file (llama-TARGET.json)")
    options = parser.parse_args()
    model = Llama(options.devices, options.layers)
    old = written(options) if options.plans else []
    known = {r["budget"]: Row(r["budget"], r["budget_mib"], r["by_hand_tflop"]) for r in old}
    found = [known.get(name) or by_hand(model, name, options.target) for name in options.only.split(",")]
    hand = [row for row in found if row is not None]
    if options.between:
        pairs = itertools.pairwise(hand)
        hand += [Row(f"up to {b.budget}", (a.budget_mib + b.budget_mib) / 2, None) for a, b in pairs]
    print(f"  {'budget':24s} {'MiB':>9s} {'by hand':>8s} {'simulated':>9s} {'compiled':>9s} {'TFLOP':>8s}")
    rows: list[Row] = []
    for point in sorted(hand, key=lambda r: r.budget_mib):
        rows.append(row_for(model, point, options.target))
        print(rows[-1], flush=True)
        if options.json is not None:
            write(options, rows)
    lost = [r for r in rows if r.is_lost]
    print(f"{len(rows) - len(lost)} of {len(rows)} rows hold")


def path_of(options: argparse.Namespace) -> Path:
    return Path(options.json or Path(__file__).with_name(f"llama-{options.target.split(':')[1]}.json"))


def written(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows that the file has."""
    path = path_of(options)
    return json.loads(path.read_text())["rows"] if path.exists() else []


def write(options: argparse.Namespace, rows: list[Row]) -> None:
    """The figures of these rows, and of those that the file has besides."""
    new = {r.budget for r in rows}
    kept = [r for r in written(options) if r["budget"] not in new]
    data = {
        "schema": "remat.benchmark.llama/1",
        "target": options.target,
        "devices": options.devices,
        "layers": options.layers,
        "versions": {"jax": jax.__version__, "remat": remat.__version__},
        "rows": sorted([*kept, *map(asdict, rows)], key=lambda r: r["budget_mib"]),
    }
    path_of(options).write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
