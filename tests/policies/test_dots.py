"""What counts as a product for the `dots` policies, and which products have batch dimensions."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import sparse
from jax.extend import core as jex_core

import remat
from remat import jax_compat, policies
from remat.policies.dots import has_no_batch_dims
from remat.testing import check_gradients

ROWS, EXPERTS, SIZES = jnp.ones((16, 8)), jnp.ones((4, 8, 8)), jnp.array([4, 4, 4, 4])


def ragged(w, x, sizes):
    return jnp.sin(lax.ragged_dot(jnp.sin(x), w, sizes)).sum()


def ragged_general(x, w, sizes, batch, ragged_dims=(0,)):
    b = (tuple(range(batch)),) * 2
    contract = ((x.ndim - 1,), (w.ndim - 2,))
    numbers = lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(contract, b),
        lhs_ragged_dimensions=[d + batch for d in ragged_dims],
        rhs_group_dimensions=[batch],
    )
    return lax.ragged_dot_general(x, w, sizes, numbers)


def sparse_product(x, v):
    return sparse.bcoo_dot_general(x, v, dimension_numbers=(((1,), (0,)), ((), ())))


PRODUCTS = {
    "rows by weights": (jnp.matmul, (ROWS, EXPERTS[0]), True),
    "batched": (jnp.matmul, (EXPERTS, EXPERTS), False),
    "ragged": (lax.ragged_dot, (ROWS, EXPERTS, SIZES), True),
    "ragged with batch": (
        lambda x, w, s: ragged_general(x, w, s, 1),
        (jnp.ones((2, 16, 8)), jnp.ones((2, 4, 8, 8)), jnp.ones((2, 4), jnp.int32)),
        False,
    ),
    "symmetric": (lambda a, c: lax.linalg.symmetric_product(a, c), (ROWS, jnp.ones((16, 16))), True),
    "symmetric, batched": (
        lambda a, c: lax.linalg.symmetric_product(a, c),
        (EXPERTS, jnp.ones((4, 8, 8))),
        False,
    ),
    "sparse": (sparse_product, (sparse.BCOO.fromdense(ROWS), jnp.ones((8, 3))), True),
    "convolution": (lambda x, k: lax.conv(x, k, (1,), "SAME"), (jnp.ones((1, 2, 9)), jnp.ones((3, 2, 3))), False),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_and_their_batch_dimensions(case):
    fun, args, without_batch = PRODUCTS[case]
    found = [e for e in _equations(jax.make_jaxpr(fun)(*args)) if e.primitive.name in jax_compat.dots_primitive_names]
    assert len(found) == 1
    types = tuple(v.aval for v in found[0].invars)
    assert has_no_batch_dims(found[0].primitive, types, found[0].params) == without_batch
    assert policies.dots(found[0].primitive, *types, **found[0].params) is True
    assert policies.dots_no_batch(found[0].primitive, *types, **found[0].params) is without_batch


def _equations(jaxpr):
    for equation in jax_compat.unwrap(jaxpr).equations:
        yield equation
        for inner in jex_core.jaxprs_in_params(equation.params):
            yield from _equations(inner)


@pytest.mark.parametrize("policy", ["dots", "dots_no_batch", "offload_dots:pinned_host"])
def test_products_of_ragged_groups_are_kept(policy):
    region = remat.checkpoint(ragged, policy=policy)
    kept = [r for r in remat.saved_residuals(region, EXPERTS, ROWS, SIZES) if r.is_new]
    assert [r.origin.text for r in kept] == ["ragged_dot_general"]
    assert kept[0].reason.startswith(f"policy {policy} ")
    check_gradients(ragged, EXPERTS, ROWS, SIZES, argnums=(0, 1), policies=[policy])


@pytest.mark.skipif(bool(getattr(jax.config, "jax_remat3", False)), reason="JAX asks no policy about ragged products")
def test_products_of_ragged_groups_are_kept_under_jax_grad():
    def products(policy):
        gradient = jax.grad(remat.checkpoint(ragged, policy=policy), (0, 1))
        return str(jax.make_jaxpr(gradient)(EXPERTS, ROWS, SIZES)).count("ragged_dot_general[")

    assert products("dots") == products("dots_no_batch") == products("nothing") - 1


def test_reports_do_not_depend_on_what_was_handed_to_jax_before():
    """JAX's objects are one for all; handing one over for a policy of ours must not rename other regions."""

    def text(policy):
        inner = jax.checkpoint(lambda x: jnp.sin(x @ x) @ x, policy=policy)
        return str(remat.saved_residuals(lambda x: inner(x).sum(), jnp.eye(3)))

    known = jax.checkpoint_policies
    theirs = [known.dots_saveable, known.dots_with_no_batch_dims_saveable, known.everything_saveable]
    before = [text(p) for p in theirs]
    for ours in ("dots", "dots_no_batch", "everything", "nothing"):
        remat.grad(lambda x, p=ours: remat.checkpoint(lambda x: jnp.sin(x @ x), policy=p)(x).sum())(jnp.eye(3))
    assert [text(p) for p in theirs] == before
