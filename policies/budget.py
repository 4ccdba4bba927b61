"""Policies that choose by themselves what to keep: so that a step fits into a number of bytes, or as a plan says."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remat.decisions import Decision, RegionView
from remat.errors import ArgumentError, BudgetError, PlanError, PolicyError, PolicyTypeError, ReverseModeError
from remat.ir.keys import program_digests, program_keys
from remat.ir.ops import Checkpoint
from remat.ir.program import Program, Value
from remat.ir.rewrite import inline_all
from remat.ir.types import short_text
from remat.planning.apply import regions_of
from remat.planning.choice import IN_WORDS, Choice
from remat.planning.frontier import Frontier
from remat.planning.structures import STRUCTURES
from remat.policies.algebra import Combinable
from remat.policies.parse import WITH_ARGUMENT, WORDS, Reader
from remat.targets.current import current_target, use_target_if_chosen
from remat.targets.target import Target, as_target
from remat.units import bytes_text, parse_bytes

OF = ("peak", "saved")
ROOM = 0.95
"""The part of a device's memory that `auto` uses: XLA keeps some for itself."""


@dataclass(frozen=True)
class Arranging(Combinable):
    """A policy that puts regions of its own in place of the region it is given to."""

    is_a_plan = True

    def regions_of(self, op: Checkpoint, active: Sequence[bool]) -> Program:
        raise NotImplementedError

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        raise PolicyTypeError(
            f"the policy {self} chooses by itself for a whole function and cannot be part of another policy. Give it "
            "alone: remat.grad(loss, policy=...), or remat.checkpoint(f, policy=...)."
        )


@dataclass(frozen=True)
class Planned(Arranging):
    """What a plan says: the structure of regions, and the values that are kept, by key (`remat.ir.keys`).

    `kept` has a key, a type and a digest of each value. A value is found by its digest, wherever it has moved; one
    whose digest is gone, since something before it has changed, by its key and type.
    """

    structure: str
    kept: tuple[tuple[str, str, str], ...] = ()
    text: str = "plan"

    def regions_of(self, op: Checkpoint, active: Sequence[bool]) -> Program:
        """**Raises** `PlanError` if the program has no such values, saying which are gone and which are new."""
        return regions_of(op, self.structure, self._keys_in(op), self.text)

    def _keys_in(self, op: Checkpoint) -> list[str]:
        program = inline_all(op.program)
        keys, digests = program_keys(program), program_digests(program)
        by_digest = {digests[v]: key for v, key in keys.items() if v in digests}
        types = {key: short_text(v.type) for v, key in keys.items()}
        found: list[str] = []
        wrong: list[str] = []
        for key, type, digest in self.kept:
            now = by_digest.get(digest, key)
            if types.get(now) == type:
                found.append(now)
            else:
                wrong.append(f"{key} of type {type} " + (f"is of type {types[now]}" if now in types else "is gone"))
        if wrong:
            raise PlanError(
                f"the plan was made for another program than {op.function or 'this one'}: {'; '.join(wrong[:5])}"
                f"{f'; and {len(wrong) - 5} more' if len(wrong) > 5 else ''}. Make it again with remat.plan."
            )
        return found

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Budget(Arranging):
    """The fastest plan within a number of bytes. `limit` is a number of bytes, a part of what no checkpoint takes, or
    None for the memory of the device less what the arguments take."""

    limit: int | float | None
    of: str = "peak"
    target: Target | None = None

    def regions_of(self, op: Checkpoint, active: Sequence[bool]) -> Program:
        """**Raises** `BudgetError` if no plan is within the budget, with the smallest that one is."""
        with use_target_if_chosen(self.target):
            try:
                chosen = self.choose(op, known_frontier(op, active))
            except ReverseModeError:  # nothing is kept for tangents, and a gradient raises by itself
                return inline_all(op.program)
            return regions_of(op, chosen.structure, [v.key for v in chosen.kept], str(self))

    def choose(self, op: Checkpoint, frontier: Frontier) -> Choice:
        """The plan for a region, of those that there are for it."""
        limit = self.bytes_for(op, frontier)
        found = frontier.within(limit) if self.of == "peak" else frontier.within_saved(limit)
        if found is None:
            raise BudgetError(infeasible_text(self, limit, op.function, frontier))
        return found

    def bytes_for(self, op: Checkpoint, frontier: Frontier) -> int:
        """The budget in bytes."""
        if isinstance(self.limit, float):
            whole = frontier.without
            return int(self.limit * (whole.peak_bytes if self.of == "peak" else whole.kept_bytes))
        if self.limit is not None:
            return self.limit
        target = current_target()
        if target.memory_bytes is None:
            raise BudgetError(
                f"the policy auto needs to know the memory of a device, and that of {target} is not known. Name a "
                "target (target='tpu:v5e:2x2'), or the number of bytes: 'budget:8GiB'."
            )
        return max(0, int(ROOM * target.memory_bytes) - frontier.spread.held)

    def __str__(self) -> str:
        if self.limit is None:
            return "auto"
        of = "saved:" if self.of == "saved" else ""
        return f"budget:{of}{self.limit if isinstance(self.limit, float) else _exact(self.limit)}"


def _exact(count: int) -> str:
    """A number of bytes that is read back as the same."""
    text = bytes_text(count).replace(" ", "").replace(".0", "")
    return text if parse_bytes(text) == count else f"{count}B"


REMEMBERED = 32
"""Of how many programs the plans are kept, the latest."""

_known: OrderedDict[Any, Frontier] = OrderedDict()
_lock = threading.RLock()


def known_frontier(op: Checkpoint, active: Sequence[bool], parts: Sequence[int] = ()) -> Frontier:
    """The plans of a region, worked out once for each program, set of differentiated inputs and target. `parts` says in
    how many parts each input is, over devices."""
    program = inline_all(op.program)
    text = "\n".join([str(program), *program_keys(program).values()])
    key = hashlib.sha256(text.encode()).digest(), tuple(active), tuple(parts), op.prevent_cse, current_target()
    with _lock:
        if key not in _known:
            _known[key] = Frontier(op, active, parts)
        _known.move_to_end(key)
        while len(_known) > REMEMBERED:
            _known.popitem(last=False)
        return _known[key]


def infeasible_text(budget: Budget, limit: int, function: str, frontier: Frontier) -> str:
    """Why a budget cannot be met, and the smallest that can."""
    peak = budget.of == "peak"
    best = frontier.smallest if peak else frontier.smallest_saved
    least = best.peak_bytes if peak else best.kept_bytes
    what = "the peak of" if peak else "what is kept of"
    return (
        f"no plan was found that brings {what} {function or 'the function'} within {bytes_text(limit)} ({budget}). "
        f"The smallest takes {bytes_text(least)} ({least} bytes, simulated), by {IN_WORDS[best.structure]}, "
        f"which keeps {bytes_text(best.kept_bytes)}. Give at least that, a smaller batch, or more devices. "
        "remat.plan(..., budget=that).timeline() lists what is alive at that peak."
    )


def budget(limit: Any, of: str = "peak", target: Target | str | None = None) -> Budget:
    """Choose what to keep, recompute and where to cut, so that a step fits into a number of bytes at the least time.

    Plans are found by an exact solver for the values to keep and by ways to cut the program into regions, and are
    simulated as they would run; the fastest within the budget is taken. `remat.plan` shows it, and checks it with the
    compiler.

    **Arguments**

    - `limit`: bytes, as a number or a text such as `"12GiB"`; as a `float` of at most 1, the part of what the function
      takes without any checkpoint. For one device's program.
    - `of`: `"peak"`, the most bytes that are alive at once besides the arguments (temporaries and results), or
      `"saved"`, those kept from the forward to the backward pass.
    - `target`: for whose compiler and with whose rates; None is what the region is made for.

    **Raises** `PolicyError` for what is no budget. Differentiating raises `BudgetError` for a budget that cannot be
    met, with the smallest that can.

    **Sources**: the exact choice of kept values follows the integer programs of Checkmate (Jain et al., 2020) without
    their time index; segments and nested loops are those of Chen et al. (2016).

    >>> import jax.numpy as jnp, remat
    >>> from remat import policies
    >>> def loss(ws, x):
    ...     for w in ws:
    ...         x = jnp.sin(jnp.tanh(x @ w))
    ...     return x.sum()
    >>> args = [jnp.ones((64, 64))] * 6, jnp.ones((64, 64))
    >>> gradient = remat.grad(loss, policy=policies.budget("160KiB"))(*args)
    >>> timeline = remat.timeline(loss, *args, policy="budget:160KiB", target="cpu")
    >>> timeline.peak <= 160 * 1024
    True
    """
    if of not in OF:
        raise PolicyError(f"a budget is of {' or '.join(map(repr, OF))}, but got of={of!r}.")
    chosen = None if target is None else as_target(target)
    return Budget(_limit(limit), of, chosen)


def budget_or_auto(limit: Any, of: str = "peak") -> Budget:
    """What `budget` makes, and of the word `auto` the policy of that name."""
    return Budget(None) if limit == "auto" else budget(limit, of)


def _limit(limit: Any) -> int | float:
    """Bytes, or a part of the whole."""
    if isinstance(limit, str) and limit.replace(".", "", 1).isdigit() and "." in limit:
        limit = float(limit)
    if isinstance(limit, float):
        if 0 < limit <= 1:
            return limit
        raise PolicyError(
            f"{limit!r} is no budget: a fraction is a part of what no checkpoint takes, above 0 and at most 1, and "
            "bytes are a whole number or have a unit: budget:0.5, budget:12GiB."
        )
    try:
        return parse_bytes(limit)
    except ArgumentError as error:
        raise PolicyError(
            f"{limit!r} is no budget: {error} A part of what no checkpoint takes is a decimal fraction: budget:0.5."
        ) from None


def _read(reader: Reader) -> Budget:
    word = reader.take(r"saved\s*:")
    text = reader.take(r"[0-9.]+\s*[A-Za-z]*")
    if text is None:
        raise reader.expected("a number of bytes or a fraction, such as budget:12GiB or budget:0.5")
    return budget(text, "saved" if word else "peak")


def planned(structure: Any, kept: Sequence[Sequence[str]], text: str = "plan") -> Planned:
    """The policy of a plan. **Raises** `PlanError` for a structure that there is not."""
    if structure != "none" and structure not in STRUCTURES:
        raise PlanError(f"there is no structure {structure!r} of regions. There are: none, {', '.join(STRUCTURES)}.")
    return Planned(structure, tuple((str(k), str(t), str(d)) for k, t, d in kept), text)


WITH_ARGUMENT["budget"] = (_read, "12GiB")
WORDS["auto"] = Budget(None)
