"""Random programs: whatever JAX can differentiate, remat differentiates to the same numbers, under every policy.

A program is plain data: a tuple of steps, each reading values from a pool by position counted from the newest one and
adding its result to the pool. Steps with bodies (loops, branches, regions...) run them on the pool they stand in, so
that bodies close over outer values. Any tuple of steps is a valid program, which keeps generation and shrinking easy.
All values have one of four shapes and are kept small, so that in float64 a tight tolerance makes sense.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import remat
from remat.ir.types import size_in_bytes
from remat.testing import assert_trees_close, check_gradients

# A program may use none of the names its policy asks for; that warning has tests of its own.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::remat.{kind}Warning")
    for kind in ("UnknownName", "UselessPolicy", "OverriddenPolicy")
]

RTOL, ATOL = 1e-7, 1e-9
Array = Any
Pool = list[Array]


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    """Tight tolerances, and no time spent on optimizing programs that run once."""
    with jax.enable_x64(True):
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)


# Programs as data.


@dataclass(frozen=True)
class Step:
    """`op` on pool values (`at` counts back from the newest), with options and bodies as the op needs."""

    op: str
    at: tuple[int, ...] = ()
    options: tuple[Any, ...] = ()
    bodies: tuple[Body, ...] = ()

    def __repr__(self) -> str:
        parts = [repr(self.op), repr(self.at), repr(self.options), repr(self.bodies)]
        while parts[-1] == "()":
            parts.pop()
        return f"Step({', '.join(parts)})"


Body = tuple[Step, ...]

SHAPES = ((3,), (2, 3), (3, 3), ())
NAMES = ("a", "b", "c")
POLICIES = (
    "nothing",
    "dots",
    "everything",
    "names:a",
    "names:a,b",
    "names_but:b",
    "except:a",
    "except:a,c",
    "dots_no_batch",
    "dots|names:a",
    "except:b & names:a,b",
    "offload:a",
    "names:b|offload:a",
    "scan_body:nothing",
    "scan_body:dots",
    "scan_body:names:a",
    "within:inner:everything",
    "burn",
    "burn_no_checkpointing",
    "balanced",
    "substituting:dots",
)


# JAX itself cannot differentiate an offload twice, so regions inside of programs, where it would have to, have none.
INNER_POLICIES = tuple(p for p in POLICIES if "offload" not in p)


@jax.custom_vjp
def scaled_product(x: Array, y: Array) -> Array:
    return x * jnp.sin(y)


def _scaled_product_forward(x: Array, y: Array) -> tuple[Array, Any]:
    return x * jnp.sin(y), (x, jnp.cos(y), {"y": y})


def _scaled_product_backward(kept: Any, cotangent: Array) -> tuple[Array, Array]:
    """Not the true derivative, so that differentiating the function itself would be noticed."""
    x, cosine, rest = kept
    return 0.5 * cotangent * jnp.sin(rest["y"]), 2.0 * cotangent * jnp.tanh(x) * cosine


scaled_product.defvjp(_scaled_product_forward, _scaled_product_backward)


@jax.custom_jvp
def clipped(x: Array, y: Array) -> Array:
    return jnp.tanh(x) + 0.1 * y


@clipped.defjvp
def _clipped_derivative(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Not the true derivative either."""
    (x, y), (dx, dy) = primals, tangents
    return clipped(x, y), 0.5 * jnp.cos(x) * dx + dy


@jax.custom_jvp
def softened(x: Array, y: Array) -> Array:
    return jnp.tanh(x) + 0.1 * y


@softened.defjvp
def _softened_derivative(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """The true derivative: for an untrue one, JAX versions differ in the second order (in scans)."""
    value, (dx, dy) = softened(*primals), tangents
    return value, (1 - jnp.tanh(primals[0]) ** 2) * dx + 0.1 * dy


UNARY: dict[str, Callable[[Array], Array]] = {
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tanh": jnp.tanh,
    "exp": lambda x: 0.3 * jnp.exp(jnp.tanh(x)),
    "logistic": jax.nn.sigmoid,
    "square": lambda x: x**2 / (1 + x**2),
    "root": lambda x: jnp.sqrt(1 + x * x),
    "log": lambda x: jnp.log1p(x * x),
    "erf": lax.erf,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "softmax": lambda x: jax.nn.softmax(x) if x.ndim else x,
    "normalize": lambda x: (x - x.mean()) / jnp.sqrt(1 + x.var()),
    "stop_gradient": lax.stop_gradient,
    "integer": lambda x: (x > 0.1).astype(jnp.int32) + x,
    "barrier": lambda x: lax.optimization_barrier(x),
    "iterated": lambda x: lax.while_loop(lambda v: v.sum() > 1, lambda v: 0.5 * v, lax.stop_gradient(x)) + x,
    "noise": lambda x: x * jax.random.uniform(jax.random.key(3), x.shape, x.dtype),
    "constant": lambda x: x * np.linspace(0.5, 1.5, x.size).reshape(x.shape),
}

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda x, y: 0.7 * (x + y),
    "sub": lambda x, y: 0.7 * (x - y),
    "mul": lambda x, y: x * jnp.tanh(y),
    "div": lambda x, y: x / (1 + y * y),
    "maximum": jnp.maximum,
    "power": lambda x, y: (1.5 + jnp.sin(x)) ** jnp.cos(y),
    "where": lambda x, y: jnp.where(x > y, jnp.sin(x), y * y / (1 + y * y)),
    "custom_vjp": scaled_product,
    "custom_jvp": clipped,
    "smooth_custom_jvp": softened,
}

LAYOUT: dict[str, Callable[[Array], Array]] = {
    "transpose": lambda x: x.T.reshape(x.shape),
    "reshape": lambda x: x.reshape(-1)[::-1].reshape(x.shape),
    "slice": lambda x: lax.slice_in_dim(x, 0, 1) + x if x.ndim else x,
    "concatenate": lambda x: jnp.concatenate([x[1:], 2 * x[:1]]) if x.ndim else x,
    "gather": lambda x: x[jnp.array([1, 0, 1])] if x.ndim else x,
    "scatter": lambda x: x.at[1].multiply(0.5).at[0].set(0.3) if x.ndim else x,
    "pick": lambda x: x + lax.dynamic_index_in_dim(x, jnp.argmax(x.reshape(-1)) % x.shape[0]) if x.ndim else x,
    "cumsum": lambda x: jnp.cumsum(x, 0) / 3 if x.ndim else x,
    "sort": lambda x: jnp.sort(x) if x.ndim else x,
    "pad": lambda x: jnp.pad(x, 1)[..., :-2] if x.ndim == 1 else x,
}

REDUCTIONS: dict[str, Callable[..., Array]] = {
    "sum": lambda x, axis: jnp.sum(x, axis) / 3,
    "mean": jnp.mean,
    "max": jnp.max,
    "logsumexp": jax.nn.logsumexp,
    "prod": lambda x, axis: jnp.prod(1 + 0.3 * jnp.tanh(x), axis),
}

CONTRACTIONS = (((2, 3), (3, 3)), ((3, 3), (3,)), ((3,), (3,)), ((3, 3), (3, 3)), ((3,), (3, 3)))


def shaped(x: Array, shape: tuple[int, ...]) -> Array:
    """`x` turned into one of the four shapes by reductions, slices, broadcasts and concatenation."""
    if x.shape == shape:
        return x
    if shape == ():
        return x.mean()
    if x.ndim < 2:
        return jnp.broadcast_to(x, shape)
    if shape == (3,):
        return x[1, :3]
    if shape == (2, 3):
        return x[-2:]
    return jnp.concatenate([x, x[:1]])[:3]


# The interpreter.


def run(steps: Body, pool: Sequence[Array]) -> Pool:
    """The pool after some steps."""
    values = list(pool)
    for step in steps:
        read = [values[-1 - i % len(values)] for i in step.at]
        values.append(RULES[step.op](step, values, *read))
    return values


def newest(values: Pool, index: int, like: Array) -> Array:
    """A pool value counted from the newest, in the shape of another value."""
    return shaped(values[-1 - index % len(values)], jnp.shape(like)).astype(like.dtype)  # loops want strong types


def _contract(step: Step, pool: Pool, x: Array, y: Array) -> Array:
    left, right = CONTRACTIONS[step.options[0]]
    out = jnp.tanh(shaped(x, left)) @ shaped(y, right) / 2
    return shaped(out, out.shape if out.shape in SHAPES else (3,))


def _reduce(step: Step, pool: Pool, x: Array) -> Array:
    kind, axis = step.options
    if x.ndim == 0:
        return x
    out = REDUCTIONS[kind](x, axis=None if axis is None else axis % x.ndim)
    return out if out.shape in SHAPES else shaped(jnp.mean(out), ())


def _call(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Array]:
    """A step whose body runs as a function of one value, wrapped by a transformation."""

    def rule(step: Step, pool: Pool, x: Array) -> Array:
        return wrap(lambda v: run(step.bodies[0], [*pool, v])[-1])(x)

    return rule


def _named_scope(fun: Callable[..., Any]) -> Callable[..., Any]:
    return jax.named_scope("inner")(fun)


def _pair(step: Step, pool: Pool, x: Array, y: Array) -> Array:
    """A jitted function with two results of which one may stay unused."""

    @jax.jit
    def inner(v: Array, w: Array) -> tuple[Array, Array]:
        after = run(step.bodies[0], [*pool, v, w])
        return after[-1], jnp.cos(after[-2])

    first, second = inner(x, y)
    return first if step.options[0] else shaped(second, first.shape) + first


def _region(step: Step, pool: Pool, x: Array, y: Array) -> Array:
    library, policy, prevent_cse = step.options

    def inner(v: Array, w: Array) -> Array:
        return run(step.bodies[0], [*pool, v, w])[-1]

    if library == "jax":
        jax_policy = {"dots": jax.checkpoint_policies.dots_saveable, "names:a": _save_a}.get(policy)
        return jax.checkpoint(inner, policy=jax_policy, prevent_cse=prevent_cse)(x, y)
    return remat.checkpoint(inner, policy=policy, prevent_cse=prevent_cse)(x, y)


_save_a = jax.checkpoint_policies.save_only_these_names("a")


def _scan(step: Step, pool: Pool, x: Array, y: Array, z: Array) -> Array:
    """Two carried values, a counter, and a random key; xs are rows; the stacked result is weighted and summed."""
    length, reverse, results, output, unroll = step.options
    rows = jnp.stack([(0.5 + i / length) * z for i in range(length)])

    def body(carry: Any, row: Array) -> Any:
        v, w, count, key = carry
        key, use = jax.random.split(key)
        scale = 1 + 0.1 * count + 0.1 * jax.random.uniform(use, (), v.dtype)
        after = run(step.bodies[0], [*pool, v, w, scale * row])
        return (newest(after, results[0], v), newest(after, results[1], w), count + 1, key), after[-1 - results[2]]

    carry = (x, y, jnp.int32(0), jax.random.key(1))
    (v, w, count, _), ys = lax.scan(body, carry, rows, reverse=reverse, unroll=unroll)
    stacked = jnp.tensordot(jnp.linspace(0.2, 1, length), ys, 1)
    return (v, w, stacked, v + shaped(stacked, v.shape) * count)[output]


def _loop(step: Step, pool: Pool, x: Array) -> Array:
    def body(i: Array, v: Array) -> Array:
        after = run(step.bodies[0], [*pool, v * (1 - 0.1 * i)])
        return newest(after, step.options[1], v)

    return lax.fori_loop(0, step.options[0], body, x)


def _branch(step: Step, pool: Pool, chooser: Array, x: Array, y: Array) -> Array:
    """`cond` for two bodies, `switch` for more; the index is computed from a value."""

    def branch(body: Body) -> Callable[[Array, Array], tuple[Array, Array]]:
        def inner(v: Array, w: Array) -> tuple[Array, Array]:
            after = run(body, [*pool, v, w])
            return newest(after, 0, x), newest(after, 1, y)

        return inner

    branches = [branch(body) for body in step.bodies]
    if len(branches) == 2:
        first, second = lax.cond(chooser.mean() > 0.2, *branches, x, y)
    else:
        index = jnp.floor(3 * jnp.abs(jnp.sin(lax.stop_gradient(chooser).sum()))).astype(jnp.int32)
        first, second = lax.switch(index, branches, x, y)
    return first if step.options[0] else shaped(second, first.shape) - first


def _vmap(step: Step, pool: Pool, x: Array) -> Array:
    rows = shaped(x, (3, 3))
    return jax.vmap(lambda row: newest(run(step.bodies[0], [*pool, row]), 0, row))(rows)


def _inner_derivative(step: Step, pool: Pool, x: Array) -> Array:
    body = for_second_order(step.bodies[0])
    if step.options[0] == "jvp":
        body = for_forward_mode(body)

    def inner(v: Array) -> Array:
        return jnp.sin(run(body, [*pool, v])[-1]).sum()

    if step.options[0] == "jvp":
        return jax.jvp(inner, (x,), (jnp.ones_like(x),))[1]
    transformation = jax.grad if step.options[0] == "jax" else functools.partial(remat.grad, policy=step.options[0])
    return jnp.tanh(transformation(inner)(x))


def replaced(body: Body, old: str, new: str) -> Body:
    """The same steps with one kind of function in place of another."""

    def changed(step: Step) -> Step:
        options = (new,) if step.options == (old,) else step.options
        return Step(step.op, step.at, options, tuple(replaced(b, old, new) for b in step.bodies))

    return tuple(map(changed, body))


def for_second_order(body: Body) -> Body:
    return replaced(body, "custom_jvp", "smooth_custom_jvp")


def for_forward_mode(body: Body) -> Body:
    return replaced(body, "custom_vjp", "mul")


def _solve(step: Step, pool: Pool, a: Array, b: Array) -> Array:
    matrix = 4 * jnp.eye(3) + jnp.tanh(shaped(a, (3, 3)))
    return jnp.linalg.solve(matrix, shaped(b, (3,)))


RULES: dict[str, Callable[..., Array]] = {
    "unary": lambda step, pool, x: UNARY[step.options[0]](x),
    "binary": lambda step, pool, x, y: BINARY[step.options[0]](x, shaped(y, x.shape)),
    "layout": lambda step, pool, x: shaped(LAYOUT[step.options[0]](x), x.shape),
    "reshape": lambda step, pool, x: shaped(x, step.options[0]),
    "reduce": _reduce,
    "dot": _contract,
    "name": lambda step, pool, x: checkpoint_name(x, step.options[0]),
    "jit": _pair,
    "scope": _call(_named_scope),
    "region": _region,
    "scan": _scan,
    "loop": _loop,
    "branch": _branch,
    "vmap": _vmap,
    "derivative": _inner_derivative,
    "solve": _solve,
}


# Strategies.

positions = st.integers(0, 9)


def _step(op: str, reads: int, *options: st.SearchStrategy[Any], bodies: Any = ()) -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        st.just(op),
        st.tuples(*[positions] * reads),
        st.tuples(*options),
        bodies if isinstance(bodies, st.SearchStrategy) else st.tuples(*bodies),
    )


def bodies(depth: int, most: int) -> st.SearchStrategy[Body]:
    return st.lists(steps(depth), max_size=most).map(tuple)


@functools.cache
def steps(depth: int) -> st.SearchStrategy[Step]:
    """Steps with bodies nested at most `depth` deep."""
    flat = [
        _step("unary", 1, st.sampled_from(list(UNARY))),
        _step("binary", 2, st.sampled_from(list(BINARY))),
        _step("dot", 2, st.integers(0, len(CONTRACTIONS) - 1)),
        _step("name", 1, st.sampled_from(NAMES)),
        _step("layout", 1, st.sampled_from(list(LAYOUT))),
        _step("reduce", 1, st.sampled_from(list(REDUCTIONS)), st.sampled_from([None, 0, 1])),
        _step("reshape", 1, st.sampled_from(SHAPES)),
        _step("solve", 2),
    ]
    if depth == 0:
        return st.one_of(flat)
    body = bodies(depth - 1, 4)
    small = bodies(depth - 1, 3)
    results = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2))
    nested = [
        _step(
            "scan", 3, st.integers(1, 4), st.booleans(), results, st.integers(0, 3), st.integers(1, 2), bodies=[body]
        ),
        _step("region", 2, st.just("remat"), st.sampled_from((None, *INNER_POLICIES)), st.booleans(), bodies=[body]),
        _step("region", 2, st.just("jax"), st.sampled_from([None, "dots", "names:a"]), st.booleans(), bodies=[body]),
        _step("jit", 2, st.booleans(), bodies=[small]),
        _step("branch", 3, st.booleans(), bodies=st.lists(small, min_size=2, max_size=3).map(tuple)),
        _step("loop", 1, st.integers(1, 4), st.integers(0, 2), bodies=[body]),
        _step("vmap", 1, bodies=[small]),
        _step("scope", 1, bodies=[small]),
        _step("derivative", 1, st.sampled_from(["jax", "jvp", "nothing", "dots", "names:a"]), bodies=[small]),
    ]
    return st.one_of(*flat, *nested, *nested)


@dataclass(frozen=True)
class RandomProgram:
    """A function of four arrays; its results are the newest `results` values of the pool."""

    steps: Body
    results: int = 1

    def __call__(self, *inputs: Array) -> tuple[Array, ...]:
        return tuple(run(self.steps, inputs)[-self.results :])

    def loss(self, *inputs: Array) -> Array:
        return sum((jnp.sin(x).sum() for x in self(*inputs)), jnp.zeros(()))

    def contains(self, *ops: str) -> bool:
        def within(body: Body) -> bool:
            return any(s.op in ops or any(within(b) for b in s.bodies) for s in body)

        return within(self.steps)


programs = st.builds(RandomProgram, st.lists(steps(2), min_size=1, max_size=6).map(tuple), st.integers(1, 3))
policy_texts = st.sampled_from(POLICIES)


def inputs() -> list[Array]:
    random = np.random.default_rng(7)
    return [jnp.asarray(random.normal(size=shape)) for shape in SHAPES]


ARGNUMS = tuple(range(len(SHAPES)))


# What must hold for every program.


def check_every_policy(program: RandomProgram, policies: Sequence[Any]) -> None:
    check_gradients(program, *inputs(), policies=(None, *policies), compiled=True, rtol=RTOL, atol=ATOL)


def check_lowered(program: RandomProgram) -> None:
    found = remat.lower(remat.trace(program)(*inputs()))(*inputs())
    assert_trees_close(found, program(*inputs()), RTOL, ATOL)


def check_under_jax(program: RandomProgram, policy: Any) -> None:
    """JAX's own gradient of our region, run eagerly and compiled; and ours compiled."""
    expected = jax.grad(program.loss, ARGNUMS)(*inputs())
    region = remat.checkpoint(program.loss, policy=policy)
    assert_trees_close(jax.grad(region, ARGNUMS)(*inputs()), expected, RTOL, ATOL, "jax.grad")
    compiled = jax.jit(jax.grad(region, ARGNUMS))
    assert_trees_close(compiled(*inputs()), expected, RTOL, ATOL, "jit of jax.grad")
    ours = jax.jit(remat.grad(program.loss, ARGNUMS, policy=policy))
    assert_trees_close(ours(*inputs()), expected, RTOL, ATOL, "jit of remat.grad")


def check_transformed(program: RandomProgram, policy: Any) -> None:
    """Other transformations over the gradient: vmap, forward mode, and reverse mode again."""
    program = RandomProgram(for_second_order(program.steps), program.results)

    def transformed(grad: Callable[..., Callable[..., Any]]) -> dict[str, Any]:
        gradient = grad(program.loss, ARGNUMS)

        def length(*xs: Array) -> Array:
            return sum((jnp.sin(g).sum() for g in gradient(*xs)), jnp.zeros(()))

        batch = [jnp.stack([x, 0.5 * x]) for x in inputs()]
        tangents = [jnp.cos(x) for x in inputs()]
        return {
            "vmap": jax.vmap(gradient)(*batch),
            "forward over reverse": jax.jvp(gradient, inputs(), tangents),
            "reverse over reverse": grad(length, ARGNUMS)(*inputs()),
        }

    ours = functools.partial(remat.grad, policy=policy)
    found, expected = jax.jit(lambda: (transformed(ours), transformed(jax.grad)))()
    assert_trees_close(found, expected, RTOL, ATOL)


def check_linearize(program: RandomProgram, policy: Any) -> None:
    program = RandomProgram(for_forward_mode(program.steps), program.results)

    def linearized(linearize: Callable[..., Any], fun: Callable[..., Any]) -> Any:
        out, linear = linearize(fun, *inputs())
        return out, linear(*(jnp.cos(x) for x in inputs()))

    region = remat.checkpoint(program, policy=policy)
    found, expected = jax.jit(lambda: (linearized(remat.linearize, region), linearized(jax.linearize, program)))()
    assert_trees_close(found, expected, RTOL, ATOL)


def check_residuals(program: RandomProgram, policy: Any) -> None:
    """The report tells the truth about what `vjp_fn` holds, and policies keep what their names promise."""
    region = remat.checkpoint(program, policy=policy)
    reported = remat.saved_residuals(region, *inputs())
    leaves = jax.eval_shape(lambda *xs: jax.tree.leaves(remat.vjp(region, *xs)[1]), *inputs())
    assert len(leaves) == len(reported)
    assert sum(size_in_bytes(x) for x in leaves) == reported.total_bytes
    if not program.contains("scan", "loop"):  # what a loop carries is kept; all else is recomputed
        nothing = remat.saved_residuals(remat.checkpoint(program, policy="nothing"), *inputs())
        assert nothing.new_bytes == 0, str(nothing)
    if not program.contains("region", "derivative", "branch", "scan", "loop"):  # where it is a choice what to keep
        everything = remat.saved_residuals(remat.checkpoint(program, policy="everything"), *inputs())
        assert everything.new_bytes <= remat.saved_residuals(program, *inputs()).new_bytes  # less: no views of inputs


def check_strategies(program: RandomProgram) -> None:
    """Burn's states are used up in the end, whoever decides; backward steps ask for the same, by Burn's rules or by
    JAX's; and `balanced` keeps no more than Burn's strategy."""
    for argnums in (ARGNUMS, (0, 2)):
        for family in (("burn", "burn_no_checkpointing"), (None, "balanced", "dots", "nothing")):
            asked = set()
            for policy in family:
                log = remat.retrieval_log(program, *inputs(), policy=policy, argnums=argnums)
                assert log.drained, policy
                asked.add(tuple(r.node for r in log.retrievals))
            assert len(asked) == 1
    kept = {
        policy: remat.saved_residuals(remat.checkpoint(program, policy=policy), *inputs()).new_bytes
        for policy in ("balanced", "burn")
    }
    assert kept["balanced"] <= kept["burn"]


# The tests: a few examples in the default run, many in the slow one.


def profile(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return hypothesis.settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


@profile(35)
@hypothesis.given(programs, st.lists(policy_texts, min_size=1, max_size=2))
def test_gradients_under_random_policies(program: RandomProgram, policies: list[str]) -> None:
    check_every_policy(program, policies)


@profile(30)
@hypothesis.given(programs)
def test_lowered_program_is_the_function(program: RandomProgram) -> None:
    check_lowered(program)


@profile(20)
@hypothesis.given(programs, policy_texts)
def test_regions_under_jax(program: RandomProgram, policy: str) -> None:
    check_under_jax(program, policy)


@profile(25)
@hypothesis.given(programs, policy_texts)
@hypothesis.example(RandomProgram((Step("unary", (0,), ("sin",)), Step("name", (0,), ("a",)))), "offload:a")
def test_transformed_gradients(program: RandomProgram, policy: str) -> None:
    check_transformed(program, policy)


@profile(40)
@hypothesis.given(programs, policy_texts)
def test_linearize(program: RandomProgram, policy: str) -> None:
    check_linearize(program, policy)


@profile(60)
@hypothesis.given(programs, policy_texts)
def test_reported_residuals(program: RandomProgram, policy: str) -> None:
    check_residuals(program, policy)


@profile(60)
@hypothesis.given(programs)
def test_strategies(program: RandomProgram) -> None:
    check_strategies(program)


@pytest.mark.slow
@profile(200)
@hypothesis.given(programs, st.lists(policy_texts, min_size=1, max_size=3))
def test_many_random_programs(program: RandomProgram, policies: list[str]) -> None:
    check_lowered(program)
    check_every_policy(program, policies)
    check_strategies(program)
    for policy in policies[:1]:
        check_residuals(program, policy)
        check_linearize(program, policy)
        check_under_jax(program, policy)
        check_transformed(program, policy)
