"""Sizes, texts and questions of types."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from remat.ir.types import is_differentiable, itemsize, short_text, size_in_bytes


@pytest.mark.parametrize(
    ("make", "bytes", "text"),
    [
        (lambda: jnp.ones((5, 4)), 80, "f32[5,4]"),
        (lambda: jnp.ones((5, 4), jnp.bfloat16), 40, "bf16[5,4]"),
        (lambda: jnp.ones(3, bool), 3, "bool[3]"),
        (lambda: jnp.ones((), jnp.int8), 1, "i8[]"),
        (lambda: jnp.ones((0, 7)), 0, "f32[0,7]"),
        (lambda: jnp.ones(2, jnp.complex64), 16, "c64[2]"),
        (lambda: jax.random.key(0), 8, "key<fry>[]"),
        (lambda: jax.random.split(jax.random.key(0), 5), 40, "key<fry>[5]"),
        (lambda: jax.random.key(0, impl="rbg"), 16, "key<rbg>[]"),
        (lambda: jnp.ones(6, jnp.int4), 6, "i4[6]"),
        (lambda: jnp.ones(6, jnp.float8_e4m3fn), 6, "f8_e4m3fn[6]"),
    ],
)
def test_bytes_and_text_of_types(make: Any, bytes: int, text: str) -> None:
    type = jax.typeof(make())
    assert size_in_bytes(type) == bytes
    assert short_text(type) == text


def test_bytes_of_double_precision() -> None:
    with jax.enable_x64(True):
        type = jax.typeof(jnp.ones(3))
    assert (itemsize(type), size_in_bytes(type), short_text(type)) == (8, 24, "f64[3]")


def test_what_has_no_bytes() -> None:
    assert size_in_bytes(object()) == 0
    assert size_in_bytes(jax.ShapeDtypeStruct((3,), jax.dtypes.float0)) == 0


def test_what_carries_tangents() -> None:
    def differentiable(x: Any) -> bool:
        return is_differentiable(jax.typeof(x))

    assert differentiable(jnp.ones(2, jnp.bfloat16))
    assert differentiable(jnp.ones(2, jnp.complex64))
    assert not differentiable(jnp.ones(2, jnp.int32))
    assert not differentiable(jnp.ones(2, bool))
    assert not differentiable(jax.random.key(0))
    assert not is_differentiable(object())
