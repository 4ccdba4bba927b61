"""Findings about names and scopes: misspelt ones, names that nothing reads, and names that the backward pass has no use
for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from remat.decisions import Offload, Policy, RegionView, Save, as_policy, names_in
from remat.findings.case import Case
from remat.findings.finding import Finding
from remat.findings.flow import Flow, flow_of, sources_of
from remat.findings.place import line_text, place_of, place_of_call
from remat.ir.ops import Checkpoint, Name, Scan
from remat.ir.program import Equation, Program, Value
from remat.ir.types import element_count, size_in_bytes
from remat.name_patterns import has_name, stands_for_name
from remat.policies.scope import Within
from remat.transforms.decide import unknown_names_text
from remat.transforms.useless import named_when_returned


def unknown_names(case: Case) -> Iterator[Finding]:
    """Names that a policy asks for, in none of the regions that it is the policy of."""
    by_policy: dict[Any, list[Equation]] = {}
    for program in case.programs:
        for equation in program.equations:
            op = equation.op
            if isinstance(op, Checkpoint) and op.policy is not None and not op.derived:
                by_policy.setdefault(as_policy(op.policy), []).append(equation)
    for policy, regions in by_policy.items():
        inside = [e for region in regions for e in region.op.programs[0].equations]
        mentioned = getattr(policy, "mentioned_names", ())
        seen = names_in(inside) if mentioned else []
        for name in sorted((n for n in mentioned if not any(stands_for_name(n, tag) for tag in seen)), key=str):
            close = difflib.get_close_matches(str(name), map(str, seen), n=1)
            place = case.source if case.policy is not None else place_of_call(regions[0])
            function = getattr(regions[0].op, "function", "")
            where = f"of {function}" if function else ""
            what, _, advice = unknown_names_text(policy, [name], seen, where).partition(" Names used: ")
            names, _, fix = advice.partition(". ")
            size = _named_bytes(regions, close[0]) if close else 0
            fix = f"Write {close[0]!r}." if close else fix
            yield case.finding("unknown-name", place, repr(name), size, f"{what} Names used: {names}.", fix)


def _named_bytes(regions: Iterable[Equation], name: str) -> int:
    """How many bytes the values of that name have, loops multiplied."""
    known: dict[int, int] = {}

    def of(program: Program) -> int:
        if id(program) not in known:
            known[id(program)] = sum(map(of_equation, program.equations))
        return known[id(program)]

    def of_equation(equation: Equation) -> int:
        op = equation.op
        if isinstance(op, Name):
            return size_in_bytes(equation.outputs[0].type) if str(op.tag) == name else 0
        times = element_count((op.length,)) if isinstance(op, Scan) else 1
        return times * sum(map(of, op.programs))

    return sum(map(of_equation, regions))


def unknown_scopes(case: Case) -> Iterator[Finding]:
    """Scopes of `within` that no equation is in, in any region under the same policy."""
    found: dict[Within, tuple[list[Equation], RegionView, Policy]] = {}
    for view in case.views:
        policy = as_policy(view.region.policy)
        for part, seen in _scopes_in(policy, view):
            found.setdefault(part, ([], view, policy))[0].extend(seen.equations)
    for part, (equations, view, policy) in found.items():
        if any(map(part.contains, equations)):
            continue
        words = dict.fromkeys(w for e in equations for w in (*e.source.scope.split("/"), _function(e)) if w)
        close = difflib.get_close_matches(part.scope, words, n=1)
        listed = ", ".join(map(repr, [w for w in words if not w.startswith("jit(")][:8])) or "none"
        yield case.finding(
            "unknown-scope",
            case.place(view),
            repr(part.scope),
            0,
            f"nothing in the checkpoint{view.place} is in the scope {part.scope!r} that the policy {policy} asks for. "
            f"Scopes and functions there: {listed}.",
            f"Write {close[0]!r}." if close else "Name a part of the function with jax.named_scope.",
        )


def _function(equation: Equation) -> str:
    return equation.source.position.function.rpartition(".")[2]


def _scopes_in(policy: Any, view: RegionView) -> Iterator[tuple[Within, RegionView]]:
    if isinstance(policy, Within):
        yield policy, view
    for part, seen in policy.parts(view) if hasattr(policy, "parts") else ():
        if seen.equations:
            yield from _scopes_in(part, seen)


def dead_names(case: Case) -> Iterator[Finding]:
    """Names given to results that nothing reads."""
    for program in case.programs:
        read = {a for e in program.equations for a in e.inputs}.union(program.outputs)
        for equation in program.equations:
            if isinstance(equation.op, Name) and equation.outputs[0] not in read:
                tag = equation.op.tag
                yield case.finding(
                    "dead-name",
                    place_of(equation.source),
                    repr(tag),
                    size_in_bytes(equation.outputs[0].type),
                    f"nothing reads the result of this checkpoint_name. The name {tag!r} is on that result, not on the "
                    "value that was handed in, so a policy that asks for it gets nothing.",
                    f"Go on with the result: x = remat.checkpoint_name(x, {tag!r}).",
                )


def names_not_kept(case: Case) -> Iterator[Finding]:
    """Names that a policy keeps, and of which the backward pass reads nothing."""
    asked: dict[tuple[Any, Any], list[tuple[Equation, RegionView]]] = {}
    decisions = case.walked.decisions
    for view in case.views:
        policy = as_policy(view.region.policy)
        mentioned = getattr(policy, "mentioned_names", ())
        for equation in view.equations if mentioned else ():
            # What no gradient goes through has not been walked.
            if (
                isinstance(equation.op, Name)
                and has_name(mentioned, equation.op.tag)
                and equation.outputs[0] in case.walk_of
            ):
                if isinstance(decisions.get(equation.outputs[0]), (Save, Offload)):
                    asked.setdefault((policy, equation.op.tag), []).append((equation, view))
    carried = _named_carries(case) if asked else set()
    flows: dict[int, Flow] = {}
    for (policy, tag), named in asked.items():
        values = [e.outputs[0] for e, _ in named]
        if any(e in carried or _is_there(case, e.outputs[0]) for e, _ in named):
            continue
        alive = [v for v in values if not flow_of(case, v, flows).is_dead(v)]
        if alive:
            yield _not_kept(case, policy, tag, alive[0], flow_of(case, alive[0], flows))


def _is_there(case: Case, value: Value) -> bool:
    """Whether a value is kept, or is a view or cast of what is kept or of an input."""
    level = case.walk_of[value].level
    chain = sources_of(level, value)
    return not case.kept.isdisjoint(chain) or chain[-1] not in level.producer


def _named_carries(case: Case) -> set[Equation]:
    """The equations that name what a loop carries on, where that is kept when the next iteration begins."""
    found: set[Equation] = set()
    for walk in case.walks:
        for value in walk.level.residuals if walk.loop is not None else ():
            named = named_when_returned(value, walk.level, walk.loop)
            if named is not None:
                found.add(named)
    return found


def _not_kept(case: Case, policy: Any, tag: Any, value: Value, flow: Flow) -> Finding:
    later, earlier = flow.after(value), flow.before(value)
    better = later or earlier
    equation, times = flow.producer[value], flow.walk.times
    moves = isinstance(case.walked.decisions.get(value), Offload)
    what = (
        f"the policy {policy} {'moves' if moves else 'keeps'} {tag!r}{' away' if moves else ''}, but the backward pass "
        f"reads no value of that name, so nothing is {'moved' if moves else 'kept'}."
    )
    if better is None:
        size, fix = size_in_bytes(value.type), f"Take {tag!r} out of the policy."
    else:
        size, made = size_in_bytes(better.type), flow.producer[better]
        which = f"{made.op.tag!r}" if isinstance(made.op, Name) else f"the result of {made.op.name}"
        which = (
            f"{which} at {line_text(made.source)}, which {'follows from it' if better is later else 'it follows from'}"
        )
        fix = f"Name what it reads: {which}; or take {tag!r} out of the policy."
        if better in case.kept:
            fix = f"Take {tag!r} out of the policy: {which}, is kept in its place."
    return case.finding("name-not-kept", place_of(equation.source), repr(tag), size * times, what, fix)
