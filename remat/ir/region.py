"""Checkpoint regions: which policy rules over an equation, and where its recomputation is at home.

When a `checkpoint` region is differentiated, its equations are inlined and each remembers its region. Regions form a
tree. The outermost region decides what is saved (as in JAX: an outer policy wins over inner ones); each region
recomputes in its own right, so that what it recomputed is dropped before its neighbour's backward begins.
"""

from __future__ import annotations

from typing import Any

from remat.ir.source import UNKNOWN, Source


class Region:
    """One application of `checkpoint`.

    `policy` is what the user gave (None: save nothing). `prevent_cse` asks for optimization barriers around the
    recomputation. `in_loop` says that the region sits in a loop body, where XLA cannot merge forward and backward, so
    that barriers are never needed. `last` is set when no other region or loop is differentiated after this one, which
    means that its backward begins as soon as its forward ends. `function` is the name of the user's function, if known,
    and `derived` says that differentiation made it of another region, about which users were warned.
    """

    __slots__ = ("depth", "derived", "function", "in_loop", "last", "parent", "policy", "prevent_cse", "source")

    def __init__(
        self,
        policy: Any,
        parent: Region | None = None,
        prevent_cse: bool = True,
        in_loop: bool = False,
        source: Source = UNKNOWN,
        function: str = "",
        derived: bool = False,
    ):
        self.policy = policy
        self.parent = parent
        self.prevent_cse = prevent_cse
        self.in_loop = in_loop
        self.source = source
        self.function = function
        self.derived = derived
        self.last = False
        self.depth: int = 0 if parent is None else parent.depth + 1

    @property
    def outermost(self) -> Region:
        region = self
        while region.parent is not None:
            region = region.parent
        return region


def common_region(a: Region | None, b: Region | None) -> Region | None:
    """The innermost region that contains both (None: the top level, outside every region)."""
    while a is not b:
        if a is None or b is None:
            return None
        if a.depth >= b.depth:
            a = a.parent
        else:
            b = b.parent
    return a
