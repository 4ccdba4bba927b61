"""The plans of a loss that are worth having: peak bytes against seconds, as data."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from remat.inspect.plan import region_of
from remat.inspect.planned import Loss
from remat.planning.choice import Choice
from remat.policies.budget import known_frontier
from remat.targets.measure import made_for
from remat.targets.target import Target, as_target


@dataclass(frozen=True, eq=False)
class Pareto(Sequence[Choice]):
    """The plans of a loss that are worth having, the fastest first, each with a lower peak than those before.

    **Attributes**

    - `function`, `target`: what is differentiated, and for which compiler. `tried`: all plans that were looked at.
    """

    function: str
    target: str
    choices: tuple[Choice, ...]
    tried: tuple[Choice, ...]

    def __getitem__(self, index: Any) -> Any:
        return self.choices[index]

    def __len__(self) -> int:
        return len(self.choices)

    def plot(self, path: str) -> None:
        """Draw peak bytes against time into a file (`.svg`, `.png`, `.pdf`). Needs matplotlib."""
        from remat.report.plot import plot_pareto

        plot_pareto(self, path)

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        rows = [{**asdict(c), "front": c in self.choices} for c in self.tried]
        data = {"schema": "remat.pareto/1", "function": self.function, "target": self.target, "rows": rows}
        return json.dumps(data, indent=1)

    def __str__(self) -> str:
        from remat.report.plan import pareto_text

        return pareto_text(self)


def pareto(
    fun: Callable[..., Any],
    /,
    *args: Any,
    target: Target | str | None = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> Pareto:
    """The plans that `remat.plan` chooses from: peak bytes against seconds.

    **Arguments**, **raises**: as for `remat.plan`.

    **Returns** a `Pareto` sequence, which prints as a table.

    >>> import jax.numpy as jnp, remat
    >>> def loss(ws, x):
    ...     for w in ws:
    ...         x = jnp.sin(jnp.tanh(x @ w))
    ...     return x.sum()
    >>> front = remat.pareto(loss, [jnp.ones((64, 64))] * 6, jnp.ones((64, 64)), target="cpu")
    >>> all(a.peak_bytes > b.peak_bytes and a.seconds < b.seconds for a, b in zip(front, front[1:]))
    True
    """
    chosen = as_target(target)
    loss = Loss.of("remat.pareto", fun, args, kwargs, argnums)
    with made_for(chosen):
        frontier = known_frontier(*region_of(loss))
        return Pareto(loss.function, str(chosen), frontier.choices, frontier.tried)
