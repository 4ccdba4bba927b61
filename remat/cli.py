"""The command `remat`.

Results go to stdout, progress and warnings to stderr. Exit codes: 0 done, 1 remat could not do it, 2 wrong usage.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, TextIO

import jax

try:
    import click
    from rich import box
    from rich.console import Console
    from rich.table import Table
except ModuleNotFoundError as error:
    if error.name not in ("click", "rich"):
        raise
    raise SystemExit(
        f"remat: the command line needs the package {error.name}. Install it with: pip install 'remat[cli]'"
    ) from None

from remat import __version__
from remat.checkpoint import checkpoint
from remat.decisions import Policy
from remat.errors import RematError, RematWarning
from remat.inspect.residuals import saved_residuals
from remat.policies.parse import WITH_ARGUMENT, WORDS, parse


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


class PolicyText(click.ParamType):
    """The short form of a policy."""

    name = "policy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Policy:
        try:
            return parse(value)
        except RematError as error:
            self.fail(f"{error} See: remat policies", param, ctx)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="remat")
def main() -> None:
    """Gradient checkpointing for JAX that says what it keeps."""


@main.command()
@click.option("--steps", type=click.IntRange(min=1), default=160, show_default=True, help="Training steps.")
@click.option("--policy", type=PolicyText(), default="dots", show_default=True, help="What to train with.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the parameters and the batches.")
@click.option("--json", "file", type=click.File("w", lazy=False, atomic=True), help="Write the result to a file too.")
def demo(steps: int, policy: Policy, seed: int, file: TextIO | None) -> None:
    """Train a small transformer, and show what policies keep.

    The transformer is plain JAX and learns Python source. Then the policies everything, dots, nothing and the one it
    was trained with are compared: bytes kept for the backward pass, memory of the compiled step, gradients.
    """
    from remat.demo.run import run_demo

    result = run_demo(steps, policy, seed, Console(), Console(stderr=True))
    if file is not None:
        file.write(result.to_json() + "\n")


@main.command()
@click.argument("target")
@click.option("--policy", type=PolicyText(), help="Put this policy around the function.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def saved(target: str, policy: Policy | None, form: str) -> None:
    """Show what a function keeps for its backward pass.

    TARGET is module:attribute. The attribute is a function without arguments that returns a pair (fun, args), or an
    object with attributes fun and args (and kwargs, if any). Shapes are enough for args: jax.ShapeDtypeStruct, or
    what jax.eval_shape returns. Modules are looked up in the current folder first.

    Nothing is run on a device: unless JAX_PLATFORMS is set, JAX uses the CPU.
    """
    if not getattr(jax.config, "jax_platforms", None):
        jax.config.update("jax_platforms", "cpu")
    fun, args, kwargs = load_target(target)
    residuals = saved_residuals(fun if policy is None else checkpoint(fun, policy=policy), *args, **kwargs)
    if form == "json":
        click.echo(residuals.to_json())
        return
    from remat.demo.tables import held_table, residuals_table

    console = Console()
    around = "no policy" if policy is None else f"policy {policy}"
    console.print(f"kept for the backward pass of {residuals.function}, {around}", markup=False, highlight=False)
    console.print(residuals_table(residuals, console.width))
    if residuals.total_bytes > residuals.new_bytes:
        console.print("besides, read by the backward pass, but held by the caller anyway:")
        console.print(held_table(residuals))


@main.command()
def policies() -> None:
    """List the policies and how to write them."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("write", no_wrap=True)
    table.add_column("what is kept")
    for form, meaning in policy_forms().items():
        table.add_row(form, meaning)
    console = Console()
    console.print(table, highlight=False)
    console.print(
        "Combine them: a|b keeps what either keeps, a&b what both keep; parentheses group. Each form works in Python "
        "(remat.checkpoint(f, policy='dots')), on the command line and in JSON.",
        markup=False,
        highlight=False,
    )


MEANINGS = {
    "everything": "all that the backward pass needs, as without a checkpoint",
    "dots": "results of matrix products and convolutions",
    "dots_no_batch": "results of matrix products without batch dimensions: those with weights",
    "nothing": "only the inputs; the rest is recomputed",
    "names": "values with these names (checkpoint_name)",
    "names_but": "values with any name but these",
    "except": "everything except values with these names",
    "offload": "values with these names, in host memory",
    "offload_dots": "what dots_no_batch keeps, in host memory",
    "within": "what a policy keeps in one named scope or function",
    "scan_body": "what a policy keeps in loops, and everything outside them",
    "segments": "what a policy keeps, and the narrow places between segments, each recomputed by itself",
    "substituting": "what a policy keeps, with a sum in place of its addend and the like",
    "balanced": "results of products, reductions, gathers; element-wise operations, casts and views are recomputed. "
    "Wins where activations, norms or dropout follow products; less where most is reductions",
    "balanced:": "the same, with operations moved to the other side",
    "burn": "as Burn's BalancedCheckpointing: like balanced, but stops at constants and keeps casts",
    "burn_no_checkpointing": "as Burn's NoCheckpointing: the inputs that backward steps ask for",
}


def policy_forms() -> dict[str, str]:
    """How to write each policy, and in one line what it keeps."""
    plain = {str(policy): (str(policy), policy) for policy in WORDS.values()}
    others = {
        f"{word}:" if word in plain else word: (f"{word}:{example}", parse(f"{word}:{example}"))
        for word, (_, example) in WITH_ARGUMENT.items()
    }
    known = plain | others
    order = dict.fromkeys([*(word for word in MEANINGS if word in known), *known])
    return {known[word][0]: MEANINGS.get(word) or _first_sentence(known[word][1]) for word in order}


def _first_sentence(policy: Policy) -> str:
    text = " ".join((inspect.getdoc(type(policy)) or "").split())
    return text.partition(". ")[0].rstrip(".")


def load_target(target: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The function and its arguments that `module:attribute` stands for.

    **Raises** `click.BadParameter` that says what is missing or wrong.
    """
    made = _attribute(target)
    if not hasattr(made, "fun"):
        made = _call_target(target, made)
    if hasattr(made, "fun") and hasattr(made, "args"):
        fun, args, kwargs = made.fun, made.args, getattr(made, "kwargs", None)
    elif isinstance(made, tuple) and len(made) == 2:
        (fun, args), kwargs = made, None
    else:
        raise _bad_target(f"{target} gives {_kind(made)}. {SHAPE}")
    if not callable(fun):
        raise _bad_target(f"the fun of {target} must be a function, but is {_kind(fun)}. {SHAPE}")
    if not isinstance(args, (tuple, list)):
        raise _bad_target(f"the args of {target} must be a tuple, but are {_kind(args)}. Write (fun, (x,)).")
    return fun, tuple(args), dict(kwargs or {})


SHAPE = "It has to return (fun, args), or an object with attributes fun and args."


def _call_target(target: str, made: Any) -> Any:
    if not callable(made):
        raise _bad_target(f"{target} is {_kind(made)}. It must be a function without arguments. {SHAPE}")
    if _needs_arguments(made):
        raise _bad_target(f"{target} takes arguments; name a function without, that prepares them. {SHAPE}")
    return made()


def _attribute(target: str) -> Any:
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise _bad_target(f"{target!r} is not of the form module:attribute, such as train:example.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        hint = " Give a module, not a file." if module_name.endswith(".py") else ""
        raise _bad_target(f"there is no module {error.name!r} here or among the installed packages.{hint}") from None
    for name in path.split("."):
        if not hasattr(found, name):
            close = difflib.get_close_matches(name, dir(found), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise _bad_target(f"{getattr(found, '__name__', found)!s} has no attribute {name!r}.{hint}")
        found = getattr(found, name)
    return found


def _needs_arguments(made: Callable[..., Any]) -> bool:
    try:
        inspect.signature(made).bind()
    except TypeError:
        return True
    except ValueError:
        return False  # no signature to be had
    return False


def _kind(x: Any) -> str:
    return f"{x!r:.60} of type {type(x).__name__}"


def _bad_target(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="TARGET")
