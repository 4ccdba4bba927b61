"""Rebuilding what a loop carries from what the previous iteration kept.

The value carried into iteration i was computed by iteration i-1. Where that takes only memory-bound equations from
values that are kept of that iteration anyway (for a silu MLP: from the matrix product), it need not be kept too. The
backward loop reads the kept values at i and at i-1 by index, and the initial value in the first iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray

from remat.ir.program import Atom, Equation, Literal, Program, Value
from remat.ir.rewrite import Builder
from remat.ir.traits import is_memory_bound
from remat.transforms.derivative import make_program

MAX_CHAIN = 64
"""Longer chains are not rebuilt: each equation of one is a pass over memory."""

INDEX = ShapedArray((), jnp.dtype("int32"))
BOOLEAN = ShapedArray((), jnp.dtype("bool"))


@dataclass(frozen=True, eq=False)
class Chain:
    """How a carried value follows from values of the iteration before: equations and the values they start from."""

    carried: Value
    result: Atom
    equations: list[Equation]
    reads: list[Value]


def chain_of(
    producer: Mapping[Value, Equation],
    carried: Value,
    returned: Atom,
    given: Collection[Value],
    own: Collection[Value] = (),
) -> Chain | None:
    """The chain from `given` (or `own`) values of an iteration to what it carries on; None if there is no cheap one."""
    equations: list[Equation] = []
    reads: dict[Value, None] = {}
    seen: set[Equation] = set()
    stack: list[Atom | Equation] = [returned]
    while stack:
        item = stack.pop()
        if isinstance(item, Equation):
            equations.append(item)
        elif isinstance(item, Literal):
            continue
        elif item in given or item in own:
            reads[item] = None
        elif item not in producer:
            return None  # carried, and not kept of the iteration before
        elif producer[item] not in seen:
            equation = producer[item]
            seen.add(equation)
            if len(seen) > MAX_CHAIN or not is_memory_bound(equation.op) or equation.op.effects:
                return None
            stack.append(equation)
            stack.extend(reversed(equation.inputs))
    return Chain(carried, returned, equations, list(reads))


@dataclass(frozen=True, eq=False)
class IndexedReads:
    """The prologue of a backward body that reads some stacked values by index.

    `stacks` are body inputs that hold the whole stack of the inner values `indexed`; `initial` holds the initial value
    of each chain; `index` is the number of the iteration.
    """

    chains: Sequence[Chain]
    indexed: list[Value]
    stacks: list[Value]
    initial: list[Value]
    index: Value

    def emit(self, builder: Builder, first: int, before: int) -> None:
        """Define the indexed values of this iteration and the carried values that came into it.

        `first` is the number of the iteration that ran first, `before` the step from an iteration to the one before.
        """
        is_first, previous = builder.instantiate(_neighbour(first, before), [self.index])
        env: dict[Value, Atom] = {}
        read_before = {v for chain in self.chains for v in chain.reads}
        for value, stack in zip(self.indexed, self.stacks, strict=True):
            pick = _pick(stack.type)
            builder.define(pick, [stack, self.index], [value])
            if value in read_before:
                (env[value],) = builder.instantiate(pick, [stack, previous])
        for chain, initial in zip(self.chains, self.initial, strict=True):
            rebuilt = _stamp(builder, chain, env)
            builder.define(_choose(chain.carried.type), [is_first, rebuilt, initial], [chain.carried])


def _stamp(builder: Builder, chain: Chain, env: dict[Value, Atom]) -> Atom:
    """Append a chain, reading values of the iteration before where `env` has them and constants as they are."""
    local = dict(env)
    for equation in chain.equations:
        inputs = [local.get(a, a) if isinstance(a, Value) else a for a in equation.inputs]
        builder.source = equation.source
        local.update(zip(equation.outputs, builder.emit(equation.op, inputs, [v.type for v in equation.outputs])))
    result = chain.result
    return result if isinstance(result, Literal) else local.get(result, result)


def _neighbour(first: int, before: int) -> Program:
    """index -> (whether it is the first iteration, the index of the iteration before or itself)."""

    def neighbour(i: Any) -> list[Any]:
        return [i == first, jnp.where(i == first, i, i + before)]

    return make_program(neighbour, [INDEX])


def _choose(type: Any) -> Program:
    """(flag, value, other value) -> the other value where the flag is set."""

    def choose(flag: Any, x: Any, y: Any) -> list[Any]:
        return [lax.select_n(flag, x, y)]

    return make_program(choose, [BOOLEAN, type, type])


def _pick(stack: Any) -> Program:
    """(stack, index) -> element."""

    def pick(s: Any, i: Any) -> list[Any]:
        return [lax.dynamic_index_in_dim(s, i, keepdims=False)]

    return make_program(pick, [stack, INDEX])


def indices(length: int) -> Program:
    """The numbers of all iterations, as slices of the backward loop."""
    return make_program(lambda: [lax.iota(jnp.int32, length)], [])
