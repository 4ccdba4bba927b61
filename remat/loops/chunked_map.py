"""`chunked_map`: a function of a batch, applied to some rows at a time, each time as a checkpoint region."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from remat import jax_compat
from remat.checkpoint import checkpoint
from remat.errors import ArgumentError, ArgumentTypeError
from remat.loops.nested import join, merge_rows, split_rows
from remat.signature import check_callable, function_name

CALLER = "remat.chunked_map"


def chunked_map(
    f: Callable[..., Any],
    size: int,
    *,
    in_axes: int | Sequence[int | None] | None = 0,
    reduce: str | None = None,
    policy: Any = "nothing",
) -> Callable[..., Any]:
    """Apply a function of a batch to chunks of its rows one after another, so that one chunk's residuals are alive at a
    time.

    This is for what is wide in the middle: a loss over a large vocabulary has logits that are far larger than its
    inputs and its result. With `reduce`, results are added up and not even the results of rows are stored.

    **Arguments**

    - `f`: takes arrays (or pytrees of them) with rows along the first axis, and returns arrays with as many rows. It
      must treat each row by itself: no mean over the batch inside.
    - `size`: rows in a chunk. What is left over at the end is a smaller chunk.
    - `in_axes`: for each argument, 0 if it has rows, None if it is used as a whole (weights). Or one for all.
    - `reduce`: None joins the results. `"sum"` adds up the rows, `"mean"` divides that by their number; 16-bit floats
      are added up in 32 bits.
    - `policy`: what is kept of a chunk, as for `remat.checkpoint`. What it keeps is kept of all chunks.

    **Returns** a function of the same arguments as `f`.

    **Raises** `ArgumentError` for arguments that differ in rows, results that have others, and options that are not
    there; `ArgumentTypeError` for what is no function or number.

    >>> import jax, jax.numpy as jnp, remat
    >>> def losses(x, labels, vocabulary):
    ...     return -jnp.take_along_axis(jax.nn.log_softmax(x @ vocabulary), labels[:, None], 1)[:, 0]
    >>> loss = remat.chunked_map(losses, 4, in_axes=(0, 0, None), reduce="mean")
    >>> x, labels, vocabulary = jnp.ones((10, 3)), jnp.zeros(10, int), jnp.ones((3, 8))
    >>> bool(jnp.allclose(loss(x, labels, vocabulary), losses(x, labels, vocabulary).mean()))
    True
    """
    check_callable(f, CALLER)
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise ArgumentTypeError(f"size of {CALLER} must be an integer, the rows of a chunk, but is {size!r}.")
    if size < 1:
        raise ArgumentError(f"size of {CALLER} must be 1 or more, but is {size}.")
    if reduce not in (None, "sum", "mean"):
        raise ArgumentError(f"reduce of {CALLER} must be 'sum', 'mean' or None, but is {reduce!r}.")

    regions: dict[tuple[int | None, ...], Callable[[Any, Any], Any]] = {}

    @functools.wraps(f)
    def chunked(*args: Any) -> Any:
        args = jax.tree.map(jnp.asarray, args)
        axes = _axes(in_axes, args)
        rows = _row_count(args, axes)
        mapped = [a for a, axis in zip(args, axes, strict=True) if axis == 0]
        whole = [a for a, axis in zip(args, axes, strict=True) if axis is None]
        over = _Rows(regions.get(axes) or regions.setdefault(axes, _region(f, axes, policy)), mapped, whole, rows, size)
        return _joined(over) if reduce is None else _added_up(over, mean=reduce == "mean")

    return chunked


@dataclass(frozen=True)
class _Rows:
    """`region` on `rows` rows of the arguments `mapped`, `size` at a time, with the arguments `whole` as they are."""

    region: Callable[[Any, Any], Any]
    mapped: list[Any]
    whole: list[Any]
    rows: int
    size: int

    @property
    def in_loop(self) -> int:
        """Chunks that the loop goes over. A loop of one would be taken apart by XLA."""
        count = self.rows // self.size
        return count if count > 1 else 0

    def chunks(self) -> list[Any]:
        """The chunks of the loop, stacked."""
        return split_rows(self._slice(0, self.in_loop * self.size), self.in_loop, self.size)

    def in_chunk(self, chunk: list[Any]) -> Any:
        return self.region(chunk, self.whole)

    def after_loop(self) -> list[Any]:
        """Results of the chunks after the loop: at most a whole and a smaller one, or one without rows."""
        starts = range(self.in_loop * self.size, max(self.rows, 1), self.size)
        return [self.in_chunk(self._slice(a, min(a + self.size, self.rows))) for a in starts]

    def _slice(self, start: int, stop: int) -> list[Any]:
        if (start, stop) == (0, self.rows):
            return self.mapped
        return jax.tree.map(lambda x: jax.lax.slice_in_dim(x, start, stop), self.mapped)


def _region(f: Callable[..., Any], axes: Sequence[int | None], policy: Any) -> Callable[[Any, Any], Any]:
    """`f` of a chunk of the mapped arguments and of the whole others, as a region that checks the results."""

    def of_chunk(mapped: list[Any], whole: list[Any]) -> Any:
        taken, used = iter(mapped), iter(whole)
        results = f(*(next(used) if axis is None else next(taken) for axis in axes))
        rows = jax.tree.leaves(mapped)[0].shape[0]
        for path, y in jax.tree_util.tree_flatten_with_path(results)[0]:
            if not jnp.shape(y) or jnp.shape(y)[0] != rows:
                raise ArgumentError(
                    f"{CALLER}: {function_name(f)} was given {rows} rows, but its result{jax.tree_util.keystr(path)} "
                    f"has shape {jnp.shape(y)}. It must have a row for each row of the arguments; reduce='sum' or "
                    "'mean' adds them up."
                )
        return results

    return checkpoint(of_chunk, policy=policy)


def _joined(over: _Rows) -> Any:
    parts = over.after_loop()
    if over.in_loop:
        _, ys = jax.lax.scan(lambda _, chunk: (None, over.in_chunk(chunk)), None, over.chunks())
        parts = [merge_rows(ys), *parts]
    return join(parts)


def _added_up(over: _Rows, mean: bool) -> Any:
    """The sum or mean over rows of what `f` returns, in the type that `jnp.sum` or `jnp.mean` gives it."""
    last = over.after_loop()
    total = functools.reduce(_plus, map(_sums, last)) if last else None
    types = last[0] if last else None
    if over.in_loop:
        chunks = over.chunks()
        first = lambda chunks: over.in_chunk(jax.tree.map(lambda x: x[0], chunks))  # noqa: E731
        types = jax.eval_shape(first, chunks)
        if total is None:
            total = _zeros_like(lambda chunks: _sums(first(chunks)), chunks)
        total, _ = jax.lax.scan(lambda acc, chunk: (_plus(acc, _sums(over.in_chunk(chunk))), None), total, chunks)

    def finished(total: Any, type: Any) -> Any:
        dtype = jax.eval_shape(jnp.mean if mean else jnp.sum, type).dtype
        return (total / over.rows if mean else total).astype(dtype)

    return jax.tree.map(finished, total, types)


def _zeros_like(fun: Callable[[Any], Any], argument: Any) -> Any:
    """Zeros of the whole types of results, how they vary inside `shard_map` included."""
    jaxpr, shapes = jax.make_jaxpr(fun, return_shape=True)(argument)
    return jax.tree.unflatten(jax.tree.structure(shapes), map(jax_compat.zeros_of, jaxpr.out_avals))


def _sums(results: Any) -> Any:
    return jax.tree.map(_sum, results)


def _sum(y: Any) -> Any:
    """Over rows; 16-bit and smaller floats in 32 bits."""
    dtype = jnp.float32 if jnp.issubdtype(y.dtype, jnp.floating) and y.dtype.itemsize < 4 else None
    return jnp.sum(y, axis=0, dtype=dtype)


def _plus(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


def _axes(in_axes: Any, args: Sequence[Any]) -> tuple[int | None, ...]:
    axes = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
    if len(axes) != len(args):
        raise ArgumentError(f"in_axes={in_axes!r} of {CALLER} is for {len(axes)} arguments, but there are {len(args)}.")
    if not all(axis is None or (axis == 0 and not isinstance(axis, bool)) for axis in axes):
        raise ArgumentError(
            f"in_axes of {CALLER} must be 0 or None, or such an answer for each argument, but is {in_axes!r}. Rows are "
            "along the first axis; use jnp.moveaxis for others."
        )
    return axes


def _row_count(args: Sequence[Any], axes: Sequence[int | None]) -> int:
    found = {}
    for i, (argument, axis) in enumerate(zip(args, axes, strict=True)):
        for path, x in jax.tree_util.tree_flatten_with_path(argument)[0] if axis == 0 else ():
            found[f"argument {i}{jax.tree_util.keystr(path)}"] = x.shape[0] if x.shape else "no rows"
    if not found:
        raise ArgumentError(f"{CALLER} has no argument with rows. in_axes must be 0 for at least one argument.")
    if len(set(found.values())) > 1 or "no rows" in found.values():
        text = ", ".join(f"{name}: {n}" for name, n in found.items())
        raise ArgumentError(
            f"{CALLER} was given arguments that differ in their number of rows: {text}. Say in_axes=None for those "
            "that are used as a whole."
        )
    return next(iter(found.values()))
