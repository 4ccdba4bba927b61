"""How often the loops of an optimized program run.

Some of XLA's compilers write the count down (`known_trip_count`). The TPU's does not, but leaves loops as a counter
that is compared with a bound; both are followed through the few operations that compilers put around such numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from remat.targets.hlo import Computation, Instruction, Module


@dataclass(frozen=True)
class Number:
    """A scalar inside a computation: an element of its one tuple argument plus `offset`, or just `offset`."""

    element: int | None
    offset: int


UNARY = frozenset({"copy", "bitcast", "convert", "reshape", "copy-start", "copy-done"})


def scalar(module: Module, computation: Computation, name: str, given: Sequence[Number | None] = ()) -> Number | None:
    """What is known of a scalar; `given` are the arguments of a fusion. None if it is not of that simple kind."""
    instruction = computation.instructions[name]
    arguments = instruction.operands
    if instruction.opcode == "constant":
        literal = re.fullmatch(r"-?\d+", instruction.arguments)
        return Number(None, int(literal.group())) if literal else None
    if instruction.opcode == "parameter" and given:
        return given[int(instruction.arguments)]
    if instruction.opcode == "get-tuple-element":
        source = computation.instructions[arguments[0]]
        return Number(_index(instruction), 0) if source.opcode == "parameter" and not given else None
    if instruction.opcode in UNARY:
        return scalar(module, computation, arguments[0], given)
    if instruction.opcode in ("add", "subtract"):
        left, right = (scalar(module, computation, a, given) for a in arguments)
        return _sum(left, right, 1 if instruction.opcode == "add" else -1)
    if instruction.opcode in ("fusion", "call"):
        called = module.computations[instruction.called()[0]]
        inner = [scalar(module, computation, a, given) for a in arguments]
        return None if called.root.opcode == "tuple" else scalar(module, called, called.root.name, inner)
    return None


def _sum(left: Number | None, right: Number | None, sign: int) -> Number | None:
    if left is None or right is None or right.element is not None:
        swapped = sign == 1 and left is not None and right is not None and left.element is None
        return _sum(right, left, 1) if swapped else None
    return Number(left.element, left.offset + sign * right.offset)


def _index(instruction: Instruction) -> int:
    return int(instruction.attribute("index"))


@dataclass(frozen=True)
class Loop:
    """A `while`: how often it runs (None if that is not known), and elements of its state that are known constants."""

    trips: int | None
    constants: dict[int, int]


def loop_of(module: Module, around: Computation, instruction: Instruction, constants: dict[int, int]) -> Loop:
    """Read a `while` in the computation `around`, whose own argument has these constant elements.

    Some of XLA's compilers write the count down; others leave a counter that is compared with a bound.
    """
    condition = module.computations[instruction.attribute("condition").lstrip("%")]
    body = module.computations[instruction.attribute("body").lstrip("%")]
    start = _state_before(module, around, instruction, constants)
    steps = _state_after(module, body)
    fixed = {k: v for k, v in start.items() if steps.get(k) == Number(k, 0)}
    written = re.search(r'known_trip_count":\{"n":"(\d+)"', instruction.attributes)
    trips = int(written.group(1)) if written else _count(module, condition, start, steps, fixed)
    return Loop(trips, fixed)


def _state_before(module: Module, around: Computation, loop: Instruction, constants: dict[int, int]) -> dict[int, int]:
    state = around.instructions[loop.operands[0]]
    if state.opcode != "tuple":
        return {}
    found = {i: scalar(module, around, name) for i, name in enumerate(state.operands) if _is_integer(around, name)}
    known = {i: _value(number, constants) for i, number in found.items()}
    return {i: value for i, value in known.items() if value is not None}


def _state_after(module: Module, body: Computation) -> dict[int, Number | None]:
    if body.root.opcode != "tuple":
        return {}
    names = enumerate(body.root.operands)
    return {i: scalar(module, body, name) for i, name in names if _is_integer(body, name)}


def _is_integer(computation: Computation, name: str) -> bool:
    arrays = computation.instructions[name].arrays
    return bool(arrays) and arrays[0].shape == () and arrays[0].dtype[0] in "su"


def _value(number: Number | None, constants: dict[int, int]) -> int | None:
    if number is None or (number.element is not None and number.element not in constants):
        return None
    return number.offset + (constants[number.element] if number.element is not None else 0)


def _count(
    module: Module,
    condition: Computation,
    start: dict[int, int],
    steps: dict[int, Number | None],
    fixed: dict[int, int],
) -> int | None:
    compare = condition.root
    operands: list[Number | None] = [scalar(module, condition, a) for a in compare.operands]
    if compare.opcode == "fusion":
        compare = module.computations[compare.called()[0]].root
        inner = module.computations[condition.root.called()[0]]
        operands = [scalar(module, inner, a, operands) for a in compare.operands]
    if compare.opcode != "compare" or len(operands) != 2 or operands[0] is None:
        return None
    counter, bound = operands[0], _value(operands[1], fixed)
    step = steps.get(counter.element) if counter.element is not None else None
    if bound is None or step is None or step.element != counter.element or counter.element not in start:
        return None
    first = start[counter.element] + counter.offset
    return _trips(first, bound, step.offset, compare.attribute("direction"))


def _trips(first: int, bound: int, step: int, direction: str) -> int | None:
    """How many values `first`, `first + step`... are on the right side of the bound."""
    distance = {"LT": bound - first, "LE": bound - first + 1, "GT": first - bound, "GE": first - bound + 1}
    if direction == "NE" and step and (bound - first) % step == 0 and (bound - first) // step >= 0:
        return (bound - first) // step
    if direction not in distance or (step <= 0) == direction.startswith("L") or step == 0:
        return None
    return max(0, -(-distance[direction] // abs(step)))
