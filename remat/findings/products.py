"""Policies for products that match none of those that there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remat import jax_compat
from remat.decisions import as_policy
from remat.errors import UselessPolicyWarning
from remat.findings.case import Case
from remat.findings.finding import Finding
from remat.findings.place import line_text, place_of
from remat.ir.ops import Primitive
from remat.ir.program import Equation
from remat.ir.traits import is_product
from remat.ir.types import size_in_bytes
from remat.transforms.useless import parts_of, useless_policies


def useless(case: Case) -> Iterator[Finding]:
    """What remat warns of by itself: products with batch dimensions, and offloaded values that a loop carries."""
    walked = case.walked
    told: set[tuple[type[UselessPolicyWarning], str]] = set()
    for found in useless_policies(walked.linearized, walked.split.level):
        if (found.kind, found.text) not in told:
            told.add((found.kind, found.text))
            walk = case.walk_of.get(found.equation.outputs[0])
            times = walk.times if walk is not None and found.kind.code == "unmatched-products" else 1
            place, size = place_of(found.equation.source), found.bytes * times
            yield case.finding(found.kind.code, place, found.subject, size, found.text, found.advice)


def products_in_functions(case: Case) -> Iterator[Finding]:
    """Products inside functions that have a derivative of their own, or in kernels: no policy sees them."""
    known: dict[int, int] = {}
    for view in case.views:
        policy = as_policy(view.region.policy)
        for part, seen in parts_of(policy, view):
            if not getattr(part, "is_about_products", False):
                continue
            if any(v in case.kept for e in seen.equations if is_product(e.op) for v in e.outputs):
                continue
            hidden = [e for e in seen.equations if e in case.recomputed and _products_inside(e, known)]
            if hidden:
                yield _hidden(case, policy, view.place, hidden, sum(_products_inside(e, known) for e in hidden))


def _hidden(case: Case, policy: Any, place: str, hidden: list[Equation], count: int) -> Finding:
    first = hidden[0]
    size = sum(size_in_bytes(v.type) * case.recomputed[e].times for e in hidden for v in e.outputs)
    which = f"{first.op.name} at {line_text(first.source)}"
    return case.finding(
        "unmatched-products",
        place_of(first.source),
        first.op.name,
        size,
        f"the policy {policy} of the checkpoint{place} keeps the result of none of the {count} products in it: "
        f"{'they are' if count > 1 else 'it is'} inside a function with a derivative of its own or a kernel ({which}), "
        "which is one operation for a policy. The backward pass computes it again.",
        "Name the result, y = remat.checkpoint_name(f(x), 'y'), and keep it with 'names:y'.",
    )


def _products_inside(equation: Equation, known: dict[int, int]) -> int:
    """How many products the jaxprs in an equation's parameters hold, at every depth; 0 for products themselves."""
    op = equation.op
    if not isinstance(op, Primitive) or is_product(op):
        return 0
    return sum(_products_of(j, known) for j in jax_compat.jaxprs_in(op.params))


def _products_of(jaxpr: Any, known: dict[int, int]) -> int:
    if id(jaxpr) not in known:
        count = 0
        for equation in jax_compat.unwrap(jaxpr).equations:
            if equation.primitive.name in jax_compat.dots_primitive_names:
                count += 1
            else:
                count += sum(_products_of(j, known) for j in jax_compat.jaxprs_in(equation.params))
        known[id(jaxpr)] = count
    return known[id(jaxpr)]
