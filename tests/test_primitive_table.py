"""The table of primitives: that it has all of JAX's, each once, and that what is derived from it is right."""

import subprocess
import sys
from collections import Counter

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.ir.primitive_table import BY_NAME, CHEAP_KINDS, TABLE, Bound, Retrieves
from remat.ir.traits import bound_of, is_memory_bound, is_view_or_cast

ENUMERATE = """
import gc, importlib
for module in '''
    checkify compute_on custom_partitioning multihost_utils pallas rnn sparse xla_metadata
'''.split():
    importlib.import_module(f"jax.experimental.{module}")
import jax.export, jax.extend.core.primitives, jax.ffi, jax.lax.linalg, jax.nn, jax.scipy.special
found = {o.name for o in gc.get_objects() if isinstance(o, jax.extend.core.Primitive)}
print(*sorted(found))
"""


def test_every_primitive_of_jax_is_in_the_table():
    """All that exist after importing JAX's public modules, in a process where nobody else makes any."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", ENUMERATE], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert len(found) > 300
    assert found - set(BY_NAME) == set()


def test_every_primitive_stands_in_one_row():
    count = Counter(name for row in TABLE for name in row.primitives.split())
    assert [name for name, times in count.items() if times > 1] == []


def test_rows_make_sense():
    for row in TABLE:
        assert row.burn is None or row.burn is not row.bound, row
        if row.bound is Bound.MEMORY:
            assert row.kind in CHEAP_KINDS, row
        if row.bound is Bound.UNTRACKED:
            assert row.retrieves is Retrieves.NOTHING, row
        if row.bound is Bound.COMPUTE:
            assert row.kind not in CHEAP_KINDS, row


def equations(fun, *args):
    return remat.trace(fun)(*args).equations


X = jnp.ones((2, 3))


@pytest.mark.parametrize(
    ("fun", "bound", "cheap", "view"),
    [
        (jnp.sin, Bound.MEMORY, True, False),
        (lambda x: x.astype(jnp.bfloat16), Bound.MEMORY, True, True),
        (lambda x: x.reshape(-1), Bound.MEMORY, True, True),
        (lambda x: x > 0, Bound.UNTRACKED, True, False),
        (lambda x: x @ x.T, Bound.COMPUTE, False, False),
        (lambda x: x.sum(), Bound.COMPUTE, False, False),
        (lambda x: remat.checkpoint_name(x, "a"), Bound.MEMORY, True, True),
        (lambda x: jax.lax.scan(lambda c, r: (c + r, None), x[0], x)[0], Bound.COMPUTE, False, False),
    ],
    ids=["sin", "cast", "reshape", "compare", "dot", "sum", "name", "scan"],
)
def test_bounds(fun, bound, cheap, view):
    op = equations(fun, X)[-1].op
    assert bound_of(op) is bound
    assert is_memory_bound(op) is cheap
    assert is_view_or_cast(op) is view


def test_functions_with_derivative_rules_are_what_they_consist_of():
    @jax.custom_jvp
    def reduced(x):
        return x - x.max()

    reduced.defjvps(lambda t, ans, x: t)
    assert is_memory_bound(equations(jax.nn.relu, X)[-1].op)
    assert not is_memory_bound(equations(reduced, X)[-1].op)


def test_a_primitive_that_nobody_knows_is_compute_bound():
    mine = jax.extend.core.Primitive("mine")
    mine.def_abstract_eval(lambda x: x)
    op = equations(mine.bind, X)[-1].op
    assert bound_of(op) is Bound.COMPUTE
    assert not is_memory_bound(op)
