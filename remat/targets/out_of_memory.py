"""XLA's messages of memory that does not suffice, as data: how much is wanted, how much there is, the largest buffers.

There are several for each compiler, and they change between versions:

- a TPU's compiler: `Ran out of memory on HBM, the total memory required for HLO temporaries (44.50G) exceeds available
  HBM (15.75G)` with no more than that, or `Ran out of memory in memory space hbm. Used 21.95G of 15.48G hbm` with a
  list of allocations;
- a TPU's runtime: `Attempting to reserve 9.81G at the bottom of memory. That was not possible. There are 7.49G free`;
- a GPU's runtime: `Out of memory while trying to allocate 4770354232 bytes`, mostly with a list of buffers, and in the
  log around it what the allocator has;
- the CPU's runtime: `Out of memory allocating 70368744177664 bytes`.

Sizes in these messages are rounded, and their units binary (a TPU's `G` is GiB). What a message does not say is None
here, or empty; lines that are none of these are skipped, so that a whole log may be given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from remat.errors import ArgumentError
from remat.targets.hlo import Array

SIZE = r"(\d+(?:\.\d+)?\s?(?:[KMGTP]i?)?B?(?:ytes)?)(?!\w)(?!\.\d)"
FACTORS = {unit: 1024**i for i, unit in enumerate(["", "K", "M", "G", "T", "P"])}


@dataclass(frozen=True)
class Buffer:
    """One of the largest buffers that a message lists.

    **Attributes**

    - `bytes`: its size, as far as the message says. `unpadded_bytes`: without what the device's layout adds.
    - `dtype`, `shape`: of the array, `bf16` and `(8, 4096)`; empty where the message does not say.
    - `operation`: XLA's `op_name`, the name scopes and the operation that it is of; often empty.
    - `file`, `line`: where that was written; empty and 0 where the message does not say.
    - `label`: XLA's name for it, or its instruction.
    - `kind`: `argument`, `output`, `temporary`, or empty where the message does not say. `index`: which argument or
      output of the program it is; None where the message does not say.
    """

    bytes: int
    unpadded_bytes: int | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    operation: str = ""
    file: str = ""
    line: int = 0
    label: str = ""
    kind: str = ""
    index: int | None = None

    @property
    def type(self) -> str:
        """The type in JAX's short form, `bf16[8,4096]`."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]" if self.dtype else ""


@dataclass(frozen=True)
class OutOfMemory:
    """What a message says.

    **Attributes**

    - `platform`: `tpu`, `gpu` or `cpu`. `phase`: `compiling` or `running`. `memory`: which memory of the device: `hbm`,
      or one on the chip (`vmem`, `smem`), which no policy changes.
    - `needed_bytes`: what the program, or the allocation that failed, takes. `limit_bytes`: what there is for it.
    - `holds_arguments`: whether arguments are among these two. At run time they are in memory already.
    - `program`: the name of XLA's module, which has the function's. `parts`: what the message itself adds up.
    - `buffers`: the largest first.
    """

    platform: str
    phase: str
    memory: str = "hbm"
    needed_bytes: int | None = None
    limit_bytes: int | None = None
    holds_arguments: bool = True
    program: str = ""
    parts: tuple[tuple[str, int], ...] = ()
    buffers: tuple[Buffer, ...] = ()

    @property
    def lacking_bytes(self) -> int | None:
        """How much too much it is; None where the message does not say, 0 where there is enough, but in pieces."""
        if self.needed_bytes is None or self.limit_bytes is None:
            return None
        return max(0, self.needed_bytes - self.limit_bytes)


def read_out_of_memory(text: str) -> OutOfMemory:
    """Find the message in a text, such as a log, and read it.

    **Raises** `ArgumentError` if there is none.

    >>> from remat.targets.out_of_memory import read_out_of_memory
    >>> found = read_out_of_memory("RESOURCE_EXHAUSTED: Out of memory allocating 70368744177664 bytes.")
    >>> found.platform, found.needed_bytes // 2**40, found.limit_bytes
    ('cpu', 64, None)
    """
    text = "\n".join(_without_prefix(line) for line in text.splitlines())
    found = next((read for form in FORMS if (read := form(text)) is not None), None)
    if found is None:
        raise ArgumentError(
            f"{_beginning(text)} is no message of XLA's about memory. Expected is what a compiler or a device says "
            "when memory does not suffice, which begins with RESOURCE_EXHAUSTED and goes on with one of: 'Ran out of "
            "memory in memory space hbm', 'Ran out of memory on HBM', 'Attempting to allocate 2.00G. That was not "
            "possible', 'Out of memory while trying to allocate 123 bytes', 'Out of memory allocating 123 bytes'. "
            "Give the whole text of the error, or the exception."
        )
    buffers = tuple(sorted(_buffers(text), key=lambda b: -b.bytes))  # those of one size in the message's order
    return replace(found, program=found.program or _program(text), buffers=buffers)


def size_of(text: str) -> int:
    """A size as XLA writes it: `21.95G`, `6.00MiB`, `384.0KiB`, `0B`, `123 bytes`, `123`."""
    number, unit = re.fullmatch(r"(\d+(?:\.\d+)?)\s?([KMGTP]?)i?(?:B|bytes)?", text.strip()).groups()  # type: ignore[union-attr]
    return round(float(number) * FACTORS[unit])


# The forms, the most telling first.


def _tpu_allocations(text: str) -> OutOfMemory | None:
    found = re.search(rf"Ran out of memory in memory space (\w+)\.\s+Used\s+{SIZE}\s+of\s+{SIZE}", text)
    if found is None:
        return None
    return OutOfMemory("tpu", "compiling", found[1], size_of(found[2]), size_of(found[3]), parts=_tpu_parts(text))


def _tpu_total(text: str) -> OutOfMemory | None:
    """Three messages of a compiler that gives up before it has assigned memory."""
    found = (
        re.search(rf"Ran out of memory on HBM, the total memory required.*?\({SIZE}\) exceeds.*?\({SIZE}\)", text)
        or re.search(rf"unlikely to have enough device memory\.\s+Requires\s+{SIZE}, has\s+{SIZE}\s+available", text)
        or re.search(rf"Hbm usage: {SIZE}, SparseCore Hbm usage {SIZE}, exceeding available bytes: {SIZE}", text)
    )
    if found is None:
        return None
    *needed, limit = map(size_of, found.groups())
    return OutOfMemory("tpu", "compiling", "hbm", sum(needed), limit)


def _tpu_on_chip(text: str) -> OutOfMemory | None:
    found = re.search(r"Ran out of memory in memory space (?!hbm)(\w+)", text)
    if found is None:
        return None
    sizes = re.search(rf"size {SIZE} and limit {SIZE}", text)
    needed, limit = (size_of(sizes[1]), size_of(sizes[2])) if sizes else (None, None)
    return OutOfMemory("tpu", "compiling", found[1], needed, limit)


def _tpu_runtime(text: str) -> OutOfMemory | None:
    found = re.search(
        rf"Attempting to (?:reserve|allocate) {SIZE}(?: at the bottom of memory)?\.\s+That was not possible\.\s+"
        rf"There (?:are|were) {SIZE} free",
        text,
    )
    return found and OutOfMemory("tpu", "running", "hbm", size_of(found[1]), size_of(found[2]), holds_arguments=False)


def _gpu(text: str) -> OutOfMemory | None:
    found = (
        re.search(rf"Out of memory while trying to allocate {SIZE}", text)
        or re.search(rf"Failed to allocate request for {SIZE}", text)
        or re.search(rf"ran out of memory trying to allocate {SIZE}", text)
    )
    tried = re.search(rf"Can't reduce memory use below {SIZE} .*?only reduced to {SIZE}", text)
    if found is None and tried is None:
        return None
    needed = size_of(found[1]) if found else size_of(tried[2])  # type: ignore[index]  # one of the two is there
    limit = _free_of_allocator(text)
    if limit is None and tried is not None and size_of(tried[1]) < needed:
        limit = size_of(tried[1])
    phase = "running" if found else "compiling"
    return OutOfMemory("gpu", phase, "hbm", needed, limit, holds_arguments=False, parts=_gpu_parts(text))


def _cpu(text: str) -> OutOfMemory | None:
    found = re.search(rf"Out of memory allocating {SIZE}", text)
    return found and OutOfMemory("cpu", "running", "ram", size_of(found[1]), holds_arguments=False)


FORMS = (_tpu_allocations, _tpu_total, _tpu_on_chip, _tpu_runtime, _gpu, _cpu)


def _free_of_allocator(text: str) -> int | None:
    """What a GPU's allocator has left, from the table that it writes into the log."""
    limit, used = (re.search(rf"^\s*{word}:\s+{SIZE}\s*$", text, re.MULTILINE) for word in ("Limit", "InUse"))
    return size_of(limit[1]) - size_of(used[1]) if limit and used else None


def _tpu_parts(text: str) -> tuple[tuple[str, int], ...]:
    return _parts(rf"^\s+(program|arguments|global|scoped|overlays|HLO temp)\s+{SIZE}", text)


def _gpu_parts(text: str) -> tuple[tuple[str, int], ...]:
    return _parts(rf"^\s*((?:[\w ]+) (?:allocation|fragmentation)):\s+{SIZE}", text)


def _parts(pattern: str, text: str) -> tuple[tuple[str, int], ...]:
    return tuple({name: size_of(size) for name, size in re.findall(pattern, text, re.MULTILINE)}.items())


def _program(text: str) -> str:
    found = re.search(r"HLO module: ([\w\-]+)", text) or re.search(r"Error loading program '([^']+)'", text)
    return found[1] if found else ""


def _buffers(text: str) -> list[Buffer]:
    """The blocks of the lists of both kinds, each of which begins with a size."""
    blocks: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        if re.match(r"\s*(?:\d+\\?\.\s*)?Size: ", line):
            blocks.append([])
            inside = True
        inside = inside and "=====" not in line
        if inside:
            blocks[-1].append(line)
    return [_buffer("\n".join(lines)) for lines in blocks]


def _buffer(block: str) -> Buffer:
    def value(pattern: str) -> str:
        found = re.search(pattern, block)
        return found[1] if found else ""

    size, unpadded = size_of(value(rf"Size: {SIZE}")), value(rf"Unpadded size: {SIZE}")
    array = re.search(r"(?:Shape|Subshape): \(?(\w+)\[([\d,<=]*)\](?!.*\w\[)", block)  # no tuple of several arrays
    dtype, shape = (array[1], tuple(int(n.strip("<=")) for n in array[2].split(",") if n)) if array else ("", ())
    exact = Array(dtype, shape).bytes if array else 0
    label = value(r"XLA [lL]abel: (.+)").strip()
    kind, index = _kind_of(block, label)
    return Buffer(
        bytes=_sharpened(size, exact),
        unpadded_bytes=_sharpened(size_of(unpadded), exact) if unpadded else None,
        dtype=_as_jax_writes(dtype),
        shape=shape,
        operation=value(r'op_name="((?:[^"\\]|\\.)*)"').replace("\n", ""),
        file=value(r'source_file="([^"]*)"'),
        line=int(value(r"source_line=(\d+)") or 0),
        label=label,
        kind=kind,
        index=index,
    )


def _kind_of(block: str, label: str) -> tuple[str, int | None]:
    numbered = re.match(r"(Argument|Output) (?:(\d+) )?index \{([\d,]*)\}", label)
    if numbered:
        number = numbered[2] or numbered[3].partition(",")[0]
        return numbered[1].lower(), int(number) if number else 0
    if "Entry Parameter" in block:
        return "argument", None
    return ("temporary" if re.search(r"Allocation type: .*temp", block) else ""), None


def _sharpened(rounded: int, exact: int) -> int:
    """The size of the array where the rounded one of the message says the same."""
    return exact if exact and abs(rounded - exact) <= 0.006 * exact + 1 else rounded


def _as_jax_writes(dtype: str) -> str:
    """XLA's short name of an element type as that of JAX's."""
    if dtype == "pred":
        return "bool"
    signed = re.fullmatch(r"s(\d+)", dtype)
    eight = re.fullmatch(r"f(\d)(e\d.*)", dtype)
    return f"i{signed[1]}" if signed else f"f{eight[1]}_{eight[2]}" if eight else dtype


def _without_prefix(line: str) -> str:
    """A line of a log without its time and place, the indentation after these kept."""
    return re.sub(r"^(?:> ?)?(?:[EWIF]\d{4} |\d{4}-\d\d-\d\d )[^\]]*?\.(?:cc|py):\d+\] ?", "", line).removeprefix("> ")


def _beginning(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else f"{text[:60]}...") if text else "an empty text"
