"""Everything about differentiating `scan`.

Linearize: the body is linearized, with the carried values that have tangents found by iteration to a fixed point.

Split: the forward scan also emits what each iteration's backward needs, stacked. Constants and slices of the loop are
not stacked (the loop's operands serve); values that depend on constants only are computed once, before the loop
(hoisted); a saved value that the body returns anyway is not stacked twice. The backward is a scan in the other
direction whose body recomputes what its iteration needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remat import jax_compat
from remat.decisions import SAVE, Decision, Recompute
from remat.ir.linearized import LinearEquation, Linearized, LinearScan
from remat.ir.ops import Scan
from remat.ir.program import Atom, Equation, Literal, Program, Value
from remat.ir.rewrite import Builder, prune
from remat.transforms.derivative import tangent_type
from remat.transforms.linearize import Linearizer, Tangent, linearize_program, linearize_rules
from remat.transforms.rules.scan_shift import INDEX, Chain, IndexedReads, chain_of, indices
from remat.transforms.walk import Level, Resolved, StackedFrom, Step, resolve_rules


def _linearize(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent]
) -> tuple[list[Atom], list[Tangent]]:
    op = equation.op
    assert isinstance(op, Scan)
    k, n = op.constant_count, op.constant_count + op.carry_count
    active = [t is not None for t in tangents]
    constants, carry, slices = active[:k], active[k:n], active[n:]
    while True:
        body = linearize_program(op.body, [*constants, *carry, *slices], state.region, True, state.copies)
        grown = [c or t is not None for c, t in zip(carry, body.tangent_outputs, strict=False)]
        if grown == carry:
            break
        carry = grown
    outputs = state.emit(op, inputs, [v.type for v in equation.outputs])
    primal = state.equations[-1]
    returned = [*carry, *(t is not None for t in body.tangent_outputs[op.carry_count :])]

    given: list[Atom] = []
    flags: list[bool] = []
    for atom, tangent, is_active in zip(inputs, tangents, [*constants, *carry, *slices], strict=True):
        if is_active:
            given.append(tangent if tangent is not None else state.zeros(tangent_type(atom.type)))
            flags.append(tangent is not None)
    linear = LinearScan(body, primal, tuple(constants), tuple(carry), tuple(slices), tuple(returned))
    types = [tangent_type(v.type) for v, r in zip(equation.outputs, returned, strict=True) if r]
    results = iter(state.emit_linear(linear, given, flags, types, state.region))
    return list(outputs), [next(results) if r else None for r in returned]


linearize_rules[Scan] = _linearize


def _resolve(level: Level, equation: LinearEquation) -> Resolved:
    """Decide what the forward scan stacks, and how one step of the outer backward (or tangent) program runs."""
    return _Resolution(level, equation).result()


resolve_rules[LinearScan] = _resolve


class _Resolution:
    """The pieces of one scan's split."""

    def __init__(self, level: Level, equation: LinearEquation):
        op = equation.op
        assert isinstance(op, LinearScan)
        self.level, self.linear, self.op = level, equation, op
        self.scan: Scan = op.equation.op  # type: ignore[assignment]
        self.body: Linearized = op.body
        self.inner = level.nested(self.body)
        k, n = self.scan.constant_count, self.scan.constant_count + self.scan.carry_count
        self.constants = self.body.inputs[:k]
        self.carry = self.body.inputs[k:n]
        self.slices = self.body.inputs[n:]
        outer = op.equation.inputs
        self.outer = dict(zip(self.body.inputs, outer, strict=True))

    def result(self) -> Resolved:
        self.keep_results()
        backward = self.transposed_body() if self.level.backward else self.tangent_body()
        self.sort_residuals()
        forward = self.forward_equation()
        self.level.replace(self.op.equation, forward, self.recompute_equation(forward))
        step = self.transposed_step(backward) if self.level.backward else self.tangent_step(backward)
        return Resolved(self.linear, step, list(self.residual_atoms.values()))

    # What the body's backward needs, by where it comes from.

    def sort_residuals(self) -> None:
        """Give each value that the body's backward reads an atom of the outer level."""
        self.residual_atoms: dict[Value, Atom] = {}
        self.is_stacked: dict[Value, bool] = {}
        self.extra: list[tuple[Value, Value]] = []  # (inner value, outer stacked value)
        self.hoisted: dict[Value, Value] = {}
        invariant = self.invariant_values()
        constants, slices = set(self.constants), set(self.slices)
        self.chains = self.find_chains(invariant)
        rebuilt = {chain.carried for chain in self.chains}
        for origin, residual in self.inner.residuals.items():
            if origin in rebuilt:
                continue
            if origin in constants or origin in slices:
                self.residual_atoms[residual] = self.outer[origin]
                self.is_stacked[residual] = origin in slices
            elif origin in invariant and origin is residual:
                self.residual_atoms[residual] = self.hoist(origin)
                self.is_stacked[residual] = False
            else:
                self.residual_atoms[residual] = self.stacked(origin, residual)
                self.is_stacked[residual] = True
        self.add_reads_of_chains()

    def find_chains(self, invariant: set[Value]) -> list[Chain]:
        """Carried values that need not be kept, since the previous iteration kept what they follow from.

        Only under a policy: without one, what is kept is what JAX keeps.
        """
        if not self.level.backward or self.op.equation.region is None:
            return []
        residuals = self.inner.residuals
        kept = {v for v, r in residuals.items() if v is r and v not in self.carry and v not in invariant}
        given = kept | set(self.constants) | set(self.slices)
        stacked = [] if self.runs_again() else self.body.outputs[self.scan.carry_count :]
        chains = []
        for carried, returned in zip(self.carry, self.body.outputs, strict=False):
            if carried not in residuals:
                continue
            # A loop that also stacks what it carries has kept it already.
            own = {returned} if returned in stacked and isinstance(returned, Value) else set()
            chain = chain_of(self.body, carried, returned, given | own)
            if chain is not None:
                chains.append(chain)
        return chains

    def add_reads_of_chains(self) -> None:
        """Slices and constants that only chains read, and the initial values, are read by the backward loop too."""
        carried = list(self.carry)
        self.initial: list[Value] = []
        for chain in self.chains:
            for value in chain.reads:
                if value in self.residual_atoms:
                    continue
                is_input = value in self.outer
                self.residual_atoms[value] = self.outer[value] if is_input else self.stacked(value, value)
                self.is_stacked[value] = value in self.slices or not is_input
            initial = Value(chain.carried.type)
            position = self.scan.constant_count + carried.index(chain.carried)
            self.residual_atoms[initial] = self.op.equation.inputs[position]
            self.is_stacked[initial] = False
            self.initial.append(initial)

    def stacked(self, origin: Value, residual: Value) -> Value:
        """The outer value that holds `residual` of all iterations."""
        returned = self.body.outputs[self.scan.carry_count :]
        decision = self.decision(origin)
        if origin is residual:
            for atom, outer in zip(returned, self.op.equation.outputs[self.scan.carry_count :], strict=True):
                if atom is origin:
                    self.level.decisions[outer] = decision
                    self.level.note_origin(outer, StackedFrom(origin, self.inner, self.scan.length))
                    return outer
        outer = Value(jax_compat.stacked_type(residual.type, self.scan.length))
        self.extra.append((residual, outer))
        self.level.decisions[outer] = decision
        self.level.note_origin(outer, StackedFrom(origin, self.inner, self.scan.length))
        return outer

    def decision(self, origin: Value) -> Decision:
        """Values that the policy keeps are kept, and what is carried is kept where the loop does not run again."""
        return Recompute() if origin in self.carry and self.runs_again() else SAVE

    def runs_again(self) -> bool:
        """Whether the loop is recomputed with its region: so for regions whose backward does not begin at once, and
        for loops inside loops."""
        region = self.op.equation.region
        if region is None or self.op.equation.op.effects:
            return False
        return region.parent is not None or not region.last or self.level.in_loop

    def keep_results(self) -> None:
        """A loop that does not run again keeps those of its results that the backward reads: one would otherwise cost
        all iterations over again."""
        if self.op.equation.region is not None and not self.runs_again():
            for value in self.op.equation.outputs:
                self.level.decisions.setdefault(value, SAVE)

    def invariant_values(self) -> set[Value]:
        """Values of the body that are the same in each iteration: they depend on constants of the loop only."""
        invariant: set[Value] = set(self.constants)
        for equation in self.body.equations:
            atoms = equation.inputs
            if not equation.op.effects and all(isinstance(a, Literal) or a in invariant for a in atoms):
                invariant.update(equation.outputs)
        return invariant

    def hoist(self, origin: Value) -> Value:
        """Compute an invariant value once, at the outer level."""
        if origin in self.hoisted:
            return self.hoisted[origin]
        env: dict[Value, Atom] = {v: self.outer[v] for v in self.constants}
        env.update(self.hoisted)
        for equation in prune(self.body.equations, [origin], given=set(env), keep_effects=False):
            outputs = [Value(v.type) for v in equation.outputs]
            inputs = [a if isinstance(a, Literal) else env[a] for a in equation.inputs]
            moved = Equation(equation.op, inputs, outputs, equation.source, equation.region)
            self.level.insert_before(self.op.equation, moved)
            for inner, outer in zip(equation.outputs, outputs, strict=True):
                env[inner] = outer
                self.level.decisions[outer] = self.inner.decisions.get(inner, Recompute())
                self.level.note_origin(outer, StackedFrom(inner, self.inner, 1))
        outer = env[origin]
        assert isinstance(outer, Value)
        self.level.decisions[outer] = SAVE
        self.hoisted[origin] = outer
        return outer

    # The forward scan, and the one that recomputes what was not kept.

    def forward_equation(self) -> Equation:
        """The scan with the stacked residuals as further outputs; hoisted values come in as constants."""
        outputs = [*self.body.outputs, *(r for r, _ in self.extra)]
        given = list(self.hoisted)
        equations = prune(self.inner.forward_equations(), outputs, given=set(given))
        body = Program([*given, *self.body.inputs], equations, outputs)
        old = self.op.equation
        new = Scan(
            body,
            self.scan.length,
            self.scan.reverse,
            self.scan.constant_count + len(given),
            self.scan.carry_count,
            self.scan.unroll,
        )
        inputs = [*self.hoisted.values(), *old.inputs]
        return Equation(new, inputs, [*old.outputs, *(v for _, v in self.extra)], old.source, old.region)

    def recompute_equation(self, forward: Equation) -> Equation:
        """The forward scan again, reading the values that were kept instead of computing them."""
        kept = {
            inner: outer
            for inner, outer in self.extra
            if inner not in self.carry and not isinstance(self.level.decisions[outer], Recompute)
        }
        if not kept:
            return forward
        op = forward.op
        assert isinstance(op, Scan)
        outputs = [*self.body.outputs, *(r for r, v in self.extra if r not in kept)]
        given = set(kept) | set(self.hoisted)
        body = Program([*op.body.inputs, *kept], prune(op.body.equations, outputs, given=given), outputs)
        new = Scan(body, op.length, op.reverse, op.constant_count, op.carry_count, op.unroll)
        remaining = [v for v in forward.outputs if v not in set(kept.values())]
        return Equation(new, [*forward.inputs, *kept.values()], remaining, forward.source, forward.region)

    # The backward scan.

    def active(self, values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
        return [v for v, f in zip(values, flags, strict=True) if f]

    def transposed_body(self) -> Program:
        """(cotangents of outputs) -> (cotangents of tangent inputs), zeros where there are none; residuals are free."""
        flags = self.op.active_outputs
        cotangents = [Value(tangent_type(o.type)) if f else None for o, f in zip(self.body.outputs, flags, strict=True)]
        results = self.inner.transpose(cotangents)
        builder = Builder()
        builder.equations = self.inner.equations_out
        self.cotangent_results = results
        outputs = [
            r if r is not None else None for r, t in zip(results, self.body.tangents, strict=True) if t is not None
        ]
        return Program([c for c in cotangents if c is not None], builder.equations, outputs)  # type: ignore[arg-type]

    def split_residuals(self) -> tuple[list[Value], list[Value], list[Value]]:
        """Residuals that are the same in each iteration, those read slice by slice, and those read by index."""
        read_before = {v for chain in self.chains for v in chain.reads}
        stacked = [r for r in self.residual_atoms if self.is_stacked[r] and r not in read_before]
        indexed = [r for r in self.residual_atoms if self.is_stacked[r] and r in read_before]
        constant = [r for r in self.residual_atoms if not self.is_stacked[r]]
        return constant, stacked, indexed

    def transposed_step(self, inner: Program) -> Step:
        constant, stacked, indexed = self.split_residuals()
        n_constants, n_carry = sum(self.op.active_constants), sum(self.op.active_carry)
        tangents = [t for t in self.body.tangents if t is not None]
        found = list(inner.outputs)
        sums = [Value(t.type) for t in tangents[:n_constants]]
        stacks = [Value(jax_compat.stacked_type(v.type, self.scan.length)) for v in indexed]
        number = Value(INDEX)

        builder = Builder()
        if self.chains:
            first, before = (self.scan.length - 1, 1) if self.scan.reverse else (0, -1)
            IndexedReads(self.chains, indexed, stacks, self.initial, number).emit(builder, first, before)
        builder.equations.extend(inner.equations)
        new_sums: list[Atom] = [
            total if part is None else builder.add(total, part)
            for total, part in zip(sums, found[:n_constants], strict=True)
        ]
        rest = [
            part if part is not None else builder.zeros(t.type)
            for part, t in zip(found[n_constants:], tangents[n_constants:], strict=True)
        ]
        carry_in, slice_out = rest[:n_carry], rest[n_carry:]
        carried, given = inner.inputs[:n_carry], inner.inputs[n_carry:]
        numbers = [number] if self.chains else []
        body = Program(
            [*constant, *stacks, *carried, *sums, *given, *stacked, *numbers],
            prune(builder.equations, [*carry_in, *new_sums, *slice_out]),
            [*carry_in, *new_sums, *slice_out],
        )
        count = len(constant) + len(stacks)
        op = Scan(body, self.scan.length, not self.scan.reverse, count, n_carry + n_constants, self.scan.unroll)
        slice_types = [jax_compat.stacked_type(a.type, self.scan.length) for a in slice_out]
        types = [*(v.type for v in carried), *(s.type for s in sums), *slice_types]
        residual_atoms = self.residual_atoms

        def step(out: Builder, atoms: list[Atom], cotangents: list[Value | None]) -> list[Value | None]:
            values = dict(zip(residual_atoms, atoms, strict=True))
            full = [
                c if c is not None else out.zeros(v.type) for c, v in zip(cotangents, self.linear.outputs, strict=True)
            ]
            zero_sums = [out.zeros(s.type) for s in sums]
            order = out.instantiate(indices(self.scan.length), []) if numbers else []
            inputs = [
                *(values[r] for r in [*constant, *indexed]),
                *full[:n_carry],
                *zero_sums,
                *full[n_carry:],
                *(values[r] for r in stacked),
                *order,
            ]
            results = out.emit(op, inputs, types)
            carry, totals = results[:n_carry], results[n_carry : n_carry + n_constants]
            slices = results[n_carry + n_constants :]
            by_input = [*totals, *carry, *slices]
            return [r for r, flag in zip(by_input, self.linear.linear, strict=True) if flag]

        return step

    # The tangent scan (forward mode with residuals).

    def tangent_body(self) -> Program:
        results = self.inner.apply([t for t in self.body.tangents])
        outputs = self.active(results, self.op.active_outputs)
        tangents = [t for t in self.body.tangents if t is not None]
        return Program(tangents, self.inner.equations_out, outputs)  # type: ignore[arg-type]

    def tangent_step(self, inner: Program) -> Step:
        constant, stacked, _ = self.split_residuals()
        n_constants, n_carry = sum(self.op.active_constants), sum(self.op.active_carry)
        builder = Builder()
        builder.equations = list(inner.equations)
        outputs = [
            o if o is not None else builder.zeros(v.type)
            for o, v in zip(
                inner.outputs,
                self.active(self.body.outputs, self.op.active_outputs),
                strict=True,
            )
        ]
        parts = inner.inputs
        body = Program([*constant, *parts, *stacked], builder.equations, outputs)
        op = Scan(body, self.scan.length, self.scan.reverse, len(constant) + n_constants, n_carry, self.scan.unroll)
        types = [v.type for v in self.linear.outputs]
        residual_atoms = self.residual_atoms

        def step(out: Builder, atoms: list[Atom], tangents: list[Atom]) -> list[Value]:
            values = dict(zip(residual_atoms, atoms, strict=True))
            inputs = [*(values[r] for r in constant), *tangents, *(values[r] for r in stacked)]
            return out.emit(op, inputs, types)

        return step
