"""XLA's out-of-memory message explained, as data: which values the buffers are, why they are there, what would fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from jax.sharding import NamedSharding

from remat.checkpoint import resolve_policy
from remat.decisions import Policy, names_in
from remat.errors import ArgumentError, ArgumentTypeError
from remat.inspect.buffers import Occupant, at_the_peak, candidates_of, listed_only, occupants_of, together
from remat.inspect.compare import POLICIES, compare
from remat.inspect.comparison import Comparison, Fit, Row
from remat.inspect.describe import residuals_of
from remat.inspect.planned import Loss, Planned
from remat.inspect.timeline import policy_text
from remat.ir.ops import Scan
from remat.ir.program import Program
from remat.policies.names import save_only_these_names
from remat.policies.parse import parse
from remat.simulate.live_bytes import simulate_split
from remat.targets.measure import made_for
from remat.targets.out_of_memory import OutOfMemory, read_out_of_memory
from remat.targets.target import RETIE_AFTER, Target, as_target

SCHEMA = "remat.explanation/1"
SMALL = 1 / 1000
"""Buffers of less than this part of the largest are left out: a TPU's messages list many of a few bytes."""


@dataclass(frozen=True)
class Explanation:
    """What a message says, and what it is about in the user's function.

    **Attributes**

    - `message`: what the message says, as data.
    - `occupants`: what takes the memory, the largest first: the buffers of the message, or what is alive at the
      simulated peak if it lists none (then `is_listed` is false).
    - `limit_bytes`: how much there is on one device; from the message, or else from the target's data sheet
      (`limit_is_stated` says which). None if neither has it. What a running device says is free is so beside the
      arguments (`message.holds_arguments`).
    - `function`, `policy`, `target`: what was traced; None without a function. `devices`: over how many devices its
      arguments are sharded. Simulated bytes are those of all of them together.
    - `comparison`: what some policies would take, simulated, that of the message first. None without a function, and
      where no policy would help.
    - `fit`: which of them fit, since they take as much less than the policy of the message as it takes too much; what
      else is in memory (an optimizer's state) stays as it is. None if nobody knows how much that is.
    """

    message: OutOfMemory
    occupants: tuple[Occupant, ...]
    is_listed: bool
    limit_bytes: int | None = None
    limit_is_stated: bool = True
    function: str | None = None
    policy: str | None = None
    target: str | None = None
    devices: int = 1
    comparison: Comparison | None = None
    fit: Fit | None = None

    def bytes_of(self, *kinds: str) -> int:
        """How many bytes of the occupants are of these kinds: `kept`, `argument`, `result`, `transient`..."""
        return sum(o.total_bytes for o in self.occupants if o.kind in kinds)

    @property
    def advised(self) -> Row | None:
        """The policy that fits and recomputes least, one that moves nothing to the host before one that does; None if
        none fits or nobody knows."""
        return min(self.fit.rows if self.fit else (), key=_cost, default=None)

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        occupants = [{**asdict(o), "source": o.source._asdict(), "total_bytes": o.total_bytes} for o in self.occupants]
        data = {
            "schema": SCHEMA,
            "message": {**asdict(self.message), "parts": dict(self.message.parts)},
            "function": self.function,
            "policy": self.policy,
            "target": self.target,
            "devices": self.devices,
            "limit_bytes": self.limit_bytes,
            "limit_is_stated": self.limit_is_stated,
            "is_listed": self.is_listed,
            "occupants": occupants,
            "comparison": None if self.comparison is None else json.loads(self.comparison.to_json()),
            "fits": None if self.fit is None else [r.policy for r in self.fit.rows],
        }
        return json.dumps(data, indent=1)

    def __str__(self) -> str:
        from remat.report.explanation import explanation_text

        return explanation_text(self)


def _cost(row: Row) -> tuple[int, int, int]:
    return row.recomputed_flops or 0, row.host_bytes or 0, row.total_bytes or 0


def explain(
    error: BaseException | str,
    fun: Callable[..., Any] | None = None,
    /,
    *args: Any,
    policy: Any = None,
    target: Target | str | None = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> Explanation:
    """Say what takes the memory in an out-of-memory message of XLA's, and which policies would fit.

    Nothing is compiled or run: values are found in the traced function, and policies are simulated.

    **Arguments**

    - `error`: the exception, or a text with the message in it, such as a log; those of TPU, GPU and CPU are known.
    - `fun`: the loss whose gradient ran out of memory, if it is to be looked into; the gradient may have been a part of
      a larger step. Without it, the explanation has what the message alone tells.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `policy`, `argnums`: those that it was differentiated with, as for `remat.grad`.
    - `target`: the device, such as `"tpu:v5e:2x2"`; it says how much memory there is where the message does not. None
      is what JAX would run on, if that is what the message is from.

    **Returns** an `Explanation`, which prints as a report.

    **Raises** `ArgumentError` for a text that has no such message, `ArgumentTypeError` for what is neither text nor
    exception, `TargetError` for bad targets, and what `remat.value_and_grad` raises for bad functions, arguments and
    policies.

    >>> import jax, jax.numpy as jnp, remat
    >>> def loss(ws, x):
    ...     for w in ws:
    ...         x = jnp.sin(jnp.tanh(x @ w))
    ...     return x.sum()
    >>> f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    >>> message = "Ran out of memory in memory space hbm. Used 280.0K of 260.0K hbm. Exceeded hbm capacity by 20.0K."
    >>> found = remat.explain(message, loss, [f32(64, 64)] * 4, f32(64, 64), target="tpu:v5e:2x2")
    >>> found.limit_bytes, found.bytes_of("kept")
    (266240, 98304)
    """
    message = _message(error)
    if fun is None:
        if args or kwargs or policy is not None:
            raise ArgumentError(
                "arguments and a policy are those of a function, and none was given. Write remat.explain(error, loss, "
                "*args, policy=...), or remat.explain(error) for the message alone."
            )
        return _of_message_alone(message, None if target is None else as_target(target))
    chosen = _target(target, message)
    resolved = resolve_policy(policy)
    loss = Loss.of("remat.explain", fun, args, kwargs, argnums)
    with made_for(chosen):
        planned = loss.under(resolved)
        occupants, is_listed = _occupants(message, planned)
    found = replace(
        _of_message_alone(message, chosen),
        occupants=together(occupants),
        is_listed=is_listed,
        function=loss.function,
        policy=policy_text(resolved),
        target=str(chosen),
        devices=_devices(loss),
    )
    if message.memory not in ("hbm", "ram"):
        return found
    policies = _policies(resolved, planned.program, chosen)
    return _compared(found, compare(fun, args, policies, kwargs=kwargs, argnums=argnums, target=chosen))


def _message(error: Any) -> OutOfMemory:
    """The message of an exception, or of one that it was raised from."""
    if isinstance(error, str):
        return read_out_of_memory(error)
    if not isinstance(error, BaseException):
        raise ArgumentTypeError(
            f"an out-of-memory message is a text or an exception, but got {error!r:.60} of type "
            f"{type(error).__name__}. Give the exception itself, str of it, or the text of a log."
        )
    texts, at = [], error
    while at is not None and len(texts) < 20:
        texts.append("\n".join([str(at), *getattr(at, "__notes__", ())]))
        at = at.__cause__ or at.__context__
    return read_out_of_memory("\n".join(texts))


def _of_message_alone(message: OutOfMemory, target: Target | None) -> Explanation:
    occupants = together(listed_only(_telling(message)))
    if message.limit_bytes is not None or target is None or message.memory != "hbm":
        return Explanation(message, occupants, bool(occupants), message.limit_bytes)
    return Explanation(message, occupants, bool(occupants), target.memory_bytes, limit_is_stated=False)


def _telling(message: OutOfMemory) -> list[Any]:
    largest = max((b.bytes for b in message.buffers), default=0)
    return [b for b in message.buffers if b.bytes >= largest * SMALL]


def _occupants(message: OutOfMemory, planned: Planned) -> tuple[list[Occupant], bool]:
    """What the buffers are, or what is alive at the peak if there are none."""
    simulated = simulate_split(planned.split)
    kept = residuals_of(planned.split, planned.program, planned.loss.function)
    buffers = _telling(message)
    if not buffers:
        return at_the_peak(planned, simulated, kept), False
    return occupants_of(buffers, candidates_of(planned, simulated, kept)), True


def _target(target: Target | str | None, message: OutOfMemory) -> Target:
    """The target given, or the device that JAX would run on; where the message is another platform's, that one."""
    if target is not None:
        return as_target(target)
    own = as_target(None)
    if own.platform == message.platform:
        return own
    return Target(message.platform, message.platform, retie_after=RETIE_AFTER[message.platform])


def _devices(loss: Loss) -> int:
    shardings = [getattr(leaf, "sharding", None) for leaf in loss.leaves]
    return max([s.mesh.size for s in shardings if isinstance(s, NamedSharding)], default=1)


def _policies(given: Policy | None, program: Program, target: Target) -> list[Policy | None]:
    """What is compared: the policy of the message first, then the usual ones, and those that the function allows."""
    others: list[str | None] = list(POLICIES)
    if any(isinstance(e.op, Scan) for e in _equations(program)):
        others += ["scan_body:dots", "scan_body:nothing"]
    names = names_in(program.equations)
    if names:
        text = str(save_only_these_names(*names))
        others += [text, *([text.replace("names:", "offload:", 1)] if target.platform != "cpu" else [])]
    policies: list[Policy | None] = [given]
    policies += [p for p in (None if text is None else parse(text) for text in others) if p != given]
    return policies


def _equations(program: Program) -> list[Any]:
    """The equations of a program and of those nested in it."""
    found = []
    stack = [program]
    while stack:
        equations = stack.pop().equations
        found += equations
        stack += [inner for e in equations for inner in e.op.programs]
    return found


def _compared(found: Explanation, comparison: Comparison) -> Explanation:
    """With the comparison, and which policies fit: those that take less than the first by what is too much."""
    first, lacking = comparison.rows[0].total_bytes, found.message.lacking_bytes
    if first is None:
        return replace(found, comparison=comparison)
    if lacking is not None:
        allowed = first - max(lacking, 1) * found.devices  # nothing is lacking where what is free is in pieces
    elif found.limit_bytes is not None:
        allowed = min(found.limit_bytes * found.devices, first - 1)  # it did not fit, whatever the simulation says
    else:
        return replace(found, comparison=comparison)
    return replace(found, comparison=comparison, fit=comparison.fits(max(allowed, 0)))
