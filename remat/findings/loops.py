"""Loops that stack, one for each iteration, what would do once or follows from something much smaller."""

from __future__ import annotations

from collections.abc import Iterator

from remat.findings.case import Case, Walk
from remat.findings.codes import WORTHWHILE
from remat.findings.finding import Finding
from remat.findings.flow import values_in
from remat.findings.place import line_text, place_of
from remat.ir.ops import Scan
from remat.ir.program import Atom, Equation, Literal, Value
from remat.ir.traits import is_memory_bound
from remat.ir.types import element_count, short_text, size_in_bytes
from remat.units import bytes_text

LARGER = 4
"""How many times larger than what it follows from a stacked value has to be."""

SHARE = 0.25
"""And which part of what the loop stacks such values have to be. A Flax LayerNorm keeps the product of its scale and a
deviation, which follows from next to nothing: 5 % of what a transformer block stacks, and nobody's mistake."""


def stacked_invariants(case: Case) -> Iterator[Finding]:
    """Results of a loop that are the same in each iteration."""
    for program in case.programs:
        read = {a for e in program.equations for a in e.inputs}.union(program.outputs)
        for equation in program.equations:
            if isinstance(equation.op, Scan):
                yield from _invariant_results(case, equation, equation.op, read)


def _invariant_results(case: Case, equation: Equation, scan: Scan, read: set[Atom]) -> Iterator[Finding]:
    invariant = _invariant(scan)
    made = {v: e for e in scan.body.equations for v in e.outputs}
    times = element_count((scan.length,))
    for atom, result in zip(scan.body.outputs[scan.carry_count :], equation.outputs[scan.carry_count :], strict=True):
        size = size_in_bytes(result.type) - size_in_bytes(atom.type)
        if result not in read or atom not in invariant or size < WORTHWHILE:
            continue
        producer = made.get(atom) if isinstance(atom, Value) else None
        what = f"the result of {producer.op.name}" if producer is not None else "a value from outside of the loop"
        where = place_of(producer.source) if producer is not None else place_of(equation.source)
        yield case.finding(
            "stacked-invariant",
            where if where.file else place_of(equation.source),
            producer.op.name if producer is not None else short_text(atom.type),
            size,
            f"a loop of {times} iterations returns {what} ({short_text(atom.type)}) from each, and it is the same in "
            f"all: {bytes_text(size)} of copies.",
            "Return nothing for it from the body, and use the value itself after the loop.",
        )


def _invariant(scan: Scan) -> set[object]:
    """What is the same in each iteration: constants, carried values that are passed on, and what follows from them."""
    body, k, n = scan.body, scan.constant_count, scan.constant_count + scan.carry_count
    passed = [v for v, out in zip(body.inputs[k:n], body.outputs, strict=False) if v is out]
    invariant: set[object] = {*body.inputs[:k], *passed}
    for equation in body.equations:
        if not equation.op.effects and all(isinstance(a, Literal) or a in invariant for a in equation.inputs):
            invariant.update(equation.outputs)
    return invariant


def stacked_expansions(case: Case) -> Iterator[Finding]:
    """Values that a loop keeps of each iteration, and that follow by element-wise equations from much less."""
    for walk in case.walks:
        if walk.loop is not None:
            yield from _expansions(case, walk)


def _expansions(case: Case, walk: Walk) -> Iterator[Finding]:
    kept = {v for v in walk.level.residuals if v in case.stacked}
    total = sum(size_in_bytes(v.type) for v in kept)
    if total * walk.times < WORTHWHILE:
        return
    found: dict[Value, int] = {}
    sources: dict[Value, int] = {}
    for equation in walk.level.linearized.equations:
        inputs = dict.fromkeys(values_in(equation.inputs))
        least = sum(sources.get(v, size_in_bytes(v.type)) for v in inputs)
        for value in equation.outputs:
            size = size_in_bytes(value.type)
            follows = is_memory_bound(equation.op) and not equation.op.effects
            sources[value] = min(size, least) if follows else size
            if follows and value in kept and LARGER * least <= size:
                found[value] = size - least
    excess = sum(found.values())
    if found and excess >= SHARE * total and excess * walk.times >= WORTHWHILE:
        yield _expansion(case, walk, found)


def _expansion(case: Case, walk: Walk, found: dict[Value, int]) -> Finding:
    value = max(found, key=lambda v: found[v])
    equation = walk.level.producer[value]
    size = sum(size_in_bytes(v.type) for v in found)
    more = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
    return case.finding(
        "stacked-expansion",
        place_of(equation.source),
        equation.op.name,
        sum(found.values()) * walk.times,
        f"a loop of {walk.times} iterations keeps the result of {equation.op.name} "
        f"({short_text(value.type)}, {line_text(equation.source)}){more} of each: "
        f"{bytes_text(size * walk.times)}. By element-wise equations it follows from "
        f"{bytes_text((size - sum(found.values())) * walk.times)}.",
        "Put the part of the body that makes it into remat.checkpoint, or the policy 'scan_body:dots' around the loss.",
    )
