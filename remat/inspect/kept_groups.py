"""Kept values in groups, by the module, scope or loop that they stand in; equal ones are one row.

A group is a loop, or else a part of the program that has a name: the `jax.named_scope` path (Flax puts its modules
there) as far as the first part with a number, `h/3`, or its first two parts. Paths that differ in numbers only are one
group: the layers of an unrolled model. What a transformation or a `jit` adds to a path is no part of the group.

Groups and the rows in them are sorted by bytes. Every value is in one row, so bytes add up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remat.ir.source import NOWHERE, RECOMPUTED, Position

if TYPE_CHECKING:
    from remat.inspect.residuals import Residual

Path = tuple[str, ...]

DEPTH = 2
"""How many parts of a path without numbers name a group."""

_NUMBERED = re.compile(r"(.*?)(\d+)")
_AROUND = re.compile(r"(?:transpose|jvp|vmap|checkpoint|remat)\((.*)\)")
_NO_SCOPE = frozenset({"", "while", "body", "cond", "checkpoint", "remat", "closed_call", RECOMPUTED})


@dataclass(frozen=True)
class KeptRow:
    """Kept values that are equal but for where they stand and what reads them.

    **Attributes**

    - `value`: what they are: a name in quotes, `carry` of a loop, or the operation after its path in the group.
    - `residuals`: they themselves, in the order of the program.
    """

    value: str
    residuals: tuple[Residual, ...]

    @property
    def like(self) -> Residual:
        """One of them."""
        return self.residuals[0]

    @property
    def count(self) -> int:
        """How many there are; one in a loop counts once."""
        return len(self.residuals)

    @property
    def total_bytes(self) -> int:
        """Of all of them, loops multiplied."""
        return sum(r.total_bytes for r in self.residuals)

    @property
    def reads(self) -> tuple[str, ...]:
        """The operations whose derivatives read them."""
        return tuple(dict.fromkeys(u.operation for r in self.residuals for u in r.needed_by))


@dataclass(frozen=True)
class KeptGroup:
    """The kept values of one module, scope or loop.

    **Attributes**

    - `title`: the path, `h/0..11` for several; empty where there is none.
    - `count`: how many paths it stands for.
    - `loops`: the lengths of the loops around, outermost first. `place`: the user's line of the innermost of them.
    - `rows`: the largest first.
    """

    title: str
    count: int
    loops: tuple[int, ...]
    place: Position
    rows: tuple[KeptRow, ...]

    @property
    def total_bytes(self) -> int:
        """Of all rows."""
        return sum(row.total_bytes for row in self.rows)


def kept_groups(residuals: Iterable[Residual]) -> tuple[KeptGroup, ...]:
    """The values in groups, the largest first."""
    found: dict[object, list[tuple[Path, Path, Residual]]] = {}
    for r in residuals:
        own, rest = _parts(r)
        place = None if r.loop is None else r.loop.place
        found.setdefault((tuple(map(_without_number, own)), r.loops, place), []).append((own, rest, r))
    groups = [_group(members) for members in found.values()]
    return tuple(sorted(groups, key=lambda g: -g.total_bytes))


def group_titles(residuals: Sequence[Residual]) -> list[str]:
    """The title of the group of each, with the lengths and the line of loops: what the HTML report groups by."""
    groups = [g for is_new in (True, False) for g in kept_groups(r for r in residuals if r.is_new == is_new)]
    of = {id(r): f"{title_text(g)}  {g.place.short}".rstrip() for g in groups for row in g.rows for r in row.residuals}
    return [of[id(r)] for r in residuals]


def title_text(group: KeptGroup) -> str:
    """`layers x 32`: the path and the loops around."""
    loops = f"x {'x'.join(map(str, group.loops))}" if group.loops else ""
    title = group.title or ("loop" if loops else "(no scope)")
    return " ".join(part for part in (title, loops) if part)


def _group(members: Sequence[tuple[Path, Path, Residual]]) -> KeptGroup:
    common = _common([rest for _, rest, r in members if not r.carried])
    owns = list(dict.fromkeys(own for own, _, _ in members))
    described = [(_value(r, () if r.carried else rest[len(common) :]), r) for _, rest, r in members]
    rows = sorted(_rows(described), key=lambda row: -row.total_bytes)
    first = members[0][2]
    place = NOWHERE if first.loop is None else first.loop.place
    return KeptGroup("/".join([*_merged(owns), *common]), len(owns), first.loops, place, tuple(rows))


def _rows(described: Iterable[tuple[str, Residual]]) -> list[KeptRow]:
    """Equal values as one row, whatever reads them: the last layer of a model is read by other operations."""
    found: dict[tuple[object, ...], list[Residual]] = {}
    for value, r in described:
        like = (r.type, r.times, r.loops, r.memory, r.reason, r.place, r.device_bytes)
        found.setdefault((value, *like), []).append(r)
    return [KeptRow(str(value), tuple(rs)) for (value, *_), rs in found.items()]


def _parts(residual: Residual) -> tuple[Path, Path]:
    """The path of the group that a value belongs to, and the rest of its own."""
    path = scope_path(residual.scope)
    if residual.loop is not None:
        depth = len(scope_path(residual.loop.scope))
        return path[:depth], path[depth:]
    names = next((i for i, part in enumerate(path) if part.startswith("jit(")), len(path))
    numbered = next((i + 1 for i, part in enumerate(path[:names]) if _NUMBERED.fullmatch(part)), DEPTH)
    depth = min(numbered, names)
    return path[:depth], path[depth:]


def scope_path(scope: str) -> Path:
    """The parts of a name scope that a user or a module gave, and the functions under `jit` inside.

    >>> from remat.inspect.kept_groups import scope_path
    >>> scope_path("jit(loss)/transpose(jvp(Net))/layers/checkpoint/mlp/jit(gelu)")
    ('Net', 'layers', 'mlp', 'jit(gelu)')
    """
    path: list[str] = []
    for part in scope.split("/"):
        while (inside := _AROUND.fullmatch(part)) is not None:
            part = inside[1]
        if part not in _NO_SCOPE and (path or not part.startswith("jit(")):
            path.append(part)
    return tuple(path)


def _value(residual: Residual, path: Path) -> str:
    if residual.name is not None:
        return repr(str(residual.name))
    if residual.carried:
        return "carry"
    inside = "/".join(part.removeprefix("jit(").removesuffix(")") for part in path)
    return f"{inside}: {residual.origin.text}" if inside else residual.origin.text


def _common(paths: Sequence[Path]) -> Path:
    """The parts that all paths begin with."""
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    named = next((i for i, part in enumerate(first[:same]) if part.startswith("jit(")), same)
    return first[:named]


def _without_number(part: str) -> str:
    match = _NUMBERED.fullmatch(part)
    return part if match is None else f"{match[1]}#"


def _merged(paths: Sequence[Path]) -> list[str]:
    """Paths that differ in numbers as one: `h/0..11`."""
    return [_range(list(dict.fromkeys(parts))) for parts in zip(*paths, strict=True)]


def _range(parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    matches = [m for m in map(_NUMBERED.fullmatch, parts) if m is not None]
    numbers = sorted(int(m[2]) for m in matches)
    every = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{matches[0][1]}{numbers[0]}..{numbers[-1]}" if every else f"{matches[0][1]}*"
