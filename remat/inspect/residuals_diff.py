"""Two lists of kept values side by side: what is new, what is gone, what is kept otherwise."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remat.inspect.residuals import Residual, Residuals

SCHEMA = "remat.residuals_diff/1"
COMPARED = ("type", "times", "memory", "reason")
"""What two values with one key may differ in."""


@dataclass(frozen=True)
class ChangedResidual:
    """A value that both keep, but not in the same way. `changed` are the attributes that differ."""

    key: str
    before: Residual
    after: Residual
    changed: tuple[str, ...]

    @property
    def bytes_added(self) -> int:
        return self.after.total_bytes - self.before.total_bytes


@dataclass(frozen=True)
class ResidualsDiff:
    """What changed from one list of kept values to another; arguments and constants are left out.

    **Attributes**

    - `before`, `after`: the policies, or the functions where there are none.
    - `added`, `gone`: what only the second and what only the first keeps, the largest first.
    - `changed`: what both keep, with another type, number, memory or reason.
    - `before_bytes`, `after_bytes`: what each keeps in all.
    """

    before: str
    after: str
    added: tuple[Residual, ...]
    gone: tuple[Residual, ...]
    changed: tuple[ChangedResidual, ...]
    before_bytes: int
    after_bytes: int

    @property
    def bytes_added(self) -> int:
        """How many bytes the second keeps more; less than zero if it keeps less."""
        return self.after_bytes - self.before_bytes

    def __bool__(self) -> bool:
        """Whether there is any difference."""
        return bool(self.added or self.gone or self.changed)

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        data = {
            "schema": SCHEMA,
            "before": self.before,
            "after": self.after,
            "before_bytes": self.before_bytes,
            "after_bytes": self.after_bytes,
            "bytes_added": self.bytes_added,
            "added": [r.to_data() for r in self.added],
            "gone": [r.to_data() for r in self.gone],
            "changed": [
                {"key": c.key, "changed": c.changed, "before": c.before.to_data(), "after": c.after.to_data()}
                for c in self.changed
            ],
        }
        return json.dumps(data, indent=1, default=str)

    def __str__(self) -> str:
        from remat.report.kept_diff import diff_text

        return diff_text(self)


def difference(before: Residuals, after: Residuals) -> ResidualsDiff:
    """What changed from `before` to `after`."""
    old, new = _by_key(before), _by_key(after)
    changed: list[ChangedResidual] = []
    for key in old.keys() & new.keys():
        differs = tuple([name for name in COMPARED if getattr(old[key], name) != getattr(new[key], name)])
        if differs:
            changed.append(ChangedResidual(key[0], old[key], new[key], differs))
    return ResidualsDiff(
        before=before.policy or ("no policy" if after.policy else before.function),
        after=after.policy or ("no policy" if before.policy else after.function),
        added=_largest_first(new[key] for key in new.keys() - old.keys()),
        gone=_largest_first(old[key] for key in old.keys() - new.keys()),
        changed=tuple(sorted(changed, key=lambda c: (-abs(c.bytes_added), c.key))),
        before_bytes=before.new_bytes,
        after_bytes=after.new_bytes,
    )


def _by_key(residuals: Residuals) -> dict[tuple[str, int], Residual]:
    """The new values by their keys; those of one key are numbered."""
    counts: Counter[str] = Counter()
    found: dict[tuple[str, int], Residual] = {}
    for r in residuals:
        if r.is_new:
            found[r.key, counts[r.key]] = r
            counts[r.key] += 1
    return found


def _largest_first(residuals: Iterable[Residual]) -> tuple[Residual, ...]:
    return tuple(sorted(residuals, key=lambda r: (-r.total_bytes, r.key)))
