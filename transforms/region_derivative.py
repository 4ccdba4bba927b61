"""The derivative of a region: what lets regions, and `remat.grad` itself, run under JAX's own transformations.

When JAX differentiates a region, the region is linearized and split as its policy says. Its results and residuals come
from the forward program, and its tangents from one linear equation whose inputs are the residuals and the tangents
(`remat_linear`). JAX's partial evaluation then keeps exactly the residuals, and transposing that equation runs our
backward program. The forward, backward and tangent programs are regions again, under the same policy, so that second
derivatives keep and recompute as the first.

Everything about a region is worked out once for each traced function and set of differentiated inputs.
"""

# JAX's functions are partly untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.interpreters import ad

from remat import jax_compat
from remat.ir.ops import Checkpoint, Name
from remat.ir.program import Literal, Program, Value
from remat.ir.types import is_differentiable
from remat.lower import evaluate
from remat.region_primitive import Marks, region_p
from remat.targets.current import current_target, use_target_if_chosen
from remat.trace import read_nested
from remat.transforms.differentiate_program import linearize_and_split
from remat.transforms.enclose import around
from remat.transforms.linear_map import SplitMap, bind_linear, bind_program
from remat.transforms.split import Split


@dataclass(frozen=True, eq=False)
class Linearization:
    """A region that is differentiated with respect to some of its inputs.

    - `closed_over`: arrays that the function closes over, which are inputs of the forward program after its own.
    - `program`, `forward`: the forward program, and it as a jitted function; it returns those results and residuals
      that are not inputs.
    - `results`, `residuals`: where each result and each residual comes from.
    - `linear`: the map from tangents of its inputs, some of the active ones, to those of the results in `has_tangent`.
    """

    closed_over: list[Any]
    program: Program
    forward: Callable[..., list[Any]]
    results: list[Place]
    residuals: list[Place]
    linear: SplitMap
    has_tangent: tuple[bool, ...]


@dataclass(frozen=True)
class Place:
    """The input of that number, or the result of that number of the forward program.

    A residual that the user gave a name keeps it, for JAX's own reports of what is saved.
    """

    is_input: bool
    index: int
    name: Any = None


_known: weakref.WeakKeyDictionary[Any, dict[Any, Linearization]] = weakref.WeakKeyDictionary()
"""By traced function. What is known about one goes with it."""
_lock = threading.RLock()


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Any, call: Any, marks: Marks) -> Any:
    active = tuple(
        type(t) is not ad.Zero and is_differentiable(jax.typeof(p)) for p, t in zip(primals, tangents, strict=True)
    )
    if not any(active):
        results = region_p.bind(*primals, jaxpr=jaxpr, call=call, marks=marks)
        return results, [_zero(x) for x in results]
    known = linearization(jaxpr, dict(call)["name"], marks, active)
    inputs = [*primals, *known.closed_over]
    made = bind_program(known.forward, known.program, inputs, marks.of_derived(jaxpr))

    def at(place: Place) -> Any:
        found = inputs[place.index] if place.is_input else made[place.index]
        return found if place.name is None else jax_compat.checkpoint_name(found, place.name)

    results = [at(p) for p in known.results]
    if not any(known.linear.inputs):
        return results, [_zero(x) for x in results]
    given = [t for t, is_read in zip(tangents, known.linear.inputs, strict=False) if is_read]
    found = iter(bind_linear(known.linear, [at(p) for p in known.residuals], given))
    return results, [next(found) if has else _zero(x) for x, has in zip(results, known.has_tangent, strict=True)]


ad.primitive_jvps[region_p] = _jvp


def _zero(x: Any) -> Any:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def linearization(jaxpr: Any, name: str, marks: Marks, active: tuple[bool, ...]) -> Linearization:
    """The linearization of a region, from what is known about its function."""
    with _lock, use_target_if_chosen(marks.target):
        known = _known.setdefault(jaxpr, {})
        key = (marks, active, current_target().compiler)
        if key not in known:
            known[key] = _linearization(jaxpr, name, marks, active)
        return known[key]


def _linearization(jaxpr: Any, name: str, marks: Marks, active: tuple[bool, ...]) -> Linearization:
    program, closed_over = read_nested(jaxpr)
    if not marks.transparent:
        program = as_region(program, marks, name)
    active = (*active, *(False for _ in closed_over))
    count = len(program.outputs)
    found = linearize_and_split(program, active, marks.auxiliary, not marks.derived)
    linearized, made = found.linearized, found.split
    first, forward, places = _forward(made, name)
    has_tangent = tuple(t is not None for t in linearized.tangent_outputs)
    linear = SplitMap.of(linearized, found.decisions, made, found.backward, marks.of_derived(jaxpr))
    places[count:] = [_named(p, made, v) for p, v in zip(places[count:], made.residuals, strict=True)]
    return Linearization(
        [a for a, _ in closed_over], first, forward, places[:count], places[count:], linear, has_tangent
    )


def as_region(program: Program, marks: Marks, name: str) -> Program:
    """A program that consists of one checkpoint region around the given one."""
    return around(program, Checkpoint(program, marks.policy, marks.prevent_cse, name, marks.derived))


def _named(place: Place, made: Split, residual: Value) -> Place:
    producer = made.level.producer.get(residual)
    return replace(place, name=producer.op.tag) if producer is not None and isinstance(producer.op, Name) else place


def _forward(made: Split, name: str) -> tuple[Program, Callable[..., list[Any]], list[Place]]:
    """The forward program without what it would hand through, also as a jitted function, and where each result is."""
    inputs = {v: i for i, v in enumerate(made.forward.inputs)}
    computed: dict[Any, int] = {}
    places: list[Place] = []
    for atom in made.forward.outputs:
        if isinstance(atom, Value) and atom in inputs:
            places.append(Place(True, inputs[atom]))
        else:
            key = id(atom) if isinstance(atom, Literal) else atom
            places.append(Place(False, computed.setdefault(key, len(computed))))
    outputs = list({p.index: a for p, a in zip(places, made.forward.outputs, strict=True) if not p.is_input}.values())
    program = Program(made.forward.inputs, made.forward.equations, outputs, made.forward.constants)

    def forward(*xs: Any) -> list[Any]:
        return evaluate(program, xs)

    forward.__name__ = forward.__qualname__ = name
    return program, jax.jit(forward), places
