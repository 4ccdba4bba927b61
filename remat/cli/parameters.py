"""Values on the command line that stand for something of remat's."""

from __future__ import annotations

from typing import Any

import click

from remat.decisions import Policy
from remat.errors import RematError
from remat.policies.parse import parse
from remat.targets.target import Target
from remat.units import parse_bytes


class PolicyText(click.ParamType):
    """The short form of a policy."""

    name = "policy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Policy:
        try:
            return parse(value)
        except RematError as error:
            self.fail(f"{error} See: remat policies", param, ctx)


class PolicyOrNone(PolicyText):
    """The same, or `none`, which is None: `convert` is never asked about None itself, so it returns the word."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "none" else super().convert(value, param, ctx)


class Size(click.ParamType):
    """A number of bytes, such as `16GiB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_bytes(value)
        except RematError as error:
            self.fail(str(error), param, ctx)


class TargetText(click.ParamType):
    """The name of a target."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        try:
            return Target.parse(value)
        except RematError as error:
            self.fail(str(error), param, ctx)
