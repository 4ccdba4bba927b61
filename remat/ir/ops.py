"""What an equation does.

An op is immutable data. `Primitive` wraps a JAX primitive that we know only through JAX's own rules; the others are
structure: they hold programs, and each transformation has one rule for each of them. Anything higher-order without
an op of its own (pallas_call, linear solves, FFI...) stays a `Primitive`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from remat.ir.program import Program, Value


class Op:
    """Base of all ops. `programs` are the nested programs, `effects` the side effects JAX recorded."""

    name: ClassVar[str]

    @property
    def programs(self) -> tuple[Program, ...]:
        return ()

    @cached_property
    def effects(self) -> frozenset[Any]:
        return _effects_of(self.programs)


def _effects_of(programs: Iterable[Program]) -> frozenset[Any]:
    return frozenset[Any]().union(*(e.op.effects for p in programs for e in p.equations))


class Primitive(Op):
    """A JAX primitive. `context` is the equation context (mesh, compute_on...) to enter when it is bound."""

    def __init__(self, primitive: Any, params: dict[str, Any], effects: Any = frozenset(), context: Any = None):
        self.primitive = primitive
        self.params = params
        self.effects = frozenset(effects)  # type: ignore[misc]
        self.context = context

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # that of JAX's primitive
        return self.primitive.name


@dataclass(frozen=True, eq=False)
class Name(Op):
    """The identity, with a name that policies can ask for (`checkpoint_name`)."""

    tag: Any
    name: ClassVar[str] = "name"


@dataclass(frozen=True, eq=False)
class Call(Op):
    """A call of a jitted or otherwise closed function."""

    program: Program
    function: str = ""
    name: ClassVar[str] = "call"

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.program,)


@dataclass(frozen=True, eq=False)
class Block(Op):
    """Equations that share mutable state and are known only together (see `remat.ir.references`)."""

    program: Program
    name: ClassVar[str] = "block"

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.program,)

    @cached_property
    def effects(self) -> frozenset[Any]:
        """What is left when the state, which nobody outside sees, is taken away."""
        return frozenset(e for e in _effects_of(self.programs) if e.__class__.__name__ not in STATE_EFFECTS)


STATE_EFFECTS = frozenset({"ReadEffect", "WriteEffect", "AccumEffect", "InternalMutableArrayEffect"})


@dataclass(frozen=True, eq=False)
class Checkpoint(Op):
    """A region whose values are recomputed in the backward pass unless `policy` saves them.

    `function` is the name of the user's function, where it is known. `derived` says that differentiation made the
    region of another one, so that users are not warned about it again. `differentiated` says that it is what JAX's own
    checkpoint runs in the backward pass: there JAX puts a barrier before what is recomputed.
    """

    program: Program
    policy: Any
    prevent_cse: Any = True
    function: str = ""
    derived: bool = False
    differentiated: bool = False
    name: ClassVar[str] = "checkpoint"

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.program,)


@dataclass(frozen=True, eq=False)
class CustomRule(Op):
    """A call of a function that has derivative rules of its own (`remat.custom_vjp`). The first inputs are what the
    function closes over; they have no derivative."""

    program: Program
    rules: Any
    constant_count: int
    name: ClassVar[str] = "custom_vjp_call"

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.program,)


@dataclass(frozen=True, eq=False)
class Scan(Op):
    """`length` iterations of `body: (constants, carry, slices) -> (carry, slices)`.

    Inputs are the constants, the initial carry and the stacked slices; outputs are the final carry and the stacked
    slices.
    """

    body: Program
    length: Any  # a number, or a symbolic dimension
    reverse: bool
    constant_count: int
    carry_count: int
    unroll: Any = 1
    name: ClassVar[str] = "scan"

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.body,)


@dataclass(frozen=True, eq=False)
class Cond(Op):
    """`branches[index](*operands)`; inputs are the index and the operands.

    The index may be the number of the platform (`lax.platform_dependent`); then `platforms` has the names of each
    branch's platforms (None for those that no other branch names), and only one branch is compiled.
    """

    branches: tuple[Program, ...]
    platforms: tuple[tuple[str, ...] | None, ...] | None = None
    name: ClassVar[str] = "cond"

    @property
    def programs(self) -> tuple[Program, ...]:
        return self.branches


@dataclass(frozen=True, eq=False)
class While(Op):
    """`while condition(c, carry): carry = body(b, carry)`; inputs are both sides' constants and the carry."""

    condition: Program
    body: Program
    condition_constants: int
    body_constants: int
    name: ClassVar[str] = "while"

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.condition, self.body)


@dataclass(frozen=True, eq=False)
class ShardMap(Op):
    """`body` on every device of `mesh`, each with its part of the inputs.

    `in_specs` and `out_specs` say how inputs and outputs are cut over `axes`, the mesh axes that the body sees.
    `check_vma` says whether the body's types tell over which axes values vary. `context` is that of the equation.
    """

    body: Program
    mesh: Any
    in_specs: tuple[Any, ...]
    out_specs: tuple[Any, ...]
    axes: frozenset[Any]
    check_vma: bool
    context: Any = None
    name: ClassVar[str] = "shard_map"

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.body,)


@dataclass(frozen=True, eq=False)
class ToMemory(Op):
    """Move an array to another memory space (`device`, `pinned_host`)."""

    kind: str
    name: ClassVar[str] = "to_memory"


@dataclass(frozen=True, eq=False)
class Zeros(Op):
    """An array of zeros of a type; for random keys, a key made of zero bits."""

    type: Any
    name: ClassVar[str] = "zeros"


@dataclass(frozen=True, eq=False)
class Barrier(Op):
    """The identity on several values that XLA may not look through: none leaves before all have come."""

    name: ClassVar[str] = "optimization_barrier"


def nested_programs(programs: Iterable[Program]) -> Iterator[Program]:
    """Some programs and all that are nested in them, each once, in the order in which they are written."""
    seen: set[int] = set()
    stack = list(programs)[::-1]
    while stack:
        found = stack.pop()
        if id(found) not in seen:
            seen.add(id(found))
            yield found
            stack.extend(p for e in reversed(found.equations) for p in reversed(e.op.programs))


def nested_values(program: Program) -> list[Value]:
    """All values that equations of `program` and of its nested programs define."""
    found: list[Value] = []
    stack = [program]
    while stack:
        for equation in stack.pop().equations:
            found.extend(equation.outputs)
            stack.extend(equation.op.programs)
    return found
