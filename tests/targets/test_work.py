"""Work counted in optimized programs: against what JAX was asked for, and in the forms that XLA's compilers write."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from remat.targets.hlo import Array, Instruction, parse_hlo
from remat.targets.loops import loop_of
from remat.targets.work import convolution_flops, work_of


def counted(fun, *args):
    return work_of(parse_hlo(jax.jit(fun).lower(*args).compile().as_text()))


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_products_in_nested_loops():
    def inner(x, w):
        return lax.fori_loop(0, 5, lambda i, y: jnp.tanh(y @ w), x), None

    work = counted(lambda x, ws: lax.scan(inner, x, ws)[0] @ ws[0], f32(32, 64), f32(7, 64, 64))
    assert work.flops == (7 * 5 + 1) * 2 * 32 * 64 * 64
    assert work.endless == 0


def test_a_loop_of_unknown_length_counts_once():
    work = counted(lambda x, w: lax.while_loop(lambda x: x.sum() < 9, lambda x: x @ w, x), f32(8, 16), f32(16, 16))
    assert (work.flops, work.endless) == (2 * 8 * 16 * 16, 1)


def test_branches_count_as_the_most_of_them():
    def fun(i, x, w):
        return lax.switch(i, [lambda x: x @ w, lambda x: x @ w @ jnp.tanh(w), lambda x: x], x)

    assert counted(fun, jax.ShapeDtypeStruct((), jnp.int32), f32(8, 64), f32(64, 64)).flops == 2 * 2 * 8 * 64 * 64


def test_batched_products_and_convolutions():
    def fun(a, b, image, kernel):
        product = jnp.einsum("hij,hjk->hik", a, b)
        return product, lax.conv_general_dilated(image, kernel, (2, 2), "VALID", feature_group_count=2)

    work = counted(fun, f32(6, 32, 48), f32(6, 48, 16), f32(3, 4, 33, 33), f32(8, 2, 5, 3))
    assert work.flops == 2 * 6 * 32 * 48 * 16 + 2 * 3 * 8 * (15 * 16) * 2 * (5 * 3)


def test_gradient_of_a_scan_is_three_products_a_step():
    def loss(ws, x):
        return lax.scan(lambda x, w: (jnp.sin(x @ w), None), x, ws)[0].sum()

    assert counted(jax.grad(loss, (0, 1)), f32(6, 64, 64), f32(32, 64)).flops == 6 * 3 * 2 * 32 * 64 * 64


def convolution(left, right, result, text):
    instruction = Instruction("c", "", "convolution", "", f", {text}, feature_group_count=1", False)
    return convolution_flops(*(Array("bf16", s) for s in (left, right, result)), instruction)


@pytest.mark.parametrize(
    ("left", "right", "result", "text", "expected"),
    [
        # a product of which one side has a batch dimension, and one that sums over it, as the TPU compiler writes them
        ((4, 512, 64), (64, 32, 1), (4, 512, 32), "window={size=1}, dim_labels=0bf_io0->0bf", 2 * 4 * 512 * 2048),
        ((4, 512, 64), (4, 512, 32), (32, 64, 1), "window={size=4}, dim_labels=0fb_0io->bf0", 2 * 4 * 512 * 64 * 32),
        # batched: the window is as long as the batch, and all but one position of it is padding or a hole
        ((8, 16, 32), (8, 32, 64), (8, 16, 64),
         "window={size=8 stride=7 pad=7_7 lhs_dilate=8 rhs_reversal=1}, dim_labels=0bf_0io->0bf", 2 * 8 * 16 * 32 * 64),
        # padding of one on each side of four: 10 pairs, not 12
        ((1, 4, 3), (3, 3, 5), (1, 4, 5), "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f", 2 * 10 * 3 * 5),
        # the gradient of a convolution of stride 2: every other position is a hole
        ((1, 3, 2), (2, 2, 2), (1, 6, 2), "window={size=2 pad=1_1 lhs_dilate=2}, dim_labels=b0f_0io->b0f", 2 * 24),
    ],
)  # fmt: skip
def test_convolutions_without_padding_and_holes(left, right, result, text, expected):
    assert convolution(left, right, result, text) == expected


CALLS = """\
HloModule m, is_scheduled=true

%inner (p: f32[8,64]) -> f32[8,64] {
  %p = f32[8,64]{1,0} parameter(0)
  ROOT %all-gather.1 = f32[8,64]{1,0} all-gather(%p), channel_id=3, dimensions={0}
}

%inner.2 (p.2: f32[8,64]) -> f32[8,64] {
  %p.2 = f32[8,64]{1,0} parameter(0)
  ROOT %all-gather.2 = f32[8,64]{1,0} all-gather(%p.2), channel_id=3, dimensions={0}
}

ENTRY %main (a: bf16[4,16,32], b: bf16[4,32,64], x: f32[2,20,20,3], k: f32[8,3,3,3]) -> f32[2,18,18,8] {
  %a = bf16[4,16,32]{2,1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[4,32,64]{2,1,0} parameter(1)
  %x = f32[2,20,20,3]{3,2,1,0} parameter(2)
  %k = f32[8,3,3,3]{3,2,1,0} parameter(3)
  %gemm = (bf16[4,16,64]{2,1,0}, s8[4096]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["2"],"rhs_contracting_dimensions":["1"]}}}
  %conv = (f32[2,18,18,8]{3,2,1,0}, u8[0]{0}) custom-call(%x, %k), window={size=3x3}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward"
  %out = f32[2,18,18,8]{3,2,1,0} get-tuple-element(%conv), index=0
  %wgrad = (f32[8,3,3,3]{3,2,1,0}, u8[0]{0}) custom-call(%x, %out), window={size=3x3}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBackwardFilter"
  %xgrad = (f32[2,20,20,3]{3,2,1,0}, u8[0]{0}) custom-call(%out, %k), window={size=3x3}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBackwardInput"
  %kernel = f32[8,64]{1,0} custom-call(), custom_call_target="tpu_custom_call", backend_config={"x":")"}
  %start = f32[8,64]{1,0} fusion(%kernel), kind=kCustom, calls=%inner
  %done = f32[8,64]{1,0} fusion(%start), kind=kCustom, calls=%inner.2
  %gather = ((f32[8,64]{1,0}), f32[32,64]{1,0}) all-gather-start(%done), channel_id=4, dimensions={0}
  %gathered = f32[32,64]{1,0} all-gather-done(%gather)
  %permute = (f32[8,64]{1,0}, f32[8,64]{1,0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%done), channel_id=5
  ROOT %r = f32[2,18,18,8]{3,2,1,0} copy(%out)
}
"""  # noqa: E501


def test_library_calls_kernels_and_collectives():
    work = work_of(parse_hlo(CALLS))
    assert work.flops == 2 * 4 * 16 * 32 * 64 + 3 * 2 * 2 * 18 * 18 * 8 * 27
    assert work.kernels == {"tpu_custom_call": 1}
    assert work.collectives == {"all-gather": 2, "collective-permute": 1}  # a channel that fusions share is one
    assert work.collective_bytes == {"all-gather": 4 * (8 * 64 + 32 * 64), "collective-permute": 4 * 8 * 64}


LOOP = """\
%add_fused (q: s32[], c: s32[]) -> s32[] {
  %q = s32[] parameter(0)
  %c = s32[] parameter(1)
  ROOT %sum = s32[] add(%c, %q)
}

%body (state: (s32[], f32[4], s32[])) -> (s32[], f32[4], s32[]) {
  %state = (s32[]{:T(128)}, f32[4]{0}, s32[]{:T(128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%state), index=0
  %copied = s32[]{:T(128)S(6)} copy(%i)
  %step = s32[] constant(STEP)
  %next = s32[] fusion(%copied, %step), kind=kLoop, calls=%add_fused
  %x = f32[4]{0} get-tuple-element(%state), index=1
  %n = s32[] get-tuple-element(%state), index=2
  ROOT %new = (s32[], f32[4]{0}, s32[]) tuple(%next, %x, %n)
}

%condition (state.2: (s32[], f32[4], s32[])) -> pred[] {
  %state.2 = (s32[]{:T(128)}, f32[4]{0}, s32[]{:T(128)}) parameter(0)
  %i.2 = s32[] get-tuple-element(%state.2), index=0
  %n.2 = s32[] get-tuple-element(%state.2), index=2
  ROOT %more = pred[] compare(%i.2, %n.2), direction=DIRECTION
}

ENTRY %main (x.3: f32[4]) -> f32[4] {
  %x.3 = f32[4]{0} parameter(0)
  %first = s32[] constant(FIRST)
  %bound = s32[] constant(BOUND)
  %start = (s32[], f32[4]{0}, s32[]) tuple(%first, %x.3, %bound)
  %while.1 = (s32[], f32[4]{0}, s32[]) while(%start), condition=%condition, body=%body
  ROOT %result = f32[4]{0} get-tuple-element(%while.1), index=1
}
"""


@pytest.mark.parametrize(
    ("first", "bound", "step", "direction", "trips"),
    [
        (0, 6, 1, "LT", 6),
        (0, 7, 2, "LT", 4),
        (1, 7, 2, "LE", 4),
        (5, 0, -1, "GE", 6),
        (5, 0, -1, "GT", 5),
        (9, 6, 1, "LT", 0),
        (0, 6, 3, "NE", 2),
        (0, 6, -1, "LT", None),  # endless
        (0, 7, 2, "NE", None),
    ],
)
def test_counters_of_loops(first, bound, step, direction, trips):
    values = {"FIRST": first, "BOUND": bound, "STEP": step, "DIRECTION": direction}
    text = LOOP
    for word, value in values.items():
        text = text.replace(word, str(value))
    module = parse_hlo(text)
    loop = loop_of(module, module.entry, module.entry.instructions["while.1"], {})
    assert loop.trips == trips
    assert loop.constants == {2: bound}


ELEMENTS = """\
ENTRY %main (state: (f32[], (bf16[8,16], bf16[16,4]))) -> bf16[8,4] {
  %state = (f32[]{:T(128)}, /*index=1*/(bf16[8,16]{1,0:T(8,128)(2,1)}, bf16[16,4]{1,0})) parameter(0)
  ROOT %d = bf16[8,4]{1,0} dot(%state#1#0, %state#1#1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_elements_of_tuples_without_an_instruction():
    module = parse_hlo(ELEMENTS)
    assert work_of(module).flops == 2 * 8 * 4 * 16
    assert module.entry.instructions["state#1#1"].arrays == (Array("bf16", (16, 4)),)
    assert module.entry.instructions["state#1"].opcode == "get-tuple-element"


KERNEL = """\
%body (state: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %state = (s32[], f32[8,8]) parameter(0)
  %x = f32[8,8] get-tuple-element(%state), index=1
  %kernel = f32[8,8]{1,0} custom-call(%x), custom_call_target="tpu_custom_call", backend_config={"custom_call_config":{
"xprof_metadata":"{block: 128}"
}}, metadata={op_name="attention"}
  %i = s32[] get-tuple-element(%state), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %d = f32[8,8]{1,0} dot(%kernel, %kernel), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %out = (s32[], f32[8,8]) tuple(%next, %d)
}, execution_thread="main"

%condition (state: (s32[], f32[8,8])) -> pred[] {
  %state = (s32[], f32[8,8]) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %bound = s32[] constant(5)
  ROOT %less = pred[] compare(%i, %bound), direction=LT
}

ENTRY %main (x: f32[8,8]) -> f32[8,8] {
  %x = f32[8,8] parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[8,8]) tuple(%zero, %x)
  %loop = (s32[], f32[8,8]) while(%start), condition=%condition, body=%body
  ROOT %out = f32[8,8] get-tuple-element(%loop), index=1
}
"""


def test_a_computation_goes_on_after_attributes_over_several_lines():
    """A kernel's attributes have lines of their own, one of which begins as the end of a computation does."""
    module = parse_hlo(KERNEL)
    work = work_of(module)
    assert (work.flops, work.endless, dict(work.kernels)) == (5 * 2 * 8**3, 0, {"tpu_custom_call": 5})
    assert module.computations["body"].root.name == "out"
    assert module.computations["body"].instructions["kernel"].attribute("op_name") == '"attention"'
