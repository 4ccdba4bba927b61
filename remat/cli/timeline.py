"""`remat timeline`: live bytes over both passes of a function, and what is alive at the peak."""

from __future__ import annotations

import click

from remat.cli.example import load_example, use_the_cpu
from remat.cli.parameters import PolicyText, TargetText, format_option
from remat.cli.rendering import show
from remat.decisions import Policy
from remat.inspect.timeline import timeline as timeline_of_function
from remat.report.timeline import timeline_markdown
from remat.targets.target import Target


@click.command()
@click.argument("example")
@click.option("--policy", type=PolicyText(), help="Put this policy around the function.")
@click.option("--target", type=TargetText(), default="cpu", show_default=True, help="Whose compiler it is for.")
@format_option()
def timeline(example: str, policy: Policy | None, target: Target, form: str) -> None:
    """Show live bytes over the forward and backward pass.

    EXAMPLE is module:attribute, as for `remat saved`: a function without arguments that returns a pair (fun, args), or
    an object with attributes fun and args. Shapes are enough for args. It is a loss; its value and gradient with
    respect to the first argument are simulated, not compiled, so the compiler of the target is not needed.
    """
    use_the_cpu(target)
    fun, args, kwargs = load_example(example, "EXAMPLE")
    found = timeline_of_function(fun, *args, policy=policy, target=target, **kwargs)
    show(form, text=found.__str__, json=found.to_json, markdown=lambda: timeline_markdown(found))
