"""The target that programs are being made for, wherever in a trace one is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from remat.targets.target import Target, as_target

_chosen: ContextVar[Target | None] = ContextVar("remat_target", default=None)


def current_target() -> Target:
    """The target of the innermost `use_target` around, or else the device that JAX would run on."""
    return _chosen.get() or Target.of_default_device()


@contextmanager
def use_target(target: Target | str | None) -> Iterator[Target]:
    """A context in which programs are made for `target`; None is what JAX would run on.

    It holds while functions are traced. A function that was traced and kept (by `jax.jit`) stays what it was.
    """
    chosen = as_target(target)
    token = _chosen.set(chosen)
    try:
        yield chosen
    finally:
        _chosen.reset(token)


def use_target_if_chosen(target: Target | None) -> AbstractContextManager[Any]:
    """`use_target` of a target that the user chose; where none was chosen, what is current stays."""
    return nullcontext() if target is None else use_target(target)
