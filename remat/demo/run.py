"""The demo: train, then show what policies keep, what that costs, and that the gradients agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import remat
from remat.demo.measure import Cost, costs
from remat.demo.tables import costs_table, residuals_table
from remat.demo.text import corpus, encode, sample_batch
from remat.demo.train import train
from remat.demo.transformer import Parameters, Sizes, loss
from remat.inspect.residuals import Residuals
from remat.policies.parse import parse
from remat.units import bytes_text

COMPARED = ("everything", "dots", "nothing")
SIZES = Sizes()
ROWS = 6


@dataclass(frozen=True)
class DemoResult:
    """What the demo found: the loss before each step, the cost of each policy, and what one policy keeps."""

    policy: str
    seed: int
    losses: tuple[float, ...]
    costs: tuple[Cost, ...]
    saved: Residuals

    def cost(self, policy: str) -> Cost:
        return next(c for c in self.costs if c.policy == policy)

    def to_json(self) -> str:
        """The same as JSON; predicted and measured numbers apart, sizes as plain integers."""
        data = {
            "schema": "remat.demo/1",
            "remat": remat.__version__,
            "jax": jax.__version__,
            "device": jax.devices()[0].device_kind,
            "policy": self.policy,
            "seed": self.seed,
            "losses": self.losses,
            "policies": [_cost_data(cost) for cost in self.costs],
            "saved": json.loads(self.saved.to_json()),
        }
        return json.dumps(data, indent=1)


def _cost_data(cost: Cost) -> dict[str, Any]:
    data = asdict(cost)
    return {
        "policy": data.pop("policy"),
        "predicted": {name: data.pop(name) for name in ("saved_bytes", "dot_products")},
        "measured": data,
    }


def run_demo(
    steps: int, policy: Any, seed: int, out: Console, progress: Console, sizes: Sizes | None = None
) -> DemoResult:
    """Run the demo.

    **Arguments**

    - `steps`: training steps, at least one.
    - `policy`: what to train with; a policy or its short form.
    - `seed`: of the parameters and the batches.
    - `out`, `progress`: where the results and the progress bar are printed.
    - `sizes`: of the model and a batch; `SIZES` by default.
    """
    sizes, policy = sizes or SIZES, parse(policy)
    text = corpus()
    tokens = encode(text)
    print_text(
        out,
        f"A decoder-only transformer ({sizes.layers} layers, width {sizes.width}) learns Python from "
        f"{len(text) / 1e6:.1f} MB of its standard library, on {jax.devices()[0].device_kind}. The policy {policy} is "
        "around the whole loss; the model has no checkpoint in it.",
    )
    parameters, losses = _train(tokens, sizes, steps, policy, seed, progress)
    print_text(out, _losses_text(losses))
    batch = sample_batch(np.random.default_rng(seed), tokens, sizes.batch, sizes.context + 1)
    compared = tuple(dict.fromkeys([*COMPARED, str(policy)]))
    found = _costs(parameters, batch, compared, progress)
    saved = remat.saved_residuals(remat.checkpoint(loss, policy=policy), parameters, batch)
    result = DemoResult(str(policy), seed, losses, found, saved)
    _print_result(result, out)
    return result


def _train(
    tokens: np.ndarray, sizes: Sizes, steps: int, policy: Any, seed: int, console: Console
) -> tuple[Parameters, tuple[float, ...]]:
    losses: list[float] = []
    parameters: Parameters = {}
    with _progress(console) as bar:
        task = bar.add_task("compiling the step", total=steps)
        for latest, value in train(tokens, sizes, steps, policy, seed):
            parameters = latest
            losses.append(value)
            bar.update(task, advance=1, description=f"training, loss {value:.2f}")
    return parameters, tuple(losses)


def _costs(parameters: Parameters, batch: np.ndarray, compared: Sequence[str], console: Console) -> tuple[Cost, ...]:
    found: list[Cost] = []
    with _progress(console) as bar:
        task = bar.add_task("comparing policies", total=len(compared) + 1)
        for cost in costs(loss, (parameters, batch), compared):
            found.append(cost)
            bar.advance(task)
    return tuple(found)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<19}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _losses_text(losses: Sequence[float]) -> str:
    last = losses[-10:]
    return (
        f"The loss fell from {losses[0]:.2f} to {sum(last) / len(last):.2f} nats per character "
        f"(mean of the last {len(last)} of {len(losses)} steps)."
    )


def _print_result(result: DemoResult, out: Console) -> None:
    print_text(out, "\nOne policy at a time around the whole loss:")
    out.print(costs_table(result.costs))
    print_text(out, f"What {result.policy} keeps, the largest values first:")
    out.print(residuals_table(result.saved, out.width, rows=ROWS))
    print_text(out, _closing_text(result))


def _closing_text(result: DemoResult) -> str:
    """The ratios between keeping everything and the policy that was trained with."""
    name = result.policy if result.policy != "everything" else "nothing"
    first, second = result.cost("everything"), result.cost(name)
    text = f"{name} keeps {_times_less(first.saved_bytes, second.saved_bytes)} than everything (predicted)"
    if first.compiled_bytes is not None and second.compiled_bytes is not None:
        text += (
            f" and its compiled step needs {_times_less(first.compiled_bytes, second.compiled_bytes)} memory: "
            f"{bytes_text(second.compiled_bytes)} in place of {bytes_text(first.compiled_bytes)} (measured)"
        )
    return text + "."


def _times_less(more: int, less: int) -> str:
    return f"{more / less:.1f}x less" if less else "nothing, which is less"


def print_text(console: Console, text: str) -> None:
    """A paragraph without markup or colour."""
    console.print(text, markup=False, highlight=False)
