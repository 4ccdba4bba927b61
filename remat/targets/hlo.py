"""XLA's optimized program as data, read from its text: computations and instructions.

The text is what `compiled.as_text()` gives, the same for all of XLA's compilers. Only what is needed to count work is
read: names, types, operation codes, operands; attributes stay text.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Array:
    """The type of an array: element type and shape."""

    dtype: str
    shape: Shape

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        digits = re.match(r"[a-z]+(\d+)", self.dtype)
        bits = 8 if self.dtype == "pred" else int(digits.group(1)) if digits else 0
        return -(-self.elements * bits // 8)


@dataclass(frozen=True)
class Instruction:
    """One line: `name = type opcode(operands), attributes`. `arguments` is the text between the parentheses."""

    name: str
    type: str
    opcode: str
    arguments: str
    attributes: str
    is_root: bool

    @functools.cached_property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays of the result, those of tuples in order."""
        found = re.findall(r"\b([a-z]+\d*\w*)\[([\d,<=]*)\]", self.type)
        return tuple(Array(d, tuple(int(n.strip("<=")) for n in dims.split(",") if n)) for d, dims in found)

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(re.findall(r"%([\w.\-]+(?:#\d+)*)", self.arguments))

    def attribute(self, name: str) -> str:
        """The text of an attribute up to the next comma or closing brace; empty where there is none."""
        found = re.search(rf"\b{name}=(\{{[^}}]*\}}|[^,\s]+)", self.attributes)
        return found.group(1).strip("{}") if found else ""

    def numbers(self, name: str) -> tuple[int, ...]:
        """An attribute that lists numbers."""
        return tuple(map(int, re.findall(r"\d+", self.attribute(name))))

    def called(self) -> tuple[str, ...]:
        """The computations that it runs, in the order of its text."""
        lists = r"(?:calls|to_apply|body|condition|true_computation|false_computation|branch_computations)"
        found = re.findall(rf"\b{lists}=(\{{[^}}]*\}}|%[\w.\-]+)", self.attributes)
        return tuple(name for text in found for name in re.findall(r"%([\w.\-]+)", text))


@dataclass(frozen=True, eq=False)
class Computation:
    """A list of instructions; the last one to be executed, the result, is `root`."""

    name: str
    instructions: dict[str, Instruction]

    @functools.cached_property
    def root(self) -> Instruction:
        return next((i for i in self.instructions.values() if i.is_root), list(self.instructions.values())[-1])

    def operands(self, instruction: Instruction) -> list[Instruction]:
        return [self.instructions[name] for name in instruction.operands]


@dataclass(frozen=True, eq=False)
class Module:
    """A whole program."""

    computations: dict[str, Computation]
    entry: Computation


def parse_hlo(text: str) -> Module:
    """Read the text of a program."""
    computations: dict[str, Computation] = {}
    entry = None
    current: Computation | None = None
    for line in _lines(text):
        if current is None:
            header = re.match(r"(ENTRY )?%([\w.\-]+) \(.*\{$", line)
            if header:
                current = computations[header.group(2)] = Computation(header.group(2), {})
                entry = current if header.group(1) else entry
        elif END.fullmatch(line):
            current = None
        elif " = " in line:
            instruction = _instruction(line)
            for operand in instruction.operands:
                _add_element(current, operand)
            current.instructions[instruction.name] = instruction
    if entry is None:
        raise ValueError("no ENTRY computation in the text of the program")
    return Module(computations, entry)


END = re.compile(r"\}(, execution_thread=.*)?")
"""The last line of a computation."""


def _lines(text: str) -> list[str]:
    """The lines, those put together that attributes of kernels are broken into. Instructions are indented, computations
    and their ends are not."""
    found: list[str] = []
    for line in text.splitlines():
        if found and found[-1].startswith("  ") and not line.startswith("  ") and not END.fullmatch(line):
            found[-1] += line
        else:
            found.append(line)
    return found


def _instruction(line: str) -> Instruction:
    left, _, rest = line.strip().partition(" = ")
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    opening = rest.index("(", end)
    closing = _closing(rest, opening)
    is_root = left.startswith("ROOT ")
    name = left.removeprefix("ROOT ").lstrip("%")
    opcode = rest[end:opening].strip()
    return Instruction(name, rest[:end], opcode, rest[opening + 1 : closing], rest[closing + 1 :], is_root)


def _add_element(computation: Computation, operand: str) -> None:
    """Texts that a compiler writes into files have `%state#2` for an element of a tuple: an instruction of its own."""
    source, mark, index = operand.rpartition("#")
    if not mark or operand in computation.instructions:
        return
    _add_element(computation, source)
    type = _element_types(computation.instructions[source].type)[int(index)]
    element = Instruction(operand, type, "get-tuple-element", f"%{source}", f", index={index}", False)
    computation.instructions[operand] = element


def _element_types(type: str) -> list[str]:
    """The types in the type of a tuple."""
    inside = re.sub(r"/\*.*?\*/", "", type[1:-1])
    depth, parts = 0, [""]
    for character in inside:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _closing(text: str, opening: int) -> int:
    """The index of the parenthesis that closes the one at `opening`."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, opening):
        depth += 1 if match.group() == "(" else -1
        if depth == 0:
            return match.start()
    raise ValueError(f"unbalanced parentheses in {text[:80]!r}")
