"""`remat report`: everything about a function under a policy as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remat.cli.example import load_example, use_the_cpu
from remat.cli.parameters import Budget, PolicyOrNone, SeveralValues, TargetText
from remat.inspect.compare import POLICIES
from remat.inspect.overview import overview
from remat.report.html.page import html_text
from remat.targets.target import Target
from remat.units import bytes_text


@click.command(cls=SeveralValues)
@click.argument("example")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"),
              show_default=True, help="Write the page to this file.")  # fmt: skip
@click.option("--policy", type=PolicyOrNone(),
              help="What the report is about.  [default: the plan for --budget, or none]")  # fmt: skip
@click.option("--policies", multiple=True, type=PolicyOrNone(), metavar="POLICY...",
              help="What it is compared with, separated by spaces; none is no policy.  "
              f"[default: {' '.join(p or 'none' for p in POLICIES)}]")  # fmt: skip
@click.option("--target", type=TargetText(), default="cpu", show_default=True, help="Whose compiler it is for.")
@click.option("--budget", type=Budget(),
              help="12GiB, 0.5 of what no checkpoint takes, or auto: the plan for it is compared too.")  # fmt: skip
@click.option("--measure", is_flag=True, help="Compile for the target, too.")
@click.option("--json", "as_json", is_flag=True, help="Write the data of the page instead, as JSON.")
def report(
    example: str,
    output: Path,
    policy: Any,
    policies: tuple[Any, ...],
    target: Target,
    budget: str | None,
    measure: bool,
    as_json: bool,
) -> None:
    """Write a report about a function as one HTML page, which needs no network.

    EXAMPLE is module:attribute, as for `remat saved`, and stands before the options. It is a loss; its value and
    gradient with respect to the first argument are looked at. The page shows live bytes over both passes, what is kept
    and why, the programs, other policies and plans, and warnings.
    """
    use_the_cpu(target)
    fun, args, kwargs = load_example(example, "EXAMPLE")
    if policy is None and budget is not None:
        policy = "auto" if budget == "auto" else f"budget:{budget}"
    found = overview(
        fun, tuple(args), kwargs, policy=_or_none(policy), policies=[_or_none(p) for p in policies or POLICIES],
        target=target, budget=budget, measure=measure,
    )  # fmt: skip
    text = found.to_json() + "\n" if as_json else html_text(found)
    output.write_text(text, encoding="utf-8")
    count = len(found.findings)
    click.echo(f"{output}: {bytes_text(len(text))}, {count} finding{'' if count == 1 else 's'}")


def _or_none(policy: Any) -> Any:
    return None if policy == "none" else policy
