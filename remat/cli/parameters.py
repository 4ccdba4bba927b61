"""Values on the command line that stand for something of remat's."""

from __future__ import annotations

from typing import Any

import click

from remat.decisions import Policy
from remat.errors import RematError
from remat.policies.parse import parse
from remat.targets.target import Target


class PolicyText(click.ParamType):
    """The short form of a policy."""

    name = "policy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Policy:
        try:
            return parse(value)
        except RematError as error:
            self.fail(f"{error} See: remat policies", param, ctx)


class TargetText(click.ParamType):
    """The name of a target."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        try:
            return Target.parse(value)
        except RematError as error:
            self.fail(str(error), param, ctx)
