"""`grad` and `value_and_grad` of Flax nnx, with a keyword `policy`.

They are nnx's own, of the function made a region. The region takes the states of modules and returns the new ones as
auxiliary data, so batch statistics, counts of random number generators and whatever else the function changes are left
as nnx leaves them. On blocks of a model, use `remat.checkpoint`, which takes modules as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from remat.checkpoint import jax_policy, resolve_policy
from remat.graph_nodes import call_with_states, with_states
from remat.region_primitive import Marks
from remat.regions import Call
from remat.signature import check_callable, check_pair, flatten_arguments, is_array, is_number

try:
    from flax import nnx
except ImportError as error:
    raise ImportError("remat.frameworks.nnx needs Flax. Install it: pip install flax.") from error


def grad(f: Any = None, *, argnums: Any = 0, has_aux: bool = False, policy: Any = None, **options: Any) -> Any:
    """`nnx.grad`, computed as `policy` says.

    **Arguments**

    - `f`: a function of modules, arrays and pytrees that returns a scalar (or `(scalar, auxiliary)` with `has_aux`).
      Without it, a decorator is returned.
    - `argnums`, `has_aux`: as for `nnx.grad`; `argnums` may hold `nnx.DiffState`.
    - `policy`: what is kept for the backward pass, as for `remat.checkpoint`. None is `nnx.grad` itself.
    - `options`: further options of the installed `nnx.grad`.

    **Returns** what `nnx.grad` returns. The modules among the arguments are updated.

    **Raises** what `nnx.grad` raises, and `PolicyError` or `PolicyTypeError` for bad policies.

    >>> import jax.numpy as jnp
    >>> from flax import nnx
    >>> from remat.frameworks.nnx import grad
    >>> model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    >>> gradients = grad(lambda model, x: jnp.sum(model(x)), policy="nothing")(model, jnp.ones((4, 2)))
    >>> gradients["bias"][...].tolist()
    [4.0, 4.0, 4.0]
    """
    return _differentiated(nnx.grad, f, policy, {"argnums": argnums, "has_aux": has_aux, **options})


def value_and_grad(
    f: Any = None, *, argnums: Any = 0, has_aux: bool = False, policy: Any = None, **options: Any
) -> Any:
    """`nnx.value_and_grad`, computed as `policy` says; arguments and errors as for `grad`.

    **Returns** what `nnx.value_and_grad` returns. The modules among the arguments are updated.

    >>> import jax.numpy as jnp
    >>> from flax import nnx
    >>> from remat.frameworks.nnx import value_and_grad
    >>> model = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
    >>> value, gradients = value_and_grad(lambda model, x: jnp.sum(model(x)), policy="dots")(model, jnp.ones((4, 3)))
    >>> [f"{float(x):.2f}" for x in model.mean[...]]  # moved by one step
    ['0.01', '0.01', '0.01']
    """
    return _differentiated(nnx.value_and_grad, f, policy, {"argnums": argnums, "has_aux": has_aux, **options})


def _differentiated(transform: Callable[..., Any], f: Any, policy: Any, options: dict[str, Any]) -> Any:
    if f is None:
        return functools.partial(_differentiated, transform, policy=policy, options=options)
    check_callable(f, f"{transform.__name__} of remat.frameworks.nnx")
    resolved = resolve_policy(policy)
    plain = transform(f, **options)  # also where there is a policy, for its checks of `f`
    return plain if resolved is None else transform(_as_region(f, resolved, options["has_aux"]), **options)


def _as_region(f: Callable[..., Any], policy: Any, has_aux: bool) -> Callable[..., Any]:
    of_states = with_states(f)

    @functools.wraps(f)
    def with_auxiliary_states(*args: Any, **kwargs: Any) -> Any:
        states, out = of_states(*args, **kwargs)
        loss, aux = check_pair(f, out) if has_aux else (out, None)
        return loss, (states, aux)

    with_jax = functools.partial(jax.checkpoint, policy=jax_policy(policy))
    region = Call(with_auxiliary_states, Marks(policy), with_jax, has_aux=True)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        loss, (states, aux) = region(flatten_arguments(f, args, kwargs, _is_traced))
        return states, ((loss, aux) if has_aux else loss)

    @functools.wraps(f)
    def as_region(*args: Any, **kwargs: Any) -> Any:
        return call_with_states(call, f, args, kwargs)

    return as_region


def _is_traced(leaf: Any) -> bool:
    """Python numbers are what they are, as in nnx (those that are differentiated have become arrays before)."""
    return is_array(leaf) and not is_number(leaf)
