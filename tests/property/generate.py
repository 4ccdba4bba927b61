"""From a seed to a random program.

A program is grown statement by statement from a pool of variables. Loops are drawn so that carries are not only
computed: they are delayed, rotated, copied, passed through, taken from slices, and emitted as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from property.operations import GROUPS, SHARP, arity, result_type
from property.programs import Function, Program, Statement, Type, Var

INPUT_TYPES = (
    *[Type("float32", (3,))] * 4,
    *[Type("float32")] * 2,
    *[Type("float32", (2, 3)), Type("float32", (3, 3))] * 2,
    Type("bfloat16", (3,)),
    Type("bfloat16"),
    Type("int32"),
    Type("int32", (3,)),
    Type("bool", (3,)),
)

REGION_POLICIES = ("None", "'nothing'", "'dots'", "'everything'", "'names:a'", "'names_but:b'", "'balanced'", "'burn'")
JAX_POLICIES = (
    "None",
    "jax.checkpoint_policies.dots_saveable",
    "jax.checkpoint_policies.everything_saveable",
    "jax.checkpoint_policies.save_only_these_names('a', 'c')",
)


@dataclass(frozen=True)
class Menu:
    """What may be in a program.

    **Attributes**

    - `statements`: how many statements at most, all levels together.
    - `depth`: how deep functions may be nested.
    - `forward_mode`: only what forward mode can go through (no custom_vjp).
    - `exact`: only true derivatives, for second order.
    - `sharp`: whether there may be unused results with infinite derivatives.
    - `loops`: more loops, and little else.
    """

    statements: int = 10
    depth: int = 2
    forward_mode: bool = False
    exact: bool = False
    sharp: bool = True
    loops: bool = False

    def without_rules(self) -> Menu:
        return replace(self, forward_mode=True, exact=True)

    def inner(self) -> Menu:
        return replace(self, depth=self.depth - 1)


def program_of(seed: int, menu: Menu = Menu()) -> Program:
    """The program of a seed; the same one in every process."""
    return _Generator(seed).program(menu)


class _Generator:
    def __init__(self, seed: int):
        self.seed = seed
        self.random = np.random.default_rng(seed)
        self.names = itertools.count()
        self.left = 0

    # Choices.

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.random.integers(len(options)))]

    def weighted(self, options: dict[Any, float]) -> Any:
        weights = np.array(list(options.values()))
        return list(options)[int(self.random.choice(len(weights), p=weights / weights.sum()))]

    def recent(self, pool: Sequence[Var]) -> Var:
        """A variable, newer ones and floats more often."""
        found = pool[0]
        for _ in range(3):
            found = pool[len(pool) - 1 - min(int(self.random.exponential(3)), len(pool) - 1)]
            if found.type.is_float:
                break
        return found

    def of_type(self, pool: Sequence[Var], type: Type) -> Var | None:
        found = [v for v in pool if v.type == type]
        return self.recent(found) if found else None

    def of_types(self, pool: Sequence[Var], types: Sequence[Type]) -> list[Var]:
        found = [self.of_type(pool, t) for t in types]
        assert None not in found
        return found  # type: ignore[return-value]

    def var(self, type: Type, prefix: str = "v") -> Var:
        return Var(f"{prefix}{next(self.names)}", type)

    # Programs.

    def program(self, menu: Menu) -> Program:
        inputs = [self.var(self.pick(INPUT_TYPES), "x") for _ in range(int(self.random.integers(1, 5)))]
        inputs.insert(int(self.random.integers(len(inputs) + 1)), self.var(self.pick(INPUT_TYPES[:8]), "x"))
        self.left = int(self.random.integers(menu.statements // 3, menu.statements + 1))
        if menu.loops and self.chance(0.6):
            menu = replace(menu, depth=1)
        pool = list(inputs)
        body = self.body(pool, menu, self.left)
        results = self.results([v for v in pool if v not in inputs] or pool)
        if self.chance(0.6) and body:
            results = tuple(dict.fromkeys((*results, *(v for v in body[-1].targets if v in pool))))
        aux = self.results(pool) if self.chance(0.3) else ()
        floats = [i for i, v in enumerate(inputs) if v.type.is_float]
        argnums = tuple(i for i in floats if self.chance(0.7)) or (floats[0],)
        return Program(tuple(inputs), body, results, aux, argnums, self.seed)

    def results(self, pool: Sequence[Var]) -> tuple[Var, ...]:
        return tuple(dict.fromkeys(self.recent(pool) for _ in range(int(self.random.integers(1, 5)))))

    def body(self, pool: list[Var], menu: Menu, most: int) -> tuple[Statement, ...]:
        """Statements; what they compute is added to the pool."""
        made: list[Statement] = []
        tries = 0
        while len(made) < most and self.left > 0 and tries < 4 * most + 8:
            tries += 1
            structures = STRUCTURES_OF_LOOPS if menu.loops else STRUCTURES
            kind = self.weighted({"op": 10, **(structures if menu.depth else {})})
            before = self.left
            new = self.operation(pool, menu) if kind == "op" else makers[kind](self, pool, menu)
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

    def jit(self, pool: list[Var], menu: Menu) -> list[Statement]:
        return self.call(pool, menu, "jax.jit({})")

    def scope(self, pool: list[Var], menu: Menu) -> list[Statement]:
        return self.call(pool, menu, 'jax.named_scope("inner")({})')

    def region(self, pool: list[Var], menu: Menu) -> list[Statement]:
        if self.chance(0.7):
            cse = self.pick(("", "", ", prevent_cse=False"))
            return self.call(pool, menu, f"remat.checkpoint({{}}, policy={self.pick(REGION_POLICIES)}{cse})")
        return self.call(pool, menu, f"jax.checkpoint({{}}, policy={self.pick(JAX_POLICIES)})")

    def rule(self, pool: list[Var], menu: Menu) -> list[Statement]:
        kinds = ["exact_jvp"] if menu.exact else ["scaled_jvp"] if menu.forward_mode else ["scaled_jvp", "scaled_vjp"]
        kind = self.pick(kinds)
        menu = menu.without_rules()
        return self.call(pool, replace(menu, sharp=False), f"{kind}({{}})", closed=True)

    def vmap(self, pool: list[Var], menu: Menu) -> list[Statement]:
        batched = [v for v in pool if v.type.shape and v.type.shape[0] > 0]
        if not batched:
            return []
        arg = self.recent(batched)
        size = arg.type.shape[0]
        param = self.var(Type(arg.type.dtype, arg.type.shape[1:]))
        outer = self.seen(pool)
        function = self.function([param], outer, menu, lambda p: [self.recent(p[len(outer) :])])
        target = self.var(function.results[0].type.stacked(size))
        pool.append(target)
        return [Statement("call", (target,), (arg,), ("jax.vmap({})",), (function,))]

    def derivative(self, pool: list[Var], menu: Menu) -> list[Statement]:
        floats = [v for v in pool if v.type.is_float]
        if not floats or menu.exact:
            return []
        wrapper = self.pick(("inner_grad({})", "inner_jvp({})", "inner_remat_grad({}, 'dots')"))
        arg = self.recent(floats)
        inner = replace(menu.without_rules(), sharp=False)
        function = self.function([self.var(arg.type)], self.seen(pool), inner, lambda p: [self.recent(p)])
        target = self.var(arg.type)
        pool.append(target)
        return [Statement("call", (target,), (arg,), (wrapper,), (function,))]

    def branch(self, pool: list[Var], menu: Menu) -> list[Statement]:
        args = [self.recent(pool) for _ in range(int(self.random.integers(1, 4)))]
        types = [self.pick(args).type for _ in range(int(self.random.integers(1, 4)))]
        functions = []
        for _ in range(2 if self.chance(0.7) else 3):
            params = [self.var(a.type) for a in args]
            functions.append(self.function(params, self.seen(pool), menu, lambda p: self.of_types(p, types)))
        targets = tuple(self.var(t) for t in types)
        pool.extend(targets)
        return [Statement("branch", targets, (self.recent(pool[: -len(targets)]), *args), (), tuple(functions))]

    # Loops.

    def carries(self, pool: list[Var], setup: list[Statement], most: int) -> list[Var]:
        """Initial values, mostly of one type, so that carries can change places."""
        main = self.recent(pool).type
        chosen = []
        for _ in range(int(self.random.integers(0 if most > 3 else 1, most + 1))):
            if self.chance(0.8):
                value = self.of_type(pool, main)
                if self.chance(0.2):
                    setup.append(self.filled(main))
                    value = setup[-1].targets[0]
                assert value is not None
                chosen.append(value)
            else:
                chosen.append(self.recent(pool))
        return chosen

    def carried(
        self, pool: list[Var], outer: Sequence[Var], carries: Sequence[Var], slices: Sequence[Var]
    ) -> list[Var]:
        """What each carry becomes: in one pattern for all, or each in a way of its own."""
        pattern = self.weighted({"mixed": 4, "delay": 2, "rotation": 1})
        new: list[Var] = []
        for i, own in enumerate(carries):
            other = carries[i - 1 if pattern == "delay" else (i + 1) % len(carries)]
            if pattern == "mixed" or (i == 0 and pattern == "delay") or other.type != own.type:
                kind = self.weighted({"computed": 4, "kept": 0.7, "other": 2, "copy": 0.8, "slice": 0.8, "outer": 0.3})
            else:
                kind = "computed" if self.chance(0.15) else "pattern"
            same = [c for c in carries if c.type == own.type]
            ways: dict[str, Callable[[], Var | None]] = {
                "pattern": lambda other=other: other,
                "computed": lambda own=own: self.of_type(pool[len(outer) + len(carries) :], own.type),
                "kept": lambda own=own: own,
                "other": lambda same=same: self.pick(same),
                "copy": lambda own=own: self.of_type(new, own.type),
                "slice": lambda own=own: self.of_type(slices, own.type),
                "outer": lambda own=own: self.of_type(outer, own.type),
            }
            new.append(ways[kind]() or self.pick(same))
        return new

    def emitted(self, pool: list[Var], outer: Sequence[Var], carries: Sequence[Var], new: Sequence[Var]) -> list[Var]:
        """What the loop stacks: carries before and after, and anything else."""
        if carries and self.chance(0.3):
            every = carries if self.chance(0.6) else new
            return [v for v in every if self.chance(0.8)]
        chosen = []
        for _ in range(int(self.random.integers(0, 4))):
            kind = self.weighted({"before": 2, "after": 2, "any": 3})
            options = {"before": carries, "after": new, "any": pool[len(outer) :]}[kind]
            chosen.append(self.recent(options or pool))
        return chosen

    def scan(self, pool: list[Var], menu: Menu) -> list[Statement]:
        setup: list[Statement] = []
        length = self.weighted({0: 0.4, 1: 1, 2: 2, 3: 4, 4: 1})
        inits = self.carries(pool, setup, 4)
        stacks: list[Var] = []
        for _ in range(int(self.random.integers(0, 3))):
            found = [v for v in pool if v.type.shape[:1] == (length,)]
            if not found or self.chance(0.4):
                source = self.pick(inits) if inits and self.chance(0.5) else self.recent(pool)
                if source.type.dtype not in ("float32", "bfloat16", "int32") or len(source.type.shape) > 2:
                    continue
                found = [self.var(source.type.stacked(length))]
                setup.append(Statement("op", (found[0],), (source,), (f"rows({{0}}, {length})",)))
            stacks.append(self.recent(found))
        if not inits and not stacks:
            return []
        carries = [self.var(v.type, "c") for v in inits]
        slices = [self.var(Type(v.type.dtype, v.type.shape[1:]), "s") for v in stacks]
        outer = self.seen(pool)

        def results(inside: list[Var]) -> list[Var]:
            new = self.carried(inside, outer, carries, slices)
            return [*new, *self.emitted(inside, outer, carries, new)]

        function = self.function([*carries, *slices], outer, menu, results, 2)
        stacked = [self.var(v.type.stacked(length)) for v in function.results[len(inits) :]]
        targets = [*(self.var(v.type) for v in inits), *stacked]
        function, unused = self.sharp(pool, function, menu)
        pool.extend(t for t in targets if 0 not in t.type.shape and not self.chance(0.15))
        if unused:
            targets.append(replace(unused, type=unused.type.stacked(length)))
        options = (len(inits), length, self.chance(0.35), self.weighted({1: 4, 2: 1, 3: 0.4}))
        return [*setup, Statement("scan", tuple(targets), (*inits, *stacks), options, (function,))]

    def loop(self, pool: list[Var], menu: Menu) -> list[Statement]:
        setup: list[Statement] = []
        inits = self.carries(pool, setup, 3)
        kind = "fori" if self.chance(0.75) else "while"
        carries = [self.var(v.type, "c") for v in inits]
        number = self.var(Type("int32"), "i")
        outer = self.seen(pool) if kind == "fori" else []

        def results(inside: list[Var]) -> list[Var]:
            return self.carried(inside, outer, carries, [])

        function = self.function([number, *carries], outer, menu, results, 1)
        targets = tuple(self.var(v.type) for v in inits)
        pool.extend(targets)
        return [*setup, Statement(kind, targets, tuple(inits), (self.pick((0, 1, 2, 3)),), (function,))]


def constant_template(type: Type) -> str:
    """A constant of a type, as text."""
    if type.dtype == "bool":
        return f"jnp.full({type.shape}, True)"
    value = {"int32": "1", "complex64": "0.3 + 0.2j"}.get(type.dtype, "0.4")
    return f"jnp.full({type.shape}, {value}, '{type.dtype}')"


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

makers: dict[str, Callable[[_Generator, list[Var], Menu], list[Statement]]] = {
    "scan": _Generator.scan,
    "loop": _Generator.loop,
    "branch": _Generator.branch,
    "jit": _Generator.jit,
    "scope": _Generator.scope,
    "region": _Generator.region,
    "rule": _Generator.rule,
    "vmap": _Generator.vmap,
    "derivative": _Generator.derivative,
}
