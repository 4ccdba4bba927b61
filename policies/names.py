"""Policies about values that were named with `checkpoint_name`, by name or by pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax

from remat.decisions import RECOMPUTE, SAVE, Decision, Offload, RegionView
from remat.errors import PolicyError
from remat.ir.ops import Name
from remat.ir.program import Value
from remat.name_patterns import has_name, is_pattern
from remat.policies.base import PerEquation, check_memory, check_name_list, check_names
from remat.policies.parse import WITH_ARGUMENT, Reader, memory_text, names_text


@dataclass(frozen=True)
class SaveOnlyTheseNames(PerEquation):
    """Only values with one of these names are kept."""

    names: frozenset[Any]

    def decide_name(self, tag: Any) -> Decision:
        return SAVE if has_name(self.names, tag) else RECOMPUTE

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return self.names

    def as_jax(self) -> Callable[..., Any] | None:
        return None if any(map(is_pattern, self.names)) else jax.checkpoint_policies.save_only_these_names(*self.names)

    def __str__(self) -> str:
        return f"names:{names_text(self.names)}"


@dataclass(frozen=True)
class SaveAnyNamesButThese(PerEquation):
    """Named values are kept, unless they have one of these names; values without a name are not."""

    names: frozenset[Any]

    def decide_name(self, tag: Any) -> Decision:
        return RECOMPUTE if has_name(self.names, tag) else SAVE

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return self.names

    def as_jax(self) -> Callable[..., Any] | None:
        if any(map(is_pattern, self.names)):
            return None
        return jax.checkpoint_policies.save_any_names_but_these(*self.names)

    def __str__(self) -> str:
        return f"names_but:{names_text(self.names)}"


@dataclass(frozen=True)
class SaveAnythingExceptTheseNames(PerEquation):
    """Everything is kept, as without `checkpoint`, except values with one of these names.

    In JAX the policy of this name keeps everything, the excluded names too. Here the value that carries an excluded
    name is recomputed, and so is the value it was given to (the same bytes under no name).
    """

    names: frozenset[Any]

    def decide_primitive(self, primitive: Any, types: tuple[Any, ...], params: dict[str, Any]) -> Decision:
        return SAVE

    def decide_name(self, tag: Any) -> Decision:
        return RECOMPUTE if has_name(self.names, tag) else SAVE

    def decide(self, view: RegionView) -> dict[Value, Decision]:
        decisions: dict[Value, Decision] = {v: SAVE for e in view.equations for v in e.outputs}
        for equation in reversed(view.equations):
            if isinstance(equation.op, Name):
                named, original = equation.outputs[0], equation.inputs[0]
                if has_name(self.names, equation.op.tag) or named not in decisions:
                    decisions.pop(named, None)
                    if isinstance(original, Value):
                        decisions.pop(original, None)
        return decisions

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return self.names

    def __str__(self) -> str:
        return f"except:{names_text(self.names)}"


@dataclass(frozen=True)
class SaveAndOffloadOnlyTheseNames(PerEquation):
    """Values with some names are kept where they are, those with other names in another memory.

    Where patterns of both sides stand for one name, a name that is written out wins over a pattern, and keeping in
    place over moving away.
    """

    names_which_can_be_saved: frozenset[Any]
    names_which_can_be_offloaded: frozenset[Any]
    offload_src: str
    offload_dst: str

    def __post_init__(self) -> None:
        check_memory(self.offload_src, "offload_src")
        check_memory(self.offload_dst, "offload_dst")
        both = self.names_which_can_be_saved & self.names_which_can_be_offloaded
        if both:
            raise PolicyError(
                f"the names {', '.join(sorted(map(repr, both)))} are in both names_which_can_be_saved and "
                "names_which_can_be_offloaded. A value is either kept where it is or moved; take each name out of "
                "one of the two."
            )

    def decide_name(self, tag: Any) -> Decision:
        if tag in self.names_which_can_be_saved:
            return SAVE
        moved = Offload(self.offload_src, self.offload_dst)
        if tag in self.names_which_can_be_offloaded:
            return moved
        if has_name(self.names_which_can_be_saved, tag):
            return SAVE
        return moved if has_name(self.names_which_can_be_offloaded, tag) else RECOMPUTE

    @property
    def mentioned_names(self) -> frozenset[Any]:
        return self.names_which_can_be_saved | self.names_which_can_be_offloaded

    @property
    def may_offload(self) -> bool:
        return True

    @property
    def offloaded_names(self) -> frozenset[Any]:
        """Names of values that the user is told of when they are kept in place."""
        return self.names_which_can_be_offloaded

    def as_jax(self) -> Callable[..., Any] | None:
        if any(map(is_pattern, self.mentioned_names)):
            return None
        return jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=sorted(self.names_which_can_be_saved, key=str),
            names_which_can_be_offloaded=sorted(self.names_which_can_be_offloaded, key=str),
            offload_src=self.offload_src,
            offload_dst=self.offload_dst,
        )

    def __str__(self) -> str:
        text = f"offload:{names_text(self.names_which_can_be_offloaded)}"
        if (self.offload_src, self.offload_dst) != ("device", "pinned_host"):
            text += f"@{memory_text(self.offload_src, self.offload_dst)}"
        return f"{text}:saved={names_text(self.names_which_can_be_saved)}" if self.names_which_can_be_saved else text


def save_only_these_names(*names_which_can_be_saved: Any) -> SaveOnlyTheseNames:
    """Keep only values with one of these names; `"*_proj"` stands for all that end so (see `remat.name_patterns`).

    >>> from remat import policies
    >>> print(policies.save_only_these_names("a", "*_proj"))
    names:*_proj,a
    """
    return SaveOnlyTheseNames(check_names(names_which_can_be_saved, "save_only_these_names"))


def save_any_names_but_these(*names_not_to_save: Any) -> SaveAnyNamesButThese:
    """Keep named values, except those with one of these names; nothing without a name is kept.

    >>> from remat import policies
    >>> print(policies.save_any_names_but_these("a"))
    names_but:a
    """
    return SaveAnyNamesButThese(check_names(names_not_to_save, "save_any_names_but_these"))


def save_anything_except_these_names(*names_not_to_save: Any) -> SaveAnythingExceptTheseNames:
    """Keep everything the backward pass needs, except values with one of these names.

    >>> from remat import policies
    >>> print(policies.save_anything_except_these_names("a"))
    except:a
    """
    return SaveAnythingExceptTheseNames(check_names(names_not_to_save, "save_anything_except_these_names"))


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Iterable[Any],
    names_which_can_be_offloaded: Iterable[Any],
    offload_src: str,
    offload_dst: str,
) -> SaveAndOffloadOnlyTheseNames:
    """Keep values with some names where they are, and values with other names in another memory.

    **Raises** `PolicyError` when a name is in both lists, or a memory space does not exist; `PolicyTypeError` when a
    string is given in place of a list.

    >>> from remat import policies
    >>> print(policies.save_and_offload_only_these_names(
    ...     names_which_can_be_saved=["y"], names_which_can_be_offloaded=["z"],
    ...     offload_src="device", offload_dst="pinned_host"))
    offload:z:saved=y
    """
    saved = check_name_list(names_which_can_be_saved, "names_which_can_be_saved")
    offloaded = check_name_list(names_which_can_be_offloaded, "names_which_can_be_offloaded")
    return SaveAndOffloadOnlyTheseNames(saved, offloaded, offload_src, offload_dst)


def _read(reader: Reader) -> frozenset[Any]:
    return check_name_list(reader.names(), "names")


def _offload(reader: Reader) -> SaveAndOffloadOnlyTheseNames:
    offloaded = reader.names()
    source, destination = reader.memory() if reader.take("@") else ("device", "pinned_host")
    saved = reader.names() if reader.take(r":\s*saved\s*=") else []
    return save_and_offload_only_these_names(
        names_which_can_be_saved=saved,
        names_which_can_be_offloaded=offloaded,
        offload_src=source,
        offload_dst=destination,
    )


WITH_ARGUMENT["names"] = (lambda reader: SaveOnlyTheseNames(_read(reader)), "a,b")
WITH_ARGUMENT["names_but"] = (lambda reader: SaveAnyNamesButThese(_read(reader)), "a,b")
WITH_ARGUMENT["except"] = (lambda reader: SaveAnythingExceptTheseNames(_read(reader)), "a,b")
WITH_ARGUMENT["offload"] = (_offload, "a")
