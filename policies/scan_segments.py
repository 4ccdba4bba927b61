"""Long loops in segments, as a policy: for loops inside a model that nobody wrote with `checkpointed_scan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from remat.decisions import Policy
from remat.errors import PolicyError
from remat.ir.ops import Checkpoint
from remat.ir.program import Program
from remat.ir.rewrite import inline_all
from remat.loops.plan import in_segments
from remat.planning.structures import with_nested_loops
from remat.policies.algebra import inner_text
from remat.policies.budget import Arranging
from remat.policies.parse import WITH_ARGUMENT, Reader, parse
from remat.transforms.enclose import around


@dataclass(frozen=True)
class ScanSegments(Arranging):
    """Each loop of more iterations than `count` runs as that many segments; besides, `policy` says what is kept."""

    count: int
    policy: Policy

    def regions_of(self, op: Checkpoint, active: Sequence[bool]) -> Program:
        count = self.count
        cut = with_nested_loops(inline_all(op.program), lambda length: in_segments(length, count), count + 1)
        return around(cut, replace(op, program=cut, policy=self.policy))

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return getattr(self.policy, "mentioned_names", frozenset())

    def __str__(self) -> str:
        inner = inner_text(self.policy)
        return f"scan_segments:{self.count}" + ("" if inner == "nothing" else f":{inner}")


def scan_segments(count: Any, policy: Any = "nothing") -> ScanSegments:
    """Run each loop in `count` segments, of which only the first carries are kept: about `count + length / count` of
    them are alive at a time, at one more forward pass through the loop.

    What `remat.checkpointed_scan(segments=count)` does, for the loops of an unmodified function. Loops inside of loops,
    and those of no more iterations than that, stay as they are. The segments' lengths differ by one at most.

    **Arguments**

    - `count`: how many segments. The square root of a loop's length keeps the fewest carries.
    - `policy`: what is kept besides, of the whole function; what it keeps of an iteration, it keeps of all.

    **Raises** `PolicyError` for what is no positive integer.

    **Source**: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016).

    >>> import jax, jax.numpy as jnp, remat
    >>> loss = lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=100)[0].sum()
    >>> kept = [remat.saved_residuals(loss, jnp.ones(64), policy=p).new_bytes for p in ("nothing", "scan_segments:10")]
    >>> [size // 256 for size in kept]
    [100, 10]
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise PolicyError(f"scan_segments takes a number of segments, 1 or more, but got {count!r}: scan_segments:16.")
    return ScanSegments(count, parse(policy))


def _read(reader: Reader) -> ScanSegments:
    count = reader.take(r"\d+")
    if count is None:
        raise reader.expected("a number of segments, such as scan_segments:16")
    return scan_segments(int(count), reader.single() if reader.take(":") else "nothing")


WITH_ARGUMENT["scan_segments"] = (_read, "16")
