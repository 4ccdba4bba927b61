"""What is alive when the backward pass begins is used, not recomputed.

In a loss whose layers are a loop, what comes after the loop (the head, a product with the vocabulary, the cross
entropy) is the first that the backward pass needs. It was just computed: recomputing it costs products and holds no
less. So the region ends with its last loop, and what follows is kept as if no policy were there.

`transforms.differentiate_program` says when it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from remat.ir.ops import Checkpoint, Op
from remat.ir.program import Equation, Program
from remat.ir.rewrite import inline_calls, last_uses
from remat.ir.traits import is_loop, is_product
from remat.transforms.enclose import as_one_equation
from remat.transforms.split import Split


def recomputes_what_is_alive(made: Split) -> bool:
    """Whether a product after the last loop is computed again."""
    products = {e for e in end_of(made.level.linearized.equations) if is_product(e.op)}
    return bool(products) and any(e in products for e in made.level.retrieval.recomputed)


def end_of(equations: Sequence[Equation]) -> Sequence[Equation]:
    """What follows the last loop; nothing if there is none."""
    start = _after_last_loop(equations)
    return equations[start:] if start else []


def _after_last_loop(equations: Sequence[Equation]) -> int:
    """The position after the last loop; 0 if there is none."""
    return max((i + 1 for i, e in enumerate(equations) if is_loop(e.op)), default=0)


def with_open_end(region: Checkpoint) -> Program:
    """The program of a region, with the region around all of it up to the last loop."""
    program = inline_calls(region.program)
    end = _after_last_loop(program.equations)
    run, rest = program.equations[:end], program.equations[end:]
    last = last_uses(program.equations, program.outputs)
    results = [v for e in run for v in e.outputs if last.get(v, -1) >= end]

    def op(body: Program) -> Op:
        return replace(region, program=body)

    return Program(program.inputs, [as_one_equation(run, results, op), *rest], program.outputs, program.constants)
