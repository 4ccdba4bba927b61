"""Simulating a program: which arrays there are, from when to when, and how many bytes that makes at each step.

Equations run in the order in which they stand, but for what the compiler puts off. Inputs and constants are the
caller's and are not counted; outputs are counted from when they are made to the end; every other array lives until its
last use. Two models say what an array is:

- *fused*, a model of XLA for a target (`remat.simulate.fusion`, `remat.targets.array_rules`): element-wise values
  live inside what reads them, an element-wise result takes the place of an operand of its size that dies there, and
  views are no arrays;
- *not fused*: every result of every equation is an array. That is what evaluating equation by equation needs.

A loop needs its results, and what one iteration needs; in the fused model the next carry is written over the last one
where that is dead by then, slices are read and results are stored where they are, and slices are copied for products
only. Of branches, the most demanding one counts. A mapped program (`shard_map`) counts once for each of its devices,
since the types outside are those of whole arrays. Arrays in the host's memory are not counted.

What a compiled program takes (`Timeline.set_aside`) is more than what is alive, since results have their memory from
the start.

All takes time linear in the number of equations. Not modelled: that XLA merges equal equations and reorders others,
gaps between buffers, what a TPU keeps in its vector memory, and what libraries and kernels need inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.ir.program import Program
from remat.simulate.level import Level
from remat.simulate.loops import TOP
from remat.simulate.timeline import Timeline
from remat.targets.array_rules import ArrayRules
from remat.targets.current import current_target
from remat.targets.target import Target, as_target

if TYPE_CHECKING:
    from remat.transforms.split import Split


def simulate(program: Program, fused: bool = True, target: Target | str | None = None) -> Timeline:
    """How many bytes are alive at each step of a program.

    **Arguments**

    - `program`: from `remat.trace`, or made by a transformation.
    - `fused`: whether element-wise values are computed inside what reads them, as XLA does; without it, every result of
      every equation is an array.
    - `target`: whose compiler it is; None is the one that programs are made for (`remat.targets.current`).

    **Returns** a `Timeline`.

    >>> import jax.numpy as jnp, remat
    >>> from remat.simulate.live_bytes import simulate
    >>> program = remat.trace(lambda w, x: jnp.sin(x @ w) @ w)(jnp.ones((8, 8)), jnp.ones((8, 8)))
    >>> simulate(program).bytes, simulate(program).peak
    ((256, 256, 512), 512)
    """
    if not fused:
        return Level(program, False, TOP, ArrayRules()).timeline()
    chosen = current_target() if target is None else as_target(target)
    return Level(program, True, TOP, chosen.array_rules).timeline()


def simulate_split(split: Split, fused: bool = True, target: Target | str | None = None) -> Timeline:
    """The same for a forward program followed by its backward program; residuals live from the one to the other.

    **Arguments**: what `split_program` returns; `fused` and `target` as for `simulate`.

    **Returns** a `Timeline` of both, in which the cotangents of the results are given.

    >>> import jax.numpy as jnp, remat
    >>> from remat.simulate.live_bytes import simulate_split
    >>> from remat.transforms.differentiate_program import split_program
    >>> program = remat.trace(lambda w: jnp.sin(w @ w).sum())(jnp.ones((8, 8)))
    >>> simulate_split(split_program(program, [True])).peak
    772
    """
    return simulate(joined(split), fused, target)


def joined(split: Split) -> Program:
    """The forward and the backward program of a split as one: inputs, cotangents -> outputs, cotangents of inputs."""
    forward, second = split.forward, split.second
    cotangents = second.inputs[len(split.residuals) :]
    outputs = [*forward.outputs[: split.output_count], *second.outputs]
    return Program([*forward.inputs, *cotangents], [*forward.equations, *second.equations], outputs, forward.constants)
