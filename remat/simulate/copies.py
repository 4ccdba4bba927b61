"""Copies of operands of products in another order: what XLA's CPU compiler makes for its libraries.

Such a copy of what the program computes is made at once, and it lives until the last product that wants that order has
run. What is computed element by element is written in each order that is wanted, so that there is no array in the order
of the program if nobody wants that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from remat.ir.ops import Primitive
from remat.ir.program import Equation
from remat.simulate.flat import GIVEN, NO_BUFFER, Flat, Step
from remat.simulate.fusion import INSIDE_READERS, Reading
from remat.simulate.timeline import Array


class Copies:
    """The copies of one level. Steps are noted from the last to the first."""

    def __init__(self, flat: Flat):
        self.flat = flat
        self.barriers = _last_barriers(flat)
        self.in_order = set(flat.outputs)
        """The buffers that something reads in the order of the program."""
        self.orders: dict[tuple[int, tuple[int, ...]], Array] = {}
        """For each buffer and each other order, the copy."""
        self.reordered: set[int] = set()
        """The buffers that have copies in other orders."""
        self.written_out: dict[int, Array] = {}
        """For results of products, the arrays that repeat numbers for them."""
        self.at_once: list[Array] = []
        """Copies that are made for one convolution, when it runs."""

    def note(self, i: int, step: Step, size: Callable[[int], int]) -> set[int]:
        """Note what a step reads; returns the buffers that it reads as copies made earlier."""
        if step.reading is Reading.ELEMENTWISE:
            self._write_out(i, step, size)
        copied = copied_operands(step.equation)
        found = set[int]()
        for position, buffer in enumerate(step.inputs):
            if buffer == NO_BUFFER:
                continue
            order = copied.get(position)
            made = self.flat.made_by[buffer]
            if order is None:
                self.in_order.add(buffer)
                continue
            array = Array(self.flat.values[buffer], size(buffer), i, i, step.equation.source, "copy")
            if not order or made == GIVEN:
                self.in_order.add(buffer)
                self.at_once.append(array)
            else:
                self.orders.setdefault((buffer, order), array._replace(since=made))
                self.reordered.add(buffer)
                found.add(buffer)
        return found - {b for p, b in enumerate(step.inputs) if p not in copied}

    def _write_out(self, i: int, step: Step, size: Callable[[int], int]) -> None:
        """Where a result of a product meets one number for each of its rows, and both are computed in one go, the
        numbers are repeated in an array first."""
        flat = self.flat
        made_here = [b for b in step.inputs if b != NO_BUFFER and flat.made_by[b] != GIVEN]
        for product in made_here:
            value, made = flat.values[product], flat.made_by[product]
            if flat.steps[made].reading is not Reading.PRODUCT or product in self.written_out:
                continue
            for rows in made_here:
                if flat.values[rows].type.shape == (*value.type.shape[:-1], 1) != value.type.shape:
                    since = max(flat.made_by[rows], self.barriers[made])
                    self.written_out[product] = Array(value, size(product), since, i, step.equation.source, "copy")

    def is_written_twice(self, buffer: int) -> bool:
        """Whether what is computed element by element is written in several orders, from the same operands."""
        return buffer in self.in_order and buffer in self.reordered

    def is_replaced(self, buffer: int) -> bool:
        """Whether there is no array in the order of the program, since it is only written in others."""
        made = self.flat.made_by[buffer]
        if made == GIVEN or self.flat.steps[made].reading not in INSIDE_READERS:
            return False
        return buffer in self.reordered and buffer not in self.in_order

    def arrays(self) -> list[Array]:
        return [*self.orders.values(), *self.written_out.values(), *self.at_once]


def _last_barriers(flat: Flat) -> list[int]:
    """For each step, the last barrier before it."""
    found, last = [], 0
    for i, step in enumerate(flat.steps):
        last = i if step.reading is Reading.BARRIER else last
        found.append(last)
    return found


def copied_operands(equation: Equation) -> dict[int, tuple[int, ...]]:
    """The operands of a product that are copied to another layout first: those of a convolution that do not have their
    dimensions in the usual order, and those of a dot product whose batch dimensions stand behind others."""
    op = equation.op
    if not isinstance(op, Primitive):
        return {}
    if op.name == "conv_general_dilated":
        numbers, last = op.params["dimension_numbers"], len(op.params["window_strides"]) + 1
        spatial = tuple(range(1, last))
        plain = [tuple(numbers.lhs_spec) == (0, last, *spatial)]
        plain.append(tuple(numbers.rhs_spec) == (last, last - 1, *range(last - 1)))
        return {i: () for i in (0, 1) if not plain[i]}
    if op.name == "dot_general":
        contracted, batch = op.params["dimension_numbers"]
        ranks = [len(a.type.shape) for a in equation.inputs]
        orders = [_order(r, c, b) for r, c, b in zip(ranks, contracted, batch, strict=True)]
        if all(o.is_matrix for o in orders):
            return {}
        wanted = {i: o.sorted(last=i == 0) for i, o in enumerate(orders)}
        return {i: order for i, order in wanted.items() if order != tuple(sorted(order))}
    return {}


class Order(NamedTuple):
    """The dimensions of an operand of a dot product: those of the batch, those that are summed over, the others."""

    batch: tuple[int, ...]
    contracted: tuple[int, ...]
    free: tuple[int, ...]

    @property
    def is_matrix(self) -> bool:
        """Whether it is a matrix, or several one after the other, either way around."""
        return self.batch == tuple(range(len(self.batch))) and len(self.contracted) == 1 and len(self.free) <= 1

    def sorted(self, last: bool) -> tuple[int, ...]:
        """The dimensions in the order of a matrix, with those that are summed over `last` or not."""
        inner = (*self.free, *self.contracted) if last else (*self.contracted, *self.free)
        return (*self.batch, *inner)


def _order(rank: int, contracted: Sequence[int], batch: Sequence[int]) -> Order:
    free = tuple(d for d in range(rank) if d not in contracted and d not in batch)
    return Order(tuple(batch), tuple(contracted), free)
