"""Tables of what is kept, for terminals; they fit 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from rich import box
from rich.table import Table
from rich.text import Text

from remat.demo.measure import Cost
from remat.inspect.residuals import Residual, Residuals
from remat.units import bytes_text


def costs_table(costs: Sequence[Cost]) -> Table:
    """One row for each policy; what is predicted and what is measured are labelled apart."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="one policy around the whole loss", title_justify="left")
    table.add_column("\npolicy")
    for header, label in (
        ("saved for\nbackward", "predicted"),
        ("dot\nproducts", "predicted"),
        ("temp + output\nbytes", "measured"),
        ("gradient\ndifference", "measured"),
    ):
        table.add_column(Text.assemble(header, "\n", (label, "italic")), justify="right")
    for cost in costs:
        compiled = "n/a" if cost.compiled_bytes is None else bytes_text(cost.compiled_bytes)
        first = cost.policy == "none"
        table.add_row(
            "none (jax.value_and_grad)" if first else cost.policy,
            bytes_text(cost.saved_bytes),
            str(cost.dot_products),
            compiled,
            "-" if first else f"{cost.gradient_difference:.0e}",
            style="dim" if first else None,
        )
    return table


def residuals_table(residuals: Residuals, rows: int | None = None, arguments: bool = True) -> Table:
    """The kept values, largest first, then the arguments and constants among them.

    **Arguments**

    - `rows`: how many to show; the others are summed up in one row, so that the table adds up. None shows all.
    - `arguments`: whether to list arguments and constants, which the caller holds anyway.
    """
    new = sorted((r for r in residuals if r.is_new), key=lambda r: -r.total_bytes)
    shown, folded = new[:rows], new[len(new[:rows]) :]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
    table.add_column("bytes", bytes_text(residuals.new_bytes), justify="right", no_wrap=True)
    table.add_column("type", "new memory, predicted", overflow="fold")
    table.add_column("value", overflow="fold")
    table.add_column("made at", overflow="fold")
    for residual in shown:
        table.add_row(*_cells(residual))
    if folded:
        table.add_row(bytes_text(sum(r.total_bytes for r in folded)), f"{len(folded)} more", style="dim")
    held = [r for r in residuals if not r.is_new] if arguments else []
    if held:
        table.add_section()
    for residual in held:
        table.add_row(*_cells(residual), style="dim")
    return table


def _cells(residual: Residual) -> tuple[Text, ...]:
    times = "".join(f" x{length}" for length in residual.loops)
    source = residual.source
    where = f"{PurePath(source.file).name}:{source.line} ({source.function})" if source.file else ""
    return (
        Text(bytes_text(residual.total_bytes)),
        Text(residual.type + times),
        Text(value_text(residual)),
        Text(where),
    )


def value_text(residual: Residual) -> str:
    """What a kept value is, in a few words."""
    kind, text = residual.origin.kind, residual.origin.text
    elsewhere = "" if residual.memory == "device" else f", in {residual.memory}"
    if kind in ("argument", "constant"):
        return f"{kind} {text}".rstrip() + elsewhere
    if kind == "named":
        return f"'{text}'" + elsewhere
    return ("scan carry" if residual.carried else text) + elsewhere
