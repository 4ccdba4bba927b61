"""Printing a result as the text of its report, as JSON, or as Markdown; all are made from the same data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click


def show(
    form: str,
    *,
    text: Callable[[], str],
    json: Callable[[], str],
    markdown: Callable[[], str],
    notes: Sequence[str] = (),
) -> None:
    """Print a result to stdout.

    **Arguments**

    - `form`: `table`, `json` or `md`, see `format_option`.
    - `text`, `json`, `markdown`: what makes each of them.
    - `notes`: what else there is to say. Text and Markdown have it below; JSON is data alone, and has it on stderr.
    """
    if form == "json":
        click.echo(json())
    elif form == "md":
        click.echo(markdown())
    else:
        click.echo(text())
    for note in notes:
        click.echo(f"\n{note}", err=form == "json")
