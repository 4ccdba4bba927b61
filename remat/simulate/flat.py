"""A program as a flat list of steps over numbered buffers: calls are replaced by what they do, and values that share
one array (a reshape and its operand) have one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from remat.ir.ops import Barrier, Block, Call, Checkpoint, CustomRule, Name, Op, ToMemory
from remat.ir.program import Atom, Equation, Program, Value
from remat.simulate.fusion import WITHOUT_RESULTS, Reading

INLINED = (Call, Checkpoint, Block, CustomRule)
"""Ops whose programs the compiler puts in place of the call."""

NO_BUFFER = -1
"""The number of a literal."""

GIVEN = -1
"""What makes the inputs and constants."""


@dataclass(slots=True)
class Step:
    """One equation over buffers; literals among its inputs have the number `NO_BUFFER`."""

    equation: Equation
    reading: Reading
    inputs: list[int]
    outputs: list[int]


@dataclass(slots=True)
class Flat:
    """The steps, and for each buffer the value that it was made for and the step that makes it."""

    values: list[Value] = field(default_factory=list)
    made_by: list[int] = field(default_factory=list)
    """`GIVEN` for the first buffers, those of the inputs and constants."""
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    names: dict[int, Any] = field(default_factory=dict)
    """What `checkpoint_name` called the values in a buffer."""

    def new_buffer(self, value: Value, step: int) -> int:
        self.values.append(value)
        self.made_by.append(step)
        return len(self.values) - 1


def flatten(program: Program, reading: Callable[[Op], Reading]) -> Flat:
    """Flatten a program. `reading` is the class of an op; the results of aliases have the buffers of the operands."""
    flat = Flat()
    env = {v: flat.new_buffer(v, GIVEN) for v in (*program.inputs, *(v for v, _ in program.constants))}
    flat.outputs = _walk(flat, program, env, reading)
    return flat


def _walk(flat: Flat, program: Program, env: dict[Value, int], reading: Callable[[Op], Reading]) -> list[int]:
    """Append the steps of a program whose inputs are in `env`; return the buffers of its outputs."""

    def numbers(atoms: Sequence[Atom]) -> list[int]:
        return [env[a] if isinstance(a, Value) else NO_BUFFER for a in atoms]

    for equation in program.equations:
        inputs, op = numbers(equation.inputs), equation.op
        if isinstance(op, INLINED):
            if has_barrier(op) and reading(Barrier()) is Reading.BARRIER:
                flat.steps.append(Step(equation, Reading.BARRIER, inputs, inputs))
            outputs = _walk(flat, op.program, dict(zip(op.program.inputs, inputs, strict=True)), reading)
        else:
            how, number = reading(op), len(flat.steps)
            if how in WITHOUT_RESULTS:
                pairs = zip(inputs, equation.outputs, strict=True)
                outputs = [b if b != NO_BUFFER else flat.new_buffer(v, number) for b, v in pairs]
            else:
                outputs = [flat.new_buffer(v, number) for v in equation.outputs]
            flat.steps.append(Step(equation, how, inputs, outputs))
            _note_name(flat, op, inputs, outputs)
        env.update(zip(equation.outputs, outputs, strict=True))
    return numbers(program.outputs)


def _note_name(flat: Flat, op: Op, inputs: list[int], outputs: list[int]) -> None:
    """A name holds for the buffer that it is given to, and for what that is rounded or moved to."""
    if isinstance(op, Name):
        flat.names[outputs[0]] = op.tag
    elif (isinstance(op, ToMemory) or op.name == "reduce_precision") and inputs[0] in flat.names:
        flat.names[outputs[0]] = flat.names[inputs[0]]


def has_barrier(op: Op) -> bool:
    """Whether JAX puts a barrier before what an op does."""
    return isinstance(op, Checkpoint) and op.differentiated and bool(op.prevent_cse)


def step_count(program: Program) -> int:
    """How many steps a program has once it is flat."""
    return sum(
        step_count(e.op.program) + has_barrier(e.op) if isinstance(e.op, INLINED) else 1 for e in program.equations
    )
