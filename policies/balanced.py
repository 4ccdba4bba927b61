"""Burn's balance of memory and work, without the limits of deciding while the forward pass runs.

Results of compute-bound operations are kept, those of memory-bound ones are recomputed. The whole program is known, so
constants are no obstacle, casts count as memory-bound, nothing is kept just in case, and where keeping a later value
in place of an earlier one costs no more (`substituting`), that is done.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from remat.decisions import SAVE, Decision, RegionView, as_policy
from remat.errors import PolicyError
from remat.ir.linearized import Linearized
from remat.ir.ops import Op
from remat.ir.primitive_table import BY_NAME, CHEAP_NAMES
from remat.ir.program import Equation, Value
from remat.ir.region import Region
from remat.ir.traits import inner_names, is_batched_product, is_memory_bound
from remat.ir.types import size_in_bytes
from remat.policies.algebra import Combinable
from remat.policies.base import check_name_list
from remat.policies.burn.strategies import BalancedCheckpointing
from remat.policies.parse import WITH_ARGUMENT, WORDS, Reader, names_text
from remat.policies.substituting import substituted
from remat.transforms.decide import region_views
from remat.transforms.split import kept_bytes

NO_REVERSE_DERIVATIVE = (NotImplementedError, TypeError, ValueError)
"""What is raised for an operation that has no derivative in reverse. By JAX: NotImplementedError for a primitive
without the rule, ValueError for callbacks and foreign calls, TypeError for a custom rule of the other mode. By remat:
`ReverseModeError`, a ValueError, for loops of unknown length."""

LARGER = 1
"""A batched product is recomputed if its result has more bytes than its operands have together, times this. For the
scores of attention it means sequences of more than twice the size of a head.

Measured with XLA's CPU compiler, newest jax, as temp MiB and GFLOP in products of the benchmark's nets, kept and
recomputed (in parentheses the result's bytes over the operands'): decoder as a loop, 512 tokens (4) 166.6 at 38.65 and
107.6 at 40.27, 256 tokens (2) 130.4 at 33.82 and 98.5 at 34.63, unrolled 82.1 and 58.1;
ViT (1.5) 84.4 at 20.81 and 68.4 at 21.19. Below 1, keeping the operands takes more than keeping the result."""

Plan = Callable[[RegionView], dict[Value, Decision]]

_best: WeakKeyDictionary[Linearized, dict[Any, tuple[int, dict[Region, int]]]] = WeakKeyDictionary()
"""By program and policy: which of the policy's plans keeps the fewest bytes, and how large its regions are."""


@dataclass(frozen=True)
class Balanced(Combinable):
    """See `balanced`. The two sets are primitives that the user moved to the other side of the table."""

    compute_bound: frozenset[str] = frozenset()
    memory_bound: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for side in ("compute_bound", "memory_bound"):
            object.__setattr__(self, side, _checked(getattr(self, side), side))
        both = sorted(self.compute_bound & self.memory_bound)
        if both:
            raise PolicyError(
                f"{', '.join(both)} cannot be both compute_bound and memory_bound. Leave it out of one of them."
            )

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        return self._best_plan(view)(view)

    def _plans(self) -> list[Plan]:
        plans = [self._with_substitution, self._literal]
        return plans if self.compute_bound or self.memory_bound else [*plans, BalancedCheckpointing().decide]

    def _literal(self, view: RegionView) -> dict[Value, Decision]:
        return {v: SAVE for e in view.equations if self._is_kept(e) for v in e.outputs}

    def _is_kept(self, equation: Equation) -> bool:
        return not self.is_memory_bound(equation.op) and not self._is_spread(equation)

    def _is_spread(self, equation: Equation) -> bool:
        """Whether it is a batched product of a result that is larger than its operands, such as the scores of
        attention over long sequences: few terms are summed for each element that keeping it would store."""
        types = [a.type for a in equation.inputs]
        if "dot_general" in self.compute_bound or not is_batched_product(equation.op, types):
            return False
        return size_in_bytes(equation.outputs[0].type) > LARGER * sum(map(size_in_bytes, types))

    def _with_substitution(self, view: RegionView) -> dict[Value, Decision]:
        return substituted(self._literal(view), view, self.is_memory_bound)

    def _best_plan(self, view: RegionView) -> Plan:
        """The plan that keeps the fewest bytes; one for all regions of a program under this policy, counted once."""
        known = _best.setdefault(view.program, {})
        if self not in known:
            views = [v for v in region_views(view.program) if self._rules(v.region)]
            sizes = {v.region: len(v.equations) for v in views}
            known[self] = (self._count(view.program, views) if views else 0), sizes
        chosen, sizes = known[self]
        if sizes.get(view.region) != len(view.equations):  # another policy has narrowed the view
            chosen = self._count(view.program, [view])
        return self._plans()[chosen]

    def _count(self, program: Linearized, views: list[RegionView]) -> int:
        def kept(plan: Plan) -> int:
            return kept_bytes(program, {v: d for view in views for v, d in plan(view).items()})

        plans = self._plans()
        try:
            return min(range(len(plans)), key=lambda i: kept(plans[i]))
        except NO_REVERSE_DERIVATIVE:  # whoever asks for the derivative takes the same walk and is told; nobody else
            return 0

    def _rules(self, region: Region) -> bool:
        return region.policy is not None and as_policy(region.policy) == self

    def is_memory_bound(self, op: Op) -> bool:
        names = inner_names(op)
        if not self.compute_bound.isdisjoint(names):
            return False
        return is_memory_bound(op) or names <= self.memory_bound | CHEAP_NAMES

    def __str__(self) -> str:
        moved = {"compute_bound": self.compute_bound, "memory_bound": self.memory_bound}
        return ":".join(["balanced", *(f"{k}={names_text(v)}" for k, v in moved.items() if v)])


def balanced(compute_bound: Iterable[str] = (), memory_bound: Iterable[str] = ()) -> Balanced:
    """Keep what is expensive to compute, recompute element-wise operations, casts, views and data movement.

    The recommended policy that looks at operations, and the idea of Burn's `BalancedCheckpointing`. It sees the whole
    program: it recomputes through constants, keeps no copies of casts, keeps a sum in place of its addends where that
    costs no more, and never keeps more bytes than `burn_balanced`.

    It wins where element-wise chains follow matrix products and convolutions (activations, normalizations, dropout,
    attention scores): they are recomputed at the cost of reading memory. It does not win much where nearly every result
    is that of a reduction, gather or product; there, choose by names or a budget. It keeps the results of batched
    products, such as attention scores, which `dots_no_batch` does not, unless they are larger than both operands
    together. A product that sums over nothing counts as element-wise.

    **Arguments**

    - `compute_bound`: names of primitives to keep the results of, though the table calls them memory-bound (`"exp"`).
    - `memory_bound`: names of primitives to recompute, though the table calls them compute-bound (`"cumsum"`).

    **Raises** `PolicyError` for names that no primitive has.

    >>> from remat import policies
    >>> print(policies.balanced(), policies.balanced(compute_bound={"exp"}))
    balanced balanced:compute_bound=exp
    """
    return Balanced(compute_bound, memory_bound)  # type: ignore[arg-type]  # any iterable becomes a frozen set


def _checked(names: Iterable[str], parameter: str) -> frozenset[str]:
    found = check_name_list(names, parameter)
    for name in found:
        if name not in BY_NAME:
            close = difflib.get_close_matches(str(name), BY_NAME, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else " The table is remat.ir.primitive_table."
            raise PolicyError(f"{parameter}: no primitive is called {name!r}.{hint}")
    return found


def _read(reader: Reader) -> Balanced:
    sets: dict[str, list[str]] = {}
    while not sets or reader.take(":"):
        side = reader.take("compute_bound|memory_bound")
        if side is None or side in sets or not reader.take("="):
            raise reader.expected(
                "compute_bound=... or memory_bound=..., each once, such as 'balanced:compute_bound=exp,log'"
            )
        sets[side] = reader.names()
    return balanced(**sets)


WORDS["balanced"] = Balanced()
WITH_ARGUMENT["balanced"] = (_read, "compute_bound=exp")
