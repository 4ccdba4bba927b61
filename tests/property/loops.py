"""Loops, drawn so that carries are not only computed: they are delayed, rotated, copied, passed through, taken from
slices, and emitted as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from property.bodies import Bodies
from property.choices import Menu
from property.programs import Statement, Type, Var


class Loops(Bodies):
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
