"""`remat compare`: policies side by side, and against an older comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remat.cli.example import load_example, use_the_cpu
from remat.cli.parameters import PolicyOrNone, SeveralValues, Size, TargetText, format_option
from remat.cli.rendering import show
from remat.errors import ArgumentError
from remat.inspect.compare import POLICIES
from remat.inspect.compare import compare as compare_policies
from remat.inspect.comparison import Comparison
from remat.report.comparison import comparison_markdown
from remat.targets.target import Target


@click.command(cls=SeveralValues)
@click.argument("example")
@click.option("--policies", multiple=True, type=PolicyOrNone(), metavar="POLICY...",
              help="What to compare, separated by spaces; none is no policy.  "
              f"[default: {' '.join(p or 'none' for p in POLICIES)}]")  # fmt: skip
@click.option("--target", type=TargetText(), default="cpu", show_default=True, help="Whose compiler it is for.")
@click.option("--measure", is_flag=True, help="Compile for the target, too.")
@click.option("--run", is_flag=True, help="Run steps too, where the target is the device that is there.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw bytes against time into this file.")
@click.option("--fits", type=Size(), help="Say which fit into so much memory, such as 16GiB; status 1 if none does.")
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this file.")
@click.option("--against", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="A file of figures to hold them against; status 1 if a policy takes over 2 % more.")  # fmt: skip
@format_option(json_flag=False)
@click.pass_context
def compare(
    ctx: click.Context,
    example: str,
    policies: tuple[Any, ...],
    target: Target,
    measure: bool,
    run: bool,
    plot: Path | None,
    fits: int | None,
    file: Path | None,
    against: Path | None,
    form: str,
) -> None:
    """Show what several policies keep, recompute and take.

    EXAMPLE is module:attribute, as for `remat saved`, and stands before the options. It is a loss; its value and
    gradient with respect to the first argument are simulated, and with --measure compiled. A policy that fails does not
    stop the others.
    """
    old = None if against is None else _read(against)
    use_the_cpu(target)
    fun, args, kwargs = load_example(example, "EXAMPLE")
    chosen = [None if p == "none" else p for p in policies or POLICIES]
    found = compare_policies(fun, args, chosen, kwargs=kwargs, target=target, measure=measure, run=run)
    changes = [] if old is None else found.against(old)
    if file is not None:
        file.write_text(found.to_json() + "\n")
    if plot is not None:
        found.plot(str(plot))
    failed, notes = any(c.worse for c in changes), []
    if old is not None:
        lines = [str(c) for c in changes] or ["no policy takes more or less than before"]
        notes.append("\n".join([f"against {against}:", *(f"  {line}" for line in lines)]))
    if fits is not None:
        answer = found.fits(fits)
        notes.append(str(answer))
        failed = failed or not answer
    show(form, text=found.__str__, json=found.to_json, markdown=lambda: comparison_markdown(found), notes=notes)
    ctx.exit(1 if failed else 0)


def _read(path: Path) -> Comparison:
    try:
        return Comparison.from_json(path.read_text())
    except ArgumentError as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--against") from None
