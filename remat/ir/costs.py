"""What an equation costs: operations, and bytes that go through memory.

Every equation counts by itself: an element-wise one reads its operands and writes its result, though a compiler would
fuse it with others (`remat.simulate` has a model of that). Views cost nothing, what reads or changes a part of an
array counts that part, and literals are not read. Loops are multiplied by their length; of branches, the most
expensive one counts; a loop of unknown length counts once, and then the cost is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from remat import jax_compat
from remat.errors import UnknownCostError
from remat.ir.flops import Operation, is_transcendental, nothing, rule_of
from remat.ir.ops import Barrier, Cond, Name, Primitive, Scan, ShardMap, ToMemory, While, Zeros
from remat.ir.primitive_table import BY_NAME
from remat.ir.program import Equation, Program, Value
from remat.ir.traits import is_function, is_memory_bound, is_product
from remat.ir.types import element_count, short_text, size_in_bytes


@dataclass(frozen=True)
class Cost:
    """What running something costs.

    **Attributes**

    - `flops`: operations, transcendental functions left out.
    - `transcendentals`: values of such functions.
    - `bytes_read`, `bytes_written`: through memory.
    - `is_lower_bound`: whether a loop of unknown length counted once, or something ran whose work is not known.
    """

    flops: float = 0.0
    transcendentals: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    is_lower_bound: bool = False

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.is_lower_bound or other.is_lower_bound,
        )

    def times(self, count: float) -> Cost:
        """The cost of doing it that many times."""
        return Cost(
            self.flops * count,
            self.transcendentals * count,
            self.bytes_read * count,
            self.bytes_written * count,
            self.is_lower_bound,
        )

    @property
    def bytes(self) -> float:
        return self.bytes_read + self.bytes_written


FREE = Cost()


def program_cost(program: Program) -> Cost:
    """What running a program once costs, on all devices together.

    **Raises** `UnknownCostError` for a primitive that remat has no rule for.

    >>> import jax.numpy as jnp, remat
    >>> from remat.ir.costs import program_cost
    >>> program = remat.trace(lambda w, x: jnp.tanh(x @ w))(jnp.ones((8, 8)), jnp.ones((8, 8)))
    >>> cost = program_cost(program)
    >>> cost.flops, cost.transcendentals, cost.bytes
    (1024.0, 64.0, 1280.0)
    """
    return _total(map(cost_of, program.equations))


def dot_flops(program: Program) -> float:
    """Operations in dot products and convolutions, loops multiplied by their length. Other primitives count nothing,
    nor do products that sum over nothing and those that remat has no rule for.

    >>> import jax.numpy as jnp, remat
    >>> from remat.ir.costs import dot_flops
    >>> dot_flops(remat.trace(lambda w, x: jnp.tanh(x @ w))(jnp.ones((8, 8)), jnp.ones((8, 8))))
    1024.0
    """
    return sum(_dot_flops(e) for e in program.equations)


def cost_of(equation: Equation) -> Cost:
    """What running an equation once costs, with the programs that it runs.

    **Raises** `UnknownCostError` for a primitive that remat has no rule for.
    """
    op = equation.op
    if isinstance(op, (Name, Zeros, Barrier)):
        return FREE
    if isinstance(op, ToMemory):
        moved = size_in_bytes(equation.outputs[0].type)
        return Cost(bytes_read=moved, bytes_written=moved)
    if isinstance(op, Primitive):
        first = {a: i for i, a in reversed([*enumerate(equation.inputs)])}
        is_read = [isinstance(a, Value) and first[a] == i for i, a in enumerate(equation.inputs)]
        try:
            return _primitive_cost(_operation(equation), is_read)
        except UnknownCostError as error:
            if equation.source.text:
                error.add_note(f"It is written at {equation.source.text}.")
            raise
    return _structure([program_cost(p) for p in op.programs], op)


def _dot_flops(equation: Equation) -> float:
    op = equation.op
    if op.programs:
        return _structure([Cost(flops=dot_flops(p)) for p in op.programs], op).flops
    if not isinstance(op, Primitive):
        return 0.0
    if is_product(op) and not is_memory_bound(op):
        return float((rule_of(op.name) or nothing)(_operation(equation)))
    return math.fsum(_product_flops_of(jaxpr) for jaxpr in jax_compat.jaxprs_in(op.params)) if is_function(op) else 0.0


def _structure(costs: list[Cost], op: Any) -> Cost:
    """The cost of an op from those of its programs."""
    if isinstance(op, Scan):
        return costs[0].times(element_count((op.length,)))
    if isinstance(op, Cond):
        return _most(costs)
    if isinstance(op, While):
        return _once(costs)
    if isinstance(op, ShardMap):
        return costs[0].times(_devices(op.mesh, op.axes))
    return _total(costs)


def _total(costs: Iterable[Cost]) -> Cost:
    costs = list(costs)
    return Cost(
        math.fsum(c.flops for c in costs),
        math.fsum(c.transcendentals for c in costs),
        math.fsum(c.bytes_read for c in costs),
        math.fsum(c.bytes_written for c in costs),
        any(c.is_lower_bound for c in costs),
    )


def _most(costs: list[Cost]) -> Cost:
    """The most expensive branch: by operations, then by bytes."""
    return max(costs, key=lambda c: (c.flops + c.transcendentals, c.bytes))


def _once(costs: list[Cost]) -> Cost:
    return _total([*costs, Cost(is_lower_bound=True)])


# Primitives.


def _operation(equation: Equation) -> Operation:
    op, atoms = equation.op, equation.inputs
    return Operation(op.name, op.params, tuple([a.type for a in atoms]), tuple([v.type for v in equation.outputs]))  # type: ignore[attr-defined]


def _primitive_cost(operation: Operation, is_read: Sequence[bool]) -> Cost:
    """`is_read` says which operands come from memory: not literals, and none twice."""
    rule = rule_of(operation.name)
    if rule is None:
        return _inner_cost(operation)
    count = float(rule(operation))
    read, written = _bytes(operation, is_read)
    if is_transcendental(operation.name):
        return Cost(transcendentals=count, bytes_read=read, bytes_written=written)
    unknown = operation.name in UNKNOWN_WORK
    return Cost(count, bytes_read=read, bytes_written=written, is_lower_bound=unknown)


UNKNOWN_WORK = frozenset({"pure_callback", "io_callback", "buffer_callback", "random_gamma"})
"""Primitives whose operands and results are known, but not what they do in between."""


def _bytes(operation: Operation, is_read: Sequence[bool]) -> tuple[float, float]:
    """What is read and written: operands and results, or those parts that are touched."""
    name, inputs, outputs = operation.name, operation.inputs, operation.outputs
    if name in BY_NAME and BY_NAME[name].kind == "view":
        return 0.0, 0.0
    if name == "gather":
        return float(size_in_bytes(outputs[0]) + size_in_bytes(inputs[1])), float(size_in_bytes(outputs[0]))
    if name == "dynamic_update_slice":
        return float(size_in_bytes(inputs[1])), float(size_in_bytes(inputs[1]))
    if name.startswith("scatter"):
        updates, indices = size_in_bytes(inputs[2]), size_in_bytes(inputs[1])
        return float(indices + updates * (1 if name == "scatter" else 2)), float(updates)
    read = sum(size_in_bytes(t) for t, r in zip(inputs, is_read, strict=True) if r)
    return float(read), float(sum(map(size_in_bytes, outputs)))


# Primitives that hold programs, which remat does not take apart.


def _inner_cost(operation: Operation) -> Cost:
    params, name = operation.params, operation.name
    if name == "scan":
        return _jaxpr_cost(params["jaxpr"]).times(element_count((params["length"],)))
    if name == "cond":
        return _most([_jaxpr_cost(b) for b in params["branches"]])
    if name == "while":
        return _once([_jaxpr_cost(params["cond_jaxpr"]), _jaxpr_cost(params["body_jaxpr"])])
    if name == "custom_linear_solve":
        return _jaxpr_cost(params["jaxprs"].solve)
    if name == "shard_map":
        return _jaxpr_cost(params["jaxpr"]).times(_devices(params["mesh"], params["manual_axes"]))
    jaxprs = [] if name in KERNELS else list(jax_compat.jaxprs_in(params))
    if jaxprs:
        return _total([_jaxpr_cost(j) for j in jaxprs])
    estimate = params.get("cost_estimate")
    if estimate is not None:
        return Cost(float(estimate.flops), float(estimate.transcendentals), float(estimate.bytes_accessed))
    operands = ", ".join(short_text(t) for t in operation.inputs)
    raise UnknownCostError(
        f"remat does not know what the primitive {name!r} costs (operands {operands}). Add a rule: "
        f"remat.ir.flops.flop_rules[{name!r}] = a function from an Operation to its number of operations"
        f"{', or give the kernel a cost_estimate' if name in KERNELS else ''}."
    )


KERNELS = frozenset({"pallas_call"})
"""Primitives whose program is run as often as only they know."""


def _jaxpr_cost(jaxpr: Any) -> Cost:
    return _total([_primitive_cost(*parts) for parts in _operations(jaxpr)])


def _operations(jaxpr: Any) -> Iterator[tuple[Operation, list[bool]]]:
    for equation in jax_compat.unwrap(jaxpr).equations:
        inputs = tuple([a.aval for a in equation.invars])
        outputs = tuple([v.aval for v in equation.outvars])
        is_read = [not isinstance(a, jax_compat.Literal) for a in equation.invars]
        yield Operation(equation.primitive.name, equation.params, inputs, outputs), is_read


def _product_flops_of(jaxpr: Any) -> float:
    """The same as `dot_flops` for a jaxpr without loops."""
    total = 0.0
    for operation, _ in _operations(jaxpr):
        if operation.name in jax_compat.dots_primitive_names:
            total += float((rule_of(operation.name) or nothing)(operation))
        else:
            total += math.fsum(map(_product_flops_of, jax_compat.jaxprs_in(operation.params)))
    return total


def _devices(mesh: Any, axes: Iterable[Any]) -> int:
    return math.prod(dict(mesh.shape)[axis] for axis in axes)
