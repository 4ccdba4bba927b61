"""Keep the results of matrix products and convolutions, which are expensive to compute again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat import jax_compat
from remat.decisions import RECOMPUTE, SAVE, Decision, Offload
from remat.policies.base import PerEquation, check_memory
from remat.policies.parse import WITH_ARGUMENT, WORDS, memory_text


@dataclass(frozen=True)
class DotsSaveable(PerEquation):
    """Results of dot products and convolutions are kept; with `batch_dims=False` only of dot products without batch
    dimensions, which are those with weights.

    Unlike in JAX, products of ragged groups (`jax.lax.ragged_dot`), scaled and sparse products are dot products too.
    Rows that are multiplied by the weights of their group are a product without batch dimensions.
    """

    batch_dims: bool = True

    def decide_primitive(self, primitive: Any, types: tuple[Any, ...], params: dict[str, Any]) -> Decision:
        if self.batch_dims:
            return SAVE if primitive.name in jax_compat.dots_primitive_names else RECOMPUTE
        return SAVE if has_no_batch_dims(primitive, types, params) else RECOMPUTE

    def as_jax(self) -> Callable[..., Any]:
        return self  # JAX's own knows fewer products

    @property
    def is_about_products(self) -> bool:
        """Whether the user is told when it keeps none of the products that it sees."""
        return True

    def __str__(self) -> str:
        return "dots" if self.batch_dims else "dots_no_batch"


@dataclass(frozen=True)
class OffloadDotWithNoBatchDims(PerEquation):
    """Results of dot products without batch dimensions are kept in another memory."""

    offload_src: str
    offload_dst: str

    def __post_init__(self) -> None:
        check_memory(self.offload_src, "offload_src")
        check_memory(self.offload_dst, "offload_dst")

    def decide_primitive(self, primitive: Any, types: tuple[Any, ...], params: dict[str, Any]) -> Decision:
        if has_no_batch_dims(primitive, types, params):
            return Offload(self.offload_src, self.offload_dst)
        return RECOMPUTE

    @property
    def may_offload(self) -> bool:
        return True

    @property
    def is_about_products(self) -> bool:
        return True

    def as_jax(self) -> Callable[..., Any]:
        return self

    def __str__(self) -> str:
        return f"offload_dots:{memory_text(self.offload_src, self.offload_dst)}"


def has_no_batch_dims(primitive: Any, types: tuple[Any, ...], params: dict[str, Any]) -> bool:
    """Whether it is a product without batch dimensions. A convolution is none, as in JAX."""
    if primitive.name not in jax_compat.dots_primitive_names or primitive.name == "conv_general_dilated":
        return False
    return not jax_compat.has_batch_dims(primitive.name, types, params)


dots_saveable = DotsSaveable()
dots_with_no_batch_dims_saveable = DotsSaveable(batch_dims=False)
checkpoint_dots = dots_saveable
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> OffloadDotWithNoBatchDims:
    """Keep results of dot products without batch dimensions in another memory.

    **Arguments**: the memory the values are in and the one they are moved to: `device`, `pinned_host`,
    `unpinned_host`.

    **Raises** `PolicyError` for any other memory space.

    >>> from remat import policies
    >>> policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    OffloadDotWithNoBatchDims(offload_src='device', offload_dst='pinned_host')
    """
    return OffloadDotWithNoBatchDims(offload_src, offload_dst)


WORDS.update({"dots": dots_saveable, "dots_no_batch": dots_with_no_batch_dims_saveable})
WORDS.update({"dots_saveable": dots_saveable, "checkpoint_dots": dots_saveable})
WORDS["dots_with_no_batch_dims_saveable"] = dots_with_no_batch_dims_saveable
WORDS["checkpoint_dots_with_no_batch_dims"] = dots_with_no_batch_dims_saveable
WITH_ARGUMENT["offload_dots"] = (lambda reader: offload_dot_with_no_batch_dims(*reader.memory()), "pinned_host")
