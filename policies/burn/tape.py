"""A level of a linearized program as Burn's tape: nodes for float arrays, steps for operations.

Burn's words: a *leaf* is an input; it requires a gradient or is a constant. An operation's result requires one if an
operand does. A *scalar* operand is part of the operation, not a node; in a program those are literals, values of no
dimensions without gradient, and arrays that repeat one such value. Integers and booleans are no nodes either: an
operation holds them itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from remat.ir.linearized import Linearized
from remat.ir.ops import Name, Op, Primitive
from remat.ir.primitive_table import BY_NAME, Bound, Retrieves
from remat.ir.program import Atom, Equation, Literal, Value
from remat.ir.traits import inner_names, is_function, row_of
from remat.ir.types import is_differentiable


class Requirement(StrEnum):
    """Burn's `Requirement`: `Grad`, `GradInBackward`, `None`."""

    LEAF = "leaf"
    TRACKED = "tracked"
    CONSTANT = "constant"


@dataclass(eq=False)
class Node:
    """A float array; nodes count from 0 in order of creation.

    `step` is the operation on the tape that made it. Without one it is a leaf: an input of the program, or what
    `made_by` made off the tape: a detached value (of `source`), random numbers.
    """

    id: int
    value: Value
    requirement: Requirement
    step: Step | None = None
    depth: int = 0
    made_by: Equation | None = None
    source: Node | None = None

    @property
    def is_given(self) -> bool:
        """Whether the caller holds the array anyway: an input, or an input detached."""
        return self.source.is_given if self.source is not None else self.made_by is None

    @property
    def operands(self) -> list[Node]:
        """What it is computed from."""
        if self.step is not None:
            return self.step.operands
        return [] if self.source is None else [self.source]

    @property
    def is_tracked(self) -> bool:
        return self.requirement is not Requirement.CONSTANT

    def __repr__(self) -> str:
        return f"NodeId {{ value: {self.id} }}"


@dataclass(eq=False)
class Step:
    """An operation: its array operands in order, its results, how Burn marks it, and what its backward asks for.
    `equation` is the last of those that compute the results."""

    op: Op
    equation: Equation
    operands: list[Node]
    outputs: list[Node] = field(default_factory=list[Node])
    bound: Bound = Bound.COMPUTE
    explicit: list[Node] = field(default_factory=list[Node])

    @property
    def is_tracked(self) -> bool:
        return any(n.is_tracked for n in self.operands)

    @property
    def parents(self) -> list[Node]:
        """The operands that gradients flow to."""
        return [n for n in self.operands if n.is_tracked]

    @property
    def depth(self) -> int:
        return 1 + max((n.depth for n in self.operands), default=0)


@dataclass(eq=False)
class Tape:
    """`nodes` by value, `steps` in order of the program, `roots`: the results that are differentiated; `scalars`: the
    values that are no nodes because they are, or repeat, a constant of no dimensions."""

    nodes: dict[Value, Node]
    steps: list[Step]
    roots: list[Node]
    scalars: set[Value]

    def visited(self) -> Iterator[Step]:
        """The steps that a backward pass from the roots comes to, in the order in which Burn's traversal does: the
        parents of a step are put on a stack in order, so that the last is visited first."""
        seen: set[Step] = set()
        stack = list(self.roots)
        while stack:
            step = stack.pop().step
            if step is not None and step not in seen and step.is_tracked:
                seen.add(step)
                yield step
                stack.extend(step.parents)

    def execution(self) -> list[Step]:
        """The same steps in the order in which they run: deepest first, within a depth as visited."""
        return sorted(self.visited(), key=lambda step: -step.depth)


def build_tape(level: Linearized) -> Tape:
    """The tape of one level: the top of a program, or the body of a loop or branch."""
    building = _Building(level)
    for operation in operations(level):
        building.add(*operation)
    nodes = building.nodes
    roots = [
        nodes[a]
        for a, t in zip(level.outputs, level.tangent_outputs, strict=True)
        if t is not None and isinstance(a, Value) and a in nodes and nodes[a].is_tracked
    ]
    return Tape(nodes, building.steps, list(dict.fromkeys(roots)), building.scalars)


def operations(level: Linearized) -> Iterator[tuple[Op, Sequence[Atom], Sequence[Atom], Equation]]:
    """What the function itself does at this level: op, inputs, outputs, and the equation that makes the outputs. What
    derivative rules add is left out, and operations that they take apart are put together again."""
    hidden = {e for d in level.derivations for e in d.coefficients}
    taken_apart = {d.primal[-1]: d for d in level.derivations if d.primal and not is_function(d.op)}
    hidden.update(e for d in taken_apart.values() for e in d.primal[:-1])
    for equation in level.equations:
        if equation in taken_apart:
            derivation = taken_apart[equation]
            yield derivation.op, derivation.inputs, derivation.outputs, equation
        elif equation not in hidden:
            yield equation.op, equation.inputs, equation.outputs, equation


class _Building:
    def __init__(self, level: Linearized):
        self.nodes: dict[Value, Node] = {}
        self.steps: list[Step] = []
        self.scalars: set[Value] = set()
        self.zeros: dict[Value, Atom] = {}
        self.count = 0
        for value, tangent in zip(level.inputs, level.tangents, strict=True):
            self._leaf(value, Requirement.CONSTANT if tangent is None else Requirement.LEAF)
            if tangent is None and _has_no_dimensions(value):
                self.scalars.add(value)
        for value, _ in level.constants:
            self._leaf(value, Requirement.CONSTANT)
            if _has_no_dimensions(value):
                self.scalars.add(value)

    def _leaf(self, value: Value, requirement: Requirement) -> Node | None:
        if not is_differentiable(value.type):
            return None
        node = self.nodes[value] = Node(self.count, value, requirement)
        self.count += 1
        return node

    def _is_scalar(self, atom: Atom) -> bool:
        return atom in self.scalars if isinstance(atom, Value) else _has_no_dimensions(atom)

    def add(self, op: Op, inputs: Sequence[Atom], outputs: Sequence[Atom], equation: Equation) -> None:
        """Register an operation: a step with its nodes, new leaves, or nothing."""
        if isinstance(op, Name):
            self._same_as_operand(equation)
            return
        positions = [self._operand(a) for a in inputs]
        step = Step(op, equation, [n for n in positions if n is not None])
        values = [v for v in outputs if isinstance(v, Value) and v not in self.nodes]
        if self._stays_scalar(step, inputs, values):
            self.scalars.update(values)
            if op.name == "convert_element_type" and _is_zero(inputs[0]):
                self.zeros.update((v, inputs[0]) for v in values)
            return
        if row_of(op).bound is Bound.UNTRACKED:
            for value in values:
                node = self._leaf(value, self._requirement_of_detached(step))
                if node is not None:
                    node.made_by = equation
                    node.source = step.operands[0] if op.name == "stop_gradient" and step.operands else None
            return
        step.bound, retrieves = burn_mark(op, [self.zeros.get(a, a) if isinstance(a, Value) else a for a in inputs])
        if retrieves is Retrieves.TWICE:
            step.operands *= 2  # Burn multiplies it by itself
        if step.is_tracked:
            step.explicit = retrieved(retrieves, positions)
        requirement = Requirement.TRACKED if step.is_tracked else Requirement.CONSTANT
        for value in values:
            if is_differentiable(value.type):
                node = self.nodes[value] = Node(self.count, value, requirement, step, step.depth, equation)
                self.count += 1
                step.outputs.append(node)
        if step.outputs:
            self.steps.append(step)

    def _same_as_operand(self, naming: Equation) -> None:
        """A value under a name is the same node."""
        (atom,), (value,) = naming.inputs, naming.outputs
        if isinstance(atom, Value) and atom in self.nodes:
            self.nodes[value] = self.nodes[atom]
        if self._is_scalar(atom):
            self.scalars.add(value)

    def _operand(self, atom: Atom) -> Node | None:
        """The node of an operand; None for scalars, integers and booleans."""
        if self._is_scalar(atom) or not is_differentiable(atom.type):
            return None
        if isinstance(atom, Literal):  # an array that a derivative rule closed over
            return self._leaf(Value(atom.type), Requirement.CONSTANT)
        return self.nodes.get(atom)

    def _stays_scalar(self, step: Step, inputs: Sequence[Atom], outputs: Sequence[Value]) -> bool:
        """Whether the result is a constant of no dimensions, or repeats one."""
        if step.is_tracked or step.op.effects:
            return False
        if row_of(step.op).kind in ("view", "cast") and inputs and all(self._is_scalar(a) for a in inputs):
            return True
        return all(map(_has_no_dimensions, outputs))

    @staticmethod
    def _requirement_of_detached(step: Step) -> Requirement:
        """Detaching an input that requires a gradient makes an input that does; anything else becomes a constant."""
        if step.op.name == "stop_gradient" and step.operands and step.operands[0].requirement is Requirement.LEAF:
            return Requirement.LEAF
        return Requirement.CONSTANT


BURN_MEMORY_BOUND = frozenset(n for n, row in BY_NAME.items() if row.burn_bound is Bound.MEMORY)


def burn_mark(op: Op, inputs: Sequence[Atom]) -> tuple[Bound, Retrieves]:
    """How Burn treats an operation: by the table, except where it has an operation of its own for a special case."""
    row = row_of(op)
    if op.name == "max" and any(_is_zero(a) for a in inputs):
        return Bound.MEMORY, Retrieves.OPERANDS  # relu
    if isinstance(op, Primitive) and op.name == "integer_pow":
        power = op.params["y"]
        special = {0: Retrieves.NOTHING, 1: Retrieves.NOTHING, 2: Retrieves.TWICE}
        return Bound.MEMORY, special.get(power, Retrieves.OPERANDS)
    if is_function(op):  # Burn has relu; anything else it would take apart
        inner = inner_names(op)
        memory_bound = inner == frozenset({"max"}) or all(n in BURN_MEMORY_BOUND for n in inner)
        return (Bound.MEMORY if memory_bound else Bound.COMPUTE), Retrieves.OPERANDS
    return row.burn_bound, row.retrieves


def _is_zero(atom: Atom) -> bool:
    return isinstance(atom, Literal) and _has_no_dimensions(atom) and bool(atom.value == 0)


def _has_no_dimensions(atom: Atom) -> bool:
    return getattr(atom.type, "shape", None) == ()  # tokens have no shape


def retrieved(retrieves: Retrieves, operands: Sequence[Node | None]) -> list[Node]:
    """The nodes that the backward step of a tracked operation asks for, in order."""
    nodes = [n for n in operands if n is not None]
    if retrieves is Retrieves.OPERANDS:
        return nodes
    if retrieves is Retrieves.TWICE:
        return nodes[:1] * 2
    if retrieves not in (Retrieves.PARTNERS, Retrieves.DIVISOR) or len(nodes) < 2:
        return nodes if retrieves is Retrieves.DIVISOR and operands[-1] is not None else []
    first, second, *_ = nodes
    found = [first] if second.is_tracked else []
    if retrieves is Retrieves.DIVISOR or first.is_tracked:
        found.append(second)
    return found
