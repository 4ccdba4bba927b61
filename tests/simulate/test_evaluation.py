"""The simulation without fusion, against evaluation: what is really alive when equations run one by one."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import remat
from remat.ir.ops import Cond, Scan, While
from remat.ir.program import Literal
from remat.ir.rewrite import inline_all
from remat.ir.types import is_differentiable
from remat.lower import lower_rules
from remat.simulate.live_bytes import joined, simulate, simulate_split
from remat.transforms.two_levels import split_program

SHAPES = [(4,), (3, 4), (4, 4), (2, 3, 4)]


class Alive:
    """Evaluates a program on arrays; `bytes` has how many are alive at each step, those that are given left out."""

    def __init__(self, program, inputs, counted=()):
        self.bytes = []
        self.env = dict(zip(program.inputs, inputs, strict=True)) | dict(program.constants)
        self.counted = set(counted)
        for i, equation in enumerate(program.equations):
            inside, results = self.run(equation)
            self.env.update(zip(equation.outputs, results, strict=True))
            self.counted.update(equation.outputs)
            self.bytes.append(inside if isinstance(equation.op, Cond) else self.total() + inside)
            later = {a for e in program.equations[i + 1 :] for a in e.inputs} | set(program.outputs)
            for value in [v for v in self.env if v not in later]:
                del self.env[value]
        self.outputs = [self.read(a) for a in program.outputs]

    def total(self):
        return sum(x.nbytes for v, x in self.env.items() if v in self.counted)

    def read(self, atom):
        return np.asarray(atom.value, atom.type.dtype) if isinstance(atom, Literal) else self.env[atom]

    def run(self, equation):
        """What the programs of an equation need at most (of branches: beside what is alive), and its results."""
        inputs, op = [self.read(a) for a in equation.inputs], equation.op
        if isinstance(op, Scan):
            return self.scan(op, inputs)
        if isinstance(op, Cond):
            branches = [Alive(b, inputs[1:]) for b in op.branches]
            results = branches[int(inputs[0])].outputs
            return self.total() + max(max(b.bytes, default=0) for b in branches), results
        if isinstance(op, While):
            return self.loop(op, inputs)
        return 0, [np.asarray(x) for x in lower_rules[type(op)](op, equation, inputs)]

    def scan(self, op, inputs):
        k, n, most = op.constant_count, op.constant_count + op.carry_count, 0
        carry, stacks = inputs[k:n], []
        for i in reversed(range(op.length)) if op.reverse else range(op.length):
            given = [*inputs[:k], *carry, *(x[i] for x in inputs[n:])]
            body = Alive(op.body, given, counted=op.body.inputs[n:])
            most = max([most, *body.bytes])
            carry = body.outputs[: op.carry_count]
            stacks.append(body.outputs[op.carry_count :])
        order = reversed(stacks) if op.reverse else stacks
        return most, [*carry, *(np.stack(column) for column in zip(*order, strict=True))]

    def loop(self, op, inputs):
        m = op.condition_constants
        n = m + op.body_constants
        carry, most = inputs[n:], 0
        while True:
            condition = Alive(op.condition, [*inputs[:m], *carry])
            most = max([most, *condition.bytes])
            if not condition.outputs[0]:
                return most, carry
            body = Alive(op.body, [*inputs[m:n], *carry])
            most = max([most, *body.bytes])
            carry = body.outputs


def random_function(seed):
    """A function of four arrays that runs a few random operations, with loops, branches and calls among them."""
    choose = random.Random(seed)

    def operation(pool, depth):
        x = choose.choice(pool)
        kind = choose.choice(["unary", "binary", "matmul", "sum", "reshape", "broadcast", "cast", "sort", *STRUCTURES])
        if kind == "binary":
            return x * choose.choice([y for y in pool if y.shape == x.shape])
        if kind == "matmul":
            return x @ choose.choice([y for y in pool if y.shape == (4, 4)])
        if kind == "sum" and x.ndim > 1:
            return x.sum(choose.randrange(x.ndim - 1))
        if kind == "reshape":
            return jnp.sin(x.reshape(-1)).reshape(x.shape)
        if kind == "broadcast" and x.shape == (4,):
            return jnp.broadcast_to(x, (3, 4))
        if kind == "cast":
            return x.astype(jnp.bfloat16).astype(jnp.float32)
        if kind == "sort":
            return jnp.sort(x)
        if kind in STRUCTURES and depth:
            return structure(kind, x, pool, depth - 1)
        return choose.choice([jnp.tanh, jnp.exp, jnp.cos])(x)

    def structure(kind, x, pool, depth):
        if kind == "jit":
            return jax.jit(lambda *ys: body(list(ys), depth, x.shape))(x, *pool)
        if kind == "cond":
            there, here = body_of(depth, x.shape, pool), body_of(depth, x.shape, pool)
            return jax.lax.cond(x.sum() > 0, there, here, x)
        if kind == "while":
            step = body_of(depth, x.shape, pool)
            return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, step(s[1])), (0, x))[1]
        step = body_of(depth, x.shape, pool)
        stacked = jnp.stack([x, x * 2])
        carry, ys = jax.lax.scan(lambda c, y: (step(c) + y, jnp.sin(c) * y), x, stacked, reverse=kind == "reversed")
        return carry + ys[0]

    def body_of(depth, shape, pool):
        return lambda y: body([y, *pool], depth, shape)

    def body(pool, depth, shape):
        pool = list(pool)
        for _ in range(choose.randrange(2, 7)):
            pool.append(operation(pool, depth))
        return next(y for y in reversed(pool) if y.shape == shape) * 1.5

    def function(*arrays):
        pool = list(arrays)
        for _ in range(12):
            pool.append(operation(pool, 2))
        return pool[-1], sum(y.sum() for y in pool[4:])

    return function


STRUCTURES = ["jit", "cond", "while", "scan", "reversed"]


def arrays():
    return [np.linspace(-1.0, 1.0, int(np.prod(s)), dtype=np.float32).reshape(s) for s in SHAPES]


@pytest.mark.parametrize("seed", range(25))
def test_not_fused_is_evaluation(seed):
    program = inline_all(remat.trace(random_function(seed))(*arrays()))
    assert simulate(program, fused=False).bytes == tuple(Alive(program, arrays()).bytes)


@pytest.mark.parametrize("seed", range(25))
def test_fused_needs_no_more(seed):
    program = remat.trace(random_function(seed))(*arrays())
    assert simulate(program).peak <= simulate(program, fused=False).peak


@pytest.mark.parametrize("policy", ["nothing", "everything", "dots"])
def test_forward_and_backward_as_one(policy):
    def loss(w, x):
        def layers(w, x):
            for _ in range(3):
                x = jnp.tanh(x @ w)
            return jax.lax.scan(lambda c, _: (jnp.sin(c @ w), c), x, None, length=2)[1].sum()

        return remat.checkpoint(layers, policy=policy)(w, x)

    w = x = np.ones((4, 4), np.float32)
    program = remat.trace(loss)(w, x)
    split = split_program(program, [is_differentiable(t) for t in program.input_types])
    whole = inline_all(joined(split))
    expected = Alive(whole, [w, x, np.float32(1.0)])
    assert simulate_split(split, fused=False).bytes == tuple(expected.bytes)
    np.testing.assert_allclose(expected.outputs[1], jax.grad(loss)(w, x), rtol=1e-5)
