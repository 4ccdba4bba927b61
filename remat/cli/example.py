"""`module:attribute` on the command line: a function and its arguments."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import click
import jax

from remat.targets.target import Target


def use_the_cpu(target: Target | None = None) -> None:
    """Keep JAX from looking for devices that nothing is run on, unless the user named a platform. For a target of
    several CPUs, have as many."""
    if not getattr(jax.config, "jax_platforms", None):
        jax.config.update("jax_platforms", "cpu")
    if target is not None and target.platform == "cpu" and target.devices > 1:
        with contextlib.suppress(RuntimeError):  # JAX is in use already; measure says so if there are too few
            jax.config.update("jax_num_cpu_devices", target.devices)


def load_example(target: str, hint: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The function and its arguments that `module:attribute` stands for.

    **Raises** `click.BadParameter` for the parameter `hint` that says what is missing or wrong.
    """
    try:
        return _load(target)
    except click.BadParameter as error:
        error.param_hint = hint
        raise


def _load(target: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    made = _attribute(target)
    if not hasattr(made, "fun"):
        made = _call(target, made)
    if hasattr(made, "fun") and hasattr(made, "args"):
        fun, args, kwargs = made.fun, made.args, getattr(made, "kwargs", None)
    elif isinstance(made, tuple) and len(made) == 2:
        (fun, args), kwargs = made, None
    else:
        raise _bad(f"{target} gives {_kind(made)}. {SHAPE}")
    if not callable(fun):
        raise _bad(f"the fun of {target} must be a function, but is {_kind(fun)}. {SHAPE}")
    if not isinstance(args, (tuple, list)):
        raise _bad(f"the args of {target} must be a tuple, but are {_kind(args)}. Write (fun, (x,)).")
    return fun, tuple(args), dict(kwargs or {})


SHAPE = "It has to return (fun, args), or an object with attributes fun and args."


def _call(target: str, made: Any) -> Any:
    if not callable(made):
        raise _bad(f"{target} is {_kind(made)}. It must be a function without arguments. {SHAPE}")
    if _needs_arguments(made):
        raise _bad(f"{target} takes arguments; name a function without, that prepares them. {SHAPE}")
    return made()


def _attribute(target: str) -> Any:
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise _bad(f"{target!r} is not of the form module:attribute, such as train:example.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        hint = " Give a module, not a file." if module_name.endswith(".py") else ""
        raise _bad(f"there is no module {error.name!r} here or among the installed packages.{hint}") from None
    for name in path.split("."):
        if not hasattr(found, name):
            close = difflib.get_close_matches(name, dir(found), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise _bad(f"{getattr(found, '__name__', found)!s} has no attribute {name!r}.{hint}")
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


def _bad(message: str) -> click.BadParameter:
    return click.BadParameter(message)
