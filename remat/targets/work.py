"""The work in an optimized program: FLOPs of products and convolutions, and collectives, as they are executed.

What a loop does counts as often as it runs, what a branch does once (the most of the branches). So work that the
compiler repeats, or leaves out because it merged it, is in the figures. Products are counted where they are: as `dot`,
inside fusions, as calls of cuBLAS and cuDNN, as the convolutions that the TPU compiler makes of them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from remat.targets.hlo import Array, Computation, Instruction, Module
from remat.targets.loops import loop_of

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
               "collective-broadcast")  # fmt: skip

# Custom calls that compute nothing, or whose work is counted here.
SILENT_CALLS = re.compile(
    r"AllocateBuffer|ConcatBitcast|AsyncCollective\w*|Sharding|SPMD\w*|annotate_device_placement|MoveTo\w*|PinTo\w*|Barrier|"
    r"x64\w*|X64\w*|PadToStatic|SliceToDynamic|xla\.\w*|__cublas\$.*|__cudnn\$conv.*"
)


@dataclass
class Work:
    """What a computation does when it runs once.

    `collectives` and `collective_bytes` are by kind. `endless` is how many loops of unknown length are in it, counted
    as if they ran once. `kernels` are custom calls whose work nobody knows.
    """

    flops: int = 0
    collectives: Counter[str] = field(default_factory=Counter)
    collective_bytes: Counter[str] = field(default_factory=Counter)
    endless: int = 0
    kernels: Counter[str] = field(default_factory=Counter)

    def add(self, other: Work, times: int = 1) -> None:
        self.flops += times * other.flops
        self.endless += other.endless
        for own, new in (
            (self.collectives, other.collectives),
            (self.collective_bytes, other.collective_bytes),
            (self.kernels, other.kernels),
        ):
            own.update({kind: times * n for kind, n in new.items()})


def work_of(module: Module) -> Work:
    """What the whole program does."""
    return _work(module, module.entry, {}, set(), False)


def _work(module: Module, computation: Computation, constants: dict[int, int], seen: set[str], fused: bool) -> Work:
    """`constants` are known elements of the computation's one argument; `seen` the channels of collectives inside
    fusions: a TPU's asynchronous collective shows in the fusions that start it, go along with it, and end it."""
    total = Work()
    for instruction in computation.instructions.values():
        opcode = instruction.opcode
        if opcode.endswith(("-done", "-update")):
            continue
        if opcode == "while":
            loop = loop_of(module, computation, instruction, constants)
            total.endless += loop.trips is None
            for name in instruction.called():
                inner = _work(module, module.computations[name], loop.constants, set(), False)
                total.add(inner, 1 if loop.trips is None else loop.trips)
        elif opcode == "conditional":
            branches = [_work(module, module.computations[n], {}, set(), False) for n in instruction.called()]
            total.add(max(branches, key=lambda w: (w.flops, sum(w.collective_bytes.values()))))
        else:
            _count_one(total, computation, instruction, seen, fused)
            inside = fused or opcode.startswith("fusion")
            for name in instruction.called():
                total.add(_work(module, module.computations[name], {}, seen, inside))
    return total


def _count_one(total: Work, computation: Computation, instruction: Instruction, seen: set[str], fused: bool) -> None:
    opcode = instruction.opcode
    if opcode == "dot":
        total.flops += _dot_flops(computation, instruction, instruction.numbers("lhs_contracting_dims"))
    elif opcode == "convolution":
        left, right = (i.arrays[0] for i in computation.operands(instruction))
        total.flops += convolution_flops(left, right, instruction.arrays[0], instruction)
    elif opcode == "custom-call":
        _count_custom_call(total, computation, instruction)
    elif opcode == "ragged-dot":
        total.kernels[opcode] += 1
    kind = opcode.removesuffix("-start")
    if kind not in COLLECTIVES:
        return
    channel = instruction.attribute("channel_id")
    if fused and channel in seen:
        return
    if fused and channel:
        seen.add(channel)
    if computation.name.startswith("all-reduce-scatter"):
        kind = "reduce-scatter"
    total.collectives[kind] += 1
    total.collective_bytes[kind] += _collective_bytes(computation, instruction)


def _dot_flops(computation: Computation, instruction: Instruction, contracted: tuple[int, ...]) -> int:
    left = computation.operands(instruction)[0].arrays[0]
    return 2 * instruction.arrays[0].elements * math.prod(left.shape[i] for i in contracted)


def _count_custom_call(total: Work, computation: Computation, instruction: Instruction) -> None:
    target = instruction.attribute("custom_call_target").strip('"')
    if target.startswith("__cublas$"):
        written = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', instruction.attributes)
        contracted = tuple(map(int, re.findall(r"\d+", written.group(1)))) if written else ()
        total.flops += _dot_flops(computation, instruction, contracted)
    elif target.startswith("__cudnn$conv"):
        first, second = (i.arrays[0] for i in computation.operands(instruction)[:2])
        result = instruction.arrays[0]
        if target == "__cudnn$convBackwardInput":
            first, result = result, first
        elif target == "__cudnn$convBackwardFilter":
            second, result = result, second
        total.flops += convolution_flops(first, second, result, instruction)
    elif not SILENT_CALLS.fullmatch(target):
        total.kernels[target] += 1


def convolution_flops(inputs: Array, kernel: Array, output: Array, instruction: Instruction) -> int:
    """FLOPs of a convolution, as XLA counts them: products with padding and with the zeros of a dilation do not count.

    That matters: the TPU compiler writes products as convolutions in which most of the window is padding.
    """
    input_labels, rest = instruction.attribute("dim_labels").split("_")
    kernel_labels, output_labels = rest.split("->")
    window = dict(re.findall(r"(\w+)=(\S+)", instruction.attribute("window")))
    positions = 1
    for i, place in enumerate(sorted(c for c in output_labels if c.isdigit())):
        positions *= _valid_positions(
            inputs.shape[input_labels.index(place)],
            kernel.shape[kernel_labels.index(place)],
            output.shape[output_labels.index(place)],
            stride=_window_number(window, "stride", i, 1),
            low=_window_number(window, "pad", i, 0),
            base_dilation=_window_number(window, "lhs_dilate", i, 1),
            window_dilation=_window_number(window, "rhs_dilate", i, 1),
        )
    per_position = kernel.shape[kernel_labels.index("i")] * output.shape[output_labels.index("f")]
    return 2 * positions * per_position * output.shape[output_labels.index("b")]


def _window_number(window: dict[str, str], key: str, dimension: int, default: int) -> int:
    return int(window[key].split("x")[dimension].split("_")[0]) if key in window else default


def _valid_positions(
    size: int, window: int, output: int, *, stride: int, low: int, base_dilation: int, window_dilation: int
) -> int:
    """How many pairs of an output and a window position meet an element of the input, in one dimension."""
    if base_dilation == 1 and low == 0 and (output - 1) * stride + (window - 1) * window_dilation < size:
        return output * window
    found = 0
    windows = np.arange(window) * window_dilation - low
    for start in range(0, output * stride, stride):
        places = windows + start
        inside = (places >= 0) & (places <= (size - 1) * base_dilation)
        found += int((inside & (places % base_dilation == 0)).sum())
    return found


def _collective_bytes(computation: Computation, instruction: Instruction) -> int:
    """Bytes of the larger side, on one device: what an all-gather gives, what a reduce-scatter takes."""
    taken = sum(a.bytes for i in computation.operands(instruction) for a in i.arrays)
    if instruction.opcode.startswith("collective-permute"):
        return taken  # it gives as much; started asynchronously, its result has counters besides
    given = sum(a.bytes for a in instruction.arrays)
    if instruction.opcode.endswith("-start") and instruction.type.startswith("("):
        given -= taken  # the tuple repeats the operands
    return max(taken, given)
