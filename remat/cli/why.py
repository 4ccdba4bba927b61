"""`remat why`: why a value is kept, and what dropping it would cost."""

from __future__ import annotations

import json

import click

from remat.cli.example import load_example, use_the_cpu
from remat.cli.parameters import PolicyText, TargetText, format_option
from remat.cli.rendering import show
from remat.decisions import Policy
from remat.inspect.why import why as why_kept
from remat.report.why import why_markdown
from remat.targets.target import Target


@click.command()
@click.argument("example")
@click.argument("value")
@click.option("--policy", type=PolicyText(), help="Put this policy around the function.")
@click.option("--target", type=TargetText(), default="cpu", show_default=True, help="Whose compiler it is for.")
@format_option()
def why(example: str, value: str, policy: Policy | None, target: Target, form: str) -> None:
    """Show why VALUE is kept for the backward pass, and what dropping it would cost.

    EXAMPLE is module:attribute, as for `remat saved`. VALUE is a name given with checkpoint_name, the path of an
    argument such as params['w'], or a key as `remat.schedule` prints it, such as scan#0/dot_general#1.
    """
    use_the_cpu(target)
    fun, args, kwargs = load_example(example, "EXAMPLE")
    answers = why_kept(fun, *args, value=value, policy=policy, target=target, **kwargs)
    show(
        form,
        text=lambda: "\n\n".join(map(str, answers)),
        json=lambda: json.dumps([json.loads(a.to_json()) for a in answers], indent=1),
        markdown=lambda: why_markdown(answers),
    )
