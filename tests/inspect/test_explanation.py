"""Explained out-of-memory messages: which values the buffers are, why they are there, and which policies fit."""

import inspect
import json
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import remat
from remat.errors import ArgumentError, ArgumentTypeError

pytestmark = pytest.mark.filterwarnings("ignore::remat.UselessPolicyWarning")  # what does not fit is often of no use

MIB = 2**20
TPU = "tpu:v5e:2x2"


def layer(x, w):
    with jax.named_scope("mlp"):
        h = remat.checkpoint_name(x @ w["up"], "mlpwi")
        return x + remat.checkpoint_name(jax.nn.gelu(h) @ w["down"], "mlpwo"), None


def unrolled(ws, x):
    for w in ws:
        x, _ = layer(x, w)
    return jnp.mean(x.astype(jnp.float32) ** 2)


def scanned(ws, x):
    x, _ = jax.lax.scan(layer, x, ws)
    return jnp.mean(x.astype(jnp.float32) ** 2)


def bf16(*shape, **options):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, **options)


LAYERS = [{"up": bf16(1024, 4096), "down": bf16(4096, 1024)}] * 4, bf16(16384, 1024)
STACK = {"up": bf16(4, 1024, 4096), "down": bf16(4, 4096, 1024)}, bf16(8192, 1024)


def of_tpu(used, limit, *buffers):
    """A message in the form of a TPU's compiler; buffers are texts of a size, a type, and an operation or a label."""
    blocks = []
    for i, (size, type, what) in enumerate(buffers):
        label = what.partition(" ")[0] in ("Argument", "Output")
        operator = "" if label or not what else f'     Operator: op_name="{what}"\n'
        blocks.append(
            f"  {i + 1}. Size: {size}\n{operator}     Shape: {type}{{1,0:T(8,128)(2,1)}}\n"
            f"     XLA label: {what if label else 'copy-start.26 = copy-start(fusion.176)'}\n"
            f"{'' if label else '     Allocation type: HLO temp'}\n     ==========================\n"
        )
    text = f"Ran out of memory in memory space hbm. Used {used} of {limit} hbm. Exceeded hbm capacity by 6.34M.\n"
    return "\n".join([f"RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: {text}", *blocks])


FORWARD = "jit(value_and_grad_unrolled)/jvp()/checkpoint/jit(unrolled)/mlp/dot_general"
UNROLLED = of_tpu(
    "745.34M", "739.00M",
    *[("128.00M", "bf16[16384,4096]", FORWARD)] * 4,
    ("32.00M", "bf16[16384,1024]", ""),
    ("32.00M", "bf16[16384,1024]", "Argument 8 index {}"),
    ("8.00M", "bf16[1024,4096]", "Argument 3 index {}"),
    ("8.00M", "bf16[4096,1024]", "Output index {5}"),
)  # fmt: skip
"""What the TPU's compiler says of `unrolled` under names:mlpwi, shortened."""

SCANNED = of_tpu(
    "548.01M", "546.00M",
    ("256.00M", "bf16[4,8192,4096]", "jit(value_and_grad_scanned)/jvp()/checkpoint/jit(scanned)/broadcast_in_dim"),
    ("64.00M", "bf16[4,8192,1024]", "jit(value_and_grad_scanned)/jvp()/checkpoint/jit(scanned)/broadcast_in_dim"),
)  # fmt: skip


def rows(found):
    return [(o.kind, o.count, o.type, o.name or o.operation, o.matched) for o in found.occupants]


def line_of(function, text):
    source, start = inspect.getsourcelines(function)
    return start + next(i for i, line in enumerate(source) if text in line)


def test_buffers_of_an_unrolled_net():
    found = remat.explain(UNROLLED, unrolled, *LAYERS, policy="names:mlpwi", target=TPU)
    assert rows(found) == [
        ("kept", 4, "bf16[16384,4096]", "mlpwi", "operation"),
        ("transient", 1, "bf16[16384,1024]", "mlpwo", "type"),
        ("argument", 1, "bf16[16384,1024]", "x", "index"),
        ("argument", 1, "bf16[1024,4096]", "ws[1]['up']", "index"),
        ("result", 1, "bf16[4096,1024]", "gradient of ws[2]['down']", "index"),
    ]
    kept = found.occupants[0]
    assert kept.reason == "policy names:mlpwi keeps it"
    assert (kept.source.file, kept.source.line) == (__file__, line_of(layer, '"mlpwi"'))
    assert (kept.total_bytes, found.bytes_of("kept")) == (512 * MIB, 512 * MIB)
    assert found.is_listed


def test_without_a_policy_the_same_buffers_have_another_reason():
    found = remat.explain(UNROLLED, unrolled, *LAYERS, target=TPU)
    assert found.policy == "none"
    assert {o.reason for o in found.occupants if o.kind == "kept"} == {"no checkpoint region around it"}


def test_buffers_of_loops_are_stacks():
    found = remat.explain(SCANNED, scanned, *STACK, policy="names:mlpwi", target=TPU)
    assert [(o.kind, o.name, o.reason) for o in found.occupants] == [
        ("kept", "mlpwi", "policy names:mlpwi keeps it"),
        ("kept", None, "carried from one iteration to the next"),
    ]
    assert found.occupants[0].source.line == line_of(layer, '"mlpwi"')


def gpu_text(**places):
    """A message in the form of a GPU's runtime, with the line of each buffer."""
    blocks = [
        f'\tBuffer {i + 1}:\n\t\tSize: 128.00MiB\n\t\tOperator: op_name="jit(step)/jit(main)/{operation}" '
        f'source_file="/elsewhere/{__file__.rpartition("/")[2]}" source_line={line}\n\t\tXLA Label: fusion\n'
        "\t\tShape: bf16[16384,4096]\n\t\t==========================\n"
        for i, (operation, line) in enumerate(places.values())
    ]
    head = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.\nPeak buffers:"
    return "\n".join([head, *blocks])


def test_lines_tell_apart_what_has_the_same_type():
    """Under dots, results of both products are kept, one of 4096 columns; what gelu makes of it is none of them."""
    product, activation = line_of(layer, '"mlpwi"'), line_of(layer, "gelu")
    text = gpu_text(a=("jvp(mlp)/dot_general", product), b=("transpose(jvp(mlp))/mul", activation))
    found = remat.explain(text, unrolled, *LAYERS, policy="dots", target="gpu:H100")
    assert [(o.kind, o.source.line, o.matched) for o in found.occupants] == [
        ("kept", product, "line"),
        ("transient", activation, "line"),
    ]


def test_recomputed_buffers():
    text = gpu_text(a=("checkpoint/rematted_computation/mlp/tanh", line_of(layer, "gelu")))
    found = remat.explain(text, unrolled, *LAYERS, policy="names:mlpwi", target="gpu:H100")
    assert [(o.kind, o.made) for o in found.occupants] == [("recomputed", "backward")]


def test_buffers_of_one_device():
    """Arrays that are sharded are listed with the shape of their parts."""
    mesh = AbstractMesh((4,), ("data",), axis_types=(AxisType.Auto,))
    x = bf16(65536, 1024, sharding=NamedSharding(mesh, P("data")))
    found = remat.explain(UNROLLED, unrolled, LAYERS[0], x, policy="names:mlpwi", target=TPU)
    assert found.devices == 4
    assert rows(found)[0] == ("kept", 4, "bf16[65536,4096]", "mlpwi", "operation")
    assert found.occupants[0].bytes == 128 * MIB


def test_a_message_without_buffers_is_explained_by_simulation():
    text = (
        "E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO temporaries (900.0M) "
        "exceeds available HBM (800.0M). HLO module: jit_value_and_grad_scanned."
    )
    found = remat.explain(text, scanned, *STACK, policy="names:mlpwi", target=TPU)
    assert not found.is_listed
    kept = [(o.type, o.name, o.reason) for o in found.occupants if o.kind == "kept"]
    assert kept[0] == ("bf16[4,8192,4096]", "mlpwi", "policy names:mlpwi keeps it")
    arguments = {o.operation for o in found.occupants if o.kind == "argument"}
    assert arguments == {"ws['up']", "ws['down']", "x"}
    peak = remat.timeline(scanned, *STACK, policy="names:mlpwi", target=TPU).peak
    assert sum(o.total_bytes for o in found.occupants if o.kind != "argument") == peak


def test_what_fits_takes_as_much_less_as_is_lacking():
    found = remat.explain(SCANNED, scanned, *STACK, policy="names:mlpwi", target=TPU)
    first, *others = found.comparison
    assert first.policy == "names:mlpwi"
    lacking = round(548.01 * MIB) - 546 * MIB
    fitting = {r.policy for r in others if r.total_bytes <= first.total_bytes - lacking}
    assert {r.policy for r in found.fit.rows} == fitting
    assert {"nothing", "scan_body:nothing", "offload:mlpwi,mlpwo"} <= fitting
    assert "dots" not in fitting
    assert found.advised.policy == "offload:mlpwi,mlpwo"  # recomputes nothing


def test_what_moves_nothing_is_advised_first():
    text = (
        "Ran out of memory on HBM, the total memory required for HLO temporaries (1.60G) exceeds available HBM (1.20G)."
    )
    found = remat.explain(text, scanned, *STACK, target=TPU)
    assert {"dots", "offload:mlpwi,mlpwo"} <= {r.policy for r in found.fit.rows}
    assert (found.advised.recomputed_flops, found.advised.host_bytes) == (0, 0)
    assert "in the host's memory" not in str(found)


def test_a_running_device_says_what_is_free_beside_the_arguments():
    text = (
        "Attempting to reserve 1.00G at the bottom of memory. That was not possible. There are 0.50G free, 0B reserved"
    )
    found = remat.explain(text, scanned, *STACK, policy="everything", target=TPU)
    first = found.comparison.rows[0].total_bytes
    assert found.fit.limit_bytes == first - 512 * MIB
    assert found.fit.rows


def test_where_the_message_does_not_say_how_much_there_is():
    text = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes."
    found = remat.explain(text, scanned, *STACK, policy="nothing", target="gpu:H100")
    assert not found.limit_is_stated
    assert found.limit_bytes == remat.Target.parse("gpu:H100").memory_bytes
    nothing = found.comparison.rows[0]
    assert nothing.policy not in [r.policy for r in found.fit.rows]  # it did not fit
    unknown = remat.explain(text, scanned, *STACK)
    assert unknown.limit_bytes is None
    assert unknown.fit is None
    assert unknown.target == "gpu"
    assert "Name the device" in str(unknown)


def test_what_is_free_in_pieces():
    text = "Attempting to allocate 0.25G. That was not possible. There are 0.50G free."
    found = remat.explain(text, scanned, *STACK, policy="names:mlpwi", target=TPU)
    words = " ".join(str(found).split())
    assert "256.0 MiB asked for, 512.0 MiB free, but not in one piece" in words
    assert "To fit, it has to take less than with policy names:mlpwi" in words
    assert found.comparison.rows[0] not in found.fit.rows
    assert "nothing" in [r.policy for r in found.fit.rows]


def test_messages_of_something_else_are_told():
    text = "RESOURCE_EXHAUSTED: Out of memory allocating 70368744177664 bytes."
    report = " ".join(str(remat.explain(text, scanned, *STACK, policy="nothing")).split())
    assert "The message is about 64.0 TiB, scanned takes" in report
    assert "Name the device" not in report
    assert "is about" not in str(remat.explain(SCANNED, scanned, *STACK, policy="names:mlpwi", target=TPU))


def test_policies_do_not_change_memory_on_the_chip():
    text = "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 36.25M of 32.00M vmem."
    found = remat.explain(text, scanned, *STACK, target=TPU)
    assert found.comparison is None
    assert "no policy changes that" in " ".join(str(found).split())


def test_the_message_alone():
    found = remat.explain(UNROLLED)
    assert (found.function, found.comparison) == (None, None)
    assert [(o.kind, o.count, o.operation, o.made) for o in found.occupants][:3] == [
        ("unknown", 4, "dot_general", "forward"),
        ("unknown", 1, "copy-start.26 = copy-start(fusion.176)", ""),
        ("argument", 1, "Argument 8 index {}", ""),
    ]
    text = " ".join(str(found).split())
    assert "745.3 MiB needed, 739.0 MiB there are, 6.3 MiB too much" in text
    assert "remat.explain(error, loss, *args" in text


def test_exceptions_and_what_they_were_raised_from():
    def train():
        try:
            raise RuntimeError(SCANNED)
        except RuntimeError as error:
            raise ValueError("the step failed") from error

    with pytest.raises(ValueError, match="the step failed") as caught:
        train()
    assert remat.explain(caught.value) == remat.explain(SCANNED)


def test_a_real_exception_of_the_cpu():
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jnp.zeros(2**44)
    found = remat.explain(caught.value)
    assert (found.message.platform, found.message.needed_bytes) == ("cpu", 2**46)


def test_mistakes():
    with pytest.raises(ArgumentError, match=r"is no message of XLA's about memory"):
        remat.explain("all is well")
    with pytest.raises(ArgumentTypeError, match="a text or an exception, but got 3 of type int"):
        remat.explain(3)
    with pytest.raises(ArgumentError, match="none was given"):
        remat.explain(SCANNED, policy="dots")


def test_the_report_fits_the_page():
    for text, fun, args in ((UNROLLED, unrolled, LAYERS), (SCANNED, scanned, STACK)):
        report = str(remat.explain(text, fun, *args, policy="names:mlpwi", target=TPU))
        assert max(map(len, report.splitlines())) <= 80
        assert "\n\n\n" not in report
        words = " ".join(report.split())
        assert f"'mlpwi'{'?' if fun is scanned else ''} test_explanation.py:" in words
        assert "kept for the backward pass" in words
        assert "To fit, it has to take" in words


def test_padding_is_told():
    padded = """Ran out of memory in memory space hbm. Used 41.74G of 16.00G hbm. Exceeded hbm capacity by 25.74G.
  1. Size: 32.00G
     Shape: s32[8388608,8,4]{2,1,0:T(8,128)}
     Unpadded size: 1.00G
     Allocation type: HLO temp
     ==========================
"""
    assert "31.0 GiB of the buffers is padding" in str(remat.explain(padded))
    assert "padding" not in str(remat.explain(UNROLLED))


def test_json():
    found = remat.explain(UNROLLED, unrolled, *LAYERS, policy="names:mlpwi", target=TPU)
    data = json.loads(found.to_json())
    assert data["schema"] == "remat.explanation/1"
    assert data["limit_bytes"] == 739 * MIB
    assert data["message"]["needed_bytes"] == round(745.34 * MIB)
    first = data["occupants"][0]
    assert (first["kind"], first["name"], first["count"], first["bytes"]) == ("kept", "mlpwi", 4, 128 * MIB)
    assert first["source"]["line"] == line_of(layer, '"mlpwi"')
    assert data["comparison"]["rows"][0]["policy"] == "names:mlpwi"
    assert data["fits"] == [r.policy for r in found.fit.rows]
    assert json.loads(remat.explain(UNROLLED).to_json())["comparison"] is None


def example():
    """For the command line."""
    return scanned, STACK


def test_the_command(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from remat.cli.group import main

    monkeypatch.setitem(sys.modules, "explained_by_cli", sys.modules[__name__])
    file = tmp_path / "log"
    file.write_text(SCANNED)
    arguments = ["explain", str(file), "explained_by_cli:example", "--policy", "names:mlpwi", "--target", TPU]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{remat.explain(SCANNED, scanned, *STACK, policy='names:mlpwi', target=TPU)}\n"
    piped = CliRunner().invoke(main, ["explain", "-", "--json"], input=SCANNED)
    assert json.loads(piped.stdout)["message"]["platform"] == "tpu"
    wrong = CliRunner().invoke(main, ["explain", "-"], input="all is well")
    assert wrong.exit_code == 1
    assert "is no message of XLA's about memory" in wrong.stderr
    assert CliRunner().invoke(main, ["explain", str(tmp_path / "none")]).exit_code == 2
