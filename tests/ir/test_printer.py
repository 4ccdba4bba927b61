"""The text of programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from ir_programs import X, assert_text
from jax import lax

import remat
import remat.ir.check
from remat.ir.printer import equation_lines, paired_texts, program_text
from remat.ir.program import Program


def test_text_names_values_in_order_and_shows_types_and_literals() -> None:
    def f(w: Any, x: Any) -> Any:
        return {"twice": 2.0 * jnp.sin(w @ x), "same": x}

    assert_text(
        remat.trace(f)(jnp.ones((2, 3)), X),
        """
        program(a: f32[2,3], b: f32[3])
          c: f32[2] = dot_general[dimension_numbers=(((1,), (0,)), ((), ())), preferred_element_type=float32] a b
          d: f32[2] = sin c
          e: f32[2] = mul 2.0 d
          return b, e
        """,
    )


def test_text_shows_constants_and_keys() -> None:
    table = jnp.arange(3)
    assert_text(
        remat.trace(lambda key: (jax.random.key_data(key), table))(jax.random.key(0)),
        """
        program(a: key<fry>[])
          constant b: i32[3]
          c: u32[2] = random_unwrap a
          return c, b
        """,
    )


def test_text_of_calls_names_and_regions_is_nested() -> None:
    @jax.jit
    def inner(v: Any) -> Any:
        return jnp.sin(v)

    region = jax.checkpoint(lambda x: remat.name(inner(x), "kept"))
    assert_text(
        remat.trace(region)(X),
        """
        program(a: f32[3])
          b: f32[3] = checkpoint a
            checkpoint(c: f32[3])
              d: f32[3] = call[inner] c
                call(e: f32[3])
                  f: f32[3] = sin e
                  return f
              g: f32[3] = name[kept] d
              return g
          return b
        """,
    )


def test_text_of_a_scan() -> None:
    program = remat.trace(lambda w, c, xs: lax.scan(lambda c, x: (c * w, c + x), c, xs, reverse=True))
    assert_text(
        program(X, X, jnp.ones((4, 3))),
        """
        program(a: f32[3], b: f32[3], c: f32[4,3])
          d: f32[3], e: f32[4,3] = scan[length=4, reverse] a b c
            body(f: f32[3], g: f32[3], h: f32[3])
              i: f32[3] = mul g f
              j: f32[3] = add g h
              return i, j
          return d, e
        """,
    )


def test_text_of_a_branch() -> None:
    assert_text(
        remat.trace(lambda i, x: lax.switch(i, [jnp.sin, lambda v: v], x))(jnp.int32(0), X),
        """
        program(a: i32[], b: f32[3])
          c: i32[] = clamp 0 a 1
          d: f32[3] = cond c b
            branch 0(e: f32[3])
              f: f32[3] = sin e
              return f
            branch 1(g: f32[3])
              return g
          return d
        """,
    )


def test_text_of_a_while_loop_prints_integers_as_they_are() -> None:
    assert_text(
        remat.trace(lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, -c[1]), (0, x)))(X),
        """
        program(a: f32[3])
          b: i32[], c: f32[3] = while 0 a
            condition(d: i32[], e: f32[3])
              f: bool[] = lt d 5
              return f
            body(g: i32[], h: f32[3])
              i: i32[] = add g 1
              j: f32[3] = neg h
              return i, j
          return b, c
        """,
    )


def test_text_has_no_addresses() -> None:
    @jax.custom_jvp
    def f(x: Any) -> Any:
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    region = jax.checkpoint(f, policy=jax.checkpoint_policies.dots_saveable)
    text = str(remat.trace(region)(X))
    assert "checkpoint[" in text
    assert " at 0x" not in text


def test_text_goes_on_with_two_letters() -> None:
    def f(x: Any) -> Any:
        for _ in range(27):
            x = jnp.sin(x)
        return x

    lines = str(remat.trace(f)(X)).splitlines()
    assert lines[-3:] == ["  aa: f32[3] = sin z", "  ab: f32[3] = sin aa", "  return ab"]


def test_text_with_sources_has_bytes_and_lines() -> None:
    text = program_text(remat.trace(lambda x: jnp.sin(x))(X), sources=True)
    line = text.splitlines()[1]
    before, after = line.split("#")
    assert before.strip() == "b: f32[3] = sin a"
    assert after.startswith(" 12 B  ")
    assert "test_printer.py:" in after


def test_equation_lines_mark_one_and_paired_texts_share_names() -> None:
    program = remat.trace(lambda x: jnp.cos(jnp.sin(x)))(X)
    assert equation_lines(program, 0, 2, mark=1) == [
        "      0  b: f32[3] = sin a",
        "->    1  c: f32[3] = cos b",
    ]
    second = Program([program.equations[0].outputs[0]], [], [program.outputs[0]])
    _, lines = paired_texts(program, second)
    assert lines == ["program(b: f32[3])", "  return c"]
