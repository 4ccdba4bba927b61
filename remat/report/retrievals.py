"""Burn's view as text: the retrieval log in its own lines, a summary of what its log levels promise and never print,
and a table of requirements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.errors import ArgumentError
from remat.report.text import position_text
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.requirements import Requirements
    from remat.inspect.retrieval_log import RetrievalLog

LEVELS = ("basic", "full")


def log_text(log: RetrievalLog, level: str) -> str:
    """Burn's lines at a level of its `burn.toml`."""
    if level not in LEVELS:
        raise ArgumentError(f"the level of a retrieval log is {level!r}, but must be 'basic' or 'full'.")
    lines = []
    for retrieval in log.retrievals:
        count = len(retrieval.executed)
        lines.append(f"retrieve_node_output NodeId {{ value: {retrieval.node} }}: {count} node(s) to compute")
        if level == "full":
            lines.extend(f"execute_retro_forward NodeId {{ value: {n} }}" for n in retrieval.executed)
    return "\n".join(lines)


def summary_text(log: RetrievalLog) -> str:
    """The size of the graph, the policy, and each value that is saved or recomputed."""
    leaves = sum(n.requirement == "leaf" for n in log.nodes)
    depth = max((n.depth for n in log.nodes), default=0)
    executed = sum(len(r.executed) for r in log.retrievals)
    loops = sum(n.operation in ("scan", "while", "cond") for n in log.nodes)
    lines = [
        f"{log.function}: {len(log.nodes)} nodes, {leaves} of them differentiated arguments, depth {depth}; "
        f"{log.steps} backward steps",
        f"policy: {log.policy}",
        f"after the forward pass: {bytes_text(log.held_bytes)} in {_values(log.held)}",
        f"when the backward pass begins: {bytes_text(log.kept_bytes)} in {_values(log.kept)}",
        f"recomputed: {bytes_text(log.recomputed_bytes)} in {_values(log.recomputed)}",
        f"retrievals: {len(log.retrievals)}, going through {executed} nodes",
        f"remat's own plan keeps {bytes_text(log.planned_bytes)}, with masks and coefficients of derivatives",
    ]
    if loops:
        lines.append(f"{loops} of the nodes are results of loops or branches, which are one operation each here")
    if not log.drained:
        lines.append("not everything that was kept is used")
    return "\n".join([*lines, *_table(log)])


def _table(log: RetrievalLog) -> list[str]:
    """One line for each node that is saved or recomputed."""
    kept = set(log.kept)
    rows = [(i, "saved" if i in kept else "backup, dropped") for i in log.held]
    rows += [(i, "recomputed") for i in log.recomputed]
    lines = []
    for i, what in sorted(rows):
        node = log.nodes[i]
        where = position_text(node.source)
        read = f"read {log.n_required[i]}x" if i in log.n_required else ""
        lines.append(
            f"  {i:>4} {what:15} {bytes_text(node.bytes):>9} {read:8} {node.type} {node.operation} {where}".rstrip()
        )
    return lines


def _values(ids: tuple[int, ...]) -> str:
    return f"{len(ids)} value{'' if len(ids) == 1 else 's'}"


def requirements_text(found: Requirements) -> str:
    """One line for each value, then the arguments whose gradient is zero."""
    width = max((len(v.type) for v in found), default=0)
    lines = []
    for value in found:
        where = position_text(value.source)
        lines.append(f"{value.requirement:8}  {value.type:{width}}  {value.name}{where and f' from {where}'}")
    if found.unreached:
        lines += ["", f"no result depends on {', '.join(found.unreached)}: the gradient is zero"]
    return "\n".join(lines)
