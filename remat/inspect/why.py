"""Why a value is kept, and what it would cost not to keep it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from remat.checkpoint import resolve_policy
from remat.decisions import RECOMPUTE
from remat.errors import ArgumentError
from remat.inspect.describe import describe_each, residuals_of
from remat.inspect.planned import Loss
from remat.inspect.residuals import Residual
from remat.inspect.timeline import policy_text
from remat.ir.costs import dot_flops
from remat.ir.keys import Keys
from remat.ir.program import Program, Value
from remat.simulate.live_bytes import simulate_split
from remat.targets.measure import made_for
from remat.targets.target import Target, as_target
from remat.transforms.split import Split, split
from remat.transforms.useless import levels_of


@dataclass(frozen=True)
class Dropped:
    """What changes if the value is recomputed instead.

    **Attributes**

    - `kept_bytes`, `peak_bytes`, `dot_flops`: how much more there is of each, less than zero if it is less. Other
      values may have to be kept for it.
    - `recomputed`: the keys of what is computed again and was not before. `also_kept`: of what is kept and was not.
    """

    kept_bytes: int
    peak_bytes: int
    dot_flops: int
    recomputed: tuple[str, ...]
    also_kept: tuple[str, ...]


@dataclass(frozen=True)
class Why:
    """Why a value is kept for the backward pass.

    **Attributes**

    - `key`: see `remat.ir.keys`. `residual`: what is kept, how many bytes, where it comes from, which policy decided,
      and the backward equations that need it.
    - `dropped`: what recomputing it instead would do; None for what the caller holds anyway, and for what no policy
      decided about.
    """

    function: str
    policy: str
    target: str
    key: str
    residual: Residual
    dropped: Dropped | None

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        return json.dumps({"schema": "remat.why/1", **asdict(self)}, indent=1, default=str)

    def __str__(self) -> str:
        from remat.report.why import why_text

        return why_text(self)


def why(
    fun: Callable[..., Any],
    /,
    *args: Any,
    value: str,
    policy: Any = None,
    target: Any = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> tuple[Why, ...]:
    """Why a value is kept by `remat.value_and_grad(fun, argnums, policy=policy)`, and what dropping it would cost.

    **Arguments**

    - `fun`: a function that returns a floating point scalar.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `value`: a name given with `checkpoint_name`, the path of an argument, or a key as `remat.schedule` prints it.
    - `policy`, `target`, `argnums`: as for `remat.timeline`.

    **Returns** an answer for each kept value that is meant: one for a key, several for a name that is used several
    times. They print as text.

    **Raises** `ArgumentError` if no such value is kept, with those that are; what `remat.value_and_grad` raises for bad
    functions, arguments and policies.

    >>> import jax.numpy as jnp, remat
    >>> def loss(w, x):
    ...     return jnp.sin(remat.checkpoint_name(x @ w, "product")).sum()
    >>> (answer,) = remat.why(loss, jnp.ones((8, 8)), jnp.ones((8, 8)), value="product", policy="names:product")
    >>> answer.residual.reason, answer.dropped.kept_bytes, answer.dropped.dot_flops
    ('policy names:product keeps it', -256, 1024)
    """
    chosen = as_target(target)
    resolved = resolve_policy(policy)
    loss = Loss.of("remat.why", fun, args, kwargs, argnums)
    with made_for(chosen):
        planned = loss.under(resolved)
    made = Made(planned.split, planned.program, loss.function, policy_text(resolved), chosen)
    return why_kept(made, value, Keys(planned.split.linearized, loss.names))


@dataclass(frozen=True, eq=False)
class Made:
    """A function that was split for differentiation, under which policy and for which compiler."""

    split: Split
    program: Program
    function: str
    policy: str
    target: Target


def why_kept(made: Made, value: str, keys: Keys) -> tuple[Why, ...]:
    """An answer for each kept value that is meant. **Raises** `ArgumentError` if there is none."""
    with made_for(made.target):
        found = [(keys.of.get(v, ""), v, r) for v, r in describe_each(made.split, made.program, keys)]
        meant = [row for row in found if _is_meant(value, *row)]
        if not meant:
            raise ArgumentError(_not_kept(value, [(k, r) for k, _, r in found], keys))
        about = made.function, made.policy, str(made.target)
        return tuple([Why(*about, k, r, _dropped(made, v, r, keys)) for k, v, r in meant])


def _is_meant(asked: str, key: str, value: Value, residual: Residual) -> bool:
    return asked in (key, key.removeprefix("argument "), None if residual.name is None else str(residual.name))


def _not_kept(asked: str, kept: Sequence[tuple[str, Residual]], keys: Keys) -> str:
    words = list(dict.fromkeys(str(r.name) if r.name is not None else k.removeprefix("argument ") for k, r in kept))
    close = difflib.get_close_matches(asked, words, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    there = f"{asked!r} is computed, but not kept" if asked in keys.values else f"no value {asked!r} is kept"
    listed = ", ".join(map(repr, words[:12])) + (f" and {len(words) - 12} more" if len(words) > 12 else "")
    return f"{there} for the backward pass.{hint} Kept are {listed or 'none'}. Ask for a name, an argument or a key."


def _dropped(about: Made, value: Value, residual: Residual, keys: Keys) -> Dropped | None:
    """What the same program would be with the value recomputed; None where nobody decided about it."""
    made = about.split
    if not residual.is_new or not any(value in level.decisions for level in levels_of(made.level)):
        return None
    other = split(made.linearized, {**made.level.decisions, value: RECOMPUTE}, warn=False)
    before, after = (residuals_of(s, about.program, about.function) for s in (made, other))
    kept = [{keys.of.get(v, "") for v, _ in describe_each(s, about.program)} for s in (made, other)]
    again = [_recomputed(s, keys) for s in (made, other)]
    return Dropped(
        kept_bytes=after.new_bytes - before.new_bytes,
        peak_bytes=simulate_split(other).set_aside - simulate_split(made).set_aside,
        dot_flops=round(_flops(other) - _flops(made)),
        recomputed=tuple([k for k in again[1] if k not in again[0]]),
        also_kept=tuple(sorted(k for k in kept[1] - kept[0] if k and not k.startswith(("argument ", "constant ")))),
    )


def _recomputed(made: Split, keys: Keys) -> dict[str, None]:
    equations = [e for level in levels_of(made.level) for e in level.retrieval.recomputed]
    return dict.fromkeys(keys.equation(e) for e in equations if e.outputs and e.outputs[0] in keys.of)


def _flops(made: Split) -> float:
    return dot_flops(made.forward) + dot_flops(made.second)
