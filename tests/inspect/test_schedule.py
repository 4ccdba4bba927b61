"""The schedule as data and text: what is kept and why, what is recomputed when and because of what, when values die."""

import json

import jax
import jax.numpy as jnp
import pytest

import remat

WEIGHTS, X = [jnp.ones((8, 8))] * 3, jnp.ones((8, 8))


def mlp(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return x.sum()


def scanned(weights, x):
    return jax.lax.scan(lambda x, w: (jnp.sin(jnp.tanh(x @ w)), None), x, weights)[0].sum()


def of(fun, *args, **kwargs):
    return remat.schedule(fun, *args, target="cpu", **kwargs)


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="derivatives have other operations in older versions")
def test_text_of_a_chain():
    assert str(of(mlp, WEIGHTS[:2], X, policy="dots")) == TEXT


TEXT = """\
mlp, value and gradient, policy dots, for cpu

forward: 7 equations
kept: 512 B in 2 values
  dot_general#0  f32[8,8]  256 B: policy dots keeps it
  dot_general#1  f32[8,8]  256 B: policy dots keeps it
  and read, though the caller holds them anyway: weights[1], x

backward:
   1  transposes reduce_sum#0
   2  recomputes tanh#1, tanh#1~one_minus_square from dot_general#1, for tanh#1,
        once there are the cotangents of tanh#1; keeps tanh#1~one_minus_square;
        frees dot_general#1
   3  transposes tanh#1 with tanh#1~one_minus_square; frees
        tanh#1~one_minus_square
   4  recomputes tanh#0 from dot_general#0, for dot_general#1, once there are
        the cotangents of dot_general#1; frees dot_general#0
   5  transposes dot_general#1 with tanh#0
   6  transposes dot_general#1 with weights[1]
   7  recomputes tanh#0~one_minus_square from tanh#0, for tanh#0; frees tanh#0
   8  transposes tanh#0 with tanh#0~one_minus_square; frees
        tanh#0~one_minus_square
   9  transposes dot_general#0 with x"""


@pytest.mark.parametrize("policy", [None, "nothing", "dots", "segments:nothing", "balanced", "burn"])
@pytest.mark.parametrize("fun", [mlp, scanned])
def test_kept_bytes_are_those_of_the_report(fun, policy):
    args = (WEIGHTS if fun is mlp else jnp.stack(WEIGHTS)), X
    assert (
        of(fun, *args, policy=policy).kept_bytes
        == remat.saved_residuals(fun, *args, policy=policy, argnums=0).new_bytes
    )


@pytest.mark.parametrize("policy", [None, "nothing", "dots", "segments:nothing"])
def test_every_value_is_read_while_it_is_alive(policy):
    """What a step reads was kept, given or recomputed; what it frees is made again before it is read again."""
    schedule = of(mlp, WEIGHTS, X, policy=policy)
    alive = {k.key for k in schedule.kept}
    for step in schedule.steps:
        assert set(step.reads) <= alive, step
        assert set(step.frees) <= set(step.reads), step
        alive = (alive - set(step.frees)) | set(step.stays)
    assert not alive, "everything dies"


def test_a_recomputation_stands_before_what_it_is_for():
    steps = of(mlp, WEIGHTS, X, policy="nothing").steps
    for i, step in enumerate(steps):
        if step.does == "recomputes":
            later = next(s for s in steps[i + 1 :] if s.does == "transposes")
            assert later.what == (step.because_of,)


def test_ordering_edges_name_cotangents_that_exist():
    """A cotangent exists once everything that reads its value forward has been transposed."""
    schedule = of(mlp, WEIGHTS, X, policy="dots")
    first = next(s for s in schedule.steps if s.does == "recomputes")
    assert first.after == ("tanh#2",)
    assert all(s.after or "~" in s.what[0] for s in schedule.steps if s.does == "recomputes")


def test_recomputed_counts_every_time():
    assert of(mlp, WEIGHTS, X, policy=None).recomputed == ()
    dots = [k for k in of(mlp, WEIGHTS, X, policy="nothing", argnums=(0, 1)).recomputed if k.startswith("dot_general")]
    assert len(dots) == 3


def test_loops_are_nested():
    schedule = of(scanned, jnp.stack(WEIGHTS), X, policy="dots")
    (loop,) = [s for s in schedule.steps if s.what == ("scan#0",)]
    (steps,) = loop.inside
    turned = dict.fromkeys(key for s in steps if s.does == "transposes" for key in s.what)
    assert list(turned) == ["scan#0/sin#0", "scan#0/tanh#0", "scan#0/dot_general#0"]
    assert [(k.key, k.times) for k in schedule.kept if k.is_new] == [("scan#0/dot_general#0", 3)]


def test_branches_are_nested():
    schedule = of(lambda x: jax.lax.cond(x[0] > 0, jnp.sin, lambda y: y * y, x).sum(), jnp.ones(3), policy="dots")
    (branches,) = [s.inside for s in schedule.steps if s.inside]
    assert [[s.what[0] for s in steps if s.does == "transposes"] for steps in branches] == [
        ["cond#0[0]/mul#0", "cond#0[0]/mul#0"],
        ["cond#0[1]/sin#0"],
    ]
    assert "branch 1:" in str(schedule)


def test_json():
    schedule = of(scanned, jnp.stack(WEIGHTS), X, policy="dots")
    data = json.loads(schedule.to_json())
    assert data["schema"] == "remat.schedule/1"
    assert data["kept_bytes"] == schedule.kept_bytes
    assert len(data["steps"]) == len(schedule.steps)


def test_text_is_80_columns_wide():
    def wide(x):
        with jax.named_scope("a" * 30):
            for _ in range(12):
                x = jnp.sin(jax.nn.silu(x))
        return x.sum()

    assert max(map(len, str(of(wide, X, policy="nothing")).splitlines())) <= 80
