"""What policies cost on one function: predicted from the program, and measured on the compiled one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import remat
from remat.ir.ops import Scan
from remat.ir.program import Program


@dataclass(frozen=True)
class Cost:
    """One policy around a whole function.

    **Attributes**

    - `policy`: its short form; `none` is the function without `checkpoint`, differentiated by JAX.
    - `saved_bytes`: predicted; what is kept for the backward pass, arguments not counted.
    - `dot_products`: predicted; matrix products that one evaluation of value and gradient executes.
    - `temporary_bytes`, `output_bytes`: measured on the compiled program; None where the backend does not say.
    - `gradient_difference`: measured; largest absolute difference of a gradient entry to `jax.value_and_grad`.
    """

    policy: str
    saved_bytes: int
    dot_products: int
    temporary_bytes: int | None
    output_bytes: int | None
    gradient_difference: float

    @property
    def compiled_bytes(self) -> int | None:
        if self.temporary_bytes is None or self.output_bytes is None:
            return None
        return self.temporary_bytes + self.output_bytes


def costs(fun: Callable[..., Any], args: Sequence[Any], policies: Sequence[Any]) -> Iterator[Cost]:
    """The costs without a policy, then under each of `policies`; `fun` is differentiated by its first argument."""
    baseline = jax.value_and_grad(fun)
    expected, cost = _cost("none", fun, baseline, args, None)
    yield cost
    for policy in policies:
        region = remat.checkpoint(fun, policy=policy)
        yield _cost(str(policy), region, remat.value_and_grad(region), args, expected)[1]


def _cost(policy: str, fun: Any, value_and_grad: Any, args: Sequence[Any], expected: Any) -> tuple[Any, Cost]:
    compiled = jax.jit(value_and_grad).lower(*args).compile()
    memory = compiled.memory_analysis()
    _, gradients = compiled(*args)
    cost = Cost(
        policy=policy,
        saved_bytes=remat.saved_residuals(fun, *args).new_bytes,
        dot_products=count_dot_products(remat.trace(value_and_grad)(*args)),
        temporary_bytes=getattr(memory, "temp_size_in_bytes", None),
        output_bytes=getattr(memory, "output_size_in_bytes", None),
        gradient_difference=0.0 if expected is None else largest_difference(gradients, expected),
    )
    return gradients, cost


def count_dot_products(program: Program) -> int:
    """Matrix products that a program executes; those in the body of a scan count once for each iteration."""
    count = 0
    for equation in program.equations:
        op = equation.op
        count += op.name == "dot_general"
        times = op.length if isinstance(op, Scan) else 1
        count += times * sum(map(count_dot_products, op.programs))
    return count


def largest_difference(found: Any, expected: Any) -> float:
    differences = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), found, expected)
    return float(jnp.stack(jax.tree.leaves(differences)).max())
