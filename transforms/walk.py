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
from remat.ir.ops import Name, Op, ToMemory, Zeros
from remat.ir.program import Atom, Equation, Literal, Value
from remat.ir.region import Region, common_region
from remat.ir.rewrite import Builder, used_values
from remat.transforms.liveness import Liveness
from remat.transforms.retrieve import Retrieval
from remat.transforms.steps import BackwardStep

Decisions = dict[Value, Decision]


@dataclass(frozen=True, eq=False)
class StackedFrom:
    """A value of an outer level that holds `inner` of every iteration (`times` of them) of the loop `level` is in."""

    inner: Value
    level: Level
    times: int


Step = Callable[[Builder, list[Atom], list[Any]], Sequence[Value | None]]


@dataclass(frozen=True, eq=False)
class Resolved:
    """A structured linear equation made ready: `step(builder, coefficients, cotangents or tangents)` emits it. What it
    is given and what it returns have None where there is nothing."""

    equation: LinearEquation
    step: Step
    coefficients: list[Atom]


resolve_rules: dict[type[Op], Callable[[Level, LinearEquation, tuple[bool, ...]], Resolved]] = {}
"""From the class of a structured linear op to its rule, which is also told which of its outputs are live; filled by
`transforms.rules`."""


@dataclass(eq=False)
class Level:
    """One level of a program on its way to being split. `backward` says which way the linear equations are walked."""

    linearized: Linearized
    decisions: Decisions
    backward: bool = True
    in_loop: bool = False
    unrolled: bool = False
    """Whether it is the body of a loop of which several iterations are compiled as straight-line code."""

    origins: dict[Value, StackedFrom] = field(default_factory=dict[Value, StackedFrom])
    needed_by: dict[Value, list[LinearEquation]] = field(default_factory=dict[Value, list[LinearEquation]])
    residuals: dict[Value, Value] = field(default_factory=dict[Value, Value])
    """From a value of the forward program to what is kept for it: the value itself, or its copy in another memory."""

    kept: dict[Value, Decision] = field(default_factory=dict[Value, Decision])
    """How each residual is kept."""

    moved_inputs: Decisions = field(default_factory=Decisions)
    """What a loop carries and a policy moves away: how each is kept."""

    children: list[Level] = field(default_factory=list["Level"])
    """The levels of loop bodies and branches."""

    steps: list[BackwardStep] = field(default_factory=list[BackwardStep])
    """What the backward pass does, in order."""

    liveness: Liveness | None = None
    """What is known of live tangents, at every level of the walk."""

    def __post_init__(self) -> None:
        self.live_of: Liveness = self.liveness or Liveness(self.backward)
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

    def nested(self, body: Linearized, in_loop: bool = True, unrolled: bool = False) -> Level:
        """The level of a loop body or branch."""
        level = Level(body, self.decisions, self.backward, in_loop, unrolled, self.origins, liveness=self.live_of)
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
            return self.moved_inputs.get(value, SAVE)  # an input or constant; and effects are never repeated
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

    def prepare(self, outputs: Sequence[bool]) -> set[Value]:
        """Find the live tangents, if those of the flagged outputs are; and resolve loops and branches first, so that a
        recomputation that runs one yields all that is needed of it."""
        live = self.live_of.of_outputs(self.linearized, outputs)
        for equation in self.linearized.linear:
            rule = resolve_rules.get(type(equation.op))
            present = tuple([v in live for v in equation.outputs])
            if rule is not None and any(present):
                self.resolved[equation] = rule(self, equation, present)
        return live

    def transpose(self, cotangents: Sequence[Value | None]) -> list[Value | None]:
        """Walk backward from cotangents of the tangent outputs to cotangents of the tangent inputs (None: zero)."""
        self.prepare([c is not None for c in cotangents])
        for tangent, cotangent in zip(self.linearized.tangent_outputs, cotangents, strict=True):
            if tangent is not None and cotangent is not None:
                self._accumulate(tangent, cotangent)
        for equation in reversed(self.linearized.linear):
            if any(v in self.cotangents for v in equation.outputs):
                self.builder.source, self.builder.region = equation.source, equation.region
                self._transpose_equation(equation)
                self.retrieval.barriers.settle(equation)
        return [None if t is None else self.cotangents.get(t) for t in self.linearized.tangents]

    def _transpose_equation(self, equation: LinearEquation) -> None:
        results: Sequence[Any]
        if equation in self.resolved:
            resolved = self.resolved[equation]
            atoms = self._retrieve(equation, resolved.coefficients, resolved.coefficients, None)
            results = resolved.step(self.builder, atoms, [self.cotangents.pop(v, None) for v in equation.outputs])
        else:
            rule = self.live_of.transposed(equation, tuple([v in self.cotangents for v in equation.outputs]))
            atoms = self._retrieve(equation, equation.coefficients, rule.program.inputs, rule.used)
            given = [self.cotangents.pop(v) for v in equation.outputs if v in self.cotangents]
            found = iter(self.builder.instantiate(rule.program, [*atoms, *given]))
            results = [None if zero else next(found) for zero in rule.zero]
        for tangent, result in zip(equation.tangents, results, strict=True):
            if result is not None:
                self._accumulate(tangent, result, getattr(equation.op, "context", None))

    def _retrieve(
        self, equation: LinearEquation, atoms: Sequence[Atom], parameters: Sequence[Any], used: Collection[Value] | None
    ) -> list[Atom]:
        """Atoms of the backward program for coefficients; those whose parameter is not used are left as they are."""
        needed = [a for a, p in zip(atoms, parameters, strict=False) if used is None or p in used]
        found = self.retrieval.retrieve(needed, equation)
        return [a if isinstance(a, Literal) else found.get(a, a) for a in atoms]

    def _accumulate(self, tangent: Value, cotangent: Value, context: Any = None) -> None:
        known = self.cotangents.get(tangent)
        self.cotangents[tangent] = cotangent if known is None else self.builder.add(known, cotangent, context)
        self.retrieval.barriers.changed(tangent)

    def apply(self, tangents: Sequence[Value | None], outputs: Sequence[bool] | None = None) -> list[Atom | None]:
        """Walk forward from tangents of the inputs to tangents of the flagged outputs (None: zero or not flagged)."""
        results = self.linearized.tangent_outputs
        asked = [t is not None and (outputs is None or outputs[i]) for i, t in enumerate(results)]
        live = self.prepare(asked)
        values: dict[Value, Atom] = {
            t: given
            for t, given in zip(self.linearized.tangents, tangents, strict=True)
            if t is not None and given is not None
        }
        for equation in self.linearized.linear:
            if any(v in live for v in equation.outputs):
                self.builder.source, self.builder.region = equation.source, equation.region
                self._apply_equation(equation, values)
        return [values[t] if a and t is not None else None for t, a in zip(results, asked, strict=True)]

    def _apply_equation(self, equation: LinearEquation, values: dict[Value, Atom]) -> None:
        op, coefficients = equation.op, equation.coefficients
        program = op.forward() if isinstance(op, Opaque) else None
        parameters = coefficients if program is None else program.inputs
        used = None if program is None else used_values(program)
        atoms = iter(self._retrieve(equation, coefficients, parameters, used))
        inputs = [
            values.get(a) if is_linear else next(atoms)  # type: ignore[arg-type]
            for a, is_linear in zip(equation.inputs, equation.linear, strict=True)
        ]
        if equation in self.resolved:
            resolved = self.resolved[equation]
            found = self._retrieve(equation, resolved.coefficients, resolved.coefficients, None)
            results = resolved.step(self.builder, found, inputs)
        elif program is not None:
            results = self.builder.instantiate(program, inputs)  # type: ignore[arg-type]
        else:
            results = self.builder.emit(op, inputs, [v.type for v in equation.outputs])  # type: ignore[arg-type]
        values.update((v, r) for v, r in zip(equation.outputs, results, strict=True) if r is not None)

    def forward_order(self) -> Iterator[Equation]:
        """The primal and coefficient equations as the forward program has them, loops and branches replaced."""
        for equation in self.linearized.equations:
            yield from self._before.get(equation, ())
            yield self._replaced.get(equation, equation)
