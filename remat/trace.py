"""From a JAX function to a `Program`. All reading of jaxprs happens here.

Nested jaxprs (calls, loop bodies, branches) may close over arrays; those arrays become constants of the top-level
program and extra inputs of the nested one, so that nested programs are closed.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from remat import jax_compat
from remat.ir.check import check_program
from remat.ir.ops import Call, Checkpoint, Cond, CustomRule, Name, Op, Primitive, Scan, ShardMap, While
from remat.ir.program import Atom, Equation, Literal, Program, Value
from remat.ir.references import group_references
from remat.ir.source import Source
from remat.libraries import about_value
from remat.region_primitive import made_programs
from remat.signature import Arguments, check_callable, flatten_arguments, flatten_outputs, function_name


def trace(fun: Callable[..., Any]) -> Callable[..., Program]:
    """Trace a JAX function into a `Program`.

    **Arguments**

    - `fun`: any function that JAX can trace. Its arguments may be pytrees; leaves that are not arrays or numbers
      (strings, functions, configuration objects) are held static.

    **Returns** a function of the same arguments that returns the `Program`. Arguments may be
    `jax.ShapeDtypeStruct`s, since only shapes and dtypes are looked at.

    **Raises** `ArgumentTypeError` for what is not a function, and what JAX raises when `fun` cannot be traced, such
    as `jax.errors.TracerBoolConversionError` for Python control flow that depends on an argument's value.

    >>> import jax.numpy as jnp, remat
    >>> print(remat.trace(lambda x: jnp.sin(x) * 2.0)(jnp.ones(3)))
    program(a: f32[3])
      b: f32[3] = sin a
      c: f32[3] = mul b 2.0
      return c
    """

    def traced(*args: Any, **kwargs: Any) -> Program:
        return trace_arguments(fun, flatten_arguments(fun, args, kwargs))

    return traced


def trace_arguments(fun: Callable[..., Any], arguments: Arguments) -> Program:
    """Trace `fun` on arguments that have been flattened already."""
    check_callable(fun, "remat")
    outputs: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        args, kwargs = arguments.rebuild(leaves)
        arrays, structure = flatten_outputs(fun, fun(*args, **kwargs))
        outputs.append(structure)
        return arrays

    flat_like(flat, fun)
    with value_errors_explained(arguments):
        jaxpr = jax.make_jaxpr(flat)(*arguments.leaves)
    program = read_jaxpr(jaxpr)
    program.signature = arguments.signature(outputs[-1])
    return program


def flat_like(flat: Any, fun: Callable[..., Any]) -> None:
    """Let JAX's messages name the user's function and line in place of those of its flat form."""
    flat.__name__ = flat.__qualname__ = function_name(fun)
    flat.__wrapped__ = fun
    flat.__signature__ = inspect.Signature([inspect.Parameter("leaves", inspect.Parameter.VAR_POSITIONAL)])


class ValueNeeded(Exception):
    """A value is needed where the function is traced with types in place of values that are at hand."""


values_at_hand: contextvars.ContextVar[bool] = contextvars.ContextVar("values_at_hand", default=False)
"""Whether a function is being traced with types in place of values that are at hand, so that one that asks for a value
(as a static argument) can be traced again with the values."""


VALUE_ERRORS = (
    ValueNeeded,
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
"""What JAX raises when Python code needs a value that is not known while a function is traced."""


@contextlib.contextmanager
def value_errors_explained(arguments: Arguments) -> Iterator[None]:
    """Add to such an error which argument is meant, why its value is unknown, and what to write instead."""
    try:
        yield
    except VALUE_ERRORS as error:
        if not any(note.startswith(_NOTE) for note in getattr(error, "__notes__", ())):
            advice = about_value(arguments.rebuild(arguments.leaves))
            error.add_note(_note(str(error), arguments.function, arguments.names) + advice)
        raise


_NOTE = "remat traces"


def _note(message: str, function: str, names: Sequence[str]) -> str:
    found = sorted({int(i) for i in re.findall(r"\bleaves\[(\d+)\]", message)})
    meant = ", ".join(f"leaves[{i}] is the argument {names[i]}" for i in found if i < len(names))
    above = f" Above, {meant}." if meant else ""
    return (
        f"{_NOTE} {function} once, with the types of its arguments in place of their values, so Python code (if, "
        f"while, int(), numpy) cannot look at a value.{above} Use jnp.where, jax.lax.cond or jax.lax.while_loop, and "
        "jax.numpy in place of numpy. A flag or a size that is a Python value can be declared with static_argnames of "
        "remat.checkpoint or bound with functools.partial."
    )


def read_jaxpr(jaxpr: Any) -> Program:
    """Turn a closed jaxpr into a program."""
    return check_program(_Reader().top_level(jaxpr))


def read_nested(jaxpr: Any) -> tuple[Program, list[tuple[Any, Any]]]:
    """Turn a closed jaxpr into a program without constants; also returns the arrays (with types) that it closes over,
    which are its last inputs."""
    program, arrays = _Reader().program(jaxpr)
    return check_program(program), arrays


class _Reader:
    """Reads one closed jaxpr; nested jaxprs that occur several times are read once."""

    def __init__(self) -> None:
        self.nested: dict[int, tuple[Program, list[Any], Any]] = {}

    def top_level(self, jaxpr: Any) -> Program:
        self.constants: dict[int, tuple[Value, Any]] = {}
        opened = jax_compat.unwrap(jaxpr)
        env: dict[Any, Atom] = {}
        for variable, array in opened.constants:
            env[variable] = self.constant(array, variable.aval)
        inputs = [_define(env, v) for v in opened.inputs]
        equations = self.equations(opened.equations, env, self.constant)
        outputs = [_read(env, v) for v in opened.outputs]
        equations = group_references(equations, outputs)
        return Program(inputs, equations, outputs, list(self.constants.values()))

    def constant(self, array: Any, type: Any) -> Value:
        """The top-level value that stands for a closed-over array."""
        if id(array) not in self.constants:
            self.constants[id(array)] = (Value(type), array)
        return self.constants[id(array)][0]

    def program(self, jaxpr: Any) -> tuple[Program, list[tuple[Any, Any]]]:
        """Read a nested jaxpr; the arrays it closes over (with types) become inputs after its own."""
        if id(jaxpr) not in self.nested and jaxpr in made_programs:
            self.nested[id(jaxpr)] = (made_programs[jaxpr](), [], jaxpr)
        if id(jaxpr) not in self.nested:
            opened = jax_compat.unwrap(jaxpr)
            env: dict[Any, Atom] = {}
            lifted: dict[int, tuple[Value, Any]] = {}

            def lift(array: Any, type: Any) -> Value:
                if id(array) not in lifted:
                    lifted[id(array)] = (Value(type), array)
                return lifted[id(array)][0]

            inputs = [_define(env, v) for v in opened.inputs]
            for variable, array in opened.constants:
                env[variable] = lift(array, variable.aval)
            equations = self.equations(opened.equations, env, lift)
            outputs = [_read(env, v) for v in opened.outputs]
            equations = group_references(equations, outputs)
            program = Program([*inputs, *(v for v, _ in lifted.values())], equations, outputs)
            self.nested[id(jaxpr)] = (program, [(a, v.type) for v, a in lifted.values()], jaxpr)
        program, arrays, _ = self.nested[id(jaxpr)]
        return program, arrays

    def equations(self, jaxpr_equations: Any, env: dict[Any, Atom], constant: Any) -> list[Equation]:
        result = []
        for equation in jaxpr_equations:
            op, lifted = self.op(equation)
            inputs: list[Atom] = [_read(env, v) for v in equation.invars]
            inputs = _place_lifted(op, inputs, [[constant(a, t) for a, t in part] for part in lifted])
            outputs = [_define(env, v) for v in equation.outvars]
            result.append(Equation(op, inputs, outputs, Source(equation.source_info)))
        return result

    def op(self, equation: Any) -> tuple[Op, list[list[tuple[Any, Any]]]]:
        """The op of a jaxpr equation, and the arrays its nested programs need as further inputs."""
        kind, params = jax_compat.kind_of(equation)
        if kind == "primitive":
            return Primitive(equation.primitive, params, jax_compat.effects_of(equation), _context(equation)), []
        if kind == "name":
            return Name(params["name"]), []
        if kind == "call":
            program, arrays = self.program(jax_compat.with_constraints(params))
            return Call(program, str(params.get("name", ""))), [arrays]
        if kind == "checkpoint":
            program, arrays = self.program(params["jaxpr"])
            marks = params.get("function", ""), params.get("derived", False), params.get("differentiated", False)
            return Checkpoint(program, params["policy"], params["prevent_cse"], *marks), [arrays]
        if kind == "custom_rule":
            program, arrays = self.program(params["jaxpr"])
            program = _with_lifted(program, len(arrays), 0)
            return CustomRule(program, params["rules"], params["constant_count"] + len(arrays)), [arrays]
        if kind == "scan":
            program, arrays = self.program(params["jaxpr"])
            constants, carry = jax_compat.scan_counts(params)
            # The lifted arrays are constants of the loop, so they move in front of the carry.
            body = _with_lifted(program, len(arrays), constants)
            count = constants + len(arrays)
            return Scan(body, params["length"], params["reverse"], count, carry, params["unroll"]), [arrays]
        if kind == "shard_map":
            return self.shard_map(equation)
        if kind == "cond":
            return self.cond(params["branches"], params.get("branches_platforms"))
        return self.while_loop(params)

    def cond(self, branches: Any, platforms: Any) -> tuple[Cond, list[list[tuple[Any, Any]]]]:
        """Each branch takes the arrays of all branches, so that they keep one signature."""
        read = [self.program(b) for b in branches]
        lifted = [arrays for _, arrays in read]
        programs = []
        for k, (program, arrays) in enumerate(read):
            own = len(program.inputs) - len(arrays)
            extra = [program.inputs[own:] if j == k else [Value(t) for _, t in other] for j, other in enumerate(lifted)]
            inputs = [*program.inputs[:own], *(v for part in extra for v in part)]
            programs.append(Program(inputs, program.equations, program.outputs))
        return Cond(tuple(programs), platforms), lifted

    def shard_map(self, equation: Any) -> tuple[ShardMap, list[list[tuple[Any, Any]]]]:
        """Arrays that the body closes over are whole on every device."""
        params = equation.params
        body, arrays = self.program(params["jaxpr"])
        whole = (jax.sharding.PartitionSpec(),) * len(arrays)
        specs = (*params["in_specs"], *whole), tuple(params["out_specs"])
        op = ShardMap(
            body, params["mesh"], *specs, params["newly_manual_axes"], params["check_vma"], _context(equation)
        )
        return op, [[(array, jax.typeof(array)) for array, _ in arrays]]

    def while_loop(self, params: dict[str, Any]) -> tuple[While, list[list[tuple[Any, Any]]]]:
        condition, condition_arrays = self.program(params["cond_jaxpr"])
        body, body_arrays = self.program(params["body_jaxpr"])
        parts = []
        for program, arrays, own in (
            (condition, condition_arrays, params["cond_nconsts"]),
            (body, body_arrays, params["body_nconsts"]),
        ):
            parts.append((_with_lifted(program, len(arrays), own), own + len(arrays)))
        (condition, m), (body, n) = parts
        return While(condition, body, m, n), [condition_arrays, body_arrays]


def _with_lifted(program: Program, count: int, position: int) -> Program:
    """The program with its last `count` inputs, which stand for lifted arrays, moved to a position."""
    k = len(program.inputs) - count
    inputs = [*program.inputs[:position], *program.inputs[k:], *program.inputs[position:k]]
    return Program(inputs, program.equations, program.outputs)


def _place_lifted(op: Op, inputs: list[Atom], lifted: list[list[Value]]) -> list[Atom]:
    """Put the values of lifted arrays where the op expects its constants."""
    if not any(lifted):
        return inputs
    if isinstance(op, CustomRule):
        return [*lifted[0], *inputs]
    if isinstance(op, Scan):
        k = op.constant_count - len(lifted[0])
        return [*inputs[:k], *lifted[0], *inputs[k:]]
    if isinstance(op, While):
        m = op.condition_constants - len(lifted[0])
        n = m + op.body_constants - len(lifted[1])
        return [*inputs[:m], *lifted[0], *inputs[m:n], *lifted[1], *inputs[n:]]
    return [*inputs, *(v for part in lifted for v in part)]


def _context(equation: Any) -> Any:
    """The equation's context, where it is anything but the default one."""
    context = equation.ctx
    if getattr(context, "compute_type", None) or getattr(context, "xla_metadata", None):
        return context
    mesh = getattr(context, "cur_abstract_mesh", None)
    return context if mesh is not None and not mesh.empty else None


def _define(env: dict[Any, Atom], variable: Any) -> Value:
    value = Value(variable.aval)
    env[variable] = value
    return value


def _read(env: dict[Any, Atom], atom: Any) -> Atom:
    if isinstance(atom, jax_compat.Literal):
        return Literal(atom.val, atom.aval)
    return env[atom]
