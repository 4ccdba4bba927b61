"""Random programs in `shard_map`, on four CPU devices: `python -m property.sharded FIRST COUNT` checks some seeds.

All values in a program have one local shape, so any statement may read any value. They differ in the axes they vary
over: what comes in is sharded over both axes, over one, or over none, and collectives change that too.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from property import vocabulary
from property.comparison import compare, compiled, roundings

import remat
import remat.ir.check

POLICIES = ("None", "'nothing'", "'dots'", "'names:a'", "'everything'", "'balanced'", "'burn'", "'substituting:dots'")

SPECS = {"P('a', 'b')": (4, 4), "P('a')": (4, 2), "P(None, 'b')": (2, 4), "P()": (2, 2)}
"""How an input is sharded, and the whole shape that gives local shards of two by two."""

STATEMENTS = (
    "jnp.sin({0})",
    "jnp.tanh({0}) * {1}",
    "0.7 * ({0} + {1})",
    "jnp.tanh({0}) @ {1}",
    "{0} * {0}",
    'remat.checkpoint_name(jnp.cos({0}), "a")',
    'lax.psum({0}, "a") / 2',
    'lax.pmean({0}, ("a", "b"))',
    'lax.psum(jnp.sin({0}), "b") * {1}',
    'lax.all_gather({0}, "a", tiled=True)[:2] * {1}',
    'lax.ppermute({0}, "b", [(0, 1), (1, 0)])',
    'lax.psum_scatter(jnp.concatenate([{0}, {1}]), "a", tiled=True)',
    'lax.axis_index("a") * {0}',
    "scaled_product({0}, {1})",
    "lax.stop_gradient({0}) + {1}",
    "lax.scan(lambda c, s: (jnp.sin(c) * s, c), {0}[0] * {1}[0], {1})[1]",
    "lax.cond({0}.sum() > 0, jnp.sin, jnp.cos, {1})",
    "remat.checkpoint(lambda v: jnp.sin(jnp.sin(v)) * {1}, policy='dots')({0})",
    "jax.checkpoint(lambda v: jnp.sin(lax.psum(v, 'a')) * v)({0})",
    "jax.jit(lambda v: jnp.exp(jnp.tanh(v)))({0})",
)


@dataclass(frozen=True)
class Sharded:
    """Statements read values by number; the first ones are the inputs, sharded by `specs`."""

    specs: tuple[str, ...]
    statements: tuple[tuple[str, int, int], ...]

    def __str__(self) -> str:
        count = len(self.specs)
        inputs = ", ".join(f"x{i}" for i in range(count))
        names = [f"v{i}" for i in range(count + len(self.statements))]
        lines = [f"def program({inputs}):", f"    def local({', '.join(names[:count])}):"]
        for i, (template, first, second) in enumerate(self.statements):
            lines.append(f"        {names[count + i]} = {template.format(names[first], names[second])}")
        # The result varies over both axes, as its specification says.
        ends = " + ".join(f"{name} * (1 + lax.axis_index('a') + lax.axis_index('b'))" for name in names[-2:])
        specs = f"in_specs=({', '.join(self.specs)},), out_specs=P('a', 'b')"
        lines += [f"        return {ends}", f"    return loss(jax.shard_map(local, mesh=mesh, {specs})({inputs}))"]
        return "\n".join(lines)

    def function(self, mesh: Any) -> Any:
        scope = {**vars(vocabulary), "mesh": mesh, "P": jax.sharding.PartitionSpec}
        exec(compile(str(self), "<sharded program>", "exec"), scope)
        return scope["program"]

    def arrays(self) -> list[Any]:
        random = np.random.default_rng(0)
        return [jnp.asarray(0.7 * random.normal(size=SPECS[spec]), jnp.float32) for spec in self.specs]


def program_of(seed: int) -> Sharded:
    random = np.random.default_rng(seed)
    specs = tuple(list(SPECS)[i] for i in random.integers(0, len(SPECS), random.integers(1, 4)))
    statements = []
    for i in range(random.integers(1, 6)):
        first, second = (max(0, len(specs) + i - 1 - int(random.exponential(2))) for _ in range(2))
        statements.append((STATEMENTS[random.integers(len(STATEMENTS))], first, second))
    return Sharded(specs, tuple(statements))


MESH = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))


def is_program(program: Sharded) -> bool:
    """Whether JAX takes it: what a loop or branch returns has to vary over the axes that it expects."""
    fun = program.function(MESH)
    try:
        jax.eval_shape(jax.grad(fun, tuple(range(len(program.specs)))), *program.arrays())
    except (TypeError, ValueError):
        return False
    return True


def check(program: Sharded, texts: Sequence[str]) -> None:
    """Our gradient, and JAX's of our region, under each policy."""
    fun, argnums = program.function(MESH), tuple(range(len(program.specs)))

    def run(*inputs: Any) -> list[tuple[str, Any]]:
        found = []
        for text in texts:
            policy = eval(text)
            found.append((f"remat under {text}", remat.value_and_grad(fun, argnums, policy=policy)(*inputs)))
            region = remat.checkpoint(fun, policy=policy)
            found.append((f"the region under {text}", jax.value_and_grad(region, argnums)(*inputs)))
        return found

    def reference(*inputs: Any) -> Any:
        return jax.value_and_grad(fun, argnums)(*inputs)

    inputs = program.arrays()
    names: list[str] = []

    def results(*inputs: Any) -> Any:
        found = run(*inputs)
        names[:] = [name for name, _ in found]
        return reference(*inputs), [result for _, result in found]

    expected, found = compiled(results, *inputs)
    for name, result in zip(names, found, strict=True):
        compare(name, result, expected, lambda: roundings(reference, inputs))


def main(first: int, count: int) -> int:
    """Returns how many seeds failed; says which, with their programs."""
    remat.ir.check.enabled = True
    jax.config.update("jax_disable_most_optimizations", True)
    warnings.simplefilter("ignore")
    failed = refused = 0
    for seed in range(first, first + count):
        program = program_of(seed)
        if not is_program(program):
            refused += 1
            continue
        texts = [POLICIES[seed % len(POLICIES)]]
        try:
            check(program, texts)
        except Exception as error:
            failed += 1
            print(f"seed {seed} under {texts}: {type(error).__name__}: {str(error)[:500]}\n{program}\n")
    print(f"{count - failed - refused} of {count} sharded programs agree, JAX refuses {refused}")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:3])), 100))
