"""Objects with state, the graph nodes of Flax nnx: their state goes into a region and comes out of it again.

A region is traced with copies of its arguments, and what happens to the state of a copy would be lost. So a function of
graph nodes, or a method of one, is made a function of their states by nnx's own protocol (`nnx.update_context`, which
carries shared references and new variables too). If it changes any, it returns the states and the nodes are updated.

Nothing here imports Flax: where it is not loaded, there are no such objects.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.tree_util import tree_flatten_with_path

from remat.errors import DifferentiationError
from remat.signature import function_name

TAG = "remat"
OWNER = "remat_owner"
"""The keyword by which the object of a method is handed on."""


def owner_of(fun: Callable[..., Any]) -> Any:
    """The graph node that a function is, or is a method of; None for other functions."""
    owner = fun if _is_node(fun) else getattr(fun, "__self__", None)
    return owner if _is_node(owner) else None


def holds_nodes(tree: Any) -> bool:
    """Whether a pytree holds a graph node. Variables in an `nnx.State` are data, as in nnx's functional style."""
    nnx: Any = sys.modules.get("flax.nnx")
    if nnx is None:
        return False
    leaves = jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, nnx.State) or _is_node(x))
    return any(map(_is_node, leaves))


def _is_node(x: Any) -> bool:
    nnx: Any = sys.modules.get("flax.nnx")
    return nnx is not None and nnx.graph.is_graph_node(x)


def with_states(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function of states in place of graph nodes. It returns the new states, if any changed, and the result."""

    def pure(*args: Any, **kwargs: Any) -> Any:
        nnx: Any = sys.modules["flax.nnx"]
        args, kwargs = nnx.from_tree((args, kwargs), ctxtag=TAG, is_inner=True)
        nodes = jax.tree.map(lambda x: x if _is_node(x) else None, (args, kwargs), is_leaf=_is_node)
        before = _states(nodes)
        function = fun
        if OWNER in kwargs:
            owner = kwargs.pop(OWNER)
            function = owner if _is_node(fun) else functools.partial(fun.__func__, owner)  # type: ignore[attr-defined]
        out = function(*args, **kwargs)
        if not _changes(before, _states(nodes)):
            nodes = None
        return nnx.to_tree((nodes, out), ctxtag=TAG)

    return functools.update_wrapper(pure, fun, updated=())


def call_with_states(
    call: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Let `call` apply `with_states(fun)` to the states of the graph nodes, and give these their new states.

    **Raises** `DifferentiationError` when a node that belongs to an outer transformation would get one.
    """
    nnx: Any = sys.modules["flax.nnx"]
    owner = owner_of(fun)
    if owner is not None:
        kwargs = {**kwargs, OWNER: owner}
    with nnx.update_context(TAG):
        nodes, out = call(*nnx.to_tree((args, kwargs), ctxtag=TAG))
        if nodes is not None:
            _check_can_change(fun, (args, kwargs))
        return nnx.from_tree((nodes, out), ctxtag=TAG, is_inner=False)[1]


def _check_can_change(fun: Callable[..., Any], tree: Any) -> None:
    """nnx refuses to change what comes from outside a transformation, but only halfway through."""
    nnx: Any = sys.modules["flax.nnx"]
    for _, value in nnx.iter_graph(tree):
        if isinstance(value, nnx.Variable):
            try:
                value.set_raw_value(value.get_raw_value())
            except sys.modules["flax.errors"].TraceContextError:
                raise DifferentiationError(
                    f"{function_name(fun)}, a remat.checkpoint region, changes the state of an nnx module that a "
                    "transformation around it closes over, so the new state cannot be kept. Pass the module as an "
                    "argument through nnx's own transformations (nnx.jit, nnx.scan, nnx.value_and_grad, or that of "
                    "remat.frameworks.nnx), or use nnx.split and nnx.merge."
                ) from None


@contextlib.contextmanager
def state_must_not_change(fun: Callable[..., Any], arguments: Any) -> Iterator[None]:
    """While a function runs on copies of its arguments.

    **Raises** `DifferentiationError` if it changed the state of a graph node among them, which would be lost.
    """
    if not holds_nodes(arguments):
        yield
        return
    before = _states(arguments)
    yield
    changed = _changes(before, _states(arguments))
    if changed:
        raise DifferentiationError(
            f"{function_name(fun)} changed the state of an nnx module among its arguments ({changed}). It works on a "
            "copy, so that would be lost. Use grad and value_and_grad of remat.frameworks.nnx, which take a policy "
            "too, or write a function of the states (nnx.split, nnx.merge) that returns the new ones with has_aux=True."
        )


def _states(tree: Any) -> tuple[dict[Any, Any], Any]:
    nnx: Any = sys.modules["flax.nnx"]
    leaves, structure = tree_flatten_with_path(nnx.to_tree(tree))
    return dict(leaves), structure


def _changes(before: tuple[dict[Any, Any], Any], after: tuple[dict[Any, Any], Any]) -> str:
    """Where the states in a pytree differ from those before, in words; empty if nowhere."""
    paths = [path for path, x in after[0].items() if before[0].get(path, before) is not x]
    if not paths:
        return "" if before[1] == after[1] else "its structure"
    words = [".".join(str(key.key) for key in path if hasattr(key, "key")) for path in paths]
    return ", ".join(words[:3]) + (", ..." if len(words) > 3 else "")


_NOTE = ", a region of remat,"


@contextlib.contextmanager
def closures_explained(fun: Callable[..., Any]) -> Iterator[None]:
    """Add to nnx's error about a module that a region closes over and changes what to do about it."""
    try:
        yield
    except Exception as error:
        explained = any(_NOTE in note for note in getattr(error, "__notes__", ()))
        if type(error).__name__ == "TraceContextError" and not explained:
            error.add_note(
                f"{function_name(fun)}{_NOTE} changes the state of an nnx module that it closes over. "
                "Pass it as an argument, as in remat.checkpoint(lambda module, x: module(x))(module, x): then its "
                "state is updated. To differentiate, use grad and value_and_grad of remat.frameworks.nnx."
            )
        raise
