"""A loss with its arguments, and what differentiating it under a policy would run: two programs, from types alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from remat.autodiff import value_and_grad
from remat.checkpoint import checkpoint
from remat.decisions import Policy
from remat.differentiate import is_not_a_size
from remat.gradient_checks import check_argnums, check_input, check_result, choose_arguments
from remat.ir.program import Program
from remat.signature import check_callable, flatten_arguments, function_name, leaves_of
from remat.simulate.sizes import held_bytes
from remat.trace import flat_like, trace_arguments
from remat.transforms.differentiate_program import split_program
from remat.transforms.split import Split


@dataclass(frozen=True, eq=False)
class Loss:
    """A function of arrays, `fun(*leaves)`, that returns a scalar; `active` are the leaves that are differentiated.

    Python integers, flags and other settings among the arguments are what they are, as for `remat.grad`.
    """

    function: str
    fun: Callable[..., Any]
    leaves: list[Any]
    names: tuple[str, ...]
    active: tuple[int, ...]

    @classmethod
    def of(
        cls,
        caller: str,
        fun: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        argnums: int | Sequence[int],
    ) -> Loss:
        """**Raises** what `remat.value_and_grad` raises for bad functions, arguments and `argnums`."""
        check_callable(fun, caller)
        chosen = choose_arguments(fun, check_argnums(argnums)[0], args, kwargs)
        for i in chosen:
            check_input(fun, i, args, holomorphic=False, allow_int=False)
        arguments = flatten_arguments(fun, args, kwargs, is_not_a_size)
        active = tuple(i for i, a in enumerate(leaves_of(arguments, args, kwargs, chosen)) if a)

        def on_leaves(*leaves: Any) -> Any:
            args, kwargs = arguments.rebuild(leaves)
            out = fun(*args, **kwargs)
            check_result(fun, out, holomorphic=False)
            return out

        flat_like(on_leaves, fun)
        return cls(function_name(fun), on_leaves, arguments.leaves, arguments.names, active)

    def under(self, policy: Policy | None) -> Planned:
        """What runs for its value and gradient under a policy; None keeps what JAX keeps."""
        program = self.traced(policy)
        return Planned(self, program, split_program(program, self.is_active))

    def traced(self, policy: Policy | None) -> Program:
        """The loss as a program, as one region if there is a policy."""
        fun = self.fun if policy is None else checkpoint(self.fun, policy=policy)
        return trace_arguments(fun, flatten_arguments(fun, tuple(self.leaves), {}))

    @property
    def is_active(self) -> list[bool]:
        """For each leaf, whether it is differentiated."""
        return [i in self.active for i in range(len(self.leaves))]

    def gradient(self, policy: Policy | None) -> Callable[..., Any]:
        """The function of the leaves that is meant: its value and gradient."""
        return value_and_grad(self.fun, self.active, policy=policy)


@dataclass(frozen=True, eq=False)
class Planned:
    """`program`: the loss, as one region if there is a policy. `split`: its forward and its backward program."""

    loss: Loss
    program: Program
    split: Split

    @property
    def argument_bytes(self) -> int:
        """What the caller holds: arguments, and arrays that the function closes over."""
        return held_bytes(self.program)

    @property
    def result_names(self) -> list[str]:
        """What the outputs of both programs are, one after the other."""
        returned = [n for n, r in zip(self.loss.names, self.split.returned, strict=False) if r]
        return ["the value", *(f"gradient of {n}" for n in returned)]
