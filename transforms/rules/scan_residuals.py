"""What a scan keeps for its backward: which values are stacked, hoisted, rebuilt or read where they are.

The values that the body's backward reads fall into kinds. Constants and slices of the loop serve as they are; values
that depend on constants only are computed once, before the loop (hoisted); what the loop carries may follow from the
iteration before (`scan_shift`); everything else is stacked by the forward scan, unless the body returns it anyway.
"""

from __future__ import annotations

from remat import jax_compat
from remat.decisions import SAVE, Decision, Offload, Recompute, Save
from remat.ir.linearized import LinearEquation, Linearized, LinearScan
from remat.ir.ops import Scan
from remat.ir.program import Atom, Equation, Literal, Program, Value
from remat.ir.rewrite import prune
from remat.ir.types import size_in_bytes
from remat.transforms.forward import forward_equations
from remat.transforms.liveness import LiveScan
from remat.transforms.rules.scan_shift import Chain, chain_of
from remat.transforms.walk import Level, StackedFrom


class ScanResiduals:
    """The residuals of one scan, and its forward equation. `sort` is called after the body has been walked."""

    def __init__(self, level: Level, equation: LinearEquation, live: LiveScan):
        op = equation.op
        assert isinstance(op, LinearScan)
        self.level, self.linear, self.op, self.live = level, equation, op, live
        self.scan: Scan = op.equation.op  # type: ignore[assignment]
        self.body: Linearized = op.body
        self.inner = level.nested(self.body, unrolled=self.scan.unroll is not False and self.scan.unroll != 1)
        k, n = self.scan.constant_count, self.scan.constant_count + self.scan.carry_count
        self.constants = self.body.inputs[:k]
        self.carry = self.body.inputs[k:n]
        self.slices = self.body.inputs[n:]
        outer = op.equation.inputs
        self.outer = dict(zip(self.body.inputs, outer, strict=True))
        self.position = {v: i for i, v in enumerate(self.carry)}
        self.producer = {v: e for e in self.body.equations for v in e.outputs}
        self.moved: dict[Value, Atom] = {v: self.outer[v] for v in self.constants}
        """What stands at the outer level for constants and for invariant values that were moved there."""
        results = list(zip(self.body.outputs, op.equation.outputs, strict=True))[self.scan.carry_count :]
        self.result_of = {a: v for a, v in reversed(results) if isinstance(a, Value)}
        """The outer value of what the body returns to be stacked."""
        self.inner.moved_inputs.update(self.moved_away())

    def moved_away(self) -> dict[Value, Decision]:
        """Carried values that the policy moves to another memory, under the name that the iteration before gave them.
        Where the body also returns such a value to be stacked, the stack is what is kept."""
        made_as = {v: self._returned(v) for v in self.carry if self.level.backward}
        decisions = {v: self.inner.decisions.get(a) for v, a in made_as.items() if a not in self.result_of}  # type: ignore[arg-type]
        return {v: d for v, d in decisions.items() if isinstance(d, Offload)}

    def keep_results(self) -> None:
        """A loop that does not run again keeps those of its results that the backward reads: one would otherwise cost
        all iterations over again."""
        if self.op.equation.region is not None and not self.runs_again():
            for value in self.op.equation.outputs:
                self.level.decisions.setdefault(value, SAVE)

    def keep_what_is_read_of_histories(self) -> bool:
        """Decide to keep what the backward reads of carried values in place of those, where that is smaller.

        A loop that carries a buffer of earlier states reads one of them in an iteration; keeping the buffer of every
        iteration would dwarf all else. Returns whether something was decided.
        """
        if not self.level.backward or self.op.equation.region is None:
            return False
        needed = {a for e in self.body.linear for a in e.coefficients}
        read_of: dict[Value, dict[Value, None]] = {}
        for equation in self.inner.retrieval.recomputed:
            for atom in equation.inputs:
                if atom in self.position and atom in self.inner.residuals and atom not in needed:
                    read_of.setdefault(atom, {}).update(dict.fromkeys(equation.outputs))  # type: ignore[arg-type]
        found = False
        chains = self.find_chains(self.invariant_values()) if read_of else []
        rebuilt = {chain.carried for chain in chains}
        for carried, values in read_of.items():
            if carried not in rebuilt and sum(size_in_bytes(v.type) for v in values) < size_in_bytes(carried.type):
                self.level.decisions.update(dict.fromkeys(values, SAVE))
                found = True
        return found

    def runs_again(self) -> bool:
        """Whether the loop is recomputed with its region: so for regions whose backward does not begin at once, and
        for loops inside loops."""
        return runs_again(self.op.equation, self.level)

    def decision(self, origin: Value) -> Decision:
        """Values that the policy keeps are kept. So is what is carried, where the loop does not run again or the policy
        keeps the value that it was in the iteration before."""
        again = origin in self.position and origin not in self.inner.moved_inputs and self.runs_again()
        return Recompute() if again and not self.policy_keeps(self._returned(origin)) else SAVE

    def policy_keeps(self, value: Atom) -> bool:
        return isinstance(value, Value) and isinstance(self.inner.decisions.get(value), Save)

    def _returned(self, carried: Value) -> Atom:
        """What a carried value was made as, in the iteration before or, if it was delayed, in an earlier one."""
        atom: Atom = self.body.outputs[self.position[carried]]
        seen = {carried}
        while isinstance(atom, Value) and atom in self.position and atom not in seen:
            seen.add(atom)
            atom = self.body.outputs[self.position[atom]]
        return atom

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
        self.keep_for_another_run()

    def keep_for_another_run(self) -> None:
        """Where the loop runs again, its carried values follow from what the policy keeps. If it does not run again,
        nothing asks for these stacks, and they are not kept."""
        self.returned_too: dict[Value, Value] = {}
        if not self.runs_again():
            return
        stacked = {inner for inner, _ in self.extra}
        saved = {v for e in self.body.equations for v in e.outputs if self.policy_keeps(v)} - stacked
        carried = self.body.outputs[: self.scan.carry_count]
        given = saved | stacked | set(self.hoisted)
        read = {a for e in prune(self.body.equations, carried, given=given, keep_effects=False) for a in e.inputs}
        read.update(carried)
        for equation in self.body.equations:
            for value in equation.outputs:
                if value in saved and value in read:
                    outer = self.stacked(value, value)
                    if value in self.result_of:
                        self.returned_too[value] = outer

    def find_chains(self, invariant: set[Value]) -> list[Chain]:
        """Carried values that need not be kept, since the previous iteration kept what they follow from.

        Only under a policy: without one, what is kept is what JAX keeps.
        """
        # A loop of no iterations has no elements to read by index, and one of symbolic length no number of the last.
        if not self.level.backward or self.op.equation.region is None or not isinstance(self.scan.length, int):
            return []
        if self.scan.length == 0:
            return []
        residuals = self.inner.residuals
        kept = {v for v, r in residuals.items() if v is r and v not in self.position and v not in invariant}
        given = kept | set(self.constants) | set(self.slices)
        # A loop that does not run again has kept what it returns of each iteration. That may be a carried value itself
        # (a delayed state that is also a result): then its stack is read, at i as at i-1, and no chain defines it.
        returned_too: set[Value] = set() if self.runs_again() else set(self.result_of)
        chains: list[Chain] = []
        for carried, returned in zip(self.carry, self.body.outputs, strict=False):
            if carried not in residuals or carried in returned_too or carried in self.inner.moved_inputs:
                continue
            # Other carried values cannot be read: what stands for one is its value in this iteration or, where a chain
            # rebuilds it, nothing that was kept.
            own: set[Value] = {returned} if returned in returned_too else set()
            chain = chain_of(self.producer, carried, returned, given, own)
            if chain is not None:
                chains.append(chain)
        return chains

    def add_reads_of_chains(self) -> None:
        """Slices and constants that only chains read, and the initial values, are read by the backward loop too."""
        constants = set(self.constants)
        inputs = {*constants, *self.slices}
        self.initial: list[Value] = []
        for chain in self.chains:
            for value in chain.reads:
                if value in self.residual_atoms:
                    continue
                # The outer value of what is carried is its initial value, which is not that of another iteration.
                is_input = value in inputs
                self.residual_atoms[value] = self.outer[value] if is_input else self.stacked(value, value)
                self.is_stacked[value] = value not in constants
            initial = Value(chain.carried.type)
            self.residual_atoms[initial] = self.outer[chain.carried]
            self.is_stacked[initial] = False
            self.initial.append(initial)

    def stacked(self, origin: Value, residual: Value) -> Value:
        """The outer value that holds `residual` of all iterations."""
        decision = self.decision(origin)
        outer = self.result_of.get(origin) if origin is residual else None
        if outer is None:
            outer = Value(jax_compat.stacked_type(residual.type, self.scan.length))
            self.extra.append((residual, outer))
        self.level.decisions[outer] = decision
        self.level.note_origin(outer, StackedFrom(origin, self.inner, self.scan.length))
        return outer

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
        for equation in self._not_moved_yet(origin):
            outputs = [Value(v.type) for v in equation.outputs]
            inputs = [a if isinstance(a, Literal) else self.moved[a] for a in equation.inputs]
            moved = Equation(equation.op, inputs, outputs, equation.source, equation.region)
            self.level.insert_before(self.op.equation, moved)
            for inner, outer in zip(equation.outputs, outputs, strict=True):
                self.moved[inner] = outer
                self.level.decisions[outer] = self.inner.decisions.get(inner, Recompute())
                self.level.note_origin(outer, StackedFrom(inner, self.inner, 1))
        outer = self.moved[origin]
        assert isinstance(outer, Value)
        self.level.decisions[outer] = SAVE
        self.hoisted[origin] = outer
        return outer

    def _not_moved_yet(self, origin: Value) -> list[Equation]:
        """The equations that an invariant value needs and that are not at the outer level yet, in order."""
        found: list[Equation] = []
        seen: set[Equation] = set()
        stack: list[Value | Equation] = [origin]
        while stack:
            item = stack.pop()
            if isinstance(item, Equation):
                found.append(item)
            elif item not in self.moved and self.producer[item] not in seen:
                equation = self.producer[item]
                seen.add(equation)
                stack.append(equation)
                stack.extend(a for a in reversed(equation.inputs) if isinstance(a, Value))
        return found

    def split_residuals(self) -> tuple[list[Value], list[Value], list[Value]]:
        """Residuals that are the same in each iteration, those read slice by slice, and those read by index."""
        read_before = {v for chain in self.chains for v in chain.reads}
        stacked = [r for r in self.residual_atoms if self.is_stacked[r] and r not in read_before]
        indexed = [r for r in self.residual_atoms if self.is_stacked[r] and r in read_before]
        constant = [r for r in self.residual_atoms if not self.is_stacked[r]]
        return constant, stacked, indexed

    def forward_equation(self) -> Equation:
        """The scan with the stacked residuals as further outputs; hoisted values come in as constants."""
        outputs = [*self.body.outputs, *(r for r, _ in self.extra)]
        given = list(self.hoisted)
        equations = prune(forward_equations(self.inner), outputs, given=set(given))
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
            for inner, outer in [*self.extra, *self.returned_too.items()]
            if inner not in self.position and not isinstance(self.level.decisions[outer], Recompute)
        }
        if not kept:
            return forward
        op = forward.op
        assert isinstance(op, Scan)
        results = zip(self.body.outputs, self.op.equation.outputs, strict=True)
        left_out = set(kept.values())
        outputs = [o for o, v in results if v not in left_out] + [r for r, _ in self.extra if r not in kept]
        given = set(kept) | set(self.hoisted)
        body = Program([*op.body.inputs, *kept], prune(op.body.equations, outputs, given=given), outputs)
        new = Scan(body, op.length, op.reverse, op.constant_count, op.carry_count, op.unroll)
        remaining = [v for v in forward.outputs if v not in left_out]
        return Equation(new, [*forward.inputs, *kept.values()], remaining, forward.source, forward.region)


def runs_again(loop: Equation, level: Level) -> bool:
    """The same of any loop of a level."""
    region = loop.region
    if region is None or loop.op.effects:
        return False
    return region.parent is not None or not region.last or level.in_loop
