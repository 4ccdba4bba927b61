"""`remat demo`: train a small transformer and compare policies."""

from __future__ import annotations

from typing import TextIO

import click
from rich.console import Console

from remat.cli.parameters import PolicyText
from remat.decisions import Policy


@click.command()
@click.option("--steps", type=click.IntRange(min=1), default=160, show_default=True, help="Training steps.")
@click.option("--policy", type=PolicyText(), default="dots", show_default=True, help="What to train with.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the parameters and the batches.")
@click.option("--json", "file", type=click.File("w", lazy=False, atomic=True), help="Write the result to a file too.")
def demo(steps: int, policy: Policy, seed: int, file: TextIO | None) -> None:
    """Train a small transformer, and show what policies keep.

    The transformer is plain JAX and learns Python source. Then the policies everything, dots, nothing and the one it
    was trained with are compared: bytes kept for the backward pass, memory of the compiled step, gradients.
    """
    from remat.demo.run import run_demo

    result = run_demo(steps, policy, seed, Console(), Console(stderr=True))
    if file is not None:
        file.write(result.to_json() + "\n")
