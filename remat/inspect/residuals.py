"""The residuals of a function as data: what is kept for the backward pass, how many bytes, from where, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from remat.checkpoint import checkpoint
from remat.decisions import Offload, Save, as_policy
from remat.gradient_checks import check_argnums, choose_arguments
from remat.ir.ops import Name, Scan
from remat.ir.program import Equation, Program, Value
from remat.ir.source import NOWHERE, Position
from remat.ir.types import element_count, is_differentiable, short_text, size_in_bytes
from remat.signature import flatten_arguments, function_name, leaves_of
from remat.trace import trace_arguments
from remat.transforms.differentiate_program import split_program
from remat.transforms.split import Split
from remat.transforms.walk import Level


@dataclass(frozen=True)
class Origin:
    """Where a kept value comes from.

    `kind` is `argument`, `constant`, `named` or `output`; `text` the argument's path, the name, or the operation that
    made it.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class User:
    """A backward equation that needs a kept value: the operation it differentiates, and where that was written."""

    operation: str
    source: Position


@dataclass(frozen=True)
class Residual:
    """One value that is kept for the backward pass.

    **Attributes**

    - `type`: the type of one instance, in JAX's short form (`f32[5,4]`, `f32<host>[4]`).
    - `bytes`: bytes of one instance; `times`: how many instances are kept, the product of the lengths of the scans
      around it; `total_bytes`: their product.
    - `stacked_type`: the type of all instances together, as JAX prints it.
    - `origin`: see `Origin`. `name`: the name from `checkpoint_name`, or None.
    - `source`: the user's line. `scope`: the `jax.named_scope` path.
    - `loops`: the lengths of the scans around it, outermost first.
    - `carried`: whether it is what a scan carries from one iteration to the next.
    - `needed_by`: the backward equations that read it, directly or to recompute something from it.
    - `reason`: why it is kept, in words.
    - `memory`: the memory it is kept in (`device`, `pinned_host`...).
    """

    type: str
    bytes: int
    times: int
    stacked_type: str
    origin: Origin
    name: Any
    source: Position
    scope: str
    loops: tuple[int, ...]
    carried: bool
    needed_by: tuple[User, ...]
    reason: str
    memory: str

    @property
    def total_bytes(self) -> int:
        return self.bytes * self.times

    @property
    def is_new(self) -> bool:
        """Whether keeping it costs memory: arguments and constants are held by the caller anyway."""
        return self.origin.kind not in ("argument", "constant")


@dataclass(frozen=True)
class Residuals(Sequence[Residual]):
    """The kept values of a function, in the order of the program: constants, arguments, then results of operations."""

    function: str
    residuals: tuple[Residual, ...]

    @overload
    def __getitem__(self, index: int) -> Residual: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Residual, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.residuals[index]

    def __len__(self) -> int:
        return len(self.residuals)

    def __iter__(self) -> Iterator[Residual]:
        return iter(self.residuals)

    @property
    def total_bytes(self) -> int:
        """Bytes of all kept values, those held by the caller anyway included."""
        return sum(r.total_bytes for r in self.residuals)

    @property
    def new_bytes(self) -> int:
        """Bytes that exist only because the backward pass needs them: all but arguments and constants."""
        return sum(r.total_bytes for r in self.residuals if r.is_new)

    @property
    def offloaded_bytes(self) -> int:
        """The part of `new_bytes` that is kept in another memory than the device's (planned, not measured)."""
        return sum(r.total_bytes for r in self.residuals if r.is_new and r.memory != "device")

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        rows = [
            {**asdict(r), "total_bytes": r.total_bytes, "name": None if r.name is None else str(r.name)} for r in self
        ]
        data = {
            "schema": "remat.residuals/1",
            "function": self.function,
            "total_bytes": self.total_bytes,
            "new_bytes": self.new_bytes,
            "offloaded_bytes": self.offloaded_bytes,
            "residuals": rows,
        }
        return json.dumps(data, indent=1, default=str)

    def __str__(self) -> str:
        from remat.report.text import residuals_text

        return residuals_text(self)


def saved_residuals(
    fun: Callable[..., Any],
    /,
    *args: Any,
    policy: Any = None,
    argnums: int | Sequence[int] | None = None,
    **kwargs: Any,
) -> Residuals:
    """What is kept for the backward pass when `fun` is differentiated.

    **Arguments**

    - `fun`: the function; checkpoint regions in it, ours and JAX's, act as they do under `remat.grad`.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `policy`: what is kept, as for `remat.grad(fun, policy=...)`: the function is one region. None leaves that to the
      regions in it.
    - `argnums`: the positional argument or arguments that are differentiated, as for `remat.grad`; None means all
      floating point arguments.

    **Returns** a `Residuals` sequence. Sizes are predicted from the program, not measured.

    **Raises** what `remat.grad` raises for bad policies and `argnums`.

    >>> import jax.numpy as jnp, remat
    >>> w, x = jnp.ones((5, 4)), jnp.ones(4)
    >>> [(r.type, r.origin.text, r.total_bytes) for r in remat.saved_residuals(lambda w, x: jnp.sin(w @ x), w, x)]
    [('f32[5,4]', 'w', 80), ('f32[4]', 'x', 16), ('f32[5]', 'cos', 20)]
    >>> [r.origin.text for r in remat.saved_residuals(lambda w, x: jnp.sin(w @ x), w, x, policy="nothing", argnums=0)]
    ['w', 'x']
    """
    if policy is not None:
        fun = checkpoint(fun, policy=policy)
    arguments = flatten_arguments(fun, args, kwargs)
    program = trace_arguments(fun, arguments)
    chosen = [True for _ in arguments.leaves]
    if argnums is not None:
        positions = choose_arguments(fun, check_argnums(argnums)[0], args, kwargs)
        chosen = leaves_of(arguments, args, kwargs, positions)
    active = [c and is_differentiable(t) for c, t in zip(chosen, program.input_types, strict=True)]
    return residuals_of(split_program(program, active), program, function_name(fun))


def residuals_of(split: Split, program: Program, function: str) -> Residuals:
    """Describe the residuals of a split program."""
    return Residuals(function, tuple([found for _, found in describe_each(split, program)]))


def describe_each(split: Split, program: Program) -> list[tuple[Value, Residual]]:
    """Each residual with the value of the linearized program that it is, or holds of every iteration of a loop."""
    describe = _Describer(split, program)
    return [(describe.innermost(v)[0], describe.residual(v)) for v in split.residuals]


class _Describer:
    def __init__(self, split: Split, program: Program):
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
        times = 1
        for length in loops:
            times *= element_count([length])
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
