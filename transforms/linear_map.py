"""The linear half of a region's derivative as one equation: residuals and tangents to tangents.

The equation is a primitive of our own, `remat_linear`, whose parameter knows how to apply the map, to transpose it, to
do so for a part of the results, and to map it over an axis.
"""

# JAX's functions are partly untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

from remat import jax_compat
from remat.decisions import Decision
from remat.ir.linearized import Linearized
from remat.ir.program import Program, Value
from remat.ir.rewrite import without_barriers
from remat.lower import evaluate
from remat.region_primitive import Marks, bind_traced, made_programs
from remat.targets.current import use_target_if_chosen
from remat.transforms.enclose import enclosed
from remat.transforms.split import Split, split

linear_p = Primitive("remat_linear")
linear_p.multiple_results = True


def bind_program(jitted: Callable[..., list[Any]], program: Program, inputs: Sequence[Any], marks: Marks) -> list[Any]:
    """Apply a program that differentiation made, given as a jitted function, as one region."""
    jaxpr = jax_compat.trace_jitted(jitted, inputs)
    if marks.transparent and len(jaxpr.eqns) == 1 and len(jaxpr.eqns[0].invars) == len(program.inputs):
        made_programs[jaxpr.eqns[0].params["jaxpr"]] = functools.partial(enclosed, program)
    return bind_traced(jaxpr, inputs, marks)


def bind_linear(linear: Any, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """The tangents of a region's results."""
    return linear_p.bind(*residuals, *tangents, linear=linear)


@dataclass(eq=False, repr=False)
class SplitMap:
    """The linear map of a split region.

    - `residual_count`: how many residuals it reads; `tangent_types`, `result_types`: the types it maps between.
    """

    linearized: Linearized
    decisions: dict[Value, Decision]
    first: Split
    """The split whose forward program makes the residuals."""
    is_backward: bool
    """Whether that split has a backward program. Where there is none, it has a tangent program."""
    marks: Marks
    inputs: tuple[bool, ...]
    """Which of the program's inputs this is the map from: those with tangents that a result depends on."""
    outputs: tuple[bool, ...]
    """Which of the program's results this is the map to."""
    positions: list[int]
    """Which of the residuals of `first` it reads."""
    _programs: dict[Any, Any] = field(default_factory=dict[Any, Any])

    @classmethod
    def of(
        cls, linearized: Linearized, decisions: dict[Value, Decision], first: Split, is_backward: bool, marks: Marks
    ) -> SplitMap:
        inputs = tuple(first.returned if is_backward else first.given)
        outputs = tuple(t is not None for t in linearized.tangent_outputs)
        return cls(linearized, decisions, first, is_backward, marks, inputs, outputs, list(range(len(first.residuals))))

    @property
    def residual_count(self) -> int:
        return len(self.positions)

    @property
    def result_types(self) -> list[Any]:
        return [t.type for t, out in zip(self.linearized.tangent_outputs, self.outputs, strict=True) if out and t]

    def __repr__(self) -> str:
        """The tangent program, so that it can be read in a jaxpr."""
        found = self.tangent()
        return str(found[0] if found is not None else self.first.second)

    def transpose(self, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Cotangents of the tangents (None: zero) from those of the results (None: zero)."""
        if not self.is_backward:
            split(self.linearized, self.decisions, True, warn=False)  # raises
        present = self._spread([c is not None for c in cotangents])
        found = self.backward(present)
        if found is None:
            cotangents = [
                jax_compat.zeros_of(t) if c is None else c for c, t in zip(cotangents, self.result_types, strict=True)
            ]
            present = self.outputs
            found = self.backward(present)
        assert found is not None
        program, positions, returned = found
        given = [c for c in cotangents if c is not None]
        at = {p: r for p, r in zip(self.positions, residuals, strict=True)}
        results = iter(self.run(("backward", present), program, [*(at[p] for p in positions), *given]))
        return [next(results) if r else None for r in self._of_inputs(returned)]

    def _of_inputs(self, flags: Sequence[bool]) -> list[bool]:
        """Flags for the tangents of this map from flags for the program's inputs."""
        return [f for f, taken in zip(flags, self.inputs, strict=True) if taken]

    def _spread(self, flags: Sequence[bool]) -> tuple[bool, ...]:
        """Flags for the program's results from flags for the results of this map."""
        given = iter(flags)
        return tuple(out and next(given) for out in self.outputs)

    def backward(self, present: tuple[bool, ...]) -> tuple[Program, list[int], tuple[bool, ...]] | None:
        """The backward program for cotangents of some results: which residuals it reads, and what it returns.

        None where it would need what is not kept.
        """
        if present not in self._programs:
            with use_target_if_chosen(self.marks.target):
                self._programs[present] = self._backward(present)
        return self._programs[present]

    def _backward(self, present: tuple[bool, ...]) -> tuple[Program, list[int], tuple[bool, ...]] | None:
        made = self.first
        if present != tuple(t is not None for t in self.linearized.tangent_outputs):
            outputs = [t if p else None for t, p in zip(self.linearized.tangent_outputs, present, strict=True)]
            made = split(replace(self.linearized, tangent_outputs=outputs), self.decisions, True, warn=False)
        positions = self._positions(made)
        if positions is None or not set(positions) <= set(self.positions):
            return None
        return made.second, positions, made.returned

    def _positions(self, made: Split) -> list[int] | None:
        """Which residuals of the first split those of another one are; None if one of them is not kept."""
        if made is self.first:
            return list(range(len(made.residuals)))
        known = {residual_key(self.first, v): i for i, v in enumerate(self.first.residuals)}
        found = [known.get(residual_key(made, v)) for v in made.residuals]
        return None if None in found else found  # type: ignore[return-value]

    def apply(self, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """Tangents of the results."""
        found = self.tangent()
        if found is None:
            return self._transposed_twice(residuals, tangents)
        program, positions, given, returned = found
        at = {p: r for p, r in zip(self.positions, residuals, strict=True)}
        chosen = self._tangents_for(given, tangents)
        results = iter(self.run("tangent", program, [*(at[p] for p in positions), *chosen]))
        return [
            next(results) if r else jax_compat.zeros_of(t.type)
            for r, t, out in zip(returned, self.linearized.tangent_outputs, self.outputs, strict=True)
            if out and t is not None
        ]

    def _tangents_for(self, given: Sequence[bool], tangents: Sequence[Any]) -> list[Any]:
        """The tangents that a program takes, zeros for those that this map does not."""
        at = dict(zip((i for i, taken in enumerate(self.inputs) if taken), tangents, strict=True))
        types = [None if t is None else t.type for t in self.linearized.tangents]
        return [at[i] if i in at else jax_compat.zeros_of(types[i]) for i, takes in enumerate(given) if takes]

    def tangent(self) -> Any:
        """The tangent program, which residuals it reads, and what it takes and returns; None where there is none."""
        if "tangent" not in self._programs:
            with use_target_if_chosen(self.marks.target):
                self._programs["tangent"] = self._tangent()
        return self._programs["tangent"]

    def _tangent(self) -> Any:
        """The tangent program, from the residuals that are kept for the backward pass; None if they do not do."""
        outputs = [t if out else None for t, out in zip(self.linearized.tangent_outputs, self.outputs, strict=True)]
        made = self.first
        if self.is_backward or outputs != self.linearized.tangent_outputs:
            made = split(replace(self.linearized, tangent_outputs=outputs), self.decisions, False, warn=False)
        positions = self._positions(made)
        if positions is None or not set(positions) <= set(self.positions):
            return None
        return made.second, positions, made.given, made.returned

    def _transposed_twice(self, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The same by transposing the backward program, without its barriers.

        By its derivative, not `jax.linear_transpose`: a loop of it may recompute values of the forward pass in its
        carry beside the cotangents. JAX's derivative finds out which carries are linear; its transpose takes all of
        them for linear.
        """
        if "transposed" not in self._programs:
            found = self.backward(self.outputs)
            assert found is not None
            program, positions, returned = found
            program = without_barriers(program)
            flags = self._of_inputs(returned)

            def apply(residuals: list[Any], tangents: list[Any]) -> list[Any]:
                at = dict(zip(self.positions, residuals, strict=True))
                kept = [at[p] for p in positions]
                zeros = [jax_compat.zeros_of(t) for t in self.result_types]
                _, backward = jax.vjp(lambda *cts: evaluate(program, [*kept, *cts]), *zeros)
                return [*backward([t for t, returns in zip(tangents, flags, strict=True) if returns])]

            self._programs["transposed"] = jax.jit(apply)
        return self._programs["transposed"](list(residuals), list(tangents))

    def run(self, key: Any, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """A program of this map as a region, jitted once."""
        if ("jitted", key) not in self._programs:

            def second(*xs: Any) -> list[Any]:
                return evaluate(program, xs)

            second.__name__ = second.__qualname__ = "tangent" if key == "tangent" else "backward"
            self._programs["jitted", key] = jax.jit(second)
        return bind_program(self._programs["jitted", key], program, inputs, self.marks)

    def restricted(self, used: Sequence[bool]) -> tuple[SplitMap, list[bool]] | None:
        """The map to some of the results, and which residuals and tangents it reads; None if it would need others."""
        outputs = self._spread(used)
        if not self.is_backward:
            return None
        found = self.backward(outputs)
        if found is None:
            return None
        _, needed, returned = found
        kept = [p in set(needed) for p in self.positions]
        positions = [p for p, k in zip(self.positions, kept, strict=True) if k]
        inputs = tuple(i and r for i, r in zip(self.inputs, returned, strict=True))
        # Backward programs are known by the cotangents they take; tangent programs are those of all results here.
        backward = {k: made for k, made in self._programs.items() if k not in OF_ALL_RESULTS}
        smaller = replace(self, inputs=inputs, outputs=outputs, positions=positions, _programs=backward)
        return smaller, [*kept, *self._of_inputs(inputs)]


OF_ALL_RESULTS = ("tangent", "transposed", ("jitted", "tangent"))
"""The programs of a map that depend on which results it has and which residuals it reads."""


def residual_key(made: Split, value: Value) -> Any:
    """What a residual is, in words that hold for every walk over the same linearized program."""
    level = made.level
    path: list[int] = []
    while value in level.origins:
        origin = level.origins[value]
        path.append(origin.times)
        if origin.times == 1 and origin.inner not in origin.level.producer:
            return object()  # shared between the branches of a cond
        value, level = origin.inner, origin.level
    return (value, tuple(path))


@dataclass(frozen=True, eq=False)
class MappedMap:
    """A linear map that is mapped over an axis: residuals over `dims`, tangents and results over their first."""

    inner: Any
    dims: tuple[int | None, ...]
    axis: Any

    @property
    def residual_count(self) -> int:
        return len(self.dims)

    @property
    def result_types(self) -> list[Any]:
        return [jax_compat.stacked_type(t, self.axis.size) for t in self.inner.result_types]

    def _map(self, fun: Callable[..., Any], axes: Any) -> Callable[..., Any]:
        return jax.vmap(fun, axes, 0, self.axis.name, self.axis.size, jax_compat.spmd_axis(self.axis))

    def apply(self, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        return self._map(self.inner.apply, (list(self.dims), 0))(list(residuals), list(tangents))

    def transpose(self, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        return self._map(self.inner.transpose, (list(self.dims), 0))(list(residuals), list(cotangents))

    def restricted(self, used: Sequence[bool]) -> tuple[MappedMap, list[bool]] | None:
        found = self.inner.restricted(used)
        if found is None:
            return None
        inner, kept = found
        dims = tuple(d for d, k in zip(self.dims, kept[: len(self.dims)], strict=True) if k)
        return MappedMap(inner, dims, self.axis), kept


# The rules of the primitive.


def _apply(*inputs: Any, linear: Any) -> list[Any]:
    return linear.apply(inputs[: linear.residual_count], inputs[linear.residual_count :])


def _abstract(*_: Any, linear: Any) -> list[Any]:
    return linear.result_types


def _transpose(cotangents: Sequence[Any], *inputs: Any, linear: Any) -> list[Any]:
    count = linear.residual_count
    given = [None if type(c) is ad.Zero else c for c in cotangents]
    found = (
        linear.transpose(inputs[:count], given) if any(c is not None for c in given) else [None] * len(inputs[count:])
    )
    return [*(None for _ in range(count)), *found]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, linear: Any) -> Any:
    active = [type(t) is not ad.Zero for t in tangents]

    def apply(*chosen: Any) -> list[Any]:
        given = iter(chosen)
        return _apply(*(next(given) if a else p for p, a in zip(primals, active, strict=True)), linear=linear)

    return jax.jvp(
        apply,
        tuple(p for p, a in zip(primals, active, strict=True) if a),
        tuple(t for t, a in zip(tangents, active, strict=True) if a),
    )


def _batch(axis: Any, inputs: Sequence[Any], dims: Sequence[Any], *, linear: Any) -> Any:
    count = linear.residual_count
    tangents = [_to_front(x, d, axis.size) for x, d in zip(inputs[count:], dims[count:], strict=True)]
    mapped = MappedMap(linear, tuple(dims[:count]), axis)
    results = bind_linear(mapped, inputs[:count], tangents)
    return results, [0] * len(results)


def _to_front(x: Any, dim: int | None, size: int) -> Any:
    if dim is None:
        return jax.numpy.broadcast_to(x, (size, *x.shape))
    return jax.numpy.moveaxis(x, dim, 0)


def _prune(used: list[bool], *rest: Any) -> Any:
    """Dead-code elimination: residuals for results that nobody uses are not kept."""
    equation = rest[-1]
    if not any(used):
        return [False] * len(equation.invars), None
    linear = equation.params["linear"]
    found = None if all(used) else linear.restricted(used)
    if found is None:
        return [True] * len(equation.invars), equation
    inner, inputs = found
    if not any(inputs[linear.residual_count :]):
        return [True] * len(equation.invars), equation
    return inputs, equation.replace(
        invars=[v for v, keep in zip(equation.invars, inputs, strict=True) if keep],
        outvars=[v for v, keep in zip(equation.outvars, used, strict=True) if keep],
        params={"linear": inner},
    )


linear_p.def_impl(_apply)
linear_p.def_abstract_eval(_abstract)
mlir.register_lowering(linear_p, mlir.lower_fun(_apply, multiple_results=True))
ad.primitive_transposes[linear_p] = _transpose
ad.primitive_jvps[linear_p] = _jvp
batching.fancy_primitive_batchers[linear_p] = _batch
pe.dce_rules[linear_p] = _prune
