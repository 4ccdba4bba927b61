"""The residuals of a function as data: what is kept for the backward pass, how many bytes, from where, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from remat.errors import ArgumentError
from remat.inspect.kept_groups import KeptGroup, kept_groups
from remat.inspect.recomputation import Recomputation
from remat.inspect.residuals_diff import ResidualsDiff, difference
from remat.ir.source import Position

if TYPE_CHECKING:
    from remat.inspect.why import Why

SCHEMA = "remat.residuals/1"

ROWS = 12
"""How many rows of a group, and how many groups, are printed."""


@dataclass(frozen=True)
class Origin:
    """Where a kept value comes from.

    `kind` is `argument`, `constant`, `named` or `output`; `text` the argument's path, the name, or the operation that
    made it.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class User:
    """A backward equation that needs a kept value: the operation it differentiates, and where that was written."""

    operation: str
    source: Position


@dataclass(frozen=True)
class Loop:
    """The innermost loop around a kept value: the `jax.named_scope` path that it stands in, and the user's line."""

    scope: str
    place: Position


@dataclass(frozen=True)
class Residual:
    """One value that is kept for the backward pass.

    **Attributes**

    - `type`: the type of one instance, in JAX's short form (`f32[5,4]`, `f32<host>[4]`).
    - `bytes`: bytes of one instance; `times`: how many instances are kept, the product of the lengths of the scans
      around it; `total_bytes`: their product.
    - `stacked_type`: the type of all instances together, as JAX prints it.
    - `origin`: see `Origin`. `name`: the name from `checkpoint_name`, or None.
    - `source`: the line as JAX has it. `place`: the user's line, where a library such as Flax wrote that one. `scope`:
      the `jax.named_scope` path.
    - `loops`: the lengths of the scans around it, outermost first.
    - `carried`: whether it is what a scan carries from one iteration to the next.
    - `needed_by`: the backward equations that read it, directly or to recompute something from it.
    - `reason`: why it is kept, in words.
    - `memory`: the memory it is kept in (`device`, `pinned_host`...).
    - `key`: a name that outlasts a trace, see `remat.ir.keys`. `loop`: the innermost loop around it, if there is one.
    - `device_bytes`: bytes of all instances on one device; None where nobody wrote how it is sharded.
    """

    type: str
    bytes: int
    times: int
    stacked_type: str
    origin: Origin
    name: Any
    source: Position
    scope: str
    loops: tuple[int, ...]
    carried: bool
    needed_by: tuple[User, ...]
    reason: str
    memory: str
    place: Position
    key: str = ""
    loop: Loop | None = None
    device_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        return self.bytes * self.times

    def to_data(self) -> dict[str, Any]:
        """All of it as plain data."""
        name = None if self.name is None else str(self.name)
        return {**asdict(self), "total_bytes": self.total_bytes, "name": name}

    @property
    def is_new(self) -> bool:
        """Whether keeping it costs memory: arguments and constants are held by the caller anyway."""
        return self.origin.kind not in ("argument", "constant")


@dataclass(frozen=True)
class Residuals(Sequence[Residual]):
    """The kept values of a function, in the order of the program: constants, arguments, then results of operations.

    **Attributes**

    - `function`, `policy`: what is differentiated, and the policy around it; empty where none was given.
    - `residuals`: one for each kept value.
    - `recomputation`: what the backward pass computes again; None where nobody counted.
    - `is_of_a_derivative`: whether the function holds a backward pass itself, so that this is about the second.
    - `ask`: what answers `why`; it holds the program. None for a part of another report.
    """

    function: str
    residuals: tuple[Residual, ...]
    policy: str = field(default="", compare=False)
    recomputation: Recomputation | None = None
    is_of_a_derivative: bool = False
    ask: Callable[[str], tuple[Why, ...]] | None = field(default=None, repr=False, compare=False)

    @overload
    def __getitem__(self, index: int) -> Residual: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Residual, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.residuals[index]

    def __len__(self) -> int:
        return len(self.residuals)

    def __iter__(self) -> Iterator[Residual]:
        return iter(self.residuals)

    @property
    def total_bytes(self) -> int:
        """Bytes of all kept values, those held by the caller anyway included."""
        return sum(r.total_bytes for r in self.residuals)

    @property
    def new_bytes(self) -> int:
        """Bytes that exist only because the backward pass needs them: all but arguments and constants."""
        return sum(r.total_bytes for r in self.residuals if r.is_new)

    @property
    def offloaded_bytes(self) -> int:
        """The part of `new_bytes` that is kept in another memory than the device's (planned, not measured)."""
        return sum(r.total_bytes for r in self.residuals if r.is_new and r.memory != "device")

    @property
    def heading(self) -> str:
        """What this is, in a line."""
        about = f" under policy {self.policy}" if self.policy else ""
        return f"kept for the backward pass of {self.function}{about}"

    @cached_property
    def groups(self) -> tuple[KeptGroup, ...]:
        """The new values by module, scope and loop; equal ones are one row. Their bytes add up to `new_bytes`."""
        return kept_groups([r for r in self if r.is_new])

    @property
    def held(self) -> tuple[Residual, ...]:
        """The arguments and constants among them, which the caller holds anyway."""
        return tuple([r for r in self if not r.is_new])

    @property
    def memory_bytes(self) -> dict[str, int]:
        """The part of `new_bytes` in each memory."""
        found: dict[str, int] = {}
        for r in self:
            if r.is_new:
                found[r.memory] = found.get(r.memory, 0) + r.total_bytes
        return found

    @property
    def device_bytes(self) -> int | None:
        """The part of `new_bytes` that is on one device: at most that, where `unknown_shardings` is not 0. None for a
        program in which nothing is sharded."""
        if all(r.device_bytes is None for r in self):
            return None
        return sum(r.total_bytes if r.device_bytes is None else r.device_bytes for r in self if r.is_new)

    @property
    def unknown_shardings(self) -> int:
        """Of how many new values nobody wrote how they are sharded."""
        return sum(1 for r in self if r.is_new and r.device_bytes is None)

    def diff(self, other: Residuals) -> ResidualsDiff:
        """What `other` keeps that this does not, and the reverse: `before.diff(after)`.

        **Arguments**

        - `other`: of the same function under another policy, or after a change. Values are matched by their keys
          (`remat.ir.keys`), which know no lines.

        **Returns** a `ResidualsDiff`, which prints as text.

        >>> import jax, jax.numpy as jnp, remat
        >>> f = lambda w, x: jnp.sin(jnp.sin(x @ w)).sum()
        >>> args = jnp.ones((8, 8)), jnp.ones((8, 8))
        >>> changes = remat.saved_residuals(f, *args, policy="dots").diff(remat.saved_residuals(f, *args))
        >>> [r.key for r in changes.gone], [r.key for r in changes.added], changes.bytes_added
        (['dot_general#0'], ['sin#0~cos', 'sin#1~cos'], 256)
        """
        return difference(self, other)

    def why(self, value: str) -> tuple[Why, ...]:
        """Why a value is kept, and what it would cost not to keep it: `remat.why` about this function and policy.

        **Arguments**

        - `value`: a name given with `checkpoint_name`, the path of an argument, or a `key`.

        **Returns** an answer for each kept value that is meant.

        **Raises** `ArgumentError` if no such value is kept, with those that are.

        >>> import jax.numpy as jnp, remat
        >>> kept = remat.saved_residuals(lambda w, x: jnp.sin(x @ w), jnp.ones((8, 8)), jnp.ones((8, 8)), policy="dots")
        >>> (answer,) = kept.why("dot_general#0")
        >>> answer.residual.reason, answer.dropped.kept_bytes
        ('policy dots keeps it', -256)
        """
        if self.ask is None:
            raise ArgumentError(
                f"these residuals of {self.function} are a part of another report, which holds no program to ask. Ask "
                "remat.saved_residuals(f, *args).why(...), or remat.why(f, *args, value=...)."
            )
        return self.ask(value)

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        data = {
            "schema": SCHEMA,
            "function": self.function,
            "policy": self.policy,
            "total_bytes": self.total_bytes,
            "new_bytes": self.new_bytes,
            "offloaded_bytes": self.offloaded_bytes,
            "memory_bytes": self.memory_bytes,
            "device_bytes": self.device_bytes,
            "unknown_shardings": self.unknown_shardings,
            "recomputation": None if self.recomputation is None else self.recomputation.to_data(),
            "is_of_a_derivative": self.is_of_a_derivative,
            "residuals": [r.to_data() for r in self],
        }
        return json.dumps(data, indent=1, default=str)

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, held: bool = False, rows: int | None = ROWS, width: int | None = None) -> str:
        """The report as text; `print` shows it as `to_text()`.

        **Arguments**

        - `held`: list arguments and constants too, which cost nothing, since the caller holds them.
        - `rows`: how many rows to show of each group, and how many groups; the others are added up. None is all.
        - `width`: in columns. None is that of the terminal, from 80 to 200.

        >>> import jax.numpy as jnp, remat
        >>> print(remat.saved_residuals(jnp.sin, 1.0).to_text(held=True, width=80).splitlines()[0])
        kept for the backward pass of sin
        """
        from remat.report.kept import residuals_text

        return residuals_text(self, held=held, rows=rows, width=width)

    def to_markdown(self) -> str:
        """The same as a Markdown table: every row, and the totals."""
        from remat.report.kept_markup import residuals_markdown

        return residuals_markdown(self)

    def _repr_html_(self) -> str:
        """The same for a notebook: groups that fold, and the totals."""
        from remat.report.kept_markup import residuals_html

        return residuals_html(self)
