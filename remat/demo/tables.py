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
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
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
            "-" if first else _difference_text(cost.gradient_difference),
            style="dim" if first else None,
        )
    return table


def _difference_text(difference: float) -> str:
    return f"{difference:.0e}" if difference else "0"


def residuals_table(residuals: Residuals, width: int, rows: int | None = None) -> Table:
    """The values that are kept and cost memory, largest first; the table adds up.

    **Arguments**

    - `width`: of the terminal; narrow ones are not told the function a value was made in.
    - `rows`: how many values to show; the others are summed up in one row. None shows all.
    """
    new = sorted((r for r in residuals if r.is_new), key=lambda r: -r.total_bytes)
    shown = new[:rows]
    folded = new[len(shown) :]
    table = _table_of_values(residuals.new_bytes, "new memory, predicted")
    table.add_column("value", overflow="fold")
    table.add_column("made at", overflow="fold")
    for residual in shown:
        table.add_row(*_size_and_type(residual), Text(value_text(residual)), Text(_where(residual, width >= WIDE)))
    if folded:
        table.add_row(bytes_text(sum(r.total_bytes for r in folded)), f"{len(folded)} more", style="dim")
    return table


WIDE = 100


def _table_of_values(total: int, label: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_footer=True)
    table.add_column("bytes", bytes_text(total), justify="right", no_wrap=True)
    table.add_column("type", label, overflow="fold")
    return table


def _size_and_type(residual: Residual) -> tuple[Text, Text]:
    times = "".join(f" x{length}" for length in residual.loops)
    return Text(bytes_text(residual.total_bytes)), Text(residual.type + times)


def _where(residual: Residual, with_function: bool) -> str:
    source = residual.source
    if not source.file:
        return ""
    place = f"{PurePath(source.file).name}:{source.line}"
    return f"{place} ({source.function})" if with_function else place


def value_text(residual: Residual) -> str:
    """What a kept value is, in a few words."""
    kind, text = residual.origin.kind, residual.origin.text
    elsewhere = "" if residual.memory == "device" else f", in {residual.memory}"
    if kind in ("argument", "constant"):
        return f"{kind} {text}".rstrip() + elsewhere
    if kind == "named":
        return f"'{text}'" + elsewhere
    return ("scan carry" if residual.carried else text) + elsewhere
