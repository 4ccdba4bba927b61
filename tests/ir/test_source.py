"""Sources and scopes of equations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from ir_programs import X
from jax import lax

import remat
import remat.ir.check
from remat.ir.rewrite import inline_calls
from remat.ir.source import NOWHERE, UNKNOWN, Position


def test_equations_know_file_line_and_function() -> None:
    def sums(x: Any) -> Any:
        return jnp.sin(x) + 1.0

    first = sums.__code__.co_firstlineno
    program = remat.trace(sums)(X)
    for equation in program.equations:
        position = equation.source.position
        assert position.file.endswith("test_source.py")
        assert position.line == first + 1
        assert position.column > 0
        assert position.function.endswith("sums")
        assert equation.source.text.endswith(f":{first + 1}:{position.column} ({position.function})")


def test_sources_inside_nested_programs_are_the_inner_lines() -> None:
    def body(c: Any, _: Any) -> Any:
        return jnp.sin(c), None

    program = remat.trace(lambda x: lax.scan(body, x, None, length=2)[0])(X)
    (sin,) = program.equations[0].op.programs[0].equations
    assert sin.source.position.line == body.__code__.co_firstlineno + 1


def test_places_are_short() -> None:
    assert Position("/a/b/model.py", 12, 3, "Net.attend").short == "model.py:12 (attend)"
    assert Position("ipykernel_12/345.py", 7, 3, "attend").short == "cell:7 (attend)"
    assert NOWHERE.short == ""


def test_scopes_are_paths() -> None:
    def f(x: Any) -> Any:
        with jax.named_scope("encoder"):
            x = jnp.sin(x)
            with jax.named_scope("layer_0"):
                x = jnp.exp(x)
        return jnp.cos(x)

    program = remat.trace(f)(X)
    assert [e.source.scope for e in program.equations] == ["encoder", "encoder/layer_0", ""]


def test_sources_survive_lowering_and_inlining() -> None:
    def f(x: Any) -> Any:
        with jax.named_scope("deep"):
            return jax.jit(jnp.sin)(x) * 2.0

    again = remat.trace(remat.lower(inline_calls(remat.trace(f)(X))))(X)
    position = again.equations[-1].source.position
    assert position.line == f.__code__.co_firstlineno + 2
    assert again.equations[-1].source.scope == "deep"


def test_unknown_sources_are_empty() -> None:
    assert (UNKNOWN.text, UNKNOWN.scope, UNKNOWN.position) == ("", "", NOWHERE)
