"""Everything about differentiating a function under one policy, as one piece of data: where its bytes are, what is
kept, what runs, how other policies compare, and what there is to warn of. The HTML report shows it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from remat.checkpoint import resolve_policy
from remat.errors import RematError, RematWarning
from remat.findings.check import check
from remat.inspect.compare import POLICIES, compare_loss
from remat.inspect.comparison import Comparison, Row
from remat.inspect.describe import describe_each
from remat.inspect.kept_groups import group_titles
from remat.inspect.pareto import Pareto, pareto
from remat.inspect.planned import Loss, Planned
from remat.inspect.program_lines import ProgramLines, program_lines, programs_data
from remat.inspect.residuals import Residual, Residuals
from remat.inspect.samples import TextTable, timeline_data
from remat.inspect.timeline import Timeline, policy_text, timeline_of
from remat.ir.keys import Keys
from remat.ir.program import Program, Value
from remat.policies.budget import budget_or_auto
from remat.targets.measure import made_for
from remat.targets.target import Target, as_target

SCHEMA = "remat.report/1"

PLANNED = 1000
"""Up to how many equations plans are made, which takes longer than all else: most of a minute for 2,500."""

CHECKED = 5000
"""Up to how many equations `remat.check` looks at it."""

USERS = 8
"""How many operations that read a kept value are named."""


@dataclass(frozen=True)
class Remark:
    """Something to look at: of which policy, whether it is a `note`, a `warning` or an `error`, and in words."""

    kind: str
    policy: str
    text: str


@dataclass(frozen=True, eq=False)
class Overview:
    """What a function does under a policy, and under others.

    **Attributes**

    - `function`, `policy`, `target`: what is differentiated, how, and for which compiler.
    - `timeline`, `residuals`: as `remat.timeline` and `remat.saved_residuals` have them. `keys`: of each residual, a
      name that outlasts a trace. `programs`: what runs; values that are kept have one name in both passes.
    - `comparison`: this policy, then the others. `plans`: what `remat.pareto` finds; `no_plans` says why it is None.
    - `budget_bytes`: a limit for what is alive besides the arguments, if there is one.
    - `findings`: what there is to warn of.
    """

    function: str
    policy: str
    target: str
    timeline: Timeline
    residuals: Residuals
    keys: tuple[str, ...]
    programs: ProgramLines
    comparison: Comparison
    plans: Pareto | None
    no_plans: str
    budget_bytes: int | None
    findings: tuple[Remark, ...]

    @property
    def row(self) -> Row:
        """The row of this policy in the comparison."""
        return self.comparison.rows[0]

    @property
    def totals(self) -> dict[str, int | None]:
        """The sizes that sum it up; those that nobody asked to measure are None."""
        return {
            "kept_bytes": self.residuals.new_bytes,
            "kept_values": sum(r.times for r in self.residuals if r.is_new),
            "held_bytes": self.residuals.total_bytes - self.residuals.new_bytes,
            "offloaded_bytes": self.residuals.offloaded_bytes,
            "peak_bytes": self.timeline.peak,
            "set_aside_bytes": self.timeline.set_aside,
            "argument_bytes": self.timeline.argument_bytes,
            "measured_bytes": self.row.live_bytes,
        }

    def to_data(self) -> dict[str, Any]:
        """All of it as plain data. Texts that come again and again are numbers in the table `texts`."""
        texts = TextTable()
        data = {
            "schema": SCHEMA,
            "function": self.function,
            "policy": self.policy,
            "target": self.target,
            "measured": self.comparison.measured,
            "versions": dict(self.comparison.versions),
            "totals": self.totals,
            "budget_bytes": self.budget_bytes,
            "findings": [asdict(f) for f in self.findings],
            "timeline": timeline_data(self.timeline, texts),
            "residuals": _residuals_data(self, texts),
            "programs": programs_data(self.programs, texts),
            "comparison": [asdict(r) for r in self.comparison],
            "plans": None if self.plans is None else _plan_rows(self.plans),
            "no_plans": self.no_plans,
        }
        return {**data, "texts": texts.texts}

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        return json.dumps(self.to_data(), separators=(",", ":"))


RESIDUAL_COLUMNS = (
    "key", "value", "type", "times", "bytes", "total_bytes", "is_new", "memory", "scope", "reason", "needed_by",
    "place", "group",
)  # fmt: skip


def _residuals_data(overview: Overview, texts: TextTable) -> dict[str, Any]:
    groups = group_titles(overview.residuals)
    rows = zip(overview.residuals, overview.keys, overview.programs.kept, groups, strict=True)
    return {"columns": RESIDUAL_COLUMNS, "rows": [_residual_row(*row, texts) for row in rows]}


def _residual_row(residual: Residual, key: str, name: str, group: str, texts: TextTable) -> list[Any]:
    r = residual
    users = ", ".join(list(dict.fromkeys(u.operation for u in r.needed_by))[:USERS])
    words = [texts(t) for t in (r.memory, r.scope, r.reason, users, r.place.short, group)]
    return [key, name, texts(r.type), r.times, r.bytes, r.total_bytes, int(r.is_new), *words]


def _plan_rows(plans: Pareto) -> list[dict[str, Any]]:
    front = set(plans.choices)
    return [
        {
            "structure": c.structure,
            "kept_bytes": c.kept_bytes,
            "peak_bytes": c.peak_bytes,
            "seconds": c.seconds,
            "front": c in front,
        }
        for c in plans.tried
    ]


def overview(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    policy: Any = None,
    policies: Sequence[Any] = POLICIES,
    target: Target | str | None = None,
    budget: Any = None,
    argnums: int | Sequence[int] = 0,
    measure: bool = False,
) -> Overview:
    """All about `remat.value_and_grad(fun, argnums, policy=policy)`; arguments are those of `remat.html_report`.

    **Raises** what `remat.html_report` raises.
    """
    chosen = as_target(target)
    resolved = resolve_policy(policy)
    wanted = None if budget is None else budget_or_auto(budget)
    loss = Loss.of("remat.html_report", fun, args, kwargs, argnums)
    with made_for(chosen), warnings.catch_warnings():
        warnings.simplefilter("ignore", RematWarning)  # they are in the comparison's rows
        planned = loss.under(resolved)
        timeline = timeline_of(planned, policy_text(resolved), str(chosen))
        described = describe_each(planned.split, planned.program)
        programs = program_lines(planned.split)
    compared = _different([resolved, *policies, *([] if wanted is None else [wanted])])
    comparison = compare_loss(loss, compared, chosen, measure, base=planned if resolved is None else None)
    plans, no_plans = _plans(planned, fun, args, kwargs, chosen, argnums)
    limit = wanted.limit if wanted is not None and isinstance(wanted.limit, int) else None
    return Overview(
        function=loss.function,
        policy=timeline.policy,
        target=str(chosen),
        timeline=timeline,
        residuals=Residuals(loss.function, tuple([residual for _, residual in described])),
        keys=_keys(planned, described),
        programs=programs,
        comparison=comparison,
        plans=plans,
        no_plans=no_plans,
        budget_bytes=limit,
        findings=_remarks(planned, resolved, fun, args, kwargs, argnums, comparison),
    )


def _keys(planned: Planned, described: Sequence[tuple[Value, Residual]]) -> tuple[str, ...]:
    """The keys of the residuals; those that a transformation made have none, and are called by what makes them."""
    known = Keys(planned.split.linearized, planned.loss.names).of
    return tuple([known.get(value) or residual.origin.text for value, residual in described])


def _different(policies: Sequence[Any]) -> list[Any]:
    """The policies without those that came before; what is no policy stays, for the comparison to say so."""
    found: dict[str, Any] = {}
    for policy in policies:
        try:
            text = policy_text(resolve_policy(policy))
        except RematError:
            text = repr(policy)
        found.setdefault(text, policy)
    return list(found.values())


def _plans(
    planned: Planned, fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: Target, argnums: Any
) -> tuple[Pareto | None, str]:
    count = equation_count(planned.program)
    if count > PLANNED:
        return None, f"Plans are made for programs of up to {PLANNED:,} equations, and this one has {count:,}."
    try:
        return pareto(fun, *args, target=target, argnums=argnums, **kwargs), ""
    except RematError as error:
        return None, f"There are no plans: {error}"


def equation_count(program: Program) -> int:
    """How many equations a program has, those of nested programs included."""
    return sum(1 + sum(map(equation_count, e.op.programs)) for e in program.equations)


def _remarks(
    planned: Planned,
    policy: Any,
    fun: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: Any,
    comparison: Comparison,
) -> tuple[Remark, ...]:
    """What failed, what `remat.check` finds under this policy, and what remat warns of under the others."""
    own, others = comparison.rows[0], comparison.rows[1:]
    found = [Remark("error", r.policy, r.error) for r in comparison if r.error is not None]
    if own.error is None and equation_count(planned.program) <= CHECKED:
        checked = check(fun, *args, policy=policy, target=comparison.target, argnums=argnums, **kwargs)
        found += [Remark(f.level, own.policy, str(f)) for f in checked]
    else:
        found += [Remark("warning", own.policy, text) for text in own.warnings]
    return tuple(found + [Remark("warning", r.policy, text) for r in others for text in r.warnings])
