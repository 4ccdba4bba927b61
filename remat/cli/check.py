"""`remat check`: what is likely to be wrong with the way a function is checkpointed."""

from __future__ import annotations

import click

from remat.cli.example import load_example, use_the_cpu
from remat.cli.parameters import PolicyText, TargetText, format_option
from remat.cli.rendering import show
from remat.decisions import Policy
from remat.findings.check import check as check_function
from remat.findings.codes import KINDS
from remat.targets.target import Target


@click.command()
@click.argument("example")
@click.option("--policy", type=PolicyText(), help="Put this policy around the function.")
@click.option("--target", type=TargetText(), default="cpu", show_default=True, help="What it is for.")
@click.option("--ignore", multiple=True, type=click.Choice([*KINDS]), metavar="CODE",
              help="Leave out findings of this code; may be given several times.")  # fmt: skip
@format_option()
@click.pass_context
def check(
    ctx: click.Context, example: str, policy: Policy | None, target: Target, ignore: tuple[str, ...], form: str
) -> None:
    """Look for what is likely to be wrong; status 1 if there are warnings.

    EXAMPLE is module:attribute, as for `remat saved`: a function without arguments that returns a pair (fun, args), or
    an object with attributes fun and args. Shapes are enough for args. It is a loss; its gradient with respect to the
    first argument is looked at. Nothing is compiled or run, so the compiler of the target is not needed.

    Codes: docs/findings.md explains each.
    """
    use_the_cpu(target)
    fun, args, kwargs = load_example(example, "EXAMPLE")
    found = check_function(fun, *args, policy=policy, target=target, **kwargs).without(*ignore)
    show(form, text=found.__str__, json=found.to_json, markdown=found.to_markdown)
    ctx.exit(1 if found.warnings else 0)
