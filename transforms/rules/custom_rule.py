"""Differentiating a call that has rules of its own (`remat.custom_vjp`).

Linearize: the program of `fwd` stands for the call, so that policies see its values. Where the function has a `rem`
and the call is in a region, what `fwd` saves is always kept; the program of `rem` follows as equations that are never
kept, so that retrieval puts them just before `bwd`, and later code that needs the result again gets it from `rem`.
Outside regions `rem` is forward code. Backward: the program of `bwd`, made when a cotangent comes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import jax

from remat import jax_compat
from remat.custom_rules.rule import Saved
from remat.errors import ClosedOverError, ForwardModeError, RematError
from remat.ir.linearized import Opaque, Transposed
from remat.ir.ops import CustomRule
from remat.ir.program import Atom, Equation, Program, Value
from remat.ir.rewrite import prune_program, select
from remat.ir.types import is_differentiable
from remat.jax_compat import cotangent_type
from remat.transforms.derivative import make_program
from remat.transforms.linearize import Linearizer, Tangent, emit_opaque, linearize_rules


def _linearize(
    state: Linearizer, equation: Equation, inputs: list[Atom], tangents: list[Tangent]
) -> tuple[list[Atom], list[Tangent]]:
    op = equation.op
    assert isinstance(op, CustomRule)
    k, rules = op.constant_count, op.rules
    if any(t is not None for t in tangents[:k]):
        raise ClosedOverError.of(rules.name)
    inputs, given = inputs[k:], tangents[k:]
    perturbed = tuple(t is not None for t in given)
    in_region = state.region is not None
    rebuilds = rules.rebuilds(in_region)
    with _in_rule_of(equation):
        outputs, saved = _run(state, lambda *xs: rules.forward(xs, perturbed, rebuilds), inputs, len(equation.outputs))
        if rebuilds:
            outputs, saved = _rebuild(state, rules, inputs, outputs, saved, in_region)
    coefficients, structure = saved.leaves, saved.structure
    types = [a.type for a in outputs]
    active = [is_differentiable(t) for t in types]

    def backward(present: tuple[bool, ...]) -> Transposed:
        returned: list[bool] = []

        def run(leaves: list[Any], cotangents: list[Any]) -> list[Any]:
            rest, flags = iter(cotangents), iter(present)
            full = [_cotangent(t, rest, flags, told) if a else None for t, a in zip(types, active, strict=True)]
            found = select(rules.backward(Saved(leaves, structure), full, rebuilds), perturbed)
            returned[:] = [c is not None for c in found]
            return [c for c in found if c is not None]

        out_types = select([cotangent_type(t) for t in types], active)
        with _in_rule_of(equation):
            program = make_program(run, [a.type for a in coefficients], select(out_types, present))
        return Transposed(prune_program(program), tuple(not r for r in returned))

    def forward() -> Program:
        raise ForwardModeError.of(rules.name)

    told = rules.tells_zeros(rebuilds)
    return outputs, emit_opaque(
        state, Opaque("custom_vjp_call", forward, backward), coefficients, given, active, outputs
    )


def _cotangent(type: Any, rest: Iterator[Any], flags: Iterator[bool], told: bool) -> Any:
    """The next cotangent; where it is absent, None for a rule that is told of zeros, and zeros for others."""
    if next(flags):
        return next(rest)
    return None if told else jax_compat.zeros_of(cotangent_type(type))


linearize_rules[CustomRule] = _linearize


@contextlib.contextmanager
def _in_rule_of(equation: Equation) -> Generator[None]:
    """Says of an error that comes out of a user's rule which call it was for."""
    try:
        yield
    except Exception as error:
        op: Any = equation.op
        where = equation.source.text or "an unknown line"
        note = f"remat was running a rule of the custom_vjp function {op.rules.name}, called from {where}."
        if isinstance(error, jax.errors.UnexpectedTracerError) and not isinstance(error, RematError):
            note += (
                " Rules run after the code around the call has been traced, so they must not close over values that it "
                "computed. Pass these as arguments of the function, for which bwd may return None."
            )
        error.add_note(note)
        raise


def _rebuild(
    state: Linearizer, rules: Any, inputs: list[Atom], outputs: list[Atom], saved: Saved, in_region: bool
) -> tuple[list[Atom], Saved]:
    """Append the program of `rem`, with marks in a region for what is kept and what is rebuilt."""
    count, before = len(saved.leaves), len(state.equations)
    structure = saved.structure

    def rem(*xs: Any) -> tuple[list[Any], Saved]:
        return rules.rebuild(Saved(list(xs[:count]), structure), xs[count:])

    again, residuals = _run(state, rem, [*saved.leaves, *inputs], len(outputs))
    if in_region:
        state.always_kept.update(a for a in saved.leaves if isinstance(a, Value))
        state.always_rebuilt.update(v for e in state.equations[before:] for v in e.outputs)
        theirs = set(inputs)
        for first, second in zip(outputs, again, strict=True):
            if isinstance(first, Value) and isinstance(second, Value) and first not in theirs and first is not second:
                state.stand_ins[first] = second
    return outputs, residuals


def _run(
    state: Linearizer, function: Callable[..., tuple[list[Any], Saved]], inputs: Sequence[Atom], count: int
) -> tuple[list[Atom], Saved]:
    """Append the program of a rule function; its results and what it saves, as atoms."""
    structures: list[Any] = []

    def flat(*xs: Any) -> list[Any]:
        outputs, saved = function(*xs)
        structures.append(saved.structure)
        return [*outputs, *saved.leaves]

    results = state.inline(make_program(flat, [a.type for a in inputs]), inputs)
    return results[:count], Saved(results[count:], structures[-1])
