"""`remat.check`: everything that is looked for, as one table, and the call that looks for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from remat.checkpoint import resolve_policy
from remat.errors import RematWarning
from remat.findings import effects, flags, histories, loops, names, nested, offload, peaks, products, twice
from remat.findings.case import Case, position_of
from remat.findings.finding import Finding, Findings
from remat.inspect.planned import Loss
from remat.inspect.timeline import policy_text
from remat.targets.measure import made_for
from remat.targets.target import Target, as_target

FINDERS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    names.unknown_names,
    names.unknown_scopes,
    names.dead_names,
    names.names_not_kept,
    products.useless,
    products.products_in_functions,
    peaks.no_lower_peak,
    peaks.keeps_more,
    nested.nested_policies,
    nested.regions_without_policy,
    offload.offloads,
    twice.kept_twice,
    loops.stacked_invariants,
    loops.stacked_expansions,
    histories.carry_histories,
    effects.random_again,
    effects.kept_effects,
    flags.traced_flags,
)
"""What is looked for. Each takes time linear in the equations."""


FOLLOWS_FROM = {
    "no-lower-peak": (
        "unknown-name",
        "unknown-scope",
        "unmatched-products",
        "name-not-kept",
        "dead-name",
        "overridden-policy",
    ),
    "keeps-more": ("overridden-policy",),
}
"""What is not told beside findings that it follows from."""


def check(
    fun: Callable[..., Any],
    /,
    *args: Any,
    policy: Any = None,
    target: Target | str | None = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> Findings:
    """Look for what is likely to be wrong with the way a function is checkpointed.

    Misspelt names, names and policies that do nothing, loops that stack what they need not, offloads that free nothing:
    docs/findings.md lists what is looked for, with its thresholds. Nothing is compiled and nothing is run.

    **Arguments**

    - `fun`: a function that returns a floating point scalar, with checkpoints and names in it.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `policy`: as for `remat.grad`; None keeps what JAX keeps.
    - `target`: what it is for, such as `"tpu:v5e:2x2"`, as for `remat.measure`. None is what JAX would run on.
    - `argnums`: the arguments that are differentiated.

    **Returns** `Findings`, a sequence that prints as a table: each with its code, place, bytes, and what to write.

    **Raises** what `remat.value_and_grad` raises for bad functions, arguments and policies, `TargetError` for bad
    targets.

    >>> import jax, jax.numpy as jnp, remat
    >>> def loss(w, x):
    ...     return remat.checkpoint_name(jnp.tanh(x @ w), "hidden").sum()
    >>> f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    >>> (finding,) = remat.check(loss, f32(64, 64), f32(64, 64), policy="names:hiden", target="cpu")
    >>> finding.code, finding.subject, finding.bytes, finding.fix
    ('unknown-name', "'hiden'", 16384, "Write 'hidden'.")
    """
    chosen = as_target(target)
    resolved = resolve_policy(policy)
    loss = Loss.of("remat.check", fun, args, kwargs, argnums)
    case = Case(loss, resolved, chosen, position_of(fun))
    with made_for(chosen), warnings.catch_warnings():
        warnings.simplefilter("ignore", RematWarning)  # what they say is among the findings
        found = dict.fromkeys(f for finder in FINDERS for f in finder(case))
    codes = {f.code for f in found}
    told = [f for f in found if codes.isdisjoint(FOLLOWS_FROM.get(f.code, ()))]
    ordered = sorted(told, key=lambda f: (f.level != "warning", -f.bytes))
    return Findings(loss.function, policy_text(resolved), str(chosen), tuple(ordered))
