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
from remat.decisions import Decision, Policy, Recompute
from remat.inspect.differentiated import Differentiated, differentiated
from remat.ir.linearized import Linearized
from remat.ir.program import Value
from remat.ir.source import NOWHERE, Position
from remat.ir.types import short_text, size_in_bytes
from remat.policies.burn.checkpointer import Action, Checkpointer
from remat.policies.burn.level import LevelFacts, facts_of
from remat.policies.burn.strategies import Strategy
from remat.policies.burn.tape import Node, Requirement, Step, Tape
from remat.transforms.decide import decide
from remat.transforms.derivative import read_coefficients
from remat.transforms.split import kept_bytes


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
    - `held`: what the tape keeps in memory after the forward pass, arguments left out. Under Burn's balanced strategy
      this includes backups that are dropped before the first backward step. What steps hold themselves (masks, indices,
      the operand of a cumulative product) is no node and not counted.
    - `kept`: the part of `held` that is still there when the backward pass begins.
    - `n_required`: how often each node is read during the backward pass.
    - `drained`: whether everything was used up at the end.
    - `planned_bytes`: what `remat.grad` really keeps under the policy. Besides float arrays of the function itself,
      which the log is about, that has masks, indices, coefficients of derivatives, and what loops keep of each
      iteration.
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
    planned_bytes: int

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

    - `fun`: the function. A loop or branch is one operation; what it keeps inside is only in `planned_bytes`.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `policy`: `policies.burn_no_checkpointing()`, `policies.burn_balanced()`, or any other policy or its string form.
      None keeps everything, except in checkpoint regions of `fun`.
    - `argnums`: the arguments that require a gradient; all others are constants.

    **Returns** a `RetrievalLog`; `print` shows a summary, `.text("full")` the log itself.

    **Raises** `ArgumentError`, `ArgumentTypeError` for bad functions and `argnums`, `ReverseModeError` for a loop of
    unknown length.

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
    decisions = decide(found.linearized)
    planned = kept_bytes(found.linearized, decisions)
    facts = facts_of(found.linearized)
    tape, visited = facts.tape, list(facts.tape.visited())
    if isinstance(chosen, Strategy):
        asked = {s: s.explicit for s in tape.steps}
        states = chosen.checkpointer(visited)
        held = states.held
    else:
        asked = _asked_by_jax(found.linearized, facts)
        states = _planned(tape, visited, decisions, asked)
        held = states.kept
    retrievals = [states.retrieve(n) for s in tape.execution() for n in asked[s]]
    return RetrievalLog(
        function=found.function,
        policy=_policy_text(chosen),
        nodes=tuple(_logged(n, found) for n in dict.fromkeys(tape.nodes.values())),
        steps=len(visited),
        retrievals=tuple(LoggedRetrieval(r.node.id, tuple(n.id for n in r.executed)) for r in retrievals),
        recomputed=tuple(n.id for n in states.recomputed),
        held=_ids(held),
        kept=_ids(states.kept),
        n_required={n.id: count for n, count in sorted(states.n_required.items(), key=lambda item: item[0].id)},
        drained=states.is_empty,
        planned_bytes=planned,
    )


def _planned(
    tape: Tape, visited: list[Step], decisions: dict[Value, Decision], asked: dict[Step, list[Node]]
) -> Checkpointer:
    """The states under a policy that decided on the whole program: no backups, and constants are recomputed too."""
    allowed = {tape.nodes[v] for v, d in decisions.items() if v in tape.nodes and not isinstance(d, Recompute)}

    def action(node: Node) -> Action:
        made_by = node.made_by
        there = made_by is None or made_by.region is None or bool(made_by.op.effects)
        return Action(node, there or node in allowed)

    explicit = [action(n) for s in visited for n in asked[s]]
    return Checkpointer(explicit, [action(n) for n in tape.nodes.values()])


def _asked_by_jax(level: Linearized, facts: LevelFacts) -> dict[Step, list[Node]]:
    """The nodes that JAX's derivative of each operation reads, directly or to compute its coefficients: operands in
    their order, then results."""
    nodes_of, step_of, producer = facts.tape.nodes, facts.step_of, facts.producer
    asked: dict[Step, list[Node]] = {step: [] for step in facts.tape.steps}
    for derivation in level.derivations:
        step = next((step_of[a] for a in derivation.outputs if isinstance(a, Value) and a in step_of), None)
        if step is None:
            continue
        own = {*derivation.primal, *derivation.coefficients}
        stack = [a for e in derivation.linear if e in facts.live for a in read_coefficients(e)]
        read: dict[Value, Node | None] = {}
        while stack:
            value = stack.pop()
            if value not in read:
                read[value] = nodes_of.get(value)
                if read[value] is None and producer.get(value) in own:
                    stack.extend(a for a in producer[value].inputs if isinstance(a, Value))
        nodes = {n for n in read.values() if n is not None}
        operands = [n for n in step.operands if n in nodes]
        asked[step] = [*operands, *sorted(nodes.difference(operands), key=lambda n: n.id)]
    return asked


def _logged(node: Node, found: Differentiated) -> LoggedNode:
    made_by = node.made_by
    operation = node.step.op.name if node.step is not None else made_by.op.name if made_by is not None else "constant"
    operation = found.argument_names.get(node.value, operation)
    source = NOWHERE if made_by is None else made_by.source.position
    kind = short_text(node.value.type), size_in_bytes(node.value.type)
    requirement = node.requirement if node.step is not None or made_by is None else Requirement.CONSTANT
    return LoggedNode(node.id, *kind, operation, source, str(requirement), node.depth)


def _ids(nodes: Sequence[Node]) -> tuple[int, ...]:
    return tuple(sorted({n.id for n in nodes if not n.is_given}))


def _policy_text(policy: Policy | None) -> str:
    return "none" if policy is None else str(policy)
