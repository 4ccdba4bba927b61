"""Plans: what is kept and recomputed so that a step fits into a number of bytes, as data, with proof and as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from remat.errors import BudgetError, PlanError, RematError
from remat.inspect.json_text import read_json
from remat.inspect.planned import Loss
from remat.inspect.timeline import Timeline, timeline_of
from remat.ir.ops import Checkpoint
from remat.ir.program import Program
from remat.planning.choice import Choice
from remat.planning.devices import parts_of
from remat.planning.frontier import Frontier
from remat.policies.budget import Planned, budget_or_auto, known_frontier, planned
from remat.signature import flatten_arguments
from remat.targets.measure import Measurement, made_for, measure, versions_of
from remat.targets.out_of_memory import read_out_of_memory
from remat.targets.target import Target, as_target
from remat.trace import trace_arguments
from remat.units import bytes_text

SCHEMA = "remat.plan/1"
EXACT, CLOSE = 1.001, 1.02
"""Compiled bytes that count as within a budget: numbers and gaps between buffers are not simulated. And those that do
where no smaller plan is."""

CORRECTIONS = 2
"""How often a plan is replaced, where the compiler takes more or less than the simulation says."""

FASTER = 0.99
"""A plan that fits is replaced by one that takes at most this part of its time."""


@dataclass(frozen=True, eq=False)
class Plan:
    """How a loss is differentiated within a budget.

    **Attributes**

    - `function`, `target`: what is differentiated, and for which compiler.
    - `budget_bytes`: the limit. `of`: of the `peak`, or of what is `saved`.
    - `choice`: the structure of regions, the values that are kept (with keys, types and bytes), the simulated peak and
      what is kept in bytes, and the seconds of both passes by the target's peak rates.
    - `seconds_without`: those of the function without any checkpoint.
    - `lower_bound`: seconds that no plan gets below that keeps as many bytes as the budget and recomputes nothing
      twice, by the linear relaxation. `gap`: how much of its time the plan might save at most.
    - `argument_bytes`: what the caller holds besides. `devices`: over how many devices values are spread, as far as
      shardings of the arguments and constraints in the function say; all bytes and seconds are of one of them.
    - `compiled`: what the compiled program takes, once `verify` was called.
    - `corrections`: how many plans `verify` compiled before, since the compiler took more or less than was simulated.
    """

    function: str
    target: str
    budget_bytes: int
    of: str
    choice: Choice
    seconds_without: float
    lower_bound: float
    argument_bytes: int
    devices: int = 1
    compiled: Measurement | None = None
    corrections: int = 0
    _loss: Loss = field(repr=False, default=None)  # type: ignore[assignment]
    _frontier: Frontier = field(repr=False, default=None)  # type: ignore[assignment]

    @property
    def policy(self) -> Planned:
        """The policy that does what the plan says: `remat.grad(loss, policy=plan.policy)`."""
        kept = tuple((v.key, v.type, v.digest) for v in self.choice.kept)
        return planned(self.choice.structure, kept, f"plan for {bytes_text(self.budget_bytes)}")

    @property
    def compiled_bytes(self) -> int | None:
        """Temporaries and results of the compiled program; None before `verify`."""
        return None if self.compiled is None else self.compiled.live_bytes

    @property
    def gap(self) -> float:
        """How much of its time the plan might save at most, as a part of that."""
        seconds = self.choice.seconds
        return max(0.0, 1 - self.lower_bound / seconds) if seconds > 0 else 0.0

    def timeline(self) -> Timeline:
        """Live bytes over both passes, and what is alive at the peak."""
        with made_for(as_target(self.target)):
            return timeline_of(self._loss.under(self.policy), str(self.policy), self.target)

    def verify(self) -> Plan:
        """Compile the step, and correct the plan by what the compiler takes: at most twice.

        Where the program takes more or less than was simulated, others are taken to do so by the same factor, or in a
        line with two that were compiled; the fastest plan that is within the budget then is compiled too.

        **Returns** the fastest of the compiled plans that are within the budget, with what is `compiled`.

        **Raises** `TargetUnavailableError` if the compiler of the target is not installed, `BudgetError` if no plan was
        within the budget once compiled.
        """
        tried: list[Plan] = []
        choice: Choice | None = self.choice
        while choice is not None and len(tried) <= CORRECTIONS:
            found = replace(self, choice=choice)
            taken = measure(self._loss.gradient(found.policy), *self._loss.leaves, target=self.target)
            tried.append(replace(found, compiled=taken, corrections=len(tried)))
            choice = None if self.of == "saved" else self._corrected(tried)
        for limit in (EXACT, CLOSE):
            fits = [p for p in tried if p.compiled_bytes is not None]
            within = [p for p in fits if self.of == "saved" or (p.compiled_bytes or 0) <= limit * self.budget_bytes]
            if within:
                return min(within, key=lambda p: p.choice.seconds)
        least = min(map(_taken, tried))
        raise BudgetError(
            f"no plan for {self.function} was within {self.budget_bytes} bytes when compiled for {self.target}: the "
            f"smallest took {least}. Give at least that."
        )

    def _corrected(self, tried: Sequence[Plan]) -> Choice | None:
        """The plan to compile next; None if there is no better one than those tried."""
        frontier, before, compiled = self._frontier, [p.choice for p in tried], _taken(tried[-1])
        found = frontier.within(_simulated_at(int(EXACT * self.budget_bytes), tried))
        if compiled <= EXACT * self.budget_bytes:
            slower = found is None or found in before or found.seconds > FASTER * before[-1].seconds
            return None if slower else found
        smaller = [found, frontier.smallest, frontier.barest]
        return next((c for c in smaller if c is not None and c not in before), None)

    def to_json(self) -> str:
        """The plan as a file has it, with sizes as plain integers."""
        data = {
            "schema": SCHEMA,
            "function": self.function,
            "target": self.target,
            "devices": self.devices,
            "budget_bytes": self.budget_bytes,
            "of": self.of,
            "structure": self.choice.structure,
            "kept": [asdict(v) for v in self.choice.kept],
            "simulated": {
                "peak_bytes": self.choice.peak_bytes,
                "kept_bytes": self.choice.kept_bytes,
                "seconds": self.choice.seconds,
                "seconds_without": self.seconds_without,
                "lower_bound": self.lower_bound,
            },
            "compiled_bytes": self.compiled_bytes,
            "versions": dict(versions_of("remat", "jax", "jaxlib")),
        }
        return json.dumps(data, indent=1) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file, for `remat.load_plan`."""
        with open(path, "w") as file:
            file.write(self.to_json())

    def __str__(self) -> str:
        from remat.report.plan import plan_text

        return plan_text(self)


def _simulated_at(compiled: int, tried: Sequence[Plan]) -> int:
    """What is simulated of a plan that takes so much once compiled: in a line with the last two that were compiled, or
    with the last one by the same factor."""
    last = tried[-1].choice.peak_bytes, _taken(tried[-1])
    if len(tried) > 1:
        before = tried[-2].choice.peak_bytes, _taken(tried[-2])
        if (last[0] - before[0]) * (last[1] - before[1]) > 0:
            return int(last[0] + (compiled - last[1]) * (last[0] - before[0]) / (last[1] - before[1]))
    return int(compiled * max(last[0], 1) / last[1])


def _taken(tried: Plan) -> int:
    """What the compiled program takes."""
    assert tried.compiled is not None
    return _bytes_of(tried.compiled)


def _bytes_of(taken: Measurement) -> int:
    """Temporaries and results; of a program that the compiler refused, what it says it needs, which may have the
    arguments in it."""
    if taken.live_bytes is not None:
        return taken.live_bytes
    try:
        message = read_out_of_memory(taken.error or "")
    except RematError:
        message = None
    if message is None or message.needed_bytes is None:
        raise BudgetError(f"the compiler for {taken.target} refuses the plan: {taken.error}")
    return message.needed_bytes


def plan(
    fun: Callable[..., Any],
    /,
    *args: Any,
    budget: Any,
    of: str = "peak",
    target: Target | str | None = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> Plan:
    """Choose what `remat.value_and_grad(fun, argnums)` keeps and recomputes, so that it fits into a number of bytes.

    **Arguments**

    - `fun`: a function that returns a floating point scalar.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `budget`, `of`: as for `policies.budget`: bytes, a text such as `"12GiB"`, a part of what no checkpoint takes
      (0.5), or `"auto"` for the memory of the target's device less what the arguments take.
    - `target`: for whose compiler, and with whose rates. None is what JAX would run on.
    - `argnums`: the arguments that are differentiated.

    **Returns** a `Plan`. It is simulated; `plan.verify()` compiles it. `plan.policy` does what it says, `plan.save`
    writes it to a file.

    **Raises** `BudgetError` for a budget that cannot be met, with the smallest that can; what `remat.value_and_grad`
    raises for bad functions and arguments, `TargetError` for bad targets.

    >>> import jax.numpy as jnp, remat
    >>> def loss(ws, x):
    ...     for w in ws:
    ...         x = jnp.sin(jnp.tanh(x @ w))
    ...     return x.sum()
    >>> args = [jnp.ones((64, 64))] * 6, jnp.ones((64, 64))
    >>> plan = remat.plan(loss, *args, budget="160 KiB", target="cpu")
    >>> plan.choice.peak_bytes <= 160 * 1024, plan.choice.seconds >= plan.lower_bound
    (True, True)
    >>> gradient = remat.grad(loss, policy=plan.policy)(*args)
    """
    chosen = as_target(target)
    loss = Loss.of("remat.plan", fun, args, kwargs, argnums)
    with made_for(chosen):
        region, active, parts = region_of(loss)
        wanted = budget_or_auto(budget, of)
        frontier = known_frontier(region, active, parts)
        limit = wanted.bytes_for(region, frontier)
        found = wanted.choose(region, frontier)
        return Plan(
            loss.function, str(chosen), limit, wanted.of, found, frontier.without.seconds,
            frontier.lower_bound(limit), frontier.spread.held, frontier.spread.parts, _loss=loss, _frontier=frontier,
        )  # fmt: skip


def region_of(loss: Loss) -> tuple[Checkpoint, list[bool], list[int]]:
    """A loss as a region, which of its inputs are differentiated, and in how many parts they are, over devices."""
    program = trace_arguments(loss.fun, flatten_arguments(loss.fun, tuple(loss.leaves), {}))
    active = [i in loss.active for i in range(len(program.inputs))]
    constants = [v for v, _ in program.constants]  # inputs of a region, after its own
    closed = Program([*program.inputs, *constants], program.equations, program.outputs)
    parts = [
        parts_of(getattr(leaf, "sharding", None), v.type.shape)
        for leaf, v in zip(loss.leaves, program.inputs, strict=True)
    ]
    parts += [1 for _ in constants]
    active += [False for _ in constants]
    return Checkpoint(closed, None, True, loss.function, derived=True), active, parts


def load_plan(path: str | os.PathLike[str]) -> Planned:
    """The policy of a plan that was saved to a file: `remat.grad(loss, policy=remat.load_plan("plan.json"))`.

    Values are found again by what they are computed by, wherever the lines have moved; failing that, by their keys.

    **Arguments**

    - `path`: what `Plan.save` or `remat plan --output` wrote.

    **Returns** a policy. Types are part of a plan, so it is for one batch size.

    **Raises** `PlanError` for a file that is no plan. Differentiating with it raises `PlanError` if the function has no
    such values any more, saying which are gone.

    >>> import tempfile, jax.numpy as jnp, remat
    >>> loss = lambda w, x: jnp.sin(jnp.tanh(x @ w) @ w).sum()
    >>> args = jnp.ones((8, 8)), jnp.ones((8, 8))
    >>> file = tempfile.NamedTemporaryFile(suffix=".json")
    >>> remat.plan(loss, *args, budget=0.9, of="saved").save(file.name)
    >>> remat.grad(loss, policy=remat.load_plan(file.name))(*args).shape
    (8, 8)
    """
    with open(path) as file:
        data = read_json(file.read(), SCHEMA, "Plan.save", os.fspath(path), PlanError)
    try:
        kept = [(v["key"], v["type"], v["digest"]) for v in data["kept"]]
        return planned(data["structure"], kept, f"plan {os.path.basename(os.fspath(path))}")
    except (KeyError, TypeError) as error:
        raise PlanError(f"{os.fspath(path)} is a plan without {error}. Make it again with Plan.save.") from None
