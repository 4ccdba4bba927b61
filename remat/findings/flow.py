"""Where values lead: what the backward pass reads, and what follows from what by views and casts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from remat.findings.case import Case, Walk
from remat.ir.program import Equation, Value
from remat.ir.traits import is_view_or_cast
from remat.ir.types import size_in_bytes
from remat.transforms.walk import Level

REACH = 500
"""How many equations are looked at in search of a better value to name, so that all takes linear time."""


def values_in(atoms: Iterable[object]) -> list[Value]:
    """The values among some atoms."""
    return [a for a in atoms if isinstance(a, Value)]


def source_of(level: Level, value: Value) -> Value:
    """The first of the values that this one is a view or cast of."""
    return sources_of(level, value)[-1]


def sources_of(level: Level, value: Value) -> list[Value]:
    """A value, what it is a view or cast of, what that is a view or cast of, and so on."""
    chain = [value]
    while True:
        equation = level.producer.get(chain[-1])
        if equation is None or not is_view_or_cast(equation.op):
            return chain
        found = values_in(equation.inputs)
        if len(found) != 1:
            return chain
        chain.append(found[0])


class Flow:
    """One level's equations as a graph, and which of its values the backward pass reads: `read`, and of these and what
    they are made of in derivative rules, those that the user's own equations make, `wanted`."""

    def __init__(self, walk: Walk):
        self.walk = walk
        linearized = walk.level.linearized
        self.producer = walk.level.producer
        self.readers: dict[Value, list[Equation]] = {}
        for equation in linearized.equations:
            for value in dict.fromkeys(values_in(equation.inputs)):
                self.readers.setdefault(value, []).append(equation)
        self.read = {a for e in linearized.live_linear() for a in _read_by(e)}
        rules = [e for d in linearized.derivations for e in d.coefficients]
        of_rules = {v for e in rules for v in e.outputs}
        self.wanted = (self.read | {v for e in rules for v in values_in(e.inputs)}) - of_rules
        self.returned = set(values_in(linearized.outputs))

    def is_dead(self, value: Value) -> bool:
        return value not in self.readers and value not in self.returned and value not in self.read

    def after(self, value: Value) -> Value | None:
        """The nearest value that follows from this one and that the backward pass wants."""
        return self._nearest(value, lambda v: [o for e in self.readers.get(v, ()) for o in e.outputs])

    def before(self, value: Value) -> Value | None:
        """The nearest value that this one follows from and that the backward pass wants."""

        def inputs(v: Value) -> list[Value]:
            equation = self.producer.get(v)
            return [] if equation is None else values_in(equation.inputs)

        return self._nearest(value, inputs)

    def _nearest(self, start: Value, neighbours: Callable[[Value], list[Value]]) -> Value | None:
        seen, queue = {start}, deque([start])
        while queue and len(seen) < REACH:
            for value in neighbours(queue.popleft()):
                if value in seen:
                    continue
                if value in self.wanted and value in self.producer and size_in_bytes(value.type) > 0:
                    return value
                seen.add(value)
                queue.append(value)
        return None


def _read_by(equation: Equation) -> list[Value]:
    reads = getattr(equation, "reads", None)
    return values_in(equation.coefficients) if reads is None else reads  # type: ignore[attr-defined]


def flow_of(case: Case, value: Value, known: dict[int, Flow]) -> Flow:
    """The graph of the level that a value is in."""
    walk = case.walk_of[value]
    if id(walk) not in known:
        known[id(walk)] = Flow(walk)
    return known[id(walk)]
