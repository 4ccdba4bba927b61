"""Running a plan: nested scans in which each segment is a checkpoint region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from remat.loops.plan import Block, Plan, steps

Step = Callable[[Any, Any], tuple[Any, Any]]
"""One iteration, or a segment of them: from the carry and slices to the next carry and outputs."""


def run_plan(plan: Plan, step: Step, carry: Any, xs: Any, reverse: bool, around: Callable[[Step], Step]) -> Any:
    """The carry after all iterations, and their outputs stacked; `around` is applied to each segment within its
    region."""
    done, parts = 0, []
    for block in plan:
        count = block.count * block.size
        part = _rows(xs, steps(plan), done, count, reverse)
        carry, ys = _run_block(block, step, carry, part, reverse, around)
        parts.append(ys)
        done += count
    return carry, join(parts[::-1] if reverse else parts)


def _run_block(block: Block, step: Step, carry: Any, xs: Any, reverse: bool, around: Callable[[Step], Step]) -> Any:
    if not block.inside:
        return jax.lax.scan(step, carry, xs, length=block.count, reverse=reverse)

    def segment(carry: Any, xs: Any) -> Any:
        return run_plan(block.inside, step, carry, xs, reverse, around)

    if block.count == 1:  # XLA would take a loop of one iteration apart, and merge the recomputation with the forward
        return _region(around(segment), prevent_cse=True)(carry, xs)
    carry, ys = jax.lax.scan(
        _region(around(segment), prevent_cse=False),
        carry,
        split_rows(xs, block.count, block.size),
        length=block.count,
        reverse=reverse,
    )
    return carry, merge_rows(ys)


def _region(segment: Step, prevent_cse: bool) -> Step:
    """A region of which nothing is kept, and whose own loop is always run again.

    It is JAX's: a region of ours whose backward begins at once keeps what its loop carries, and in the body of a loop
    of JAX's it cannot know that it does not.
    """
    return jax.checkpoint(segment, prevent_cse=prevent_cse)


def _rows(xs: Any, total: int, done: int, count: int, reverse: bool) -> Any:
    """The slices of the next `count` iterations; from the end of the arrays if the loop runs backwards."""
    if count == total:
        return xs
    start = total - done - count if reverse else done
    return jax.tree.map(lambda x: jax.lax.slice_in_dim(x, start, start + count), xs)


def split_rows(xs: Any, count: int, size: int) -> Any:
    return jax.tree.map(lambda x: x.reshape(count, size, *x.shape[1:]), xs)


def merge_rows(ys: Any) -> Any:
    return jax.tree.map(lambda y: y.reshape(y.shape[0] * y.shape[1], *y.shape[2:]), ys)


def join(parts: list[Any]) -> Any:
    """Outputs of parts of a loop as those of the whole."""
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *ys: jnp.concatenate(ys), *parts)
