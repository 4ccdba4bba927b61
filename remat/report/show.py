"""The printing functions of the public API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remat.inspect.fwd_bwd import fwd_bwd
from remat.inspect.saved import residuals_for
from remat.report.text import residual_lines, side_by_side


def print_saved_residuals(fun: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Print what is kept for the backward pass, in the line format of `jax.ad_checkpoint.print_saved_residuals`.

    Inside a scan, the line names the operation and the source line in the body, and how often the value is kept.
    After the list come totals. Arguments are those of `fun`, and `policy` and `argnums` of `remat.saved_residuals`. The
    result of that prints as a report by module and loop.

    >>> import jax.numpy as jnp, remat
    >>> remat.print_saved_residuals(lambda w, x: w * x, jnp.ones(3), jnp.ones(3))
    f32[3] from the argument w
    f32[3] from the argument x
    <BLANKLINE>
    total: 0 B kept for the backward pass in 0 values
      besides 24 B of arguments and constants, which the caller holds anyway
    """
    policy, argnums = kwargs.pop("policy", None), kwargs.pop("argnums", None)
    print(residual_lines(residuals_for(fun, args, kwargs, policy=policy, argnums=argnums)))


def print_fwd_bwd(fun: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Print the forward and the backward program of `fun` side by side (one below the other on narrow terminals).

    What is recomputed stands in the backward program. Residuals have the same name on both sides. Arguments are those
    of `remat.saved_residuals`.

    >>> import jax.numpy as jnp, remat
    >>> remat.print_fwd_bwd(jnp.sin, 1.0)
    forward computation: | backward computation:
                         |
    program(a: f32[])    | program(c: f32[], d: f32[])
      b: f32[] = sin a   |   e: f32[] = mul d c
      c: f32[] = cos a   |   return e
      return b, c        |
    """
    print(side_by_side(fwd_bwd(fun, *args, **kwargs)))
