"""Describing the residuals of a split program: where each comes from, how often it is kept, for whom, and why."""

from __future__ import annotations

import math
from typing import Any

from remat.decisions import Offload, Save, as_policy
from remat.findings.place import place_of
from remat.inspect.residuals import Loop, Origin, Residual, Residuals, User
from remat.inspect.shardings import Shardings
from remat.ir.keys import Keys
from remat.ir.ops import Name, Scan
from remat.ir.program import Equation, Program, Value
from remat.ir.source import NOWHERE
from remat.ir.types import element_count, short_text, size_in_bytes
from remat.transforms.split import Split
from remat.transforms.walk import Level


def residuals_of(split: Split, program: Program, function: str) -> Residuals:
    """Describe the residuals of a split program."""
    return Residuals(function, tuple([found for _, found in describe_each(split, program)]))


def describe_each(
    split: Split, program: Program, keys: Keys | None = None, shardings: Shardings | None = None
) -> list[tuple[Value, Residual]]:
    """Each residual with the value of the linearized program that it is, or holds of every iteration of a loop. They
    have keys if `keys` are given, those that a transformation made that of the operation; and bytes on one device, if
    `shardings` are."""
    describe = _Describer(split, program, keys, shardings)
    return [(describe.innermost(v)[0], describe.residual(v)) for v in split.residuals]


class _Describer:
    def __init__(self, split: Split, program: Program, keys: Keys | None, shardings: Shardings | None):
        self.keys = keys
        self.shardings = shardings
        names = program.signature.argument_names if program.signature is not None else ()
        self.arguments = dict(zip(split.linearized.inputs, names, strict=False))
        self.level = split.level
        self.constants = {v for v, _ in split.linearized.constants}

    def residual(self, value: Value) -> Residual:
        inner, level, loops, around = self.innermost(value)
        producer = level.producer.get(inner)
        made_by = producer or around
        decision = level.kept.get(inner, Save())
        kept = self.level.residuals[value] if inner is value else value
        unit = level.residuals.get(inner, inner)
        origin, name = self.origin(inner, level, producer)
        times = math.prod(element_count([length]) for length in loops)
        on_one = None if self.shardings is None else self.shardings.device_bytes(inner)
        return Residual(
            type=short_text(unit.type),
            bytes=size_in_bytes(unit.type),
            times=times,
            stacked_type=short_text(kept.type),
            origin=origin,
            name=name,
            source=made_by.source.position if made_by is not None else NOWHERE,
            scope=made_by.source.scope if made_by is not None else "",
            loops=loops,
            carried=producer is None and inner is not value,
            needed_by=self.users(value, inner, level),
            reason=self.reason(inner, value, level, producer, decision),
            memory=decision.destination if isinstance(decision, Offload) else "device",
            place=place_of(made_by.source) if made_by is not None else NOWHERE,
            key="" if self.keys is None else self.keys.of.get(inner, origin.text),
            loop=None if around is None or not loops else Loop(around.source.scope, place_of(around.source)),
            device_bytes=None if on_one is None else on_one * times,
        )

    def innermost(self, value: Value) -> tuple[Value, Level, tuple[int, ...], Equation | None]:
        """Follow a stacked value into the loops it comes from; also returns the equation of the innermost loop."""
        level, loops, around = self.level, [], None
        while value in level.origins:
            origin = level.origins[value]
            around = level.producer.get(value)
            if origin.times > 1 or origin.inner not in origin.level.producer:
                loops.append(origin.times)
            value, level = origin.inner, origin.level
        return value, level, tuple(loops), around

    def origin(self, value: Value, level: Level, producer: Equation | None) -> tuple[Origin, Any]:
        if value in self.arguments:
            return Origin("argument", self.arguments[value]), None
        if value in self.constants:
            return Origin("constant", ""), None
        if producer is None:
            return Origin("output", "scan"), None
        if isinstance(producer.op, Name):
            return Origin("named", str(producer.op.tag)), producer.op.tag
        return Origin("output", producer.op.name), None

    def users(self, value: Value, inner: Value, level: Level) -> tuple[User, ...]:
        found = level.needed_by.get(inner, ()) if inner is not value else self.level.needed_by.get(value, ())
        users = {User(_operation(e), e.source.position): None for e in found}
        return tuple(users)

    def reason(self, inner: Value, value: Value, level: Level, producer: Equation | None, decision: Any) -> str:
        if value in self.arguments or value in self.constants:
            return "read by the backward pass; the caller holds it anyway"
        if producer is None:
            return "carried from one iteration to the next"
        if producer.op.effects:
            return "its computation has effects, which are not repeated"
        region = producer.region
        if region is None:
            return "no checkpoint region around it"
        if inner in level.linearized.always_kept:
            return "saved by the fwd rule of a custom_vjp function with defremat"
        if isinstance(producer.op, Scan):
            return "result of a loop, which does not run again for it"
        policy = region.outermost.policy
        if policy is None or not isinstance(level.decisions.get(inner), (Save, Offload)):
            return "result of a checkpoint region, read outside it"
        verb = "moves it to another memory" if isinstance(decision, Offload) else "keeps it"
        return f"policy {as_policy(policy)} {verb}"


def _operation(equation: Equation) -> str:
    return equation.op.name.removeprefix("linear_")
