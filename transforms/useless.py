"""Telling the user that a policy does nothing of what it is for.

A policy permits and does not force, so one that permits nothing is not wrong, only useless, and nothing else would show
it. Two kinds are told, both from what the finished walk kept and recomputed, so that nobody is told who loses nothing:

- a policy for products that keeps none of the products of its region, though the backward pass computes some of them
  again (`dots_no_batch` under `vmap`);
- a policy that moves named values away, where such a value is kept in place: a loop returns it too, to be stacked, and
  the stack is kept; or a loop carries on a view or cast of it, which it keeps under no name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remat.decisions import Offload, Policy, Recompute, RegionView, as_policy, names_in
from remat.errors import OffloadInPlaceWarning, UnmatchedProductsWarning, UselessPolicyWarning
from remat.ir.linearized import Linearized, LinearScan
from remat.ir.ops import Name, Scan
from remat.ir.program import Equation, Value
from remat.ir.traits import is_product, is_view_or_cast
from remat.ir.types import size_in_bytes
from remat.name_patterns import has_name
from remat.transforms.decide import region_views, warn_user
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.transforms.walk import Level


@dataclass(frozen=True)
class Useless:
    """A policy that does nothing of what it is for: the kind of warning, what happens and what to write, an equation
    that it is about, what that is called, and how many bytes are at stake."""

    kind: type[UselessPolicyWarning]
    text: str
    advice: str
    equation: Equation
    subject: str
    bytes: int


def warn_of_useless_policies(program: Linearized, level: Level) -> None:
    """Warn, once for each place, of policies in a walked program that do nothing of what they are for."""
    told = dict.fromkeys((u.kind, f"{u.text} {u.advice}") for u in useless_policies(program, level))
    for kind, text in told:
        warn_user(kind(text))


def useless_policies(program: Linearized, level: Level) -> Iterator[Useless]:
    """The policies of a walked program that do nothing of what they are for."""
    for view in region_views(program):
        if view.region.policy is None or view.region.derived:
            continue
        policy = as_policy(view.region.policy)
        for part, seen in parts_of(policy, view):
            if getattr(part, "is_about_products", False):
                yield from _unmatched_products(policy, part, seen, level)
            if getattr(part, "offloaded_names", ()):
                yield from _kept_in_place(policy, part, seen, level)


def parts_of(policy: Policy, view: RegionView) -> Iterator[tuple[Policy, RegionView]]:
    """The policies that a policy is made of, each with the part of the region that it sees."""
    inside = getattr(policy, "parts", None)
    if inside is None:
        yield policy, view
    else:
        for part, seen in inside(view):
            yield from parts_of(part, seen)


def levels_of(level: Level) -> Iterator[Level]:
    """A walked level and those of its loops and branches, at every depth."""
    yield level
    for child in level.children:
        yield from levels_of(child)


def _unmatched_products(policy: Policy, part: Policy, view: RegionView, level: Level) -> Iterator[Useless]:
    products = [e for e in view.equations if is_product(e.op)]
    if not products:
        return
    decisions = part.decide(view)
    if any(not isinstance(decisions.get(v, Recompute()), Recompute) for e in products for v in e.outputs):
        return
    again = {e for each in levels_of(level) for e in each.retrieval.recomputed}
    repeated = [e for e in products if e in again]
    if repeated:
        text = (
            f"{_named(policy, part)} of the checkpoint{view.place} keeps the result of none of the {len(products)} "
            f"products in it: each {_why_unmatched(products)}. The backward pass computes "
            f"{len(repeated)} of them again, such as {_text(repeated[0])}."
        )
        advice = "Write 'dots' to keep them, 'names:...' for some of them, or 'nothing' if none are to be kept."
        made = sum(size_in_bytes(v.type) for e in repeated for v in e.outputs)
        yield Useless(UnmatchedProductsWarning, text, advice, repeated[0], repeated[0].op.name, made)


def _why_unmatched(products: list[Equation]) -> str:
    """What keeps a policy for products from matching these."""
    names = {e.op.name for e in products}
    other = sorted(names - {"dot_general", "conv_general_dilated"})
    reasons = [
        *(["has batch dimensions (vmap gives them)"] if "dot_general" in names else []),
        *(["is a convolution"] if "conv_general_dilated" in names else []),
        *([f"is a product that this policy does not know ({', '.join(other)})"] if other else []),
    ]
    return " or ".join(reasons)


def _kept_in_place(policy: Policy, part: Policy, view: RegionView, level: Level) -> Iterator[Useless]:
    offloading: Any = part
    wanted: frozenset[Any] = offloading.offloaded_names
    if not any(has_name(wanted, tag) for tag in names_in(view.equations)):
        return
    inside = set(view.equations)
    scans = {id(e.op.body): e.op for p in view.program.levels() for e in p.linear if isinstance(e.op, LinearScan)}
    for value, stored in level.residuals.items():
        times, found = 1, level.origins.get(value)
        while found is not None:
            times *= found.times
            value, inner = found.inner, found.level
            named = inner.producer.get(value)
            is_stacked = named is not None and isinstance(named.op, Name)
            if not is_stacked:
                named = named_when_returned(value, inner, scans.get(id(inner.linearized)))
            if named is not None and named in inside and has_name(wanted, named.op.tag):  # type: ignore[attr-defined]
                kept = level.kept.get(value) if level is inner else inner.kept.get(value)
                if not isinstance(kept, Offload):
                    yield _in_place(policy, part, view, named, times, stored, is_stacked)
            found = level.origins.get(value)


def named_when_returned(carried: Value, inner: Level, op: LinearScan | None) -> Equation | None:
    """The equation that names what a loop returns for a carried value, views and casts after it looked through."""
    if op is None or carried not in inner.linearized.inputs:
        return None
    scan = op.equation.op
    assert isinstance(scan, Scan)
    position = inner.linearized.inputs.index(carried) - scan.constant_count
    if not 0 <= position < scan.carry_count:
        return None
    atom: Any = inner.linearized.outputs[position]
    equation = inner.producer.get(atom) if isinstance(atom, Value) else None
    while equation is not None and is_view_or_cast(equation.op):
        if isinstance(equation.op, Name):
            return equation
        atom = equation.inputs[0]
        equation = inner.producer.get(atom) if isinstance(atom, Value) else None
    return None


def _in_place(
    policy: Policy, part: Policy, view: RegionView, named: Equation, times: int, stored: Value, is_stacked: bool
) -> Useless:
    assert isinstance(named.op, Name)
    tag, size = named.op.tag, size_in_bytes(stored.type)
    why = "returns, stacked. A result of the loop that the backward pass reads is kept where it is"
    advice = "Return what follows from it instead, or do so without its name."
    if not is_stacked:
        why = "carries on, as a view or cast. It is kept where the next iteration begins, under no name, in place"
        advice = (
            f"Name what is carried where the body begins, before it is used: x = remat.checkpoint_name(x, {tag!r})."
        )
    text = (
        f"{_named(policy, part)} of the checkpoint{view.place} does not move all of {tag!r} away: the value named at "
        f"{named.source.text or 'an unknown line'} is what a loop of {times} iterations {why} ({bytes_text(size)})."
    )
    return Useless(OffloadInPlaceWarning, text, advice, named, repr(tag), size)


def _named(policy: Policy, part: Policy) -> str:
    return f"the policy {policy}" if part is policy or part == policy else f"{part} in the policy {policy}"


def _text(equation: Equation) -> str:
    return f"{equation.op.name} from {equation.source.text or 'an unknown line'}"
