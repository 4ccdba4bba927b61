"""Values that are kept twice: a cast beside its source, or the same array under two names.

In a region, remat never keeps a view or cast beside what it was made of. What is left are values that were made twice
from the same source, and what is kept where no region is. Views and equal arrays are merged by compilers that see both
passes (measured with XLA's for CPU, GPU and TPU, also where a loop stacks them), so only casts cost memory then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remat.findings.case import Case, Walk
from remat.findings.codes import WORTHWHILE
from remat.findings.finding import Finding
from remat.findings.flow import sources_of
from remat.findings.place import line_text, place_of
from remat.ir.ops import Name
from remat.ir.program import Equation, Value
from remat.ir.traits import row_of
from remat.ir.types import short_text, size_in_bytes
from remat.units import bytes_text


def kept_twice(case: Case) -> Iterator[Finding]:
    """Kept values that are the same as, or a cast of, another kept value of their level."""
    for walk in case.walks:
        first: dict[Any, Value] = {}
        kept = [v for v in walk.level.residuals if v in walk.level.producer]
        if walk.loop is not None:
            kept = [v for v in kept if v in case.stacked]
        among = set(kept)
        for value in kept:
            size = size_in_bytes(value.type) * walk.times
            chain = sources_of(walk.level, value)
            same = first.setdefault(_identity(walk, chain), value)
            source = next((v for v in chain[1:] if v in among), None)
            if size < WORTHWHILE:
                continue
            if source is not None and _casts(walk, chain[: chain.index(source) + 1]):
                yield _cast(case, walk, value, source, size)
            elif same is not value and _names(walk, value) and _names(walk, same):
                yield _two_names(case, walk, value, same, size)


def _identity(walk: Walk, chain: list[Value]) -> Any:
    """What a value is: where it comes from, and the views and casts that lead to it, names left out."""
    steps: list[Any] = []
    for value in chain[:-1]:
        equation = walk.level.producer[value]
        op: Any = equation.op
        if not isinstance(op, Name):
            params = repr(sorted(op.params.items(), key=lambda p: p[0]))
            steps.append((op.name, equation.outputs.index(value), short_text(value.type), params))
    return (chain[-1], *steps)


def _casts(walk: Walk, chain: list[Value]) -> bool:
    """Whether a chain of views and casts changes the type of the elements."""
    made = [walk.level.producer[v] for v in chain[:-1]]
    return any(row_of(e.op).kind == "cast" for e in made)


def _names(walk: Walk, value: Value) -> bool:
    equation = walk.level.producer[value]
    return isinstance(equation.op, Name) and equation.region is not None


def _cast(case: Case, walk: Walk, value: Value, other: Value, size: int) -> Finding:
    one, two = (walk.level.producer[v] for v in (other, value))
    often = f", of each of {walk.times} iterations" if walk.times > 1 else ""
    return case.finding(
        "kept-twice",
        place_of(two.source),
        _subject(two),
        size,
        f"{_described(two)} is kept beside {_described(one)}, which it is a cast of{often}: {bytes_text(size)} could "
        "go.",
        "Use one of the two everywhere, or put a policy around: in a region, remat keeps no cast beside its source.",
    )


def _two_names(case: Case, walk: Walk, value: Value, other: Value, size: int) -> Finding:
    one, two = (walk.level.producer[v] for v in (other, value))
    return case.finding(
        "two-names",
        place_of(two.source),
        _subject(two),
        size,
        f"{_described(two)} and {_described(one)} are the same value, and the policy keeps both: {bytes_text(size)} "
        "more, unless both passes are compiled as one program.",
        f"Give the value one name, or take {_subject(two)} out of the policy.",
    )


def _described(equation: Equation) -> str:
    name = f"{equation.op.tag!r}" if isinstance(equation.op, Name) else f"the result of {equation.op.name}"
    return f"{name} ({short_text(equation.outputs[0].type)}, {line_text(equation.source)})"


def _subject(equation: Equation) -> str:
    return repr(equation.op.tag) if isinstance(equation.op, Name) else equation.op.name
