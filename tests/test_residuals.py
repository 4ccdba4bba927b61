"""What is kept for the backward pass, as data and as text: against JAX's own list, and against what JAX gets wrong."""

import contextlib
import io
import json
import re

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import print_saved_residuals as jax_print_saved_residuals

import remat
from remat import policies
from remat.testing import assert_saved
from remat.units import bytes_text, parse_bytes

VECTOR = jnp.linspace(0.1, 1.0, 4)
MATRIX = jnp.linspace(0.1, 1.0, 16).reshape(4, 4)
STACK = jnp.ones((3, 4, 4)) / 4


def printed(show, fun, *args):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        show(fun, *args)
    return [line for line in out.getvalue().splitlines() if re.match(r"[a-z]+\d*(<\w+>)?\[", line)]


def attention(q, k, v):
    scores = jnp.where(jnp.tril(jnp.ones((4, 4), bool)), q @ k.T / 2, -1e9)
    return jax.nn.softmax(scores) @ v


def scanned(body):
    return lambda x, ws: jax.lax.scan(body, x, ws)


def step(carry, w):
    return jnp.tanh(w @ carry), carry


def checkpointed_step(policy):
    return jax.checkpoint(lambda c, w: (jnp.tanh(w @ jnp.sin(c)), None), policy=policy)


SAME_AS_JAX = {
    "softmax": (jax.nn.softmax, VECTOR),
    "gelu": (jax.nn.gelu, VECTOR),
    "silu": (jax.nn.silu, VECTOR),
    "logsumexp": (jax.nn.logsumexp, VECTOR),
    "max and min": (lambda x: x.max() * x.min(), VECTOR),
    "sort": (jnp.sort, VECTOR),
    "index": (lambda x, i: x[i], VECTOR, jnp.array([1, 2])),
    "division": (lambda x, y: x / y, VECTOR, VECTOR),
    "power": (lambda x, y: x**y, VECTOR, VECTOR),
    "norm": (jnp.linalg.norm, VECTOR),
    "convolution": (lambda x: jnp.convolve(x, x), VECTOR),
    "scan": (scanned(step), VECTOR, STACK),
    "scan with a closed-over value": (
        lambda x, ws: jax.lax.scan(lambda c, w: (jnp.tanh(w @ c) * jnp.sin(x), c), x, ws),
        VECTOR,
        STACK,
    ),
    "cond": (lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, lambda x: x * jnp.cos(x), x), VECTOR),
    "scan of a checkpointed body": (scanned(checkpointed_step(None)), VECTOR, STACK),
    "scan of a body that keeps dots": (
        scanned(checkpointed_step(jax.checkpoint_policies.dots_saveable)),
        VECTOR,
        STACK,
    ),
}


@pytest.mark.parametrize("case", SAME_AS_JAX)
def test_same_types_as_jax(case):
    fun, *args = SAME_AS_JAX[case]
    theirs = [line.split(" ")[0] for line in printed(jax_print_saved_residuals, fun, *args) if "literal" not in line]
    ours = [line.split(" ")[0] for line in printed(remat.print_saved_residuals, fun, *args)]
    assert sorted(ours) == sorted(theirs)


LESS_THAN_JAX = {
    "relu": (jax.nn.relu, VECTOR, {"f32[4]": 1}),
    "attention": (attention, MATRIX, MATRIX, MATRIX, {"f32[4,4]": 1}),
    "cumprod": (jnp.cumprod, VECTOR, {"f32[]": 4}),
}


@pytest.mark.parametrize("case", LESS_THAN_JAX)
def test_arrays_of_zeros_are_not_kept(case):
    """JAX keeps the zeros of a `where` for the backward pass; they can be made again from nothing."""
    fun, *args, fewer = LESS_THAN_JAX[case]
    theirs = [line.split(" ")[0] for line in printed(jax_print_saved_residuals, fun, *args) if "literal" not in line]
    ours = [line.split(" ")[0] for line in printed(remat.print_saved_residuals, fun, *args)]
    for type, count in fewer.items():
        for _ in range(count):
            theirs.remove(type)
    assert sorted(ours) == sorted(theirs)


def named_body(x, wb):
    w, b = wb
    before = remat.checkpoint_name(jnp.dot(x, w) + b, "before")
    return jnp.sin(before), None


def net(ws, bs, x):
    return jax.lax.scan(named_body, x, (ws, bs))[0]


NET_ARGS = (STACK, jnp.ones((3, 4)), VECTOR)


def test_names_and_lines_inside_a_scan():
    residuals = remat.saved_residuals(remat.checkpoint(net, policy="names:before"), *NET_ARGS)
    (named,) = [r for r in residuals if r.name == "before"]
    assert (named.type, named.stacked_type) == ("f32[4]", "f32[3,4]")
    assert (named.bytes, named.times, named.total_bytes, named.loops) == (16, 3, 48, (3,))
    assert named.source.function == "named_body"
    assert named.source.file.endswith("test_residuals.py")
    assert named.reason == "policy names:before keeps it"
    assert [u.operation for u in named.needed_by] == ["mul"]
    assert residuals.total_bytes == residuals.new_bytes + STACK.nbytes + VECTOR.nbytes


def test_carried_values_are_kept_unless_the_kept_ones_rebuild_them():
    (carried,) = [r for r in remat.saved_residuals(net, *NET_ARGS) if r.carried]
    assert carried.source.function == "net"
    assert carried.total_bytes == 48
    residuals = remat.saved_residuals(remat.checkpoint(net, policy="names:before"), *NET_ARGS)
    assert [r.name for r in residuals if r.is_new] == ["before"]  # the carried value is sin(before)
    assert residuals.new_bytes == 48
    (carried,) = [r for r in remat.saved_residuals(remat.checkpoint(net), *NET_ARGS) if r.is_new]
    assert carried.carried


def test_reasons():
    def f(x, ws):
        y, _ = jax.lax.scan(lambda c, w: (jnp.tanh(w @ c), None), x, ws)
        return jnp.sin(jnp.exp(y)).sum()

    reasons = {r.origin.text: r.reason for r in remat.saved_residuals(remat.checkpoint(f), VECTOR, STACK)}
    assert reasons["ws"] == "read by the backward pass; the caller holds it anyway"
    assert "loop" in reasons["scan"] or "carried" in reasons["scan"]
    reasons = [r.reason for r in remat.saved_residuals(remat.checkpoint(f), VECTOR, STACK)]
    assert "result of a loop, which does not run again for it" in reasons
    layer = remat.checkpoint(jnp.sin)
    _, y = remat.saved_residuals(lambda x: layer(layer(x)), VECTOR)
    assert y.reason == "result of a checkpoint region, read outside it"
    (kept,) = [r for r in remat.saved_residuals(lambda x: jnp.sin(x), VECTOR) if r.is_new]
    assert kept.reason == "no checkpoint region around it"


def test_nested_scans_multiply():
    def outer(c, ws):
        return jax.lax.scan(lambda c, w: (jnp.sin(c * w), None), c, ws)[0], None

    def f(x, ws):
        return jax.lax.scan(outer, x, ws)[0]

    residuals = remat.saved_residuals(f, VECTOR, jnp.ones((2, 5, 4)))
    (cos,) = [r for r in residuals if r.origin.text == "cos"]
    assert cos.loops == (2, 5)
    assert cos.times == 10
    assert cos.total_bytes == 10 * 16
    assert "loop x 2x5" in str(residuals)
    assert any("x2x5 in scan" in line for line in printed(remat.print_saved_residuals, f, VECTOR, jnp.ones((2, 5, 4))))


def test_loop_invariant_residuals_are_not_stacked():
    def f(x, c):
        return jax.lax.scan(lambda x, _: (x * jnp.sin(c), None), x, None, length=100)[0]

    residuals = remat.saved_residuals(f, VECTOR, VECTOR)
    sizes = {r.origin.text: r.total_bytes for r in residuals if r.is_new}
    assert sizes == {"sin": 16, "cos": 16, "scan": 1600}
    named = remat.checkpoint(
        lambda x, c: jax.lax.scan(lambda x, _: (x * remat.name(jnp.sin(c), "s"), None), x, None, length=100)[0],
        policy="names:s",
    )
    (kept,) = [r for r in remat.saved_residuals(named, VECTOR, VECTOR) if r.name == "s"]
    assert kept.times == 1


def test_value_the_body_returns_is_not_stacked_twice():
    def f(x):
        def body(c, _):
            y = jnp.exp(c)
            return jnp.cos(y), y

        return jax.lax.scan(body, x, None, length=3)

    residuals = remat.saved_residuals(f, VECTOR)
    assert [(r.origin.text, r.total_bytes) for r in residuals] == [("exp", 48), ("sin", 48)]
    _, vjp_fn = remat.vjp(f, VECTOR)
    assert len(jax.tree.leaves(vjp_fn)) == 2


def test_shapes_are_enough():
    big = jax.ShapeDtypeStruct((10**6, 10**6), jnp.float32)
    residuals = remat.saved_residuals(lambda x: jnp.sin(jnp.sin(x)), big)
    assert residuals.total_bytes == 2 * 4 * 10**12


def test_argument_paths():
    def f(params, x, *rest, scale):
        return params["w"][0] * x * rest[1]["b"] * scale

    args = ({"w": [VECTOR, VECTOR]}, VECTOR, VECTOR, {"b": VECTOR})
    texts = [r.origin.text for r in remat.saved_residuals(f, *args, scale=VECTOR)]
    assert texts[:4] == ["params['w'][0]", "x", "rest[1]['b']", "scale"]


def test_constants():
    constant = jnp.arange(4.0)
    (residual,) = remat.saved_residuals(lambda x: x * constant, VECTOR)
    assert residual.origin.kind == "constant"
    assert not residual.is_new


def test_keys_bf16_and_booleans_count_their_bytes():
    def f(x, key):
        mask = jax.random.bernoulli(key, 0.5, x.shape)
        return jnp.where(mask, jnp.sin(x.astype(jnp.bfloat16)), 0)

    residuals = remat.saved_residuals(f, VECTOR, jax.random.key(0))
    by_type = {r.type: r.bytes for r in residuals}
    assert by_type["bool[4]"] == 4
    assert by_type["bf16[4]"] == 8
    region = remat.checkpoint(f)
    by_type = {r.type: r.bytes for r in remat.saved_residuals(region, VECTOR, jax.random.key(0))}
    assert by_type["key<fry>[]"] == 8


def test_offloaded_values_say_so():
    residuals = remat.saved_residuals(remat.checkpoint(net, policy="offload:before"), *NET_ARGS)
    (moved,) = [r for r in residuals if r.name == "before"]
    assert moved.memory == "pinned_host"
    assert moved.stacked_type == "f32<host>[3,4]"
    assert residuals.offloaded_bytes == 48
    assert "48 B in pinned_host (planned)" in str(residuals)


def test_outer_policy_wins_over_inner():
    inner = remat.checkpoint(lambda x: jnp.sin(jnp.exp(x)), policy="everything")
    assert_saved(inner, [VECTOR], [("f32[4]", "exp"), ("f32[4]", "cos")])
    assert_saved(remat.checkpoint(inner), [VECTOR], [("f32[4]", "x")])
    outer = remat.checkpoint(remat.checkpoint(lambda x: jnp.sin(remat.name(jnp.exp(x), "e"))), policy="names:e")
    assert_saved(outer, [VECTOR], [("f32[4]", "e")])


def test_names_reach_through_jit_cond_and_custom_derivatives():
    @jax.custom_vjp
    def custom(x):
        return jnp.sin(x)

    def forward(x):
        kept = remat.name(jnp.cos(x), "c")
        return jnp.sin(x), kept

    custom.defvjp(forward, lambda c, g: (g * c,))
    (kept,) = [r for r in remat.saved_residuals(remat.checkpoint(custom, policy="names:c"), VECTOR) if r.is_new]
    assert kept.name == "c"

    inside_jit = jax.jit(lambda x: jnp.sin(remat.name(jnp.exp(x), "e")))
    assert_saved(remat.checkpoint(inside_jit, policy="names:e"), [VECTOR], [("f32[4]", "e")])

    def branch(x):
        return jnp.sin(remat.name(jnp.exp(x), "e"))

    def chosen(x):
        return jax.lax.cond(x.sum() > 0, branch, jnp.tanh, x)

    names = [r.name for r in remat.saved_residuals(remat.checkpoint(chosen, policy="names:e"), VECTOR)]
    assert "e" in names


def test_text_ends_with_totals():
    text = str(remat.saved_residuals(net, *NET_ARGS))
    assert "total: 96 B kept for the backward pass in 2 values" in text
    assert "besides 192 B of 1 argument, which the caller holds anyway" in text


def test_json():
    residuals = remat.saved_residuals(remat.checkpoint(net, policy="names:before"), *NET_ARGS)
    data = json.loads(residuals.to_json())
    assert data["schema"] == "remat.residuals/1"
    assert data["new_bytes"] == residuals.new_bytes
    assert [r["total_bytes"] for r in data["residuals"]] == [r.total_bytes for r in residuals]


def test_forward_and_backward_share_names():
    report = remat.inspect.fwd_bwd.fwd_bwd(lambda x: jnp.sin(jnp.exp(x)), VECTOR)
    *_, returned = report.forward
    residuals = returned.split("return ")[1].split(", ")[1:]
    assert report.backward[0].startswith("program(" + ": f32[4], ".join(residuals))


def test_everything_and_no_policy_agree():
    def f(x):
        return jnp.sin(jnp.exp(x)).sum()

    plain = remat.saved_residuals(f, VECTOR)
    everything = remat.saved_residuals(remat.checkpoint(f, policy=policies.everything_saveable), VECTOR)
    assert [(r.type, r.origin) for r in plain] == [(r.type, r.origin) for r in everything]


@pytest.mark.parametrize(("text", "count"), [("0 B", 0), ("1.5 KiB", 1536), ("8GiB", 8 * 2**30), ("2 MB", 2 * 10**6)])
def test_sizes(text, count):
    assert parse_bytes(text) == count


def test_sizes_round_trip():
    for count in (0, 17, 1024, 1536, 3 * 2**20, 5 * 2**40):
        assert parse_bytes(bytes_text(count)) == count
