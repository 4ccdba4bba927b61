"""Which values of a function a gradient flows through: leaves, tracked values, constants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from remat.errors import ArgumentError
from remat.inspect.differentiated import differentiated
from remat.ir.program import Equation, Value
from remat.ir.source import NOWHERE, Position
from remat.ir.types import short_text
from remat.policies.burn.tape import Node, Requirement, build_tape, operations


@dataclass(frozen=True)
class RequiredValue:
    """One value of a function.

    **Attributes**

    - `name`: the path of an argument (`params['w']`), or the operation that made the value.
    - `type`: JAX's short form of its type.
    - `requirement`: `leaf` for an argument that is differentiated, `tracked` for what depends on one, `constant` for
      everything else: other arguments, integers and booleans, what `stop_gradient` returns, and what only depends on
      such. A constant meeting a tracked value gives a tracked value, and gets no gradient itself.
    - `source`: the user's line; nothing for arguments.
    """

    name: str
    type: str
    requirement: str
    source: Position


@dataclass(frozen=True)
class Requirements(Sequence[RequiredValue]):
    """The values of a function in order: arguments, then the results of operations.

    **Attributes**

    - `unreached`: differentiated arguments that no result depends on. Their gradient is zero; nothing is raised.
    """

    function: str
    values: tuple[RequiredValue, ...]
    unreached: tuple[str, ...]

    @overload
    def __getitem__(self, index: int) -> RequiredValue: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RequiredValue, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[RequiredValue]:
        return iter(self.values)

    def of(self, requirement: str) -> tuple[RequiredValue, ...]:
        """The values that are `leaf`, `tracked` or `constant`.

        **Raises** `ArgumentError` for any other word.
        """
        if requirement not in list(Requirement):
            raise ArgumentError(f"{requirement!r} is no requirement. Ask for 'leaf', 'tracked' or 'constant'.")
        return tuple(v for v in self.values if v.requirement == requirement)

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps({"schema": "remat.requirements/1", **asdict(self)}, indent=1)

    def __str__(self) -> str:
        from remat.report.retrievals import requirements_text

        return requirements_text(self)


def requirements(
    fun: Callable[..., Any], /, *args: Any, argnums: int | Sequence[int] = 0, **kwargs: Any
) -> Requirements:
    """Say of each value of a function whether a gradient flows through it, as Burn's `Requirement` does.

    **Arguments**

    - `fun`: the function. Loops are one operation each.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `argnums`: the arguments that are differentiated. Only their floating point leaves have gradients.

    **Returns** a `Requirements` sequence; `print` shows it as a table.

    **Raises** `ArgumentError`, `ArgumentTypeError` for bad functions and `argnums`.

    >>> import jax.numpy as jnp, remat
    >>> found = remat.requirements(lambda w, a: (a * a + a * w).sum(), jnp.ones(3), jnp.ones(3))
    >>> [(value.name, value.requirement) for value in found][:4]
    [('w', 'leaf'), ('a', 'constant'), ('mul', 'constant'), ('mul', 'tracked')]
    """
    found = differentiated("remat.requirements", fun, args, kwargs, argnums)
    level = found.linearized
    tape = build_tape(level)
    leaves = {n.value for n in tape.nodes.values() if n.requirement is Requirement.LEAF} & set(level.inputs)

    def described(value: Value, name: str, equation: Equation | None) -> RequiredValue:
        node = tape.nodes.get(value)
        tracked = node is not None and node.requirement is Requirement.TRACKED
        requirement = Requirement.LEAF if value in leaves else Requirement.TRACKED if tracked else Requirement.CONSTANT
        source = NOWHERE if equation is None else equation.source.position
        return RequiredValue(name, short_text(value.type), str(requirement), source)

    values = [described(v, found.argument_names[v], None) for v in level.inputs]
    for op, _, outputs, equation in operations(level):
        values.extend(described(v, op.name, equation) for v in outputs if isinstance(v, Value))
    reached: set[Node] = {*tape.roots, *(n for s in tape.visited() for n in s.parents)}
    unreached = tuple(found.argument_names[v] for v in level.inputs if v in leaves and tape.nodes[v] not in reached)
    return Requirements(found.function, tuple(values), unreached)
