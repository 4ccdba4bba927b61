"""A plan, and the plans that are worth having, as text of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat.planning.choice import IN_WORDS
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
    choice = plan.choice
    each = f", on each of {plan.devices} devices" if plan.devices > 1 else ""
    what = f"{plan.of} within {bytes_text(plan.budget_bytes)}{each}"
    lines = wrapped(f"plan for {plan.function}, {what}, for {plan.target}")
    extra = choice.seconds - plan.seconds_without
    rows = [
        ("structure", IN_WORDS[choice.structure]),
        ("peak, simulated", bytes_text(choice.peak_bytes)),
        ("peak, compiled", _compiled(plan)),
        ("kept", f"{bytes_text(choice.kept_bytes)}, boundaries and carries included"),
        ("time, by peak rates", f"{_seconds(choice.seconds)}, {_percent(extra, plan.seconds_without)} for recomputing"),
        ("no plan below", f"{_seconds(plan.lower_bound)}: at most {plan.gap:.1%} to gain"),
    ]
    lines += ["", *(f"  {name:20} {value}" for name, value in rows)]
    return "\n".join([*lines, "", *_kept_lines(choice.kept)])


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
    lines = [*wrapped(f"plans for {pareto.function}, for {pareto.target}: {len(pareto)} of {len(pareto.tried)}"), ""]
    lines.append(f"  {'peak':>10}  {'kept':>10}  {'time':>10}  {'more':>7}  structure")
    for choice in pareto.choices:
        lines.append(_line(choice, pareto.choices[0].seconds))
    return "\n".join([*lines, "", *wrapped("Peaks are simulated, times by peak rates of the target; not measured.")])


def _line(choice: Choice, fastest: float) -> str:
    sizes = f"{bytes_text(choice.peak_bytes):>10}  {bytes_text(choice.kept_bytes):>10}"
    more = _percent(choice.seconds - fastest, fastest)
    return f"  {sizes}  {_seconds(choice.seconds):>10}  {more:>7}  {IN_WORDS[choice.structure]}"


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:+.1f} %" if whole else "+0.0 %"
