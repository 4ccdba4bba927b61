"""`remat saved`: what a function keeps for its backward pass."""

from __future__ import annotations

import click
from rich.console import Console

from remat.cli.example import load_example, use_the_cpu
from remat.cli.parameters import PolicyText
from remat.decisions import Policy
from remat.inspect.saved import saved_residuals


@click.command()
@click.argument("target")
@click.option("--policy", type=PolicyText(), help="Put this policy around the function.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def saved(target: str, policy: Policy | None, form: str) -> None:
    """Show what a function keeps for its backward pass.

    TARGET is module:attribute. The attribute is a function without arguments that returns a pair (fun, args), or an
    object with attributes fun and args (and kwargs, if any). Shapes are enough for args: jax.ShapeDtypeStruct, or
    what jax.eval_shape returns. Modules are looked up in the current folder first.

    Nothing is run on a device: unless JAX_PLATFORMS is set, JAX uses the CPU.
    """
    use_the_cpu()
    fun, args, kwargs = load_example(target, "TARGET")
    residuals = saved_residuals(fun, *args, policy=policy, **kwargs)
    if form == "json":
        click.echo(residuals.to_json())
        return
    from remat.demo.tables import held_table, residuals_table

    console = Console()
    around = "no policy" if policy is None else f"policy {policy}"
    console.print(f"kept for the backward pass of {residuals.function}, {around}", markup=False, highlight=False)
    console.print(residuals_table(residuals, console.width))
    if residuals.total_bytes > residuals.new_bytes:
        console.print("besides, read by the backward pass, but held by the caller anyway:")
        console.print(held_table(residuals))
