"""Growing the bodies of programs and functions, statement by statement, from a pool of variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from property.choices import Choices, Menu
from property.operations import GROUPS, SHARP, arity, result_type
from property.programs import Function, Statement, Type, Var

STRUCTURES = {
    "scan": 5.0,
    "loop": 1,
    "branch": 1.2,
    "jit": 1,
    "scope": 0.4,
    "region": 2,
    "rule": 0.8,
    "vmap": 0.6,
    "derivative": 0.5,
}
"""How often each structure is drawn; an operation has weight ten."""

STRUCTURES_OF_LOOPS = {"scan": 14.0, "loop": 1, "branch": 0.5, "jit": 0.5, "region": 1}


class Bodies(Choices):
    def body(self, pool: list[Var], menu: Menu, most: int) -> tuple[Statement, ...]:
        """Statements; what they compute is added to the pool."""
        made: list[Statement] = []
        tries = 0
        while len(made) < most and self.left > 0 and tries < 4 * most + 8:
            tries += 1
            structures = STRUCTURES_OF_LOOPS if menu.loops else STRUCTURES
            kind = self.weighted({"op": 10, **(structures if menu.depth else {})})
            before = self.left
            new = self.operation(pool, menu) if kind == "op" else self.structure(kind, pool, menu)
            if new:
                made.extend(new)
                self.left = min(self.left, before - 1)
        return tuple(made)

    def operation(self, pool: list[Var], menu: Menu) -> list[Statement]:
        for _ in range(12):
            plain = menu.loops and self.chance(0.7)
            group = self.pick(("smooth", "binary")) if plain else self.weighted({k: w for k, (_, w) in GROUPS.items()})
            if group == "custom" and menu.exact:
                continue
            template = self.pick(GROUPS[group][0])
            args = tuple(self.operand(pool, group, i) for i in range(arity(template)))
            type = result_type(template, tuple(a.type for a in args))
            if type is None or (menu.forward_mode and "scaled_product" in template):
                continue
            if group == "custom" and not all(a.type == args[0].type and a.type.is_float for a in args):
                continue
            target = self.var(type)
            pool.append(target)
            return [Statement("op", (target,), args, (template,))]
        return []

    def operand(self, pool: Sequence[Var], group: str, position: int) -> Var:
        """What an operation reads: mostly floats, but integers as indices, and every type where types are changed."""
        if group == "indexed" and position == 1:
            return self.recent([v for v in pool if v.type.dtype == "int32"] or pool)
        if group in ("cast", "complex"):
            dtype = self.pick(sorted({v.type.dtype for v in pool}))
            return self.recent([v for v in pool if v.type.dtype == dtype])
        return self.recent(pool)

    def filled(self, type: Type) -> Statement:
        return Statement("op", (self.var(type),), (), (constant_template(type),))

    def structure(self, kind: str, pool: list[Var], menu: Menu) -> list[Statement]:
        """Statements of a kind with functions."""
        raise NotImplementedError

    # Functions.

    def seen(self, pool: Sequence[Var]) -> list[Var]:
        """The variables that a function may close over: a few, so that its own are read most."""
        if self.chance(0.2):
            return list(pool)
        return list(dict.fromkeys(self.recent(pool) for _ in range(int(self.random.integers(0, 3)))))

    def function(
        self,
        params: Sequence[Var],
        outer: Sequence[Var],
        menu: Menu,
        results: Callable[[list[Var]], list[Var]],
        least: int = 0,
    ) -> Function:
        """A function whose body sees `outer` and its parameters; `results` chooses from what it has then."""
        pool = [*outer, *params]
        body = self.body(pool, menu.inner(), int(self.random.integers(least, least + 5)))
        return Function(f"f{next(self.names)}", tuple(params), body, tuple(results(pool)))

    def sharp(self, pool: Sequence[Var], function: Function, menu: Menu) -> tuple[Function, Var | None]:
        """Sometimes one more result with an infinite derivative, which nobody is to use."""
        floats = [v for v in (*function.params, *(t for s in function.body for t in s.targets)) if v.type.is_float]
        if not floats or not menu.sharp or not self.chance(0.07):
            return function, None
        source = self.recent(floats)
        value = self.var(source.type)
        body = (*function.body, Statement("op", (value,), (source,), (self.pick(SHARP),)))
        unused = self.var(source.type, "unused")
        return replace(function, body=body, results=(*function.results, value)), unused

    def call(self, pool: list[Var], menu: Menu, wrapper: str, closed: bool = False, most: int = 3) -> list[Statement]:
        args = [self.recent(pool) for _ in range(int(self.random.integers(1, most + 1)))]
        params = [self.var(a.type) for a in args]
        count = int(self.random.integers(1, 4))
        outer = () if closed else self.seen(pool)
        function = self.function(params, outer, menu, lambda p: [self.recent(p) for _ in range(count)])
        targets = [self.var(v.type) for v in function.results]
        function, unused = self.sharp(pool, function, menu)
        pool.extend(targets)
        every = (*targets, unused) if unused else tuple(targets)
        return [Statement("call", every, tuple(args), (wrapper,), (function,))]


def constant_template(type: Type) -> str:
    """A constant of a type, as text."""
    if type.dtype == "bool":
        return f"jnp.full({type.shape}, True)"
    value = {"int32": "1", "complex64": "0.3 + 0.2j"}.get(type.dtype, "0.4")
    return f"jnp.full({type.shape}, {value}, '{type.dtype}')"
