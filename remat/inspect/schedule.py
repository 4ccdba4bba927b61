"""The schedule of a differentiated function as data: what is kept and by whose decision, what the backward pass turns
around and computes again, in which order and because of what, and when a value dies.

It is read from the steps that the backward pass was made of (`remat.transforms.steps`). Values are spoken of by their
keys (`remat.ir.keys`), and of barriers it says nothing: they are how a compiler is made to keep to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from remat.checkpoint import resolve_policy
from remat.inspect.describe import describe_each
from remat.inspect.planned import Loss, Planned
from remat.inspect.timeline import policy_text
from remat.ir.keys import Keys
from remat.ir.linearized import LinearCond, LinearEquation, LinearScan, LinearShardMap
from remat.ir.program import Value
from remat.targets.measure import made_for
from remat.targets.target import as_target
from remat.transforms.steps import BackwardStep
from remat.transforms.walk import Level

SCHEMA = "remat.schedule/1"


@dataclass(frozen=True)
class Kept:
    """A value that is kept for the backward pass.

    **Attributes**

    - `key`: see `remat.ir.keys`; one value inside a loop stands for those of all iterations.
    - `type`, `bytes`: of one of them. `times`: how many.
    - `memory`: where. `why`: by whose decision, in words. `is_new`: whether keeping it takes memory, which arguments
      and constants do not.
    """

    key: str
    type: str
    bytes: int
    times: int
    memory: str
    why: str
    is_new: bool


@dataclass(frozen=True)
class Step:
    """A step of the backward pass.

    **Attributes**

    - `does`: `transposes` a linear equation, or `recomputes` equations of the forward pass.
    - `what`: the keys of those equations. `because_of`: what a recomputation is needed for.
    - `reads`: the values of the forward pass that it starts from, kept or recomputed before.
    - `stays`: of what it recomputes, what a later step reads; the rest is gone with the step.
    - `after`: whose cotangents have to exist before a recomputation begins. Nothing in loops and branches, which are
      programs of their own.
    - `frees`: the values that no later step reads.
    - `inside`: the steps of a loop, a mapped function, or of each branch.
    """

    does: str
    what: tuple[str, ...]
    because_of: str = ""
    reads: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    frees: tuple[str, ...] = ()
    inside: tuple[tuple[Step, ...], ...] = ()


@dataclass(frozen=True)
class Schedule:
    """What runs forward, what is kept, and the steps of the backward pass.

    **Attributes**

    - `function`, `policy`, `target`: what is differentiated, how, and for which compiler.
    - `forward`: the keys of the equations of the forward pass, in order, loops as one.
    - `kept`: in the order in which the forward pass returns them.
    - `steps`: of the backward pass, in order.
    """

    function: str
    policy: str
    target: str
    forward: tuple[str, ...]
    kept: tuple[Kept, ...]
    steps: tuple[Step, ...]

    @property
    def kept_bytes(self) -> int:
        """Bytes that exist only because the backward pass needs them."""
        return sum(k.bytes * k.times for k in self.kept if k.is_new)

    def all_steps(self) -> Iterator[Step]:
        """The steps with those inside of loops and branches."""
        stack = list(self.steps[::-1])
        while stack:
            step = stack.pop()
            yield step
            stack.extend(s for steps in reversed(step.inside) for s in reversed(steps))

    @property
    def recomputed(self) -> tuple[str, ...]:
        """What the backward pass computes again, once for each time that it does."""
        return tuple([key for step in self.all_steps() if step.does == "recomputes" for key in step.what])

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        return json.dumps({"schema": SCHEMA, "kept_bytes": self.kept_bytes, **asdict(self)}, indent=1)

    def __str__(self) -> str:
        from remat.report.schedule import schedule_text

        return schedule_text(self)


def schedule(
    fun: Callable[..., Any],
    /,
    *args: Any,
    policy: Any = None,
    target: Any = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> Schedule:
    """What `remat.value_and_grad(fun, argnums, policy=policy)` keeps and recomputes, and when.

    **Arguments**

    - `fun`: a function that returns a floating point scalar.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `policy`: as for `remat.grad`; None keeps what JAX keeps.
    - `target`: for whose compiler, as for `remat.measure`. None is what JAX would run on.
    - `argnums`: the arguments that are differentiated.

    **Returns** a `Schedule`, which prints as text.

    **Raises** what `remat.value_and_grad` raises for bad functions, arguments and policies, `TargetError` for bad
    targets.

    >>> import jax.numpy as jnp, remat
    >>> def loss(w, x):
    ...     return jnp.sin(jnp.sin(x @ w)).sum()
    >>> schedule = remat.schedule(loss, jnp.ones((8, 8)), jnp.ones((8, 8)), policy="dots", target="cpu")
    >>> [kept.key for kept in schedule.kept]
    ['argument x', 'dot_general#0']
    >>> schedule.recomputed
    ('sin#0', 'sin#1~cos', 'sin#0~cos')
    """
    chosen = as_target(target)
    resolved = resolve_policy(policy)
    loss = Loss.of("remat.schedule", fun, args, kwargs, argnums)
    with made_for(chosen):
        return schedule_of(loss.under(resolved), policy_text(resolved), str(chosen))


def schedule_of(planned: Planned, policy: str, target: str) -> Schedule:
    """The schedule of what would run."""
    split = planned.split
    keys = Keys(split.linearized, planned.loss.names)
    read = _Reader(keys)
    forward = tuple(map(keys.equation, split.linearized.equations))
    kept = tuple([_kept(keys, value, found) for value, found in describe_each(split, planned.program)])
    steps = read.steps(split.level, {v for e in split.second.equations for v in e.outputs})
    return Schedule(planned.loss.function, policy, target, forward, kept, steps)


def _kept(keys: Keys, value: Value, found: Any) -> Kept:
    key = keys.of.get(value) or str(found.origin.text)
    return Kept(key, found.type, found.bytes, found.times, found.memory, found.reason, found.is_new)


class _Reader:
    """Reads the steps of levels, with keys for values."""

    def __init__(self, keys: Keys):
        self.keys = keys
        self.tangents: dict[Value, str] = {}
        for level in keys.program.levels():
            pairs = zip(level.inputs, level.tangents, strict=True)
            self.tangents.update((t, keys.of[v]) for v, t in pairs if t is not None)
            self.tangents.update((t, self.linear(e)) for e in level.linear for t in e.outputs)

    def linear(self, equation: LinearEquation) -> str:
        return self.keys.linear.get(equation) or equation.op.name.removeprefix("linear_")

    def named(self, values: Collection[Value]) -> tuple[str, ...]:
        """The keys of values; those that a transformation made (what a loop stacks) belong to other levels."""
        return tuple(dict.fromkeys(self.keys.of[v] for v in values if v in self.keys.of))

    def steps(self, level: Level, used: Collection[Value] | None) -> tuple[Step, ...]:
        """The steps of a level that do something: recomputations left out of which nothing is read, and sums, which are
        turned around by doing nothing. `used` are the values that its backward program makes (None: all)."""
        ends = [s.first for s in level.steps[1:]] + [len(level.equations_out)]
        happens = [
            s
            for s, end in zip(level.steps, ends, strict=True)
            if any(
                used is None or not s.recomputed or any(v in used for v in e.outputs)
                for e in level.equations_out[s.first : end]
            )
        ]
        found: list[Step] = []
        read_later: set[Value] = set()
        for step in reversed(happens):
            found.append(self._step(step, level, read_later))
            read_later.difference_update(v for e in step.recomputed for v in e.outputs)
            read_later.update(step.reads)
        return tuple(found[::-1])

    def _step(self, step: BackwardStep, level: Level, read_later: Collection[Value]) -> Step:
        frees = self.named([v for v in step.reads if v not in read_later])
        reads, cause = self.named(step.reads), self.linear(step.equation)
        if not step.recomputed:
            return Step("transposes", (cause,), reads=reads, frees=frees, inside=self._inside(step.equation, level))
        known = [e for e in step.recomputed if e.outputs and e.outputs[0] in self.keys.of]
        what = tuple(dict.fromkeys(map(self.keys.equation, known)))
        stays = self.named([v for e in step.recomputed for v in e.outputs if v in read_later])
        after = tuple(dict.fromkeys(self.tangents[t] for t in step.after if t in self.tangents))
        return Step("recomputes", what, cause, reads, stays, after, frees)

    def _inside(self, equation: LinearEquation, level: Level) -> tuple[tuple[Step, ...], ...]:
        op = equation.op
        if isinstance(op, (LinearScan, LinearShardMap)):
            bodies = [op.body]
        elif isinstance(op, LinearCond):
            bodies = list(op.branches)
        else:
            return ()
        return tuple([self.steps(inner, None) for b in bodies for inner in level.children if inner.linearized is b])
