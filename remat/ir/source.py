"""Where an equation was written: file, line, function and name scope, worked out only when asked for.

Walking a traceback costs tens of microseconds, more than everything else done to an equation, so a `Source` keeps
JAX's source record and looks into it lazily.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from jax.extend import source_info_util

from remat import jax_compat


class Position(NamedTuple):
    """A place in a user's code; `file` is empty where JAX recorded no user frame."""

    file: str
    line: int
    column: int
    function: str

    @property
    def short(self) -> str:
        """The place as reports have it: `model.py:12 (attend)`, in a notebook `cell:12 (attend)`; empty where there is
        none."""
        if not self.file:
            return ""
        name = "cell" if "ipykernel_" in self.file else os.path.basename(self.file)
        return f"{name}:{self.line} ({self.function.rpartition('.')[2]})"


NOWHERE = Position("", 0, 0, "")

RECOMPUTED = "rematted_computation"
"""The name scope of what is recomputed, by which profilers group it, as in JAX."""


class Source:
    """The origin of an equation. `info` is JAX's source record; None where no user line stands behind it."""

    __slots__ = ("caller", "enclosing", "info", "is_recomputed")

    def __init__(
        self,
        info: Any = None,
        caller: Source | None = None,
        enclosing: Source | None = None,
        is_recomputed: bool = False,
    ):
        self.info = info
        self.caller = caller
        """The call that the equation was inlined from; its place is given where the equation itself has none."""
        self.enclosing = enclosing
        """The loop or branch in whose body the equation stands."""
        self.is_recomputed = is_recomputed
        """Whether the equation stands in a backward program and computes a value of the forward pass again."""

    def again(self) -> Source:
        """The source of the same equation where it is recomputed."""
        return Source(self.info, self.caller, self.enclosing, True)

    def inlined(self, caller: Source | None, scopes: Any, enclosing: Source | None) -> Source:
        """The source of the same equation where it is inlined from a call, into the name `scopes` of that call."""
        if caller is None and enclosing is None:
            return self
        info = self.info if self.info is None or scopes is None else jax_compat.scopes_added(scopes, self.info)
        known = caller if self.caller is None else self.caller.inlined(caller, None, None)
        return Source(info, known, enclosing)

    @property
    def text(self) -> str:
        """`file:line:col (function)` as JAX prints it; empty when unknown."""
        own = source_info_util.summarize(self.info) if self.info is not None else ""
        around = self.caller or self.enclosing
        return own or (around.text if around is not None else "")

    @property
    def position(self) -> Position:
        match = re.fullmatch(r"(.*?):(\d+)(?::(\d+))? \((.*)\)", self.text)
        if match is None:
            return NOWHERE
        file, line, column, function = match.groups()
        return Position(file, int(line), int(column or 0), function)

    @property
    def scope(self) -> str:
        """The `jax.named_scope` path, outermost first, parts separated by `/`; `jit(f)` stands for a call of f."""
        around = self.enclosing.scope if self.enclosing is not None else ""
        return "/".join(part for part in (around, self.own_scope) if part)

    @property
    def own_scope(self) -> str:
        """The same without the scopes of the loops and branches around."""
        return str(self.info.name_stack) if self.info is not None else ""


UNKNOWN = Source()


def _register_own_files() -> None:
    """Tell JAX that our frames are no user's code, so that equations show the line that called us.

    Not so the demo, which is a user like any other. Folders count by their real place too, as installations for
    development load `remat.policies` and `remat.transforms` from there.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in os.listdir(root):
        path = os.path.join(root, name)
        if name != "demo" and (name.endswith(".py") or os.path.isdir(path)):
            ending = "" if name.endswith(".py") else os.sep
            for place in {path, os.path.realpath(path)}:
                source_info_util.register_exclusion(place + ending)


_register_own_files()
