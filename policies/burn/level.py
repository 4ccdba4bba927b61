"""What the strategies need to know of one level of a program, gathered once for all its regions."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from remat.ir.linearized import Derivation, LinearEquation, Linearized
from remat.ir.program import Equation, Value
from remat.ir.region import Region
from remat.policies.burn.tape import Step, Tape, build_tape


@dataclass(frozen=True, eq=False)
class LevelFacts:
    """`steps` and `derivations` are grouped by the outermost region they are in; `steps` has those that a backward
    pass comes to, in its order. `live` are the linear equations that results depend on."""

    tape: Tape
    steps: dict[Region | None, list[Step]]
    derivations: dict[Region | None, list[Derivation]]
    live: frozenset[LinearEquation]
    coefficients: frozenset[Equation]
    producer: dict[Value, Equation]
    step_of: dict[Value, Step]


_known: WeakKeyDictionary[Linearized, LevelFacts] = WeakKeyDictionary()


def facts_of(level: Linearized) -> LevelFacts:
    """The facts about a level, from memory if they are known."""
    if level not in _known:
        _known[level] = _gather(level)
    return _known[level]


def _gather(level: Linearized) -> LevelFacts:
    tape = build_tape(level)
    steps: dict[Region | None, list[Step]] = {}
    for step in tape.visited():
        steps.setdefault(_outermost(step.equation), []).append(step)
    derivations: dict[Region | None, list[Derivation]] = {}
    for derivation in level.derivations:
        equations = (*derivation.primal, *derivation.coefficients, *derivation.linear)
        if equations:
            derivations.setdefault(_outermost(equations[0]), []).append(derivation)
    producer = {v: e for e in level.equations for v in e.outputs}
    step_of = {n.value: s for s in tape.steps for n in s.outputs}
    coefficients = frozenset(e for d in level.derivations for e in d.coefficients)
    return LevelFacts(tape, steps, derivations, frozenset(level.live_linear()), coefficients, producer, step_of)


def _outermost(equation: Equation) -> Region | None:
    return None if equation.region is None else equation.region.outermost
