"""`remat saved`: what a function keeps for its backward pass."""

from __future__ import annotations

import click

from remat.cli.example import load_example, use_the_cpu
from remat.cli.parameters import PolicyText, TargetText, format_option
from remat.cli.rendering import show
from remat.decisions import Policy
from remat.inspect.residuals import ROWS
from remat.inspect.saved import residuals_for
from remat.targets.target import Target


@click.command()
@click.argument("example")
@click.option("--policy", type=PolicyText(), help="Put this policy around the function.")
@click.option("--target", type=TargetText(), default="cpu", show_default=True, help="Whose compiler it is for.")
@click.option("--held", is_flag=True, help="List the arguments and constants too, which the caller holds anyway.")
@click.option("--all", "every", is_flag=True, help="List all rows, where the smaller ones are added up otherwise.")
@format_option()
def saved(example: str, policy: Policy | None, target: Target, held: bool, every: bool, form: str) -> None:
    """Show what a function keeps for its backward pass.

    EXAMPLE is module:attribute. The attribute is a function without arguments that returns a pair (fun, args), or an
    object with attributes fun and args (and kwargs, if any). Shapes are enough for args: jax.ShapeDtypeStruct, or
    what jax.eval_shape returns. Modules are looked up in the current folder first.

    The table is as wide as the terminal, from 80 to 200 columns. JSON and Markdown have all rows. Nothing is run on a
    device: unless JAX_PLATFORMS is set, JAX uses the CPU.
    """
    use_the_cpu(target)
    fun, args, kwargs = load_example(example, "EXAMPLE")
    found = residuals_for(fun, args, kwargs, policy=policy, target=target)
    show(
        form,
        text=lambda: found.to_text(held=held, rows=None if every else ROWS),
        json=found.to_json,
        markdown=found.to_markdown,
    )
