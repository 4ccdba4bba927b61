"""Where an equation was written: file, line, function and name scope, worked out only when asked for.

Walking a traceback costs tens of microseconds, more than everything else done to an equation, so a `Source` keeps
JAX's source record and looks into it lazily.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from jax.extend import source_info_util


class Position(NamedTuple):
    """A place in a user's code; `file` is empty where JAX recorded no user frame."""

    file: str
    line: int
    column: int
    function: str


NOWHERE = Position("", 0, 0, "")


class Source:
    """The origin of an equation. `info` is JAX's source record; None where no user line stands behind it."""

    __slots__ = ("caller", "info", "is_recomputed")

    def __init__(self, info: Any = None, caller: Source | None = None, is_recomputed: bool = False):
        self.info = info
        self.caller = caller
        """The call that the equation was inlined from; its place is given where the equation itself has none."""
        self.is_recomputed = is_recomputed
        """Whether the equation stands in a backward program and computes a value of the forward pass again."""

    def again(self) -> Source:
        """The source of the same equation where it is recomputed."""
        return Source(self.info, self.caller, True)

    @property
    def text(self) -> str:
        """`file:line:col (function)` as JAX prints it; empty when unknown."""
        own = source_info_util.summarize(self.info) if self.info is not None else ""
        return own or (self.caller.text if self.caller is not None else "")

    @property
    def position(self) -> Position:
        match = re.fullmatch(r"(.*?):(\d+)(?::(\d+))? \((.*)\)", self.text)
        if match is None:
            return NOWHERE
        file, line, column, function = match.groups()
        return Position(file, int(line), int(column or 0), function)

    @property
    def scope(self) -> str:
        """The `jax.named_scope` path, outermost first, parts separated by `/`."""
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
