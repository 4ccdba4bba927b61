"""Walking the linear equations of one level: backward (transposed) or forward (tangents).

A level is the top of a program or the body of a loop or branch. Walking it produces the equations of the backward (or
tangent) program, and finds out which values they need from the forward pass: the *residuals*. Where a needed value is
not kept, `transforms.retrieve` puts its recomputation just before the equation that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from remat import jax_compat
from remat.decisions import RECOMPUTE, SAVE, Decision, Offload, Recompute
from remat.ir.linearized import LinearEquation, Linearized, Opaque
from remat.ir.ops import Name, Op, Primitive, ToMemory, Zeros
from remat.ir.program import Atom, Equation, Literal, Value
from remat.ir.region import Region, common_region
from remat.ir.rewrite import Builder, used_values
from remat.transforms.derivative import transpose as transpose_rule
from remat.transforms.retrieve import Retrieval

Decisions = dict[Value, Decision]


@dataclass(frozen=True, eq=False)
class StackedFrom:
    """A value of an outer level that holds `inner` of every iteration (`times` of them) of the loop `level` is in."""

    inner: Value
    level: Level
    times: int


Step = Callable[[Builder, list[Atom], list[Any]], list[Any]]


@dataclass(frozen=True, eq=False)
class Resolved:
    """A structured linear equation made ready: `step(builder, coefficients, cotangents or tangents)` emits it."""

    equation: LinearEquation
    step: Step
    coefficients: list[Atom]


resolve_rules: dict[type[Op], Callable[[Level, LinearEquation], Resolved]] = {}
"""From the class of a structured linear op to its rule; filled by `transforms.rules`."""


@dataclass(eq=False)
class Level:
    """One level of a program on its way to being split. `backward` says which way the linear equations are walked."""

    linearized: Linearized
    decisions: Decisions
    backward: bool = True
    in_loop: bool = False
    origins: dict[Value, StackedFrom] = field(default_factory=dict)
    needed_by: dict[Value, list[LinearEquation]] = field(default_factory=dict)
    residuals: dict[Value, Value] = field(default_factory=dict)
    """From a value of the forward program to what is kept for it: the value itself, or its copy in another memory."""

    kept: dict[Value, Decision] = field(default_factory=dict)
    """How each residual is kept."""

    children: list[Level] = field(default_factory=list)
    """The levels of loop bodies and branches."""

    def __post_init__(self) -> None:
        self.producer: dict[Value, Equation] = {v: e for e in self.linearized.equations for v in e.outputs}
        self._named: dict[Atom, Value] = {
            e.inputs[0]: e.outputs[0] for e in self.linearized.equations if isinstance(e.op, Name)
        }
        self._replaced: dict[Equation, Equation] = {}
        self._before: dict[Equation, list[Equation]] = {}
        self._fetched: dict[Value, Value] = {}
        self.builder = Builder()
        self.retrieval = Retrieval(self)  # pyright: ignore[reportArgumentType]  # the schedule of recomputation
        self.cotangents: dict[Value, Value] = {}
        self.resolved: dict[LinearEquation, Resolved] = {}

    @property
    def equations_out(self) -> list[Equation]:
        """The equations of the backward (or tangent) program."""
        return self.builder.equations

    # Structure: how rules of loops and branches change the forward equations of this level.

    def nested(self, body: Linearized) -> Level:
        """The level of a loop body or branch."""
        level = Level(body, self.decisions, self.backward, True, self.origins)
        self.children.append(level)
        return level

    def replace(self, old: Equation, forward: Equation, recompute: Equation) -> None:
        """`forward` stands for `old` in the forward program; `recompute` is what a recomputation runs."""
        self._replaced[old] = forward
        self.producer.update((v, forward) for v in forward.outputs)
        self.producer.update((v, recompute) for v in recompute.outputs)

    def insert_before(self, old: Equation, new: Equation) -> None:
        self._before.setdefault(old, []).append(new)
        self.producer.update((v, new) for v in new.outputs)

    def note_origin(self, outer: Value, origin: StackedFrom) -> None:
        self.origins[outer] = origin

    # Availability.

    def decision(self, value: Value, context: Region | None) -> Decision:
        """What becomes of a value that is needed from `context`.

        Seen from outside a region, the region's results are values of the level around it. A value that is kept for
        somebody else's sake is there for everyone.
        """
        equation = self.producer.get(value)
        if equation is None or equation.op.effects:
            return SAVE  # an input or constant of the level; effects are never repeated
        if isinstance(equation.op, Zeros):
            return RECOMPUTE
        known = self.kept.get(value) or self.decisions.get(value)
        if known is not None:
            return known
        return SAVE if common_region(context, equation.region) is None else RECOMPUTE

    def stand_in(self, value: Value, context: Region | None) -> Value:
        """The value itself, or the same value under a name if only that is kept (code that reads a value from before
        it was named must not undo the naming), or as a custom rule rebuilds it."""
        named, rebuilt = self._named.get(value), self.linearized.stand_ins.get(value)
        if (named is None and rebuilt is None) or self.is_kept(value, context):
            return value
        if named is not None and self.is_kept(named, context):
            return named
        return value if rebuilt is None else self.stand_in(rebuilt, context)

    def is_kept(self, value: Value, context: Region | None) -> bool:
        return not isinstance(self.decision(value, context), Recompute)

    def keep(self, value: Value, context: Region | None) -> Value:
        """Use a kept value in the backward program: it becomes a residual, fetched first if it was offloaded."""
        decision = self.kept.setdefault(value, self.decision(value, context))
        if not isinstance(decision, Offload):
            self.residuals.setdefault(value, value)
            return value
        if value not in self._fetched:
            moved = Value(jax_compat.memory_type(value.type, decision.destination))
            self.residuals[value] = moved
            self._fetched[value] = self.builder.emit(ToMemory(decision.source), [moved], [value.type])[0]
        return self._fetched[value]

    # Walking.

    def prepare(self) -> None:
        """Resolve loops and branches first, so that a recomputation that runs one yields all that is needed of it."""
        for equation in self.linearized.linear:
            rule = resolve_rules.get(type(equation.op))
            if rule is not None:
                self.resolved[equation] = rule(self, equation)

    def transpose(self, cotangents: Sequence[Value | None]) -> list[Value | None]:
        """Walk backward from cotangents of the tangent outputs to cotangents of the tangent inputs (None: zero)."""
        self.prepare()
        for tangent, cotangent in zip(self.linearized.tangent_outputs, cotangents, strict=True):
            if tangent is not None and cotangent is not None:
                self._accumulate(tangent, cotangent)
        for equation in reversed(self.linearized.linear):
            if any(v in self.cotangents for v in equation.outputs):
                self.builder.source = equation.source
                self._transpose_equation(equation)
                self.retrieval.barriers.settle(equation)
        return [None if t is None else self.cotangents.get(t) for t in self.linearized.tangents]

    def _transpose_equation(self, equation: LinearEquation) -> None:
        op, coefficients = equation.op, equation.coefficients
        present = tuple(v in self.cotangents for v in equation.outputs)
        if isinstance(op, Primitive):
            rule = transpose_rule(op, equation.inputs, equation.linear, equation.outputs, present)
            atoms = self._retrieve(equation, coefficients, rule.program.inputs, rule.used)
            given = [self.cotangents.pop(v) for v in equation.outputs if v in self.cotangents]
            found = iter(self.builder.instantiate(rule.program, [*atoms, *given]))
            results = [None if zero else next(found) for zero in rule.zero]
        elif isinstance(op, Opaque):
            program = op.backward()
            used = used_values(program)
            atoms = self._retrieve(equation, coefficients, program.inputs, used)
            given = [self._cotangent_or_zeros(v) for v in equation.outputs]
            results = self.builder.instantiate(program, [*atoms, *given])
        else:
            resolved = self.resolved[equation]
            atoms = self._retrieve(equation, resolved.coefficients, resolved.coefficients, None)
            results = resolved.step(self.builder, atoms, [self.cotangents.pop(v, None) for v in equation.outputs])
        for tangent, result in zip(equation.tangents, results, strict=True):
            if result is not None:
                self._accumulate(tangent, result)  # type: ignore[arg-type]

    def _retrieve(
        self, equation: LinearEquation, atoms: Sequence[Atom], parameters: Sequence[Any], used: Collection[Value] | None
    ) -> list[Atom]:
        """Atoms of the backward program for coefficients; those whose parameter is not used are left as they are."""
        needed = [a for a, p in zip(atoms, parameters, strict=False) if used is None or p in used]
        found = self.retrieval.retrieve(needed, equation)
        return [a if isinstance(a, Literal) else found.get(a, a) for a in atoms]

    def _cotangent_or_zeros(self, value: Value) -> Value:
        found = self.cotangents.pop(value, None)
        return found if found is not None else self.builder.zeros(value.type)

    def _accumulate(self, tangent: Value, cotangent: Value) -> None:
        known = self.cotangents.get(tangent)
        self.cotangents[tangent] = cotangent if known is None else self.builder.add(known, cotangent)
        self.retrieval.barriers.changed(tangent)

    def apply(self, tangents: Sequence[Value | None]) -> list[Atom | None]:
        """Walk forward from tangents of the inputs to tangents of the outputs (None: zero)."""
        self.prepare()
        values: dict[Value, Atom] = {
            t: given
            for t, given in zip(self.linearized.tangents, tangents, strict=True)
            if t is not None and given is not None
        }
        for equation in self.linearized.live_linear():
            self.builder.source = equation.source
            self._apply_equation(equation, values)
        return [None if t is None else values[t] for t in self.linearized.tangent_outputs]

    def _apply_equation(self, equation: LinearEquation, values: dict[Value, Atom]) -> None:
        op, coefficients = equation.op, equation.coefficients
        if isinstance(op, Opaque):
            program = op.forward()
            atoms = iter(self._retrieve(equation, coefficients, program.inputs, used_values(program)))
        else:
            atoms = iter(self._retrieve(equation, coefficients, coefficients, None))
        inputs = [
            values[a] if is_linear else next(atoms)  # type: ignore[index]
            for a, is_linear in zip(equation.inputs, equation.linear, strict=True)
        ]
        if isinstance(op, Opaque):
            results = self.builder.instantiate(op.forward(), inputs)
        elif equation in self.resolved:
            resolved = self.resolved[equation]
            found = self._retrieve(equation, resolved.coefficients, resolved.coefficients, None)
            results = resolved.step(self.builder, found, inputs)
        else:
            results = self.builder.emit(op, inputs, [v.type for v in equation.outputs])
        values.update(zip(equation.outputs, results, strict=True))

    def forward_order(self) -> Iterator[Equation]:
        """The primal and coefficient equations as the forward program has them, loops and branches replaced."""
        for equation in self.linearized.equations:
            yield from self._before.get(equation, ())
            yield self._replaced.get(equation, equation)
