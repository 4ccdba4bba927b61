"""`remat plan`: what to keep so that a step fits into a number of bytes."""

from __future__ import annotations

import click

from remat.cli.example import load_example, use_the_cpu
from remat.cli.parameters import Budget, TargetText, format_option
from remat.cli.rendering import show
from remat.inspect.pareto import pareto
from remat.inspect.plan import plan as plan_function
from remat.report.plan import pareto_markdown, plan_markdown
from remat.targets.target import Target


@click.command()
@click.argument("example")
@click.option("--budget", type=Budget(),
              help="12GiB, 0.5 of what no checkpoint takes, or auto. Without it, all plans are listed.")  # fmt: skip
@click.option("--target", type=TargetText(), default="cpu", show_default=True, help="Whose compiler it is for.")
@click.option("--verify", is_flag=True, help="Compile the plan, and take a smaller one where it needs more.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the plan to this file.")
@format_option()
def plan(example: str, budget: str | None, target: Target, verify: bool, output: str | None, form: str) -> None:
    """Choose what to keep so that a step fits into a number of bytes.

    EXAMPLE is module:attribute, as for `remat saved`: a function without arguments that returns a pair (fun, args), or
    an object with attributes fun and args. Shapes are enough for args. It is a loss; its value and gradient with
    respect to the first argument are planned. The budget is for what is alive besides the arguments; auto is the
    memory of the target's device less what the arguments take.

    In training: remat.value_and_grad(loss, policy=remat.load_plan("plan.json")).
    """
    if budget is None and (verify or output):
        raise click.UsageError("--verify and --output are about one plan: give a --budget.")
    use_the_cpu(target)
    fun, args, kwargs = load_example(example, "EXAMPLE")
    if budget is None:
        front = pareto(fun, *args, target=target, **kwargs)
        show(form, text=front.__str__, json=front.to_json, markdown=lambda: pareto_markdown(front))
        return
    found = plan_function(fun, *args, budget=budget, target=target, **kwargs)
    if verify:
        found = found.verify()
    if output:
        found.save(output)
    show(form, text=found.__str__, json=found.to_json, markdown=lambda: plan_markdown(found))
