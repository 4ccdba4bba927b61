"""What each backward step asks for and what is recomputed for it, in the terms of Burn's autodiff.

The function is laid out on a tape of operations as Burn does it, and each operation's backward step *retrieves* values.
Burn's strategies follow Burn's rules to the letter: a step asks for inputs of its operation. Under any other policy a
step asks for what JAX's derivative reads (the result of an `exp`, the input of a `sin`), what the policy keeps is
there, and everything else is recomputed, also through constants.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from remat.checkpoint import resolve_policy
from remat.decisions import Policy, Recompute
from remat.inspect.differentiated import Differentiated, differentiated
from remat.ir.linearized import LinearEquation, Linearized
from remat.ir.program import Value
from remat.ir.source import NOWHERE, Position
from remat.ir.types import short_text, size_in_bytes
from remat.policies.burn.checkpointer import Action, Checkpointer
from remat.policies.burn.strategies import Strategy
from remat.policies.burn.tape import Node, Step, Tape, build_tape
from remat.transforms.decide import decide


@dataclass(frozen=True)
class LoggedNode:
    """One float array of the function.

    **Attributes**

    - `id`: counted from 0: the arguments, then the results of operations in order.
    - `type`, `bytes`: JAX's short form of the type, and its size.
    - `operation`: what made it; the path of an argument.
    - `source`: the user's line.
    - `requirement`: `leaf` (an argument that is differentiated), `tracked` (a gradient flows through it), `constant`.
    - `depth`: operations on the longest path from the arguments.
    """

    id: int
    type: str
    bytes: int
    operation: str
    source: Position
    requirement: str
    depth: int


@dataclass(frozen=True)
class LoggedRetrieval:
    """One retrieval: the node that a backward step asks for, and the nodes gone through for it, ancestors first."""

    node: int
    executed: tuple[int, ...]


@dataclass(frozen=True)
class RetrievalLog:
    """What `remat.retrieval_log` returns. Nodes are named by their ids; `nodes[id]` tells more.

    **Attributes**

    - `function`, `policy`: what was differentiated, and the string form of the policy (`none` without one).
    - `nodes`: all float arrays. `steps`: how many operations the backward pass runs.
    - `retrievals`: what backward steps ask for, in the order in which they run.
    - `recomputed`: what is computed again, in order.
    - `held`: what is in memory after the forward pass because of the tape, arguments left out. Under Burn's balanced
      strategy this includes backups that are dropped before the first backward step.
    - `kept`: the part of `held` that is still there when the backward pass begins.
    - `n_required`: how often each node is read during the backward pass.
    - `drained`: whether everything was used up at the end.
    """

    function: str
    policy: str
    nodes: tuple[LoggedNode, ...]
    steps: int
    retrievals: tuple[LoggedRetrieval, ...]
    recomputed: tuple[int, ...]
    held: tuple[int, ...]
    kept: tuple[int, ...]
    n_required: dict[int, int]
    drained: bool

    @property
    def held_bytes(self) -> int:
        """Bytes of what is held after the forward pass, backups included."""
        return sum(self.nodes[i].bytes for i in self.held)

    @property
    def kept_bytes(self) -> int:
        """Bytes of what is held when the backward pass begins, backups that nothing needs dropped."""
        return sum(self.nodes[i].bytes for i in self.kept)

    @property
    def recomputed_bytes(self) -> int:
        """Bytes of what is computed again."""
        return sum(self.nodes[i].bytes for i in self.recomputed)

    def text(self, level: str = "full") -> str:
        """The log in Burn's format: level `basic` has a line for each retrieval, `full` also one for each node gone
        through.

        **Raises** `ArgumentError` for other levels.
        """
        from remat.report.retrievals import log_text

        return log_text(self, level)

    def to_json(self) -> str:
        """The same as JSON."""
        data = {"schema": "remat.retrieval_log/1", "held_bytes": self.held_bytes, "kept_bytes": self.kept_bytes}
        return json.dumps({**data, **asdict(self)}, indent=1)

    def __str__(self) -> str:
        from remat.report.retrievals import summary_text

        return summary_text(self)


def retrieval_log(
    fun: Callable[..., Any], /, *args: Any, policy: Any = None, argnums: int | Sequence[int] = 0, **kwargs: Any
) -> RetrievalLog:
    """What each backward step retrieves and what is recomputed for it, as Burn's autodiff log tells it.

    **Arguments**

    - `fun`: the function. Loops are one operation each.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `policy`: `policies.burn_no_checkpointing()`, `policies.burn_balanced()`, or any other policy or its string form.
      None keeps everything, except in checkpoint regions of `fun`.
    - `argnums`: the arguments that require a gradient; all others are constants.

    **Returns** a `RetrievalLog`; `print` shows a summary, `.text("full")` the log itself.

    **Raises** `ArgumentError`, `ArgumentTypeError` as `remat.grad` does.

    >>> import jax.numpy as jnp, remat
    >>> log = remat.retrieval_log(lambda x: jnp.sin(jnp.exp(x)).sum(), jnp.ones(3), policy="burn")
    >>> print(log.text("full"))
    retrieve_node_output NodeId { value: 1 }: 2 node(s) to compute
    execute_retro_forward NodeId { value: 0 }
    execute_retro_forward NodeId { value: 1 }
    retrieve_node_output NodeId { value: 0 }: 1 node(s) to compute
    execute_retro_forward NodeId { value: 0 }
    """
    chosen = resolve_policy(policy)
    found = differentiated("remat.retrieval_log", fun, args, kwargs, argnums, chosen)
    tape = build_tape(found.linearized)
    if isinstance(chosen, Strategy):
        asked = {s: s.explicit for s in tape.steps}
        states = chosen.checkpointer(tape, tape.visited())
        held = states.held
    else:
        asked = _asked_by_jax(tape, found.linearized)
        states = _planned(tape, found, asked)
        held = states.kept
    retrievals = [states.retrieve(n) for s in tape.execution() for n in asked[s]]
    return RetrievalLog(
        function=found.function,
        policy=_policy_text(chosen),
        nodes=tuple(_logged(n, found) for n in dict.fromkeys(tape.nodes.values())),
        steps=sum(1 for _ in tape.visited()),
        retrievals=tuple(LoggedRetrieval(r.node.id, tuple(n.id for n in r.executed)) for r in retrievals),
        recomputed=tuple(n.id for n in states.recomputed),
        held=_ids(held),
        kept=_ids(states.kept),
        n_required={n.id: count for n, count in sorted(states.n_required.items(), key=lambda item: item[0].id)},
        drained=states.is_empty,
    )


def _planned(tape: Tape, found: Differentiated, asked: dict[Step, list[Node]]) -> Checkpointer:
    """The states under a policy that decided on the whole program: no backups, and constants are recomputed too."""
    decisions = decide(found.linearized)
    allowed = {tape.nodes[v] for v, d in decisions.items() if v in tape.nodes and not isinstance(d, Recompute)}

    def action(node: Node) -> Action:
        step = node.step
        there = step is None or step.equation.region is None or bool(step.equation.op.effects)
        return Action(node, there or node in allowed)

    operands = {n: s.operands for s in tape.steps for n in s.outputs}
    explicit = [action(n) for s in tape.visited() for n in asked[s]]
    possible = [action(n) for s in tape.steps for n in (*s.operands, *s.outputs)]
    return Checkpointer(explicit, possible, lambda n: operands.get(n, []))


def _asked_by_jax(tape: Tape, level: Linearized) -> dict[Step, list[Node]]:
    """The nodes that JAX's derivative of each operation reads, directly or to compute its coefficients: operands in
    their order, then results."""
    asked: dict[Step, list[Node]] = {step: [] for step in tape.steps}
    step_of = {n.value: s for s in tape.steps for n in s.outputs}
    producer = {v: e for e in level.equations for v in e.outputs}
    live = set(level.live_linear())
    for derivation in level.derivations:
        step = next((step_of[a] for a in derivation.outputs if isinstance(a, Value) and a in step_of), None)
        if step is None:
            continue
        own = {*derivation.primal, *derivation.coefficients}
        stack = [a for e in derivation.linear if e in live for a in _coefficients(e)]
        read: dict[Value, Node | None] = {}
        while stack:
            value = stack.pop()
            if value not in read:
                read[value] = tape.nodes.get(value)
                if read[value] is None and producer.get(value) in own:
                    stack.extend(a for a in producer[value].inputs if isinstance(a, Value))
        nodes = {n for n in read.values() if n is not None}
        operands = [n for n in step.operands if n in nodes]
        asked[step] = [*operands, *sorted(nodes.difference(operands), key=lambda n: n.id)]
    return asked


def _coefficients(equation: LinearEquation) -> list[Value]:
    pairs = zip(equation.inputs, equation.linear, strict=True)
    return [a for a, is_linear in pairs if isinstance(a, Value) and not is_linear]


def _logged(node: Node, found: Differentiated) -> LoggedNode:
    step = node.step
    operation = found.argument_names.get(node.value, "constant") if step is None else step.op.name
    source = NOWHERE if step is None else step.equation.source.position
    kind = short_text(node.value.type), size_in_bytes(node.value.type)
    return LoggedNode(node.id, *kind, operation, source, str(node.requirement), node.depth)


def _ids(nodes: Sequence[Node]) -> tuple[int, ...]:
    return tuple(sorted({n.id for n in nodes if not n.is_leaf}))


def _policy_text(policy: Policy | None) -> str:
    return "none" if policy is None else str(policy)
