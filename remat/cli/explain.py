"""`remat explain`: an out-of-memory message of XLA's, explained."""

from __future__ import annotations

from typing import Any, TextIO

import click

from remat.cli.example import load_example, use_the_cpu
from remat.cli.parameters import PolicyText, TargetText, format_option
from remat.cli.rendering import show
from remat.decisions import Policy
from remat.inspect.explanation import explain as explain_message
from remat.report.explanation import explanation_markdown
from remat.targets.target import Target


@click.command()
@click.argument("file", type=click.File())
@click.argument("example", required=False)
@click.option("--policy", type=PolicyText(), help="The policy that the function was differentiated with.")
@click.option("--target", type=TargetText(), help="The device, such as tpu:v5e:2x2 or gpu:H100.")
@format_option()
def explain(file: TextIO, example: str | None, policy: Policy | None, target: Target | None, form: str) -> None:
    """Explain XLA's out-of-memory message in FILE, or in the standard input if that is -.

    FILE may be a whole log. EXAMPLE is module:attribute, as for `remat saved`: a function without arguments that
    returns a pair (fun, args), or an object with attributes fun and args. Shapes are enough for args. With it, buffers
    are found among the values of fun, which is a loss, and policies are compared against the memory that there is.
    Nothing is compiled or run.
    """
    use_the_cpu()
    fun: Any
    fun, args, kwargs = (None, (), {}) if example is None else load_example(example, "EXAMPLE")
    found = explain_message(file.read(), fun, *args, policy=policy, target=target, **kwargs)
    show(form, text=found.__str__, json=found.to_json, markdown=lambda: explanation_markdown(found))
