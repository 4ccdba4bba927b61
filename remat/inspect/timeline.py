"""Live bytes over the forward and the backward pass of a function, as data: where the peak is, and what is alive."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from remat.checkpoint import resolve_policy
from remat.errors import ArgumentError
from remat.inspect.planned import Loss, Planned
from remat.ir.program import Equation
from remat.ir.source import NOWHERE, Position
from remat.ir.types import short_text
from remat.simulate.flat import step_count
from remat.simulate.live_bytes import simulate_split
from remat.simulate.timeline import Array
from remat.simulate.timeline import Timeline as Simulated
from remat.targets.measure import made_for
from remat.targets.target import as_target


@dataclass(frozen=True)
class Alive:
    """An array that is alive at a step.

    **Attributes**

    - `type`, `bytes`: JAX's short form of its type, and its size. `times`: how many values it holds, one for each
      iteration of the loops that store them.
    - `name`: from `checkpoint_name`, or None. `result`: `the value`, or `gradient of params['w']`, if it is that.
    - `operation`, `source`: what makes it, and the user's line; of what a loop stores, those in its body.
    - `made`: `forward`, `backward`, or `recomputed`, which is in the backward pass too.
    - `since`, `until`: the first and the last step that it is alive at.
    """

    type: str
    bytes: int
    times: int
    name: str | None
    result: str | None
    operation: str
    source: Position
    made: str
    since: int
    until: int


@dataclass(frozen=True)
class Step:
    """A step of the program, and where it is in the user's code.

    **Attributes**

    - `number`: counted from 0 over both passes. `of`: how many there are.
    - `made`: the pass it belongs to, as for `Alive`.
    - `operation`, `source`: of a step that runs a loop, those of the body at its worst; `inside` are the loops and
      branches around, outermost first. Where the step itself has no line, it is that of the step before.
    """

    number: int
    of: int
    made: str
    operation: str
    source: Position
    inside: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Timeline:
    """Live bytes over the forward and the backward pass, simulated; what the caller holds is not among them.

    **Attributes**

    - `function`, `policy`, `target`: what is differentiated, how (`none` without a policy), and for which compiler.
    - `bytes`: how many bytes are alive at each step, what a loop needs inside included. Of arrays that are sharded,
      those of all devices together.
    - `forward_steps`: how many of the steps are the forward pass.
    - `argument_bytes`: what the caller holds besides: arguments, and arrays that the function closes over.
    """

    function: str
    policy: str
    target: str
    bytes: tuple[int, ...]
    forward_steps: int
    argument_bytes: int
    _simulated: Simulated = field(repr=False)
    _result_names: tuple[str, ...] = field(repr=False)

    @property
    def peak(self) -> int:
        """The most bytes that are alive at once."""
        return self._simulated.peak

    @property
    def set_aside(self) -> int:
        """What a compiled program takes: memory for its results from the start, and for the rest at its worst. At least
        the peak; this is what corresponds to the temporaries and output of `remat.measure`."""
        return self._simulated.set_aside

    @property
    def peak_step(self) -> int:
        """The first step with that many bytes."""
        return self._simulated.peak_step

    @cached_property
    def peak_at(self) -> Step | None:
        """That step, and where it is in the user's code; None for a program without steps."""
        return self.step(self.peak_step) if self.bytes else None

    @cached_property
    def alive(self) -> tuple[Alive, ...]:
        """What is alive at the peak, the largest first; together it has `peak` bytes."""
        return self.alive_at(self.peak_step) if self.bytes else ()

    def alive_at(self, step: int) -> tuple[Alive, ...]:
        """What is alive at a step, the largest first; together it has `bytes[step]`.

        **Raises** `ArgumentError` for a step that there is not.
        """
        self._check(step)
        return tuple([self._described(a) for a in self._simulated.alive_at(step)])

    @cached_property
    def arrays(self) -> tuple[Alive, ...]:
        """All arrays of both passes, in the order in which they are made; those inside loops and branches are not
        among them. What is alive at a step are the ones that it lies between, and those `inside` it."""
        return tuple([self._described(a) for a in self._simulated.arrays])

    def inside(self, step: int) -> tuple[Alive, ...]:
        """What is alive inside the loop or branch that a step runs, at its worst; nothing for other steps.

        **Raises** `ArgumentError` for a step that there is not.
        """
        self._check(step)
        return tuple([self._described(a) for a in self._simulated.inside(step)])

    def step(self, number: int) -> Step:
        """What a step does. **Raises** `ArgumentError` for one that there is not."""
        self._check(number)
        level, at, inside = self._simulated, number, []
        source = _place_before(level.equations, at)
        while at in level.nested and level.nested[at].timeline.bytes:
            inside.append(level.equations[at].op.name)
            level = level.nested[at].timeline
            at = level.peak_step
            inner = _place_before(level.equations, at)
            source = inner if inner.file else source
        equation = level.equations[at]
        made = self._pass(number, equation.source.is_recomputed)
        return Step(number, len(self.bytes), made, equation.op.name, source, tuple(inside))

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        data = {
            "schema": "remat.timeline/1",
            "function": self.function,
            "policy": self.policy,
            "target": self.target,
            "figures": "simulated",
            "argument_bytes": self.argument_bytes,
            "peak_bytes": self.peak,
            "peak_at": None if self.peak_at is None else _as_data(self.peak_at),
            "alive": [_as_data(a) for a in self.alive],
            "forward_steps": self.forward_steps,
            "bytes": self.bytes,
        }
        return json.dumps(data, indent=1)

    def __str__(self) -> str:
        from remat.report.timeline import timeline_text

        return timeline_text(self)

    def _check(self, step: int) -> None:
        if not 0 <= step < len(self.bytes):
            raise ArgumentError(f"there is no step {step!r} in this timeline: steps are 0 to {len(self.bytes) - 1}.")

    def _pass(self, step: int, is_recomputed: bool) -> str:
        if step < self.forward_steps:
            return "forward"
        return "recomputed" if is_recomputed else "backward"

    def _described(self, array: Array) -> Alive:
        return Alive(
            type=short_text(array.value.type),
            bytes=array.bytes,
            times=array.times,
            name=None if array.name is None else str(array.name),
            result=None if array.output is None else self._result_names[array.output],
            operation=array.operation,
            source=array.source.position,
            made=self._pass(array.since, array.source.is_recomputed),
            since=array.since,
            until=array.until,
        )


def _place_before(equations: Sequence[Equation], step: int) -> Position:
    """The place of a step, or that of the last one before it that has one: barriers have none."""
    for equation in reversed(equations[: step + 1]):
        position = equation.source.position
        if position.file:
            return position
    return NOWHERE


def _as_data(x: Alive | Step) -> dict[str, Any]:
    return {**asdict(x), "source": x.source._asdict()}


def timeline(
    fun: Callable[..., Any],
    /,
    *args: Any,
    policy: Any = None,
    target: Any = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> Timeline:
    """Live bytes over the forward and the backward pass of `remat.value_and_grad(fun, argnums, policy=policy)`.

    The program is simulated, not compiled: `remat.measure` does that. Nothing is run.

    **Arguments**

    - `fun`: a function that returns a floating point scalar.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `policy`: as for `remat.grad`; None keeps what JAX keeps.
    - `target`: for whose compiler, such as `"tpu:v5e:2x2"`, as for `remat.measure`. Its compiler is not needed. None is
      what JAX would run on.
    - `argnums`: the arguments that are differentiated.

    **Returns** a `Timeline`. `print` draws it, and lists what is alive at the peak.

    **Raises** what `remat.value_and_grad` raises for bad functions, arguments and policies, `TargetError` for bad
    targets.

    >>> import jax, jax.numpy as jnp, remat
    >>> def loss(ws, x):
    ...     for w in ws:
    ...         x = remat.checkpoint_name(jnp.tanh(x @ w), "layer")
    ...     return x.sum()
    >>> f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    >>> timeline = remat.timeline(loss, [f32(64, 64)] * 3, f32(64, 64), policy="names:layer", target="cpu")
    >>> timeline.peak == max(timeline.bytes) == sum(array.bytes for array in timeline.alive)
    True
    >>> timeline.peak_at.made, timeline.alive[0].name
    ('backward', 'layer')
    """
    chosen = as_target(target)
    resolved = resolve_policy(policy)
    loss = Loss.of("remat.timeline", fun, args, kwargs, argnums)
    with made_for(chosen):
        return timeline_of(loss.under(resolved), policy_text(resolved), str(chosen))


def policy_text(policy: Any) -> str:
    """The short form of a policy, `none` where there is none."""
    return "none" if policy is None else str(policy)


def timeline_of(planned: Planned, policy: str, target: str) -> Timeline:
    """The timeline of what would run."""
    simulated = simulate_split(planned.split)
    return Timeline(
        function=planned.loss.function,
        policy=policy,
        target=target,
        bytes=tuple(simulated.bytes),
        forward_steps=step_count(planned.split.forward),
        argument_bytes=planned.argument_bytes,
        _simulated=simulated,
        _result_names=tuple(planned.result_names),
    )
