"""`remat policies`: the policies and how to write them."""

from __future__ import annotations

import json

import click
from rich import box
from rich.console import Console
from rich.table import Table

from remat.cli.parameters import format_option
from remat.cli.policy_forms import policy_forms
from remat.cli.rendering import show
from remat.report.markdown import markdown_report, markdown_table

SCHEMA = "remat.policies/1"
HEAD = ("write", "what is kept")
NOTE = (
    "Combine them: a|b keeps what either keeps, a&b what both keep; parentheses group. Each form works in Python "
    "(remat.checkpoint(f, policy='dots')), on the command line and in JSON."
)


@click.command()
@format_option()
def policies(form: str) -> None:
    """List the policies and how to write them."""
    forms = policy_forms()
    if form == "table":
        _print_table(forms)
        return
    data = {"schema": SCHEMA, "policies": [{"write": word, "keeps": meaning} for word, meaning in forms.items()]}
    rows = [[f"`{word}`", meaning] for word, meaning in forms.items()]
    show(
        form,
        text=lambda: NOTE,
        json=lambda: json.dumps(data, indent=1),
        markdown=lambda: markdown_report("policies", markdown_table(HEAD, rows), [NOTE]),
    )


def _print_table(forms: dict[str, str]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(HEAD[0], no_wrap=True)
    table.add_column(HEAD[1])
    for form, meaning in forms.items():
        table.add_row(form, meaning)
    console = Console()
    console.print(table, highlight=False)
    console.print(NOTE, markup=False, highlight=False)
