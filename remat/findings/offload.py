"""Offloads that free nothing on the target, or that cost more time than computing the values again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from remat.decisions import Offload
from remat.errors import UnknownCostError
from remat.findings.case import Case, Walk
from remat.findings.codes import WORTHWHILE
from remat.findings.finding import Finding
from remat.findings.flow import values_in
from remat.findings.place import place_of
from remat.ir.costs import cost_of
from remat.ir.ops import Name, Scan
from remat.ir.program import Equation, Program, Value
from remat.ir.types import itemsize, size_in_bytes
from remat.targets.target import Target
from remat.units import bytes_text

Moved = dict[str, list[tuple[Walk, Value]]]


def offloads(case: Case) -> Iterator[Finding]:
    """Offloaded values, by name or operation."""
    moved: Moved = {}
    for walk in case.walks:
        for value in walk.level.residuals:
            equation = walk.level.producer.get(value)
            if equation is not None and isinstance(walk.level.kept.get(value), Offload):
                op = equation.op
                moved.setdefault(repr(op.tag) if isinstance(op, Name) else op.name, []).append((walk, value))
    if not moved:
        return
    if case.target.platform == "cpu":
        yield _same_memory(case, moved)
    else:
        yield from _slow(case, moved)


def _size(values: list[tuple[Walk, Value]]) -> int:
    return sum(size_in_bytes(v.type) * w.times for w, v in values)


def _same_memory(case: Case, moved: Moved) -> Finding:
    subject, values = max(moved.items(), key=lambda item: _size(item[1]))
    walk, value = values[0]
    size = sum(map(_size, moved.values()))
    return case.finding(
        "offload-same-memory",
        place_of(walk.level.producer[value].source),
        subject,
        size,
        f"{subject} is moved to the host's memory, but on {case.target} that is the memory where it is already, so "
        f"nothing is freed of {bytes_text(size)}.",
        "Keep it ('names:...' in place of 'offload:...'), or say what it is for: target='tpu:v5e:2x2'.",
    )


def _slow(case: Case, moved: Moved) -> Iterator[Finding]:
    """A move costs what of it does not fit beside the pass that it happens in."""
    target, bandwidth = case.target, case.target.host_bandwidth
    if not bandwidth or not target.memory_bandwidth:
        return
    split = case.planned.split
    try:
        passes = [program_seconds(p, target) for p in (split.forward, split.second)]
    except UnknownCostError:
        return
    link = sum(map(_size, moved.values())) / bandwidth
    share = sum(max(link - seconds, 0) for seconds in passes) / link if link else 0
    counted: set[Equation] = set()
    for subject, values in moved.items():
        size = _size(values)
        waiting = share * size / bandwidth
        again = _recomputation(case, values, counted)
        if again is None or size < WORTHWHILE or waiting <= again:
            continue
        walk, value = values[0]
        yield case.finding(
            "slow-offload",
            place_of(walk.level.producer[value].source),
            subject,
            size,
            f"moving {subject} ({bytes_text(size)}) to the host and back keeps the step waiting {_time(waiting)} on "
            f"{target}: at {bandwidth / 1e9:.0f} GB/s it takes {_time(size / bandwidth)} each way, and the passes "
            f"take {_time(passes[0])} and {_time(passes[1])}. Computing it again takes {_time(again)} (roofline).",
            "Leave it out of the policy, or offload less.",
        )


def _recomputation(case: Case, values: list[tuple[Walk, Value]], counted: set[Equation]) -> float | None:
    """Seconds to compute values again from what is kept; each equation counts for the first that asks. None if it is
    not known."""
    total = 0.0
    for walk, value in values:
        stack, carry = [value], _before(walk)
        while stack:
            found = stack.pop()
            equation = walk.level.producer.get(carry.get(found, found))
            if equation is None or equation in counted:
                continue
            counted.add(equation)
            stack.extend(v for v in values_in(equation.inputs) if v not in case.kept)
            try:
                total += walk.times * equation_seconds(equation, case.target)
            except UnknownCostError:
                return None
    return total


def _before(walk: Walk) -> dict[Value, Value]:
    """For what a loop carries, what it was made as in the iteration before."""
    if walk.loop is None:
        return {}
    scan = walk.loop.equation.op
    assert isinstance(scan, Scan)
    carried = walk.loop.body.inputs[scan.constant_count :]
    returned = walk.loop.body.outputs[: scan.carry_count]
    return {v: a for v, a in zip(carried, returned, strict=False) if isinstance(a, Value)}


def program_seconds(program: Program, target: Target) -> float:
    """How long a program takes at least on one device, each equation for itself."""
    return sum(equation_seconds(e, target) for e in program.equations)


def equation_seconds(equation: Equation, target: Target) -> float:
    """Operations at the peak rate of their type, or bytes at the rate of the memory, whichever takes longer."""
    cost = cost_of(equation)
    rate = (target.bf16_flops if _width(equation.inputs) <= 2 else target.f32_flops) or float("inf")
    return max((cost.flops + cost.transcendentals) / rate, cost.bytes / (target.memory_bandwidth or float("inf")))


def _width(atoms: Iterable[object]) -> int:
    return max((itemsize(v.type) for v in values_in(atoms) if hasattr(v.type, "dtype")), default=4)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds * 1e6:.1f} us"
