"""Calling a user's function as a region: from pytrees to the flat arrays of the primitive, and back.

A function is traced once for each signature: shapes and dtypes of the arrays, the structure around them, and the
static values in it.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from remat import jax_compat
from remat.graph_nodes import closures_explained, state_must_not_change
from remat.ir.references import is_reference
from remat.recognition import recognised
from remat.region_primitive import Marks, bind_equations, bind_traced
from remat.signature import Arguments, Structure, check_pair, flatten_outputs
from remat.statics import Statics
from remat.trace import flat_like, value_errors_explained


@dataclass(frozen=True)
class Call:
    """How to call a function as a region.

    - `fun`, `marks`: the function, and what its region has.
    - `statics`: which arguments of it are hidden in boxes.
    - `has_aux`: whether it returns a pair whose second part is not differentiated.
    - `with_jax`: what stands in for a region where there can be none (see `_needs_jax`).
    - `always`: whether it is a region even if there is nothing to decide in it.
    - `when_traced`: called once the function has been traced.
    """

    fun: Callable[..., Any]
    marks: Marks
    with_jax: Callable[[Callable[..., Any]], Callable[..., Any]]
    statics: Statics | None = None
    has_aux: bool = False
    always: bool = False
    when_traced: Callable[[], Any] = lambda: None

    def __call__(self, arguments: Arguments) -> Any:
        """Call the function with these flat arguments; returns its result."""
        flat = _flat_function(self, arguments)
        leaves = arguments.leaves
        with value_errors_explained(arguments), closures_explained(self.fun), flat.named_like(self.fun):
            jaxpr = jax_compat.trace_jitted(flat.jitted, leaves)
        self.when_traced()
        results = flat.results_of(jaxpr)
        if _needs_jax(jaxpr, leaves):
            return results.build(self.with_jax(flat.function)(*leaves))
        if self.marks.transparent and not self.always and not _holds_regions(jaxpr):
            return results.build(bind_equations(jaxpr, leaves))
        marks = replace(self.marks, auxiliary=results.auxiliary_count)
        return results.build(bind_traced(jaxpr, leaves, marks, functools.partial(recognised, self.fun)))


@dataclass(frozen=True, eq=False)
class Results:
    """How to put a function's result together from flat arrays."""

    main: Structure
    main_count: int
    auxiliary: Structure | None = None
    auxiliary_count: int = 0

    def build(self, arrays: Sequence[Any]) -> Any:
        main = self.main.build(arrays[: self.main_count])
        return main if self.auxiliary is None else (main, self.auxiliary.build(arrays[self.main_count :]))


@dataclass(eq=False)
class FlatFunction:
    """A function of flat arrays, with what is known of its results from each time it was traced."""

    function: Callable[..., list[Any]]
    jitted: Callable[..., list[Any]]
    traced: list[Results] = field(default_factory=list)
    by_jaxpr: weakref.WeakKeyDictionary[Any, Results] = field(default_factory=weakref.WeakKeyDictionary)
    last: Any = None

    @contextlib.contextmanager
    def named_like(self, fun: Callable[..., Any]) -> Iterator[None]:
        """While it is traced, let JAX's messages name the user's function. Later that would keep it alive."""
        flat_like(self.function, fun)
        try:
            yield
        finally:
            vars(self.function).pop("__wrapped__", None)  # another thread may have taken it

    def results_of(self, jaxpr: Any) -> Results:
        """What belongs to a jaxpr that is the call of the function (JAX may have traced it long ago)."""
        try:
            found = self.last = self.traced.pop()
        except IndexError:  # JAX knows it; another thread may be about to note its results
            return self.by_jaxpr.get(jaxpr.eqns[0].params["jaxpr"]) or self.last
        self.traced.clear()
        for equation in jaxpr.eqns:
            self.by_jaxpr[equation.params["jaxpr"]] = found
        return found


_flat_functions: weakref.WeakKeyDictionary[Any, dict[Any, FlatFunction]] = weakref.WeakKeyDictionary()
"""By the user's function. Nothing in here holds on to that function."""

MOST_SIGNATURES = 64
"""How many structures with static values are remembered of one function."""


def _flat_function(call: Call, arguments: Arguments) -> FlatFunction:
    structure = arguments.structure
    statics = tuple((i, type(v), v) for i, v in structure.statics.items())
    key = (structure.tree, statics, call.statics, call.has_aux)
    try:
        known = _flat_functions.setdefault(call.fun, {})
        hash(key)
    except TypeError:  # a function or a static value that cannot be hashed: traced at each call
        return _make_flat(call.fun, call, arguments)
    if key not in known:
        while len(known) >= MOST_SIGNATURES:
            known.pop(next(iter(known)))
        known[key] = _make_flat(weakref.ref(call.fun), call, arguments)
    return known[key]


def _make_flat(fun: Any, call: Call, arguments: Arguments) -> FlatFunction:
    """`fun` is the function, or a weak reference to it."""
    statics, has_aux, traced = call.statics, call.has_aux, []
    is_weak = isinstance(fun, weakref.ref)
    structure_of_arguments = arguments.structure

    def flat(*leaves: Any) -> list[Any]:
        function = fun() if is_weak else fun
        args, kwargs = structure_of_arguments.build(leaves)
        if statics is not None:
            args, kwargs = statics.unwrap(args, kwargs)
        with state_must_not_change(function, (args, kwargs)):
            out = function(*args, **kwargs)
        if not has_aux:
            arrays, structure = flatten_outputs(function, out)
            traced.append(Results(structure, len(arrays)))
            return arrays
        out, aux = check_pair(function, out)
        main, structure = flatten_outputs(function, out)
        others, rest = flatten_outputs(function, aux, numbers_are_static=True)
        traced.append(Results(structure, len(main), rest, len(others)))
        return [*main, *others]

    flat_like(flat, call.fun)  # JAX looks for the user's function and line when it jits, and when it traces
    jitted = jax.jit(flat)
    del flat.__wrapped__  # type: ignore[attr-defined]
    return FlatFunction(flat, jitted, traced)


NOT_OURS = frozenset({"ReadEffect", "WriteEffect", "AccumEffect", "ErrorEffect"})
"""Effects that JAX takes out of a program by rules that only its own primitives have: those on references that come
from outside, and checks of `checkify`."""


_hold_regions: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
"""By the jaxpr of a function that was traced."""


def _holds_regions(jaxpr: Any) -> bool:
    """Whether there is anything to decide in a function without a policy. Where not, its derivative is JAX's."""
    for equation in jax_compat.unwrap(jaxpr).equations:  # the call of the function
        called = equation.params["jaxpr"]
        if called not in _hold_regions:
            _hold_regions[called] = jax_compat.holds_regions(called)
        if _hold_regions[called]:
            return True
    return False


def _needs_jax(jaxpr: Any, leaves: Sequence[Any]) -> bool:
    if any(type(e).__name__ in NOT_OURS for e in jaxpr.effects) or any(is_reference(jax.typeof(x)) for x in leaves):
        return True
    # A rule of a custom_vjp may act on a reference that the function itself only hands on.
    calls = jax_compat.unwrap(jaxpr).equations
    closed_over = [jax_compat.unwrap(e.params["jaxpr"]).constants for e in calls]
    types = [*(a.aval for e in calls for a in e.invars), *(v.aval for constants in closed_over for v, _ in constants)]
    return any(map(is_reference, types))
