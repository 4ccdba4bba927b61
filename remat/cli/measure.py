"""`remat measure`: what a function takes, compiled for a device that need not be there."""

from __future__ import annotations

import click

from remat.cli.example import load_example, use_the_cpu
from remat.cli.parameters import PolicyText, TargetText, format_option
from remat.cli.rendering import show
from remat.decisions import Policy
from remat.report.measurement import measurement_markdown
from remat.targets.measure import measure as measure_function
from remat.targets.target import Target


@click.command()
@click.argument("example")
@click.option("--target", type=TargetText(), default="cpu", show_default=True, help="What to compile for.")
@click.option("--policy", type=PolicyText(), help="Measure value and gradient of the function under this policy.")
@format_option()
def measure(example: str, target: Target, policy: Policy | None, form: str) -> None:
    """Show what a function takes, compiled for a device that need not be there.

    EXAMPLE is module:attribute, as for `remat saved`: a function without arguments that returns a pair (fun, args), or
    an object with attributes fun and args. Shapes are enough for args. Shardings in them are put on the target's
    devices.

    The function is compiled as it is, such as a training step; with --policy it is a loss, and its value and gradient
    with respect to the first argument are.

    Targets: cpu, cpu:8, tpu:v5e:2x2, tpu:v5p:2x2x1, gpu:H100, gpu:A100-80GB:8. A TPU's compiler comes with
    pip install 'remat[tpu]', a GPU's with pip install 'remat[gpu]'. Nothing is run on a device.
    """
    use_the_cpu(target)
    fun, args, kwargs = load_example(example, "EXAMPLE")
    measured = measure_function(fun, *args, target=target, policy=policy, **kwargs)
    show(form, text=measured.__str__, json=measured.to_json, markdown=lambda: measurement_markdown(measured))
