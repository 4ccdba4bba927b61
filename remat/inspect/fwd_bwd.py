"""The forward and the backward program of a function, with shared names for the residuals between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat.ir.printer import paired_texts
from remat.ir.types import is_differentiable
from remat.signature import flatten_arguments
from remat.trace import trace_arguments
from remat.transforms.two_levels import split_program


@dataclass(frozen=True)
class ForwardBackward:
    """Lines of the forward program, whose last results are the residuals, and of the backward program, whose first
    inputs they are. A residual has the same name in both."""

    forward: tuple[str, ...]
    backward: tuple[str, ...]

    def __str__(self) -> str:
        from remat.report.text import side_by_side

        return side_by_side(self)


def fwd_bwd(fun: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ForwardBackward:
    """Split `fun` for differentiation with respect to all its floating point arguments; shapes are enough."""
    program = trace_arguments(fun, flatten_arguments(fun, args, kwargs))
    split = split_program(program, [is_differentiable(t) for t in program.input_types])
    first, second = paired_texts(split.forward, split.second)
    return ForwardBackward(tuple(first), tuple(second))
