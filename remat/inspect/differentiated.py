"""A function linearized with respect to some of its arguments, for inspection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from remat.gradient_checks import check_argnums, choose_arguments
from remat.ir.linearized import Linearized
from remat.ir.program import Value
from remat.ir.region import Region
from remat.ir.source import UNKNOWN
from remat.signature import check_callable, flatten_arguments, function_name, leaves_of
from remat.trace import trace_arguments
from remat.transforms.linearize import linearize_program


@dataclass(frozen=True, eq=False)
class Differentiated:
    """`argument_names`: the path of each input of the linearized program, such as `params['w']`."""

    function: str
    linearized: Linearized
    argument_names: dict[Value, str]


def differentiated(
    caller: str,
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int],
    policy: Any = None,
) -> Differentiated:
    """Trace `fun` and linearize it with respect to the arguments at `argnums`; all of it is under `policy`, if given.

    **Raises** what `remat.grad` raises for bad functions and `argnums`.
    """
    check_callable(fun, caller)
    chosen = choose_arguments(fun, check_argnums(argnums)[0], args, kwargs)
    arguments = flatten_arguments(fun, args, kwargs)
    active = leaves_of(arguments, args, kwargs, chosen)
    program = trace_arguments(fun, arguments)
    region = None if policy is None else Region(policy, None, True, False, UNKNOWN)
    linearized = linearize_program(program, active, region)
    names = dict(zip(linearized.inputs, arguments.names, strict=True))
    return Differentiated(function_name(fun), linearized, names)
