"""What must hold for every program: values, gradients and auxiliary results are JAX's under every policy.

One program is checked in one computation, compiled with few optimizations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from property import vocabulary
from property.comparison import Mismatch, compare, compiled, roundings
from property.programs import Program, contains

import remat
from remat.ir.types import size_in_bytes

POLICIES = (
    "None",
    "'nothing'",
    "'everything'",
    "'dots'",
    "'dots_no_batch'",
    "'balanced'",
    "'burn'",
    "'burn_no_checkpointing'",
    "'substituting:dots'",
    "'substituting:names:a'",
    "'scan_body:dots'",
    "'scan_body:nothing'",
    "'segments:nothing'",
    "'segments:dots'",
    "'scan_body:names:a'",
    "'names:a'",
    "'names:a,b'",
    "'names_but:b'",
    "'except:a'",
    "'except:b & names:a,b'",
    "'dots|names:a'",
    "'within:inner:everything'",
    "'offload:a'",
    "'names:b|offload:a'",
    "jax.checkpoint_policies.dots_with_no_batch_dims_saveable",
    "jax.checkpoint_policies.save_any_names_but_these('a')",
    "lambda primitive, *types, **params: primitive.name in ('sin', 'tanh', 'scan', 'mul')",
)
"""Policies as text, as messages show them."""


PLANS = (
    *(f"any_plan({i})" for i in range(0, 60, 3)),
    "'scan_segments:1'",
    "'scan_segments:2'",
    "'scan_segments:2:dots'",
)
"""Policies that arrange regions by themselves."""


def policy_of(text: str) -> Any:
    return eval(text, dict(vars(vocabulary)))


def check_derivatives(program: Program, text: str) -> None:
    """Our gradient, and JAX's of our region."""
    fun, argnums, has_aux, policy = program.function(), program.argnums, program.has_aux, policy_of(text)

    def reference(*inputs: Any) -> Any:
        return jax.value_and_grad(fun, argnums, has_aux=has_aux)(*inputs)

    def run(*inputs: Any) -> Any:
        ours = remat.value_and_grad(fun, argnums, has_aux=has_aux, policy=policy)
        region = remat.checkpoint(fun, policy=policy)
        theirs = jax.value_and_grad(region, argnums, has_aux=has_aux)
        only = remat.grad(region, argnums, has_aux=has_aux)(*inputs) if program.seed % 4 == 0 else None
        return reference(*inputs), ours(*inputs), theirs(*inputs), only

    inputs = program.arrays()
    expected, ours, theirs, only = compiled(run, *inputs)
    others = functools.cache(lambda: roundings(reference, inputs))
    compare(f"remat.value_and_grad under {text}", ours, expected, others)
    compare(f"jax.value_and_grad of the region under {text}", theirs, expected, others)

    def without_value(result: Any) -> Any:
        return (result[1], result[0][1]) if has_aux else result[1]

    if only is not None:
        how = f"remat.grad of the region under {text}"
        compare(how, only, without_value(expected), lambda: map(without_value, others()))


def check_lowered(program: Program, text: str) -> None:
    """Traced and lowered again it is the same function."""
    fun, inputs = program.function(), program.arrays()
    found, expected = compiled(lambda *xs: (remat.lower(remat.trace(fun)(*inputs))(*xs), fun(*xs)), *inputs)
    compare("the lowered program", found, expected, lambda: roundings(fun, inputs))


def check_transformed(program: Program, text: str) -> None:
    """Other transformations over the gradient: vmap, forward mode, and reverse mode again."""
    fun, argnums, has_aux, policy = program.function(), program.argnums, program.has_aux, policy_of(text)

    def transformed(grad: Callable[..., Callable[..., Any]], inputs: Any) -> dict[str, Any]:
        def gradient(*chosen: Any) -> Any:
            full = list(inputs)
            for i, x in zip(argnums, chosen, strict=True):
                full[i] = x
            found = grad(fun, argnums, has_aux=has_aux)(*full)
            return found[0] if has_aux else found

        def length(*chosen: Any) -> Any:
            return sum((jnp.sin(g).astype(jnp.float32).sum() for g in gradient(*chosen)), jnp.zeros((), jnp.float32))

        chosen = [inputs[i] for i in argnums]
        return {
            "vmap": jax.vmap(gradient)(*(jnp.stack([x, 0.5 * x]) for x in chosen)),
            "forward over reverse": jax.jvp(gradient, chosen, [jnp.cos(x) for x in chosen]),
            "reverse over reverse": grad(length, tuple(range(len(chosen))))(*chosen),
        }

    def reference(*inputs: Any) -> Any:
        return transformed(jax.grad, inputs)

    ours = functools.partial(remat.grad, policy=policy)
    inputs = program.arrays()
    found, expected = compiled(lambda *xs: (transformed(ours, xs), reference(*xs)), *inputs)
    compare(f"transformed remat.grad under {text}", found, expected, lambda: roundings(reference, inputs))


def check_linearize(program: Program, text: str) -> None:
    """Forward mode, linearized once."""
    fun, policy = program.function(), policy_of(text)

    def linearized(linearize: Callable[..., Any], fun: Callable[..., Any], inputs: Any) -> Any:
        def partial(*chosen: Any) -> Any:
            full = list(inputs)
            for i, x in zip(program.argnums, chosen, strict=True):
                full[i] = x
            return fun(*full)[0] if program.has_aux else fun(*full)

        chosen = [inputs[i] for i in program.argnums]
        out, linear = linearize(partial, *chosen)
        return out, linear(*(jnp.cos(x) for x in chosen))

    def reference(*inputs: Any) -> Any:
        return linearized(jax.linearize, fun, inputs)

    region = remat.checkpoint(fun, policy=policy)
    inputs = program.arrays()
    found, expected = compiled(lambda *xs: (linearized(remat.linearize, region, xs), reference(*xs)), *inputs)
    compare(f"remat.linearize of the region under {text}", found, expected, lambda: roundings(reference, inputs))


# Reports and plans.

LOOPS = ("lax.scan", "lax.fori_loop", "counted_loop", "cumsum")
CHOICES = (*LOOPS, "checkpoint(", "inner_", "lax.cond", "lax.switch", "_jvp", "_vjp")
"""What makes it a choice what to keep, or keeps on its own account."""


def check_residuals(program: Program, text: str) -> None:
    """The report tells the truth about what `vjp_fn` holds, and policies keep what their names promise."""
    fun, inputs = program.function(), program.arrays()

    def differentiated(*xs: Any) -> Any:
        return fun(*xs)[0] if program.has_aux else fun(*xs)

    region = remat.checkpoint(differentiated, policy=policy_of(text))
    reported = remat.saved_residuals(region, *inputs)
    leaves = jax.eval_shape(lambda *xs: jax.tree.leaves(remat.vjp(region, *xs)[1]), *inputs)
    _hold(len(leaves) == len(reported), f"{len(leaves)} values kept, {len(reported)} reported under {text}")
    kept = sum(size_in_bytes(x) for x in leaves)
    _hold(kept == reported.total_bytes, f"{kept} bytes kept, {reported.total_bytes} reported under {text}")

    def new_bytes(policy: Any) -> int:
        return remat.saved_residuals(remat.checkpoint(differentiated, policy=policy), *inputs).new_bytes

    if not contains(program, *LOOPS):  # what a loop carries is kept; all else is recomputed
        _hold(new_bytes("nothing") == 0, "'nothing' keeps something")
    if not contains(program, *CHOICES):
        without = remat.saved_residuals(differentiated, *inputs).new_bytes
        _hold(new_bytes("everything") <= without, "'everything' keeps more than no region")  # less: views of inputs


def check_strategies(program: Program, text: str) -> None:
    """Burn's states are used up in the end, whoever decides; backward steps ask for the same, by Burn's rules or by
    JAX's; and `balanced` keeps no more than Burn's strategy."""
    fun, inputs = program.function(), program.arrays()

    def differentiated(*xs: Any) -> Any:
        return fun(*xs)[0] if program.has_aux else fun(*xs)

    for argnums in {program.argnums, program.argnums[:1]}:
        for family in (("burn", "burn_no_checkpointing"), (None, "balanced", "dots", "nothing")):
            asked = set()
            for policy in family:
                log = remat.retrieval_log(differentiated, *inputs, policy=policy, argnums=argnums)
                _hold(log.drained, f"the log under {policy} is not drained")
                asked.add(tuple(r.node for r in log.retrievals))
            _hold(len(asked) == 1, f"{family} ask for different nodes")
    balanced, burn = (
        remat.saved_residuals(remat.checkpoint(differentiated, policy=policy), *inputs).new_bytes
        for policy in ("balanced", "burn")
    )
    _hold(balanced <= burn, f"balanced keeps {balanced} bytes, burn {burn}")


def _hold(condition: bool, problem: str) -> None:
    if not condition:
        raise Mismatch(problem)
