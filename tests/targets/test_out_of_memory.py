"""Out-of-memory messages as data: those of the compilers and devices of TPU, GPU and CPU, as they were recorded."""

import pytest

from remat.errors import ArgumentError
from remat.targets.out_of_memory import read_out_of_memory, size_of

KIB, MIB, GIB = 2**10, 2**20, 2**30

TPU_LIST = """RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: XLA:TPU compile permanent error. Ran out of memory in \
memory space hbm. Used 745.34M of 739.00M hbm. Exceeded hbm capacity by 6.34M.

Total hbm usage >= 939.34M:
    reserved        258.00M 
    program         585.34M 
    arguments        96.00M 

Output size 64.00M; shares 0B with arguments.

Program hbm requirement 585.34M:
    HLO temp        576.45M (100.0% utilization: Unpadded (576.01M) Padded (576.01M), 0.1% fragmentation (449.5K))
    overlays          8.89M

  Largest program allocations in hbm:

  1. Size: 128.00M
     Operator: op_name="jit(value_and_grad_unrolled)/jvp()/checkpoint/jit(unrolled)/mlp/dot_general"
     Shape: bf16[16384,4096]{1,0:T(8,128)(2,1)}
     Unpadded size: 128.00M
     XLA label: convolution_reduce-precision_fusion = fusion(fusion.185, copy-done.7), kind=kOutput, calls=fused.96
     Allocation type: HLO temp
     ==========================

  2. Size: 32.00M
     Shape: bf16[16384,1024]{1,0:T(8,128)(2,1)}
     Unpadded size: 32.00M
     XLA label: copy-start.20 = copy-start(multiply_convert_fusion)
     Allocation type: HLO temp
     ==========================

  3. Size: 512B
     Shape: (bf16[4096,1024]{1,0:T(8,128)(2,1)S(1)}, bf16[4096,1024]{1,0:T(8,128)(2,1)}, u32[]{:S(2)})
     Unpadded size: 512B
     XLA label: copy-start.13 = copy-start(leaves_2_.1)
     Allocation type: HLO temp
     ==========================

  Largest program arguments and outputs in hbm:

  1. Size: 32.00M
     Shape: bf16[16384,1024]{1,0:T(8,128)(2,1)}
     XLA label: Argument 8 index {}
     ==========================

  2. Size: 8.00M
     Shape: bf16[4096,1024]{1,0:T(8,128)(2,1)}
     XLA label: Output index {1}
     ==========================
"""

TPU_PADDED = """Ran out of memory in memory space hbm. Used 41.74G of 16.00G hbm. Exceeded hbm capacity by 25.74G.

  Largest program allocations in hbm:

  1. Size: 32.00G
     Operator: op_type="FloorMod" op_name="slicewise/cic_update/FloorMod" source_file="paint.py" source_line=27
     Shape: s32[8388608,8,4]{2,1,0:T(8,128)}
     Unpadded size: 1.00G
     Extra memory due to padding: 31.00G (32.0x expansion)
     XLA label: %copy.40488 = s32[8388608,8,4]{2,1,0:T(8,128)} copy(s32[8388608,8,4]{0,2,1:T(4,128)} %get.32429)
     Allocation type: HLO temp
     ==========================
"""

GPU = """2024-05-28 07:02:44.349554: W external/tsl/tsl/framework/bfc_allocator.cc:482] Allocator (GPU_0_bfc) ran out \
of memory trying to allocate 1.97GiB (rounded to 2110783744)requested by op 
E0528 07:02:44.350251   27487 pjrt_stream_executor_client.cc:2826] Execution of replica 0 failed: RESOURCE_EXHAUSTED: \
Out of memory while trying to allocate 2110783616 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:    1.02GiB
              constant allocation:         0B
        maybe_live_out allocation:    4.89GiB
     preallocated temp allocation:    1.97GiB
  preallocated temp fragmentation:         0B (0.00%)
                 total allocation:    7.88GiB
              total fragmentation:       112B (0.00%)
Peak buffers:
\tBuffer 1:
\t\tSize: 4.89GiB
\t\tOperator: op_name="jit(dot)/jit(main)/dot_general[dimension_numbers=(((2,), (0,)), ((), ())) precision=None \
preferred_element_type=float32]" source_file="models/gemma.py" source_line=175
\t\tXLA Label: custom-call
\t\tShape: f32[5104,257152]
\t\t==========================

\tBuffer 2:
\t\tSize: 1.02GiB
\t\tEntry Parameter Subshape: pred[1095216660]
\t\t==========================

\tBuffer 3:
\t\tSize: 96.00MiB
\t\tXLA Label: fusion
\t\tShape: bf16[128,6,256,256]
\t\t==========================
"""

GPU_ALLOCATOR = """I0000 00:00:1773083052.386475   70889 bfc_allocator.cc:1119] Total size in pool: 89.77GiB
I0000 00:00:1773083052.386479   70889 bfc_allocator.cc:1128] Stats: 
Limit:                        89.77GiB
InUse:                        81.00GiB
MaxInUse:                     81.00GiB
RESOURCE_EXHAUSTED: Out of memory while trying to allocate 27.00GiB.
"""

GPU_COMPILER = (
    "2024-12-14 19:57:44 W external/xla/xla/service/hlo_rematerialization.cc:3005] Can't reduce memory use below "
    "18.88GiB (20266891105 bytes) by rematerialization; only reduced to 41.43GiB (44490724824 bytes), down from "
    "45.92GiB (49309847144 bytes) originally\n"
)


def test_a_tpu_s_list():
    found = read_out_of_memory(TPU_LIST)
    assert (found.platform, found.phase, found.memory, found.holds_arguments) == ("tpu", "compiling", "hbm", True)
    assert (found.needed_bytes, found.limit_bytes) == (round(745.34 * MIB), 739 * MIB)
    assert found.lacking_bytes == pytest.approx(6.34 * MIB)
    assert dict(found.parts)["HLO temp"] == round(576.45 * MIB)
    first, second, argument, output, small = found.buffers
    assert (first.type, first.bytes, first.kind) == ("bf16[16384,4096]", 128 * MIB, "temporary")
    assert first.operation.endswith("/mlp/dot_general")
    assert (first.file, first.line) == ("", 0)
    assert (second.type, second.operation) == ("bf16[16384,1024]", "")
    assert second.label == "copy-start.20 = copy-start(multiply_convert_fusion)"
    assert (argument.kind, argument.index, argument.bytes) == ("argument", 8, 32 * MIB)
    assert (output.kind, output.index) == ("output", 1)
    assert (small.type, small.bytes) == ("", 512)  # a tuple, of which nobody knows what is inside


def test_padding():
    (buffer,) = read_out_of_memory(TPU_PADDED).buffers
    assert (buffer.bytes, buffer.unpadded_bytes, buffer.type) == (32 * GIB, GIB, "i32[8388608,8,4]")
    assert (buffer.file, buffer.line) == ("paint.py", 27)


@pytest.mark.parametrize(
    ("text", "needed", "limit", "phase"),
    [
        (
            "E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO temporaries "
            "(44.50G) exceeds available HBM (15.75G). HLO module: jit_value_and_grad_scanned.\nSee https://openxla.org",
            44.5 * GIB, 15.75 * GIB, "compiling",
        ),
        (
            "RESOURCE_EXHAUSTED: TPU TensorCore Hbm usage: 34.82G, SparseCore Hbm usage 174.10G, exceeding available "
            "bytes: 95.74G",
            (34.82 + 174.1) * GIB, 95.74 * GIB, "compiling",
        ),
        (
            "RESOURCE_EXHAUSTED: Error loading program 'jit_train_step': Attempting to reserve 51.43G at the bottom of "
            "memory. That was not possible. There are 46.61G free, 0B reserved, and 46.61G reservable.",
            51.43 * GIB, 46.61 * GIB, "running",
        ),
        (
            "ValueError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 50.00M. That was "
            "not possible. There are 27.86M free.; (0x0x0_HBM0)",
            50 * MIB, 27.86 * MIB, "running",
        ),
        (
            "Compilation failure: Aborting compilation early because it's unlikely to have enough device memory. "
            "Requires 21.00G, has 15.48G available.",
            21 * GIB, 15.48 * GIB, "compiling",
        ),
    ],
)  # fmt: skip
def test_short_messages_of_a_tpu(text, needed, limit, phase):
    found = read_out_of_memory(text)
    assert (found.platform, found.memory, found.phase) == ("tpu", "hbm", phase)
    assert (found.needed_bytes, found.limit_bytes) == (round(needed), round(limit))
    assert found.holds_arguments == (phase == "compiling")
    assert found.buffers == ()


def test_programs_have_names():
    short = "the total memory required for HLO temporaries (2.00G) exceeds available HBM (1.00G). HLO module: jit_step."
    assert read_out_of_memory(f"Ran out of memory on HBM, {short}").program == "jit_step"
    loading = (
        "Error loading program 'jit_step': Attempting to allocate 1.82G. That was not possible. There are 1.54G free."
    )
    assert read_out_of_memory(loading).program == "jit_step"


def test_memory_on_the_chip():
    found = read_out_of_memory(
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem while allocating on stack for %custom-call = "
        "f32[16] custom-call(). Scoped allocation with size 36.25M and limit 32.00M exceeded scoped vmem limit."
    )
    assert (found.memory, found.needed_bytes, found.limit_bytes) == ("vmem", round(36.25 * MIB), 32 * MIB)


def test_a_gpu_s_list():
    found = read_out_of_memory(GPU)
    assert (found.platform, found.phase, found.holds_arguments) == ("gpu", "running", False)
    assert (found.needed_bytes, found.limit_bytes, found.lacking_bytes) == (2110783616, None, None)
    assert dict(found.parts)["total allocation"] == round(7.88 * GIB)
    product, argument, fusion = found.buffers
    assert (product.type, product.bytes) == ("f32[5104,257152]", 4 * 5104 * 257152)  # exact, where the text is rounded
    assert (product.file, product.line, product.kind) == ("models/gemma.py", 175, "")
    assert product.operation.startswith("jit(dot)/jit(main)/dot_general[")
    assert (argument.kind, argument.type, argument.index) == ("argument", "bool[1095216660]", None)
    assert (fusion.type, fusion.label, fusion.operation) == ("bf16[128,6,256,256]", "fusion", "")


def test_what_a_gpu_s_log_says_besides():
    found = read_out_of_memory(GPU_ALLOCATOR)
    assert (found.needed_bytes, found.limit_bytes) == (27 * GIB, round(89.77 * GIB) - 81 * GIB)
    found = read_out_of_memory(GPU_COMPILER)
    assert (found.phase, found.needed_bytes, found.limit_bytes) == (
        "compiling", round(41.43 * GIB), round(18.88 * GIB),
    )  # fmt: skip
    asked = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 50677266816 bytes."
    found = read_out_of_memory(GPU_COMPILER + asked)
    assert (found.phase, found.needed_bytes, found.limit_bytes) == ("running", 50677266816, round(18.88 * GIB))
    assert read_out_of_memory(GPU_COMPILER + GPU).limit_bytes is None  # what is asked for is less: of another program
    rocm = read_out_of_memory("RESOURCE_EXHAUSTED: Failed to allocate request for 154.06GiB (165425291480B)")
    assert (rocm.platform, rocm.needed_bytes) == ("gpu", round(154.06 * GIB))


def test_a_cpu():
    found = read_out_of_memory("RESOURCE_EXHAUSTED: Out of memory allocating 70368744177664 bytes.")
    assert (found.platform, found.phase, found.memory, found.needed_bytes) == ("cpu", "running", "ram", 64 * 2**40)
    assert found.limit_bytes is None


def test_lines_of_a_log():
    """Logs put a time and a place before each line."""
    prefix = "2020-05-04 09:05:40.721128: E    1578 tensorflow/compiler/xla/xla_client/xla_util.cc:76] "
    assert read_out_of_memory("\n".join(prefix + line for line in TPU_LIST.splitlines())) == read_out_of_memory(
        TPU_LIST
    )


@pytest.mark.parametrize(
    ("text", "bytes"),
    [("21.95G", 21.95 * GIB), ("6.00MiB", 6 * MIB), ("384.0KiB", 384 * KIB), ("0B", 0), ("24 bytes", 24)],
)
def test_sizes(text, bytes):
    assert size_of(text) == round(bytes)


@pytest.mark.parametrize("text", ["", "Traceback: ValueError: no", "RESOURCE_EXHAUSTED: too many open files"])
def test_other_texts_say_what_was_expected(text):
    with pytest.raises(ArgumentError, match="is no message of XLA's about memory") as caught:
        read_out_of_memory(text)
    assert "RESOURCE_EXHAUSTED" in str(caught.value)
    assert "Out of memory while trying to allocate" in str(caught.value)
