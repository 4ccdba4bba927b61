"""Where a program may be cut into regions, as programs: how its recomputation is arranged, whatever is kept besides.

- `plain`: one region; what is needed is recomputed just before its use.
- `open_end`: the same, up to the last loop; what follows (the product with a vocabulary) is kept as without a plan.
- `two_levels`: segments inside that region: boundaries are recomputed first, then one segment at a time.
- `segments`: each segment is a region, its boundaries are kept.
- `loops_in_2`, `loops_in_3`: long loops are cut into nested segments, of which the first carries are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from remat.ir.ops import Call, Checkpoint, Scan, ShardMap
from remat.ir.program import Equation, Program
from remat.ir.rewrite import inline_all, with_programs
from remat.ir.traits import is_product
from remat.ir.types import element_count
from remat.loops.nested import run_plan
from remat.loops.plan import Plan, in_levels
from remat.lower import evaluate
from remat.transforms.derivative import make_program
from remat.transforms.enclose import around
from remat.transforms.open_end import end_of, with_open_end
from remat.transforms.segments import parts_of, segmented
from remat.transforms.two_levels import in_two_levels

LONG = 16
"""Loops of fewer iterations are not cut into nested segments."""

Structure = Callable[[Checkpoint], Program]


def plain(region: Checkpoint) -> Program:
    """The region as it stands."""
    return around(region.program, region)


def two_levels(region: Checkpoint) -> Program:
    """The region with regions inside."""
    return around(region.program, in_two_levels(region))


def segments(region: Checkpoint) -> Program:
    """Regions around its segments, in place of the one around the whole."""
    return segmented(region.program, parts_of(region, region.policy))


def loops_in_2(region: Checkpoint) -> Program:
    """The region, its long loops as loops over segments of about the square root of their length."""
    return plain(replace(region, program=with_nested_loops(region.program, lambda length: in_levels(length, 2))))


def loops_in_3(region: Checkpoint) -> Program:
    """The same with segments of segments."""
    return plain(replace(region, program=with_nested_loops(region.program, lambda length: in_levels(length, 3))))


STRUCTURES: dict[str, Structure] = {
    "plain": plain,
    "open_end": with_open_end,
    "two_levels": two_levels,
    "segments": segments,
    "loops_in_2": loops_in_2,
    "loops_in_3": loops_in_3,
}


def structures_for(program: Program) -> list[str]:
    """Those that may be worth trying."""
    longest = max((_length(e.op) for e in _straight(program)), default=0)
    straight = [e for e in program.equations if not isinstance(e.op, Scan)]
    found = ["plain"]
    found += ["open_end"] if any(is_product(e.op) for e in end_of(program.equations)) else []
    found += ["two_levels", "segments"] if len(straight) >= LONG or longest else []
    found += ["loops_in_2"] if longest >= LONG else []
    return found + (["loops_in_3"] if longest >= LONG**2 // 4 else [])


def _straight(program: Program) -> list[Equation]:
    """The equations outside of loops and branches."""
    found: list[Equation] = []
    for equation in program.equations:
        op = equation.op
        inner = [p for p in op.programs] if isinstance(op, (Call, Checkpoint, ShardMap)) else []
        found.extend([equation] if not inner else [e for p in inner for e in _straight(p)])
    return found


def _length(op: object) -> int:
    return element_count((op.length,)) if isinstance(op, Scan) else 0


def with_nested_loops(program: Program, plan_of: Callable[[int], Plan], long: int = LONG) -> Program:
    """The same program with its loops of at least `long` iterations as nested loops, by a plan for each length.

    Each segment of a plan is a region of which nothing is kept; loops inside of loops stay as they are.
    """
    equations = [_nested_loop(e, plan_of, long) for e in program.equations]
    return inline_all(Program(program.inputs, equations, program.outputs, program.constants, program.signature))


def _nested_loop(equation: Equation, plan_of: Callable[[int], Plan], long: int) -> Equation:
    op = equation.op
    if isinstance(op, (Call, Checkpoint, ShardMap)):
        op = with_programs(op, [with_nested_loops(p, plan_of, long) for p in op.programs])
    elif isinstance(op, Scan) and _length(op) >= long:
        op = Call(_nested_program(op, equation, plan_of(_length(op))))
    return Equation(op, equation.inputs, equation.outputs, equation.source, equation.region)


def _nested_program(op: Scan, equation: Equation, plan: Plan) -> Program:
    """A program that does what a loop does, by nested loops whose segments are regions."""
    k, n = op.constant_count, op.constant_count + op.carry_count

    def run(*inputs: object) -> list[object]:
        constants, carry, slices = inputs[:k], inputs[k:n], inputs[n:]

        def step(carry: object, xs: object) -> tuple[list[object], list[object]]:
            results = evaluate(op.body, [*constants, *carry, *xs])  # type: ignore[misc]
            return results[: op.carry_count], results[op.carry_count :]

        carried, stacked = run_plan(plan, step, list(carry), list(slices), op.reverse, lambda segment: segment)
        return [*carried, *stacked]

    return make_program(run, [a.type for a in equation.inputs])
