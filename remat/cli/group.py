"""The group of commands, and how errors and warnings of remat look there."""

from __future__ import annotations

import warnings
from typing import Any

import click

from remat import __version__
from remat.cli.check import check
from remat.cli.compare import compare
from remat.cli.completion import completion
from remat.cli.demo import demo
from remat.cli.explain import explain
from remat.cli.measure import measure
from remat.cli.plan import plan
from remat.cli.policies import policies
from remat.cli.report import report
from remat.cli.saved import saved
from remat.cli.timeline import timeline
from remat.cli.why import why
from remat.errors import RematError, RematWarning


class Commands(click.Group):
    """A group of commands that shows errors and warnings of remat as one message, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            show_others = warnings.showwarning

            def show(message: Any, category: Any, *place: Any, **options: Any) -> None:
                if issubclass(category, RematWarning):
                    click.echo(f"Warning: {message}", err=True)
                else:
                    show_others(message, category, *place, **options)

            warnings.showwarning = show
            try:
                return super().invoke(ctx)
            except RematError as error:
                raise click.ClickException(str(error)) from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="remat")
def main() -> None:
    """Gradient checkpointing for JAX that says what it keeps."""


for command in (demo, saved, why, timeline, compare, plan, measure, check, explain, report, policies, completion):
    main.add_command(command)
