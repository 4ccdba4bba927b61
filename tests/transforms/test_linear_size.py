"""Programs grow linearly with what they are made from."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

import remat
from remat.ir.ops import Op, Scan
from remat.ir.program import Program
from remat.trace import trace
from remat.transforms.two_levels import split_program


def size(program: Program) -> int:
    return sum(1 + sum(size(p) for p in e.op.programs) for e in program.equations)


def sizes(fun: Any, *args: Any) -> int:
    program = trace(fun)(*args)
    split = split_program(program, [True] * len(program.inputs))
    return size(split.forward) + size(split.second)


def sines(x: Any, count: int) -> Any:
    for _ in range(count):
        x = jnp.sin(x)
    return x


def invariant(policy: str | None, count: int) -> int:
    """A loop in which a chain of sines is the same in each iteration."""

    def f(a: Any, x: Any) -> Any:
        return lax.scan(lambda c, _: (c * sines(a, count), None), x, None, length=3)[0]

    return sizes(f if policy is None else remat.checkpoint(f, policy=policy), 1.0, 1.0)


def branches(policy: str | None, count: int) -> int:
    def f(x: Any) -> Any:
        return lax.switch(1, [lambda x: sines(x, count), lambda x: jnp.cos(sines(x, count)), lambda x: x], x)

    return sizes(f if policy is None else remat.checkpoint(f, policy=policy), 1.0)


def carries(policy: str | None, count: int) -> int:
    """Many carried values, each a delay of the one before, and some of them results."""

    def f(x: Any) -> Any:
        step = lambda c, _: ((jnp.sin(c[-1]), *(jnp.sin(v) for v in c[:-1])), c[::2])  # noqa: E731
        c, results = lax.scan(step, (x,) * count, None, length=3)
        return sum(c) + sum(r.sum() for r in results)

    return sizes(f if policy is None else remat.checkpoint(f, policy=policy), 1.0)


@pytest.mark.parametrize("policy", [None, "nothing", "everything", "dots"])
@pytest.mark.parametrize("of", [invariant, branches, carries])
def test_equations_grow_linearly(of: Any, policy: str | None) -> None:
    small, middle, large = (of(policy, n) for n in (10, 20, 40))
    assert large - middle <= 2 * (middle - small) + 4


def test_an_invariant_value_is_computed_once() -> None:
    count = 50

    def f(a: Any, x: Any) -> Any:
        return lax.scan(lambda c, _: (c * sines(a, count), None), x, None, length=3)[0]

    split = split_program(trace(f)(1.0, 1.0), [True, True])
    assert sum(e.op.name == "sin" for e in split.forward.equations) <= count
    (loop,) = (e.op for e in split.forward.equations if isinstance(e.op, Scan))
    assert not any(e.op.name == "sin" for e in loop.body.equations)


def test_effects_of_nested_programs_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    program = trace(lambda x: lax.scan(lambda c, _: (sines(c, 30), None), x, None, length=3)[0])(1.0)
    (op,) = (e.op for e in program.equations)
    assert op.effects is op.effects
    calls: list[Op] = []
    monkeypatch.setattr(type(op), "programs", property(lambda self: calls.append(self) or (self.body,)))
    assert op.effects == frozenset()
    assert calls == []
