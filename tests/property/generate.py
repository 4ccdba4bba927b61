"""From a seed to a random program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from property.choices import Menu
from property.loops import Loops
from property.programs import Program, Statement, Type, Var

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


EVERYTHING = Menu()


def program_of(seed: int, menu: Menu = EVERYTHING) -> Program:
    """The program of a seed; the same one in every process."""
    return _Generator(seed).program(menu)


class _Generator(Loops):
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

    def structure(self, kind: str, pool: list[Var], menu: Menu) -> list[Statement]:
        return makers[kind](self, pool, menu)


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
