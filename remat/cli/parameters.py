"""Values on the command line that stand for something of remat's, and the options that commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from remat.cli.policy_words import complete_policy
from remat.errors import RematError
from remat.policies.parse import parse
from remat.targets.target import Target, target_names
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

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _items(complete_policy(incomplete))


class PolicyOrNone(PolicyText):
    """The same, or `none`, which is None: `convert` is never asked about None itself, so it returns the word."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "none" else super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        none = [("none", "no policy: what JAX keeps")] if "none".startswith(incomplete) else []
        return _items([*none, *complete_policy(incomplete)])


class Size(Parsed):
    """A number of bytes, such as `16GiB`."""

    name = "size"
    read = staticmethod(parse_bytes)


class TargetText(Parsed):
    """The name of a target."""

    name = "target"
    read = staticmethod(Target.parse)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _items((name, "") for name in target_names() if name.lower().startswith(incomplete.lower()))


class Budget(click.ParamType):
    """A budget as text; the policy reads it."""

    name = "budget"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _items(pair for pair in BUDGETS.items() if pair[0].startswith(incomplete))


BUDGETS = {
    "auto": "the memory of the target less what the arguments take",
    "0.5": "half of what no checkpoint takes",
    "12GiB": "a number of bytes",
}


def _items(pairs: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    return [CompletionItem(value, help=meaning or None) for value, meaning in pairs]


class SeveralValues(click.Command):
    """A command in which `--policies a b c` is the same as `--policies a --policies b --policies c`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread, inside, fresh = [], False, False
        for arg in args:
            if arg.startswith("-"):
                inside = fresh = arg == "--policies"
            elif inside and not fresh:
                spread.append("--policies")
            else:
                fresh = False
            spread.append(arg)
        ctx.meta[AMONG_POLICIES] = inside
        return super().parse_args(ctx, spread)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Another policy where those before are policies; otherwise an option."""
        if not incomplete.startswith("-") and ctx.meta.get(AMONG_POLICIES):
            policies = next(param for param in self.params if param.name == "policies")
            return policies.type.shell_complete(ctx, policies, incomplete)
        return super().shell_complete(ctx, incomplete)


AMONG_POLICIES = "remat.among_policies"

FORMATS = ("table", "json", "md")


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def format_option(json_flag: bool = True) -> Decorator:
    """The option `--format` of a command that prints a result; the command has it as `form`. And `--json`, short for
    one of its values, except where the command has another option of that name (`json_flag`)."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(*args: Any, form: str, as_json: bool = False, **options: Any) -> Any:
            return command(*args, form="json" if as_json else form, **options)

        flag = click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
        option = click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True,
                              help="Print text, JSON with sizes as plain integers, or Markdown.")  # fmt: skip
        return option(flag(called) if json_flag else called)

    return decorate
