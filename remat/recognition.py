"""Recognising what was traced before, where Python code makes a new function at each step.

JAX knows functions by identity. A training loop that calls `grad(lambda p: loss(p, batch))` makes a new lambda for each
batch, so that its region would be linearized and compiled at each step, even if `loss` is jitted. What such lambdas
trace to differs only in the arrays that they close over: these become inputs, and a jaxpr that says the same as one
from the same code is replaced by that one, by which everything about it is known.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from remat import jax_compat

_known: weakref.WeakKeyDictionary[types.CodeType, dict[Hashable, Any]] = weakref.WeakKeyDictionary()
"""By the code of the user's function, its traced calls by what they say."""

MOST_CALLS = 8
"""How many calls are remembered for one piece of code."""

MOST_BYTES = 2**20
"""How much a remembered call may hold in arrays that jitted functions inside close over."""


_answers: weakref.WeakKeyDictionary[Any, dict[str, Any] | None] = weakref.WeakKeyDictionary()
"""By jaxpr, the parameters of the call that stands for it; None where it stands for itself."""


def recognised(fun: Callable[..., Any], call: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The parameters of the traced call of a function, or of one that says the same; and what becomes its first inputs
    since the function closes over it."""
    jaxpr = call["jaxpr"]
    if jaxpr not in _answers:
        found = _answer(fun, call)
        _answers[jaxpr] = found if found["jaxpr"] is not jaxpr else None
    answer = _answers[jaxpr]
    if answer is None:
        return call, []
    hoists = len(jax_compat.unwrap(answer["jaxpr"]).inputs) > len(jax_compat.unwrap(jaxpr).inputs)
    return answer, [array for _, array in jax_compat.unwrap(jaxpr).constants] if hoists else []


def _answer(fun: Callable[..., Any], call: dict[str, Any]) -> dict[str, Any]:
    code = _code_of(fun)
    if code is None:
        return call
    call = _without_constants(call)
    try:
        key = _text(call["jaxpr"])
        known = _known.setdefault(code, {})
        found = known.get(key)
    except (TypeError, ValueError):  # something in it cannot be hashed or compared
        return call
    if found is not None:
        return {**call, "jaxpr": found}
    if _bytes_held(call["jaxpr"]) <= MOST_BYTES:
        while len(known) >= MOST_CALLS:
            known.pop(next(iter(known)))
        known[key] = call["jaxpr"]
    return call


def _code_of(fun: Any) -> types.CodeType | None:
    fun = inspect.unwrap(fun)
    while isinstance(fun, functools.partial):
        fun = inspect.unwrap(fun.func)
    fun = getattr(fun, "__func__", fun)
    if not isinstance(fun, types.FunctionType):
        fun = getattr(type(fun).__call__, "__func__", type(fun).__call__)
    return getattr(fun, "__code__", None)


def _without_constants(call: dict[str, Any]) -> dict[str, Any]:
    """The call with the arrays that its function closes over as its first inputs."""
    opened = jax_compat.unwrap(call["jaxpr"])
    arrays = [array for _, array in opened.constants]
    if not arrays or not all(isinstance(a, (jax.Array, np.ndarray, np.generic)) for a in arrays):
        return call
    count, jaxpr = len(arrays), call["jaxpr"]

    def apply(*inputs: Any) -> list[Any]:
        return jax_compat.evaluate_jaxpr(jaxpr, inputs[count:], inputs[:count])

    apply.__name__ = apply.__qualname__ = call["name"]
    traced = jax_compat.trace_jitted(jax.jit(apply), [*arrays, *(v.aval for v in opened.inputs)])
    return dict(traced.eqns[0].params)


def _text(jaxpr: Any) -> Hashable:
    """What a jaxpr says, but for the names of its variables."""
    opened = jax_compat.unwrap(jaxpr)
    numbers: dict[Any, int] = {}

    def defined(variables: Sequence[Any]) -> Hashable:
        return tuple((numbers.setdefault(v, len(numbers)), v.aval) for v in variables)

    def read(atom: Any) -> Hashable:
        if not isinstance(atom, jax_compat.Literal):
            return numbers[atom]
        if np.size(atom.val) != 1:
            raise ValueError("an array as a literal")
        return atom.aval, type(atom.val), np.asarray(atom.val).tobytes()

    lines: list[Hashable] = [defined(opened.inputs)]
    for e in opened.equations:
        reads = tuple(map(read, e.invars))
        lines.append((e.primitive, tuple(sorted(e.params.items())), reads, defined(e.outvars), e.ctx))
    lines.append(tuple(map(read, opened.outputs)))
    hash(text := tuple(lines))
    return text


def _bytes_held(jaxpr: Any) -> int:
    """Bytes of the arrays in a jaxpr and in those inside it."""
    opened = jax_compat.unwrap(jaxpr)
    own = sum(getattr(array, "nbytes", 0) for _, array in opened.constants)
    return own + sum(_bytes_held(inner) for e in opened.equations for inner in _inner(e.params))


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(part, "eqns"):
                yield part
