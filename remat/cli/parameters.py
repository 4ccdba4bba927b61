"""Values on the command line that stand for something of remat's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from remat.errors import RematError
from remat.policies.parse import parse
from remat.targets.target import Target
from remat.units import parse_bytes


class Parsed(click.ParamType):
    """What a function of remat's reads from text; its error is that of the parameter, followed by the hint."""

    read: Callable[[Any], Any]
    hint = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.read(value)
        except RematError as error:
            self.fail(f"{error}{self.hint}", param, ctx)


class PolicyText(Parsed):
    """The short form of a policy."""

    name = "policy"
    read = staticmethod(parse)
    hint = " See: remat policies"


class PolicyOrNone(PolicyText):
    """The same, or `none`, which is None: `convert` is never asked about None itself, so it returns the word."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "none" else super().convert(value, param, ctx)


class Size(Parsed):
    """A number of bytes, such as `16GiB`."""

    name = "size"
    read = staticmethod(parse_bytes)


class TargetText(Parsed):
    """The name of a target."""

    name = "target"
    read = staticmethod(Target.parse)
