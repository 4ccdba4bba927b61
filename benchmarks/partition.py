"""What cutting a gradient into a forward and a backward graph comes to, in numbers that frameworks can share.

Live bytes follow one rule for any graph, whatever its compiler would do: nothing is fused, and a step's result is
memory of its own from that step to the last one that reads it or a view of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Partition:
    """**Attributes**

    - `saved_bytes`: what the forward graph hands to the backward graph, inputs of the loss and views of them left out.
    - `recomputed_flops`: operations in products that run a second time.
    - `plain_flops`: operations in products of the gradient if nothing runs twice.
    - `backward_peak`: the most bytes alive while the backward graph runs: gradients included, inputs of the loss not.
    """

    saved_bytes: int
    recomputed_flops: int
    plain_flops: int
    backward_peak: int


@dataclass(frozen=True)
class Step:
    """The memories that a step reads, and those that it makes, with their bytes."""

    reads: tuple[Hashable, ...]
    makes: tuple[tuple[Hashable, int], ...]


def live_peak(steps: Sequence[Step], given: Mapping[Any, int], returned: Iterable[Hashable]) -> int:
    """The most bytes that are alive at once.

    **Arguments**

    - `steps`: in the order in which they run.
    - `given`: the bytes of memories that are there when the program begins and die after their last reader. What lives
      all the time anyway (weights) is not among them, and is not counted.
    - `returned`: the memories that live to the end.

    **Returns** bytes.

    >>> product, sine = Step(("w", "x"), (("y", 8),)), Step(("y",), (("z", 8),))
    >>> live_peak([product, sine], {"x": 4}, ["z"])
    16
    """
    last: dict[Hashable, int] = {}
    for i, step in enumerate(steps):
        last.update(dict.fromkeys((*step.reads, *(m for m, _ in step.makes)), i))
    last.update(dict.fromkeys(returned, len(steps)))
    dying: dict[int, list[Hashable]] = {}
    for memory, i in last.items():
        dying.setdefault(i, []).append(memory)
    alive = {memory: size for memory, size in given.items() if memory in last}
    peak = now = sum(alive.values())
    for i, step in enumerate(steps):
        for memory, size in step.makes:
            now += size - alive.get(memory, 0)
            alive[memory] = size
        peak = max(peak, now)
        now -= sum(alive.pop(memory, 0) for memory in dying.get(i, ()))
    return peak
