"""Burn's `Checkpointer`: states with use counts, and the retrieval of what a backward step asks for.

Nothing is computed here. A *state* says whether a node's array is there or has to be recomputed, and how often it is
still going to be read; when that count comes to zero the state goes. Everything is linear in nodes and edges, with
stacks of its own in place of recursion (Burn's sort was quadratic until its pull request 5679; the order is the same).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat.errors import RematError
from remat.policies.burn.tape import Node


@dataclass(frozen=True)
class Action:
    """What an operation registers about a node: its array is kept (`computed`), or how to compute it again is."""

    node: Node
    computed: bool


@dataclass
class State:
    """What is known of a node during the backward pass."""

    computed: bool
    n_required: int


@dataclass(frozen=True)
class Retrieval:
    """One call of `retrieve_node_output`: the node, and the nodes that were gone through, ancestors first."""

    node: Node
    executed: tuple[Node, ...]


class Checkpointer:
    """The states of a backward pass, built from the actions that the forward pass registered.

    `explicit` are what backward steps will ask for, in order; `backup` what a recomputation may need. Backups that no
    explicit action leads to are dropped here.
    """

    def __init__(self, explicit: Sequence[Action], backup: Sequence[Action]):
        stops = {a.node for a in (*explicit, *backup) if a.computed}
        self.n_required = self._count(explicit, stops)
        first: dict[Node, Action] = {}
        for action in (*explicit, *backup):
            first.setdefault(action.node, action)
        missing = next((n for n in self.n_required if n not in first), None)
        if missing is not None:
            raise RematError(f"Node {missing!r} is needed but never checkpointed")
        self.states = {n: State(first[n].computed, count) for n, count in self.n_required.items()}
        self.kept = [n for n in self.n_required if first[n].computed]
        """The nodes whose arrays are held when the backward pass begins."""
        self.held = list(dict.fromkeys(a.node for a in (*explicit, *backup) if a.computed))
        """The nodes whose arrays are held until then, backups that nothing needs included."""
        self.recomputed: list[Node] = []

    def _count(self, explicit: Sequence[Action], stops: set[Node]) -> dict[Node, int]:
        """How often each node is going to be read. The operands of a recomputed node count once, when it is met first:
        it is recomputed once and then served from its state."""
        counts: dict[Node, int] = {}
        for action in explicit:
            if action.computed:
                counts[action.node] = counts.get(action.node, 0) + 1
                continue
            stack = [action.node]
            while stack:
                node = stack.pop()
                known = counts.get(node)
                counts[node] = 1 if known is None else known + 1
                if known is None and node not in stops:
                    stack.extend(reversed(node.operands))
        return counts

    def retrieve(self, node: Node) -> Retrieval:
        """What a backward step does to get the array of a node."""
        order = self._sorted(node)
        for each in order:
            state = self.states[each]
            if not state.computed:
                for operand in each.operands:
                    self._read(operand)
                state.computed = True
                self.recomputed.append(each)
        self._read(node)
        return Retrieval(node, tuple(order))

    def _sorted(self, node: Node) -> list[Node]:
        """The node after its ancestors, up to those whose arrays are there."""
        order: list[Node] = []
        seen: set[Node] = set()
        stack: list[tuple[Node, bool]] = [(node, False)]
        while stack:
            current, expanded = stack.pop()
            if expanded:
                order.append(current)
            elif current not in seen:
                seen.add(current)
                if current not in self.states:
                    raise RematError(f"Node {current!r} is not in the backward_states.")
                stack.append((current, True))
                if not self.states[current].computed:
                    stack.extend((p, False) for p in reversed(current.operands))
        return order

    def _read(self, node: Node) -> None:
        state = self.states.get(node)
        if state is None:
            raise RematError(f"Should find node {node!r}")
        state.n_required -= 1
        if state.n_required == 0:
            del self.states[node]

    @property
    def is_empty(self) -> bool:
        """Whether every state was used up, as must be after a backward pass."""
        return not self.states
