"""A plan, and the plans that are worth having, as text of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat.planning.choice import IN_WORDS
from remat.report.markdown import markdown_report, markdown_table
from remat.report.width import WIDTH, wrapped
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.pareto import Pareto
    from remat.inspect.plan import Plan
    from remat.planning.choice import Choice, KeptValue

ROWS = 20
"""How many kept values are listed."""


def plan_text(plan: Plan) -> str:
    """What the plan is, what it takes, and how far from the best it can be."""
    lines = [*wrapped(_title(plan)), "", *(f"  {name:20} {value}" for name, value in _figures(plan))]
    return "\n".join([*lines, "", *_kept_lines(plan.choice.kept)])


def plan_markdown(plan: Plan) -> str:
    """The same as two tables in Markdown, with all values."""
    kept = [[bytes_text(v.bytes), v.type, f"`{v.key}`"] for v in plan.choice.kept]
    table = markdown_table(["", "plan"], _figures(plan))
    table += ["", *markdown_table(["bytes", "type", "kept value"], kept)] if kept else []
    return markdown_report(_title(plan), table)


def _title(plan: Plan) -> str:
    each = f", on each of {plan.devices} devices" if plan.devices > 1 else ""
    return f"plan for {plan.function}, {plan.of} within {bytes_text(plan.budget_bytes)}{each}, for {plan.target}"


def _figures(plan: Plan) -> list[tuple[str, str]]:
    """What the plan is and takes: names and figures."""
    choice = plan.choice
    extra = choice.seconds - plan.seconds_without
    return [
        ("structure", IN_WORDS[choice.structure]),
        ("peak, simulated", bytes_text(choice.peak_bytes)),
        ("peak, compiled", _compiled(plan)),
        ("kept", f"{bytes_text(choice.kept_bytes)}, boundaries and carries included"),
        ("time, by peak rates", f"{_seconds(choice.seconds)}, {_percent(extra, plan.seconds_without)} for recomputing"),
        ("no plan below", f"{_seconds(plan.lower_bound)}: at most {plan.gap:.1%} to gain"),
    ]


def _compiled(plan: Plan) -> str:
    if plan.compiled_bytes is None:
        return "not yet: plan.verify()"
    after = f", after {plan.corrections} other plan{'s' if plan.corrections > 1 else ''}" if plan.corrections else ""
    return bytes_text(plan.compiled_bytes) + after


def _kept_lines(kept: Sequence[KeptValue]) -> list[str]:
    if not kept:
        return ["keeps nothing but what its structure keeps"]
    lines = [f"keeps {len(kept)} value{'s' if len(kept) > 1 else ''}:"]
    for value in kept[:ROWS]:
        text = f"{bytes_text(value.bytes):>10}  {value.type}  {value.key}"
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent=" " * 14, break_on_hyphens=False)
    if len(kept) > ROWS:
        rest = sum(v.bytes for v in kept[ROWS:])
        lines.append(f"  {bytes_text(rest):>10}  in {len(kept) - ROWS} more")
    return lines


def pareto_text(pareto: Pareto) -> str:
    """One line for each plan, the fastest first."""
    lines = [*wrapped(_pareto_title(pareto)), ""]
    for peak, kept, time, more, structure in [PARETO_HEAD, *_pareto_rows(pareto)]:
        lines.append(f"  {peak:>10}  {kept:>10}  {time:>10}  {more:>7}  {structure}")
    return "\n".join([*lines, "", *wrapped(PARETO_NOTE)])


def pareto_markdown(pareto: Pareto) -> str:
    """The same as a table in Markdown."""
    return markdown_report(_pareto_title(pareto), markdown_table(PARETO_HEAD, _pareto_rows(pareto)), [PARETO_NOTE])


PARETO_HEAD = ("peak", "kept", "time", "more", "structure")
PARETO_NOTE = "Peaks are simulated, times by peak rates of the target; not measured."


def _pareto_title(pareto: Pareto) -> str:
    return f"plans for {pareto.function}, for {pareto.target}: {len(pareto)} of {len(pareto.tried)}"


def _pareto_rows(pareto: Pareto) -> list[tuple[str, str, str, str, str]]:
    fastest = pareto.choices[0].seconds if pareto.choices else 0.0
    return [_cells(choice, fastest) for choice in pareto.choices]


def _cells(choice: Choice, fastest: float) -> tuple[str, str, str, str, str]:
    more = _percent(choice.seconds - fastest, fastest)
    sizes = bytes_text(choice.peak_bytes), bytes_text(choice.kept_bytes)
    return (*sizes, _seconds(choice.seconds), more, IN_WORDS[choice.structure])


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:+.1f} %" if whole else "+0.0 %"
