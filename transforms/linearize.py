"""Linearization: from a program and the inputs to differentiate, to a `Linearized` program.

One pass over the equations in order, with a table of rules by op. Calls and checkpoint regions are inlined (a region
leaves its mark on the equations), so that policies and the backward pass see single operations. Loops and branches
have rule files of their own in `transforms.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from remat import jax_compat
from remat.errors import RematError
from remat.ir.check import check_linearized
from remat.ir.linearized import Derivation, LinearEquation, Linearized, Opaque, Transposed
from remat.ir.ops import Barrier, Block, Call, Checkpoint, CustomRule, Name, Op, Primitive, ToMemory, Zeros
from remat.ir.program import Atom, Equation, Literal, Program, Value
from remat.ir.region import Region
from remat.ir.rewrite import Builder
from remat.ir.source import UNKNOWN, Source
from remat.ir.types import is_differentiable
from remat.transforms.derivative import Derivative, derivative, tangent_type

Tangent = Value | None


class Linearizer(Builder):
    """The state of one linearization: the equations so far, and the tangent of each value that has one."""

    def __init__(
        self,
        region: Region | None,
        in_loop: bool,
        copies: dict[Value, Atom] | None = None,
        enclosing: Source | None = None,
    ):
        super().__init__(UNKNOWN, region)
        self.copies = copies
        self.enclosing = enclosing
        self.caller: Source | None = None
        self.scopes: Any = None
        self.linear: list[LinearEquation] = []
        self.derivations: list[Derivation] = []
        self.in_loop = in_loop
        self.always_kept: set[Value] = set()
        self.always_rebuilt: set[Value] = set()
        self.stand_ins: dict[Value, Value] = {}

    def emit_linear(
        self, op: Op, inputs: Sequence[Atom], linear: Sequence[bool], types: Sequence[Any], region: Region | None
    ) -> list[Value]:
        outputs = [Value(t) for t in types]
        self.linear.append(LinearEquation(op, inputs, outputs, self.source, region, linear))
        return outputs

    def walk(
        self, program: Program, inputs: Sequence[Atom], tangents: Sequence[Tangent]
    ) -> tuple[list[Atom], list[Tangent]]:
        """Linearize the equations of `program` for these inputs; return the outputs and their tangents."""
        env: dict[Value, Atom] = dict(zip(program.inputs, inputs, strict=True))
        env.update((v, v) for v, _ in program.constants)
        tangent_of: dict[Value, Value] = {}
        for value, tangent in zip(program.inputs, tangents, strict=True):
            if tangent is not None:
                tangent_of[value] = tangent
        for equation in program.equations:
            arguments = [a if isinstance(a, Literal) else env[a] for a in equation.inputs]
            given = [None if isinstance(a, Literal) else tangent_of.get(a) for a in equation.inputs]
            self.source = equation.source.inlined(self.caller, self.scopes, self.enclosing)
            if any(t is not None for t in given):
                marks = len(self.equations), len(self.linear)
                outputs, out_tangents = linearize_rules[type(equation.op)](self, equation, arguments, given)
                if isinstance(equation.op, (Primitive, Block, CustomRule)):
                    made, made_linear = self.equations[marks[0] :], self.linear[marks[1] :]
                    self.derivations.append(Derivation(equation.op, arguments, outputs, made, made_linear))
                for value, tangent in zip(equation.outputs, out_tangents, strict=True):
                    if tangent is not None:
                        tangent_of[value] = tangent
            elif isinstance(equation.op, (Call, Checkpoint)):
                function = equation.op.function if isinstance(equation.op, Call) else ""
                outputs, _ = self.walk_call(equation.op.program, arguments, given, function)
            else:
                outputs = self.emit(equation.op, arguments, [v.type for v in equation.outputs])
            env.update(zip(equation.outputs, outputs, strict=True))
            if self.copies is not None:
                self.copies.update(zip(equation.outputs, outputs, strict=True))
        outputs = [a if isinstance(a, Literal) else env[a] for a in program.outputs]
        return outputs, [None if isinstance(a, Literal) else tangent_of.get(a) for a in program.outputs]

    def inline(self, program: Program, inputs: Sequence[Atom]) -> list[Atom]:
        """Append a program that has no part in the derivative. Arrays that it closes over become literals."""
        arrays = [Literal(array, v.type) for v, array in program.constants]
        opened = [*program.inputs, *(v for v, _ in program.constants)]
        closed = Program(opened, program.equations, program.outputs)
        outputs, _ = self.walk_call(closed, [*inputs, *arrays], [None] * len(opened))
        return outputs

    def walk_call(
        self, program: Program, inputs: Sequence[Atom], tangents: Sequence[Tangent], function: str = ""
    ) -> tuple[list[Atom], list[Tangent]]:
        """Inline a called program. Its equations stand in the name scopes of the call, in which JAX puts one for a
        jitted `function`; those that have no user line (library code) get the line of the call."""
        before = self.caller, self.scopes
        self.caller = self.source
        if self.source.info is not None:
            self.scopes = jax_compat.scopes_of_call(self.source.info, function)
        try:
            return self.walk(program, inputs, tangents)
        finally:
            self.caller, self.scopes = before


def linearize_program(
    program: Program,
    active: Sequence[bool],
    region: Region | None = None,
    in_loop: bool = False,
    copies: dict[Value, Atom] | None = None,
    enclosing: Source | None = None,
) -> Linearized:
    """Linearize a program with respect to its `active` inputs.

    `region`, `in_loop` and `enclosing` say where the program sits, for bodies of loops and branches. If `copies` is
    given, it learns what stands in the linearized program for each value of the original.
    """
    state = Linearizer(region, in_loop, copies, enclosing)
    inputs = [Value(v.type) for v in program.inputs]
    tangents: list[Tangent] = [
        Value(tangent_type(v.type)) if a and is_differentiable(v.type) else None
        for v, a in zip(program.inputs, active, strict=True)
    ]
    outputs, tangent_outputs = state.walk(program, inputs, tangents)
    return check_linearized(
        Linearized(
            inputs,
            tangents,
            state.equations,
            state.linear,
            outputs,
            tangent_outputs,
            program.constants,
            state.derivations,
            state.always_kept,
            state.always_rebuilt,
            state.stand_ins,
        )
    )


def _primitive(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent]
) -> tuple[list[Atom], list[Tangent]]:
    op = equation.op
    active = tuple(t is not None for t in tangents)
    rule = _rule_or_error(equation, lambda: derivative(op, [a.type for a in inputs], active))
    if isinstance(rule, Exception):
        return _without_derivative(state, equation, inputs, tangents, rule)
    results = state.instantiate(rule.nonlinear, inputs)
    outputs, coefficients = results[: rule.output_count], results[rule.output_count :]
    if _is_opaque(op, rule.linear):
        return outputs, _stamp_opaque(state, equation, rule, coefficients, tangents, outputs)
    out_tangents = iter(_stamp_linear(state, rule.linear, coefficients, [t for t in tangents if t is not None]))
    return outputs, [next(out_tangents) if a else None for a in rule.active]


def _is_opaque(op: Op, linear: Program) -> bool:
    """Whether a linear program is only turned around as a whole: that of an operation that holds functions or programs
    (its rule need not be linear), and one with structure in it, such as a loop over tangents."""
    if not isinstance(op, Primitive) or (jax_compat.is_structured(op.params) and op.name not in jax_compat.CUSTOM_JVPS):
        return True
    return not all(isinstance(e.op, Primitive) for e in linear.equations)


def _stamp_opaque(
    state: Linearizer,
    equation: Equation,
    rule: Derivative,
    coefficients: Sequence[Atom],
    tangents: Sequence[Tangent],
    outputs: Sequence[Atom],
) -> list[Tangent]:
    """Append a linear program as one equation."""

    def backward(present: tuple[bool, ...]) -> Transposed:
        with located(equation):
            return rule.transposed(present)

    op = Opaque(equation.op.name, lambda: rule.linear, backward)
    return emit_opaque(state, op, coefficients, tangents, rule.active, outputs)


def _stamp_linear(
    state: Linearizer, program: Program, coefficients: Sequence[Atom], tangents: Sequence[Value]
) -> list[Value]:
    """Append a linear program. Parts of it that do not depend on the tangents are coefficient equations."""
    count = len(coefficients)
    env: dict[Value, Atom] = dict(zip(program.inputs, [*coefficients, *tangents], strict=True))
    for value, array in program.constants:
        env[value] = Literal(array, value.type)
    is_linear = set(program.inputs[count:])
    for equation in program.equations:
        arguments = [a if isinstance(a, Literal) else env[a] for a in equation.inputs]
        flags = [not isinstance(a, Literal) and a in is_linear for a in equation.inputs]
        types = [v.type for v in equation.outputs]
        if any(flags):
            outputs = state.emit_linear(equation.op, arguments, flags, types, state.region)
            is_linear.update(equation.outputs)
        else:
            outputs = state.emit(equation.op, arguments, types)
        env.update(zip(equation.outputs, outputs, strict=True))
    return [env[a] for a in program.outputs]  # type: ignore[index, misc]


T = TypeVar("T")


def _rule_or_error(equation: Equation, make: Callable[[], T]) -> T | Exception:
    """A derivative rule, or the error that JAX raised when asked for it."""
    try:
        with located(equation):
            return make()
    except RematError:
        raise
    except Exception as error:
        return error


def _without_derivative(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent], error: Exception
) -> tuple[list[Atom], list[Tangent]]:
    """An operation that cannot be differentiated raises its error when a derivative really goes through it, so that
    policies may look at functions that contain it."""

    def fail(*_: Any) -> Any:
        raise error

    outputs: list[Atom] = list(state.emit(equation.op, inputs, [v.type for v in equation.outputs]))
    differentiable = [is_differentiable(v.type) for v in equation.outputs]
    return outputs, emit_opaque(state, Opaque(equation.op.name, fail, fail), inputs, tangents, differentiable, outputs)


def emit_opaque(
    state: Linearizer,
    op: Opaque,
    coefficients: Sequence[Atom],
    tangents: Sequence[Tangent],
    active_outputs: Sequence[bool],
    outputs: Sequence[Atom],
) -> list[Tangent]:
    """Append a linear equation that is known only as programs; returns the tangents of its outputs."""
    given = [t for t in tangents if t is not None]
    flags = [False] * len(coefficients) + [True] * len(given)
    types = [tangent_type(o.type) for o, a in zip(outputs, active_outputs, strict=True) if a]
    results = iter(state.emit_linear(op, [*coefficients, *given], flags, types, state.region))
    return [next(results) if a else None for a in active_outputs]


def _name(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent]
) -> tuple[list[Atom], list[Tangent]]:
    return list(state.emit(equation.op, inputs, [equation.outputs[0].type])), tangents


def _call(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent]
) -> tuple[list[Atom], list[Tangent]]:
    assert isinstance(equation.op, Call)
    return state.walk_call(equation.op.program, inputs, tangents, equation.op.function)


def _checkpoint(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent]
) -> tuple[list[Atom], list[Tangent]]:
    op = equation.op
    assert isinstance(op, Checkpoint)
    if hasattr(op.policy, "regions_of"):  # a policy that puts regions of its own in place of this one
        regions = op.policy.regions_of(op, [t is not None for t in tangents])
        return state.walk_call(regions, inputs, tangents)
    outer = state.region
    pinned = op.prevent_cse if isinstance(op.prevent_cse, bool) else any(op.prevent_cse)
    state.region = Region(op.policy, outer, pinned, state.in_loop, equation.source, op.function, op.derived)
    try:
        return state.walk_call(op.program, inputs, tangents)
    finally:
        state.region = outer


class located:
    """Adds the user's line to an error that a derivative rule of JAX raises."""

    def __init__(self, equation: Equation):
        self.equation = equation

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None and not isinstance(error, RematError):
            where = self.equation.source.text or "an unknown line"
            error.add_note(
                f"remat was differentiating {self.equation.op.name} from {where}. If it has no derivative, give it one "
                "with jax.custom_vjp, or put jax.lax.stop_gradient on its inputs."
            )


Rule = Callable[[Linearizer, Equation, list[Atom], list[Tangent]], tuple[list[Atom], list[Tangent]]]

linearize_rules: dict[type[Op], Rule] = {
    Primitive: _primitive,
    Name: _name,
    Call: _call,
    Block: _primitive,
    Checkpoint: _checkpoint,
}
"""From the class of an op to its rule. `transforms.rules` adds scan, cond, while and custom rules."""

no_tangent_ops: dict[type[Op], str] = {
    ToMemory: "only in programs that transformations make, whose second derivative is taken of JAX's primitives",
    Zeros: "only in programs that transformations make",
    Barrier: "only in programs that transformations make",
}
"""Ops that never meet a tangent, and why."""
