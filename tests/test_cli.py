"""The command line: results, exit codes, messages, and what importing remat does not load."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

import remat
from remat import policies
from remat.cli import main
from remat.cli.policy_forms import policy_forms
from remat.demo import run
from remat.demo.transformer import Sizes

TARGETS = """
import types
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

shape = jax.ShapeDtypeStruct

def loss(w, x):
    def layer(x, w):
        return jnp.tanh(checkpoint_name(w @ x, "product")), None
    return jax.lax.scan(layer, x, w)[0].sum()

ARGS = shape((6, 1024, 1024), jnp.float32), shape((1024,), jnp.float32)

def pair():
    return loss, ARGS

def thing():
    return types.SimpleNamespace(fun=loss, args=ARGS[:1], kwargs={"x": ARGS[1]})

ready = types.SimpleNamespace(fun=loss, args=list(ARGS))

class Inside:
    nested = staticmethod(pair)

number = 3
def returns_number(): return 3
def no_function(): return 3, ARGS
def no_tuple(): return loss, ARGS[0]
def takes(x): return x
def endless(x): return jax.lax.while_loop(lambda x: x < 9.0, lambda x: x * x, x)
def broken(): return endless, (shape((), jnp.float32),)
def crashes(): raise KeyError("mine")
"""


@pytest.fixture
def targets(tmp_path, monkeypatch):
    """A folder with a module `targets_of_cli`, as the current folder."""
    (tmp_path / "targets_of_cli.py").write_text(TARGETS)
    (tmp_path / "needs_other.py").write_text("import not_there_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "targets_of_cli", raising=False)


def call(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, arguments)


@pytest.mark.parametrize("name", ["pair", "thing", "ready", "Inside.nested"])
def test_saved_prints_bytes_and_origin(targets, name):
    result = call("saved", f"targets_of_cli:{name}")
    assert result.exit_code == 0, result.output
    assert "kept for the backward pass of loss" in result.stdout
    assert "24.0 KiB  x 6  f32[1024]" in result.stdout
    assert "targets_of_cli.py:" in result.stdout
    assert "besides 24.0 MiB of 1 argument" in result.stdout
    assert "argument w" in call("saved", f"targets_of_cli:{name}", "--held").stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_saved_json_agrees_with_the_library(targets):
    import targets_of_cli as module

    result = call("saved", "targets_of_cli:pair", "--policy", "names:product", "--format", "json")
    assert result.exit_code == 0, result.output
    expected = remat.saved_residuals(module.loss, *module.ARGS, policy="names:product", target="cpu")
    assert json.loads(result.stdout) == json.loads(expected.to_json())
    assert "product" in [row["name"] for row in json.loads(result.stdout)["residuals"]]


def test_saved_policies_differ(targets):
    def new_bytes(*options):
        return json.loads(call("saved", "targets_of_cli:pair", "--format", "json", *options).stdout)["new_bytes"]

    assert new_bytes("--policy", "nothing") < new_bytes("--policy", "everything") <= new_bytes()


def test_lines_are_the_users_under_policies_that_jax_does_not_know(targets):
    result = call("saved", "targets_of_cli:pair", "--policy", "within:elsewhere:dots")
    assert "carry" in result.stdout
    assert "lower.py" not in result.stdout


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("targets_of_cli", "is not of the form module:attribute"),
        ("targets_of_cli:", "is not of the form module:attribute"),
        ("no_such_module:pair", "there is no module 'no_such_module'"),
        ("targets_of_cli.py:pair", "Give a module, not a file"),
        ("targets_of_cli:pear", "Did you mean 'pair'?"),
        ("targets_of_cli:number", "must be a function without arguments"),
        ("targets_of_cli:returns_number", "gives 3 of type int"),
        ("targets_of_cli:no_function", "must be a function, but is 3"),
        ("targets_of_cli:no_tuple", "must be a tuple"),
        ("targets_of_cli:takes", "takes arguments"),
    ],
)
def test_wrong_targets(targets, target, message):
    result = call("saved", target)
    assert result.exit_code == 2
    assert "Usage: main saved" in result.stderr
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_faults_in_the_users_code_keep_their_traceback(targets):
    assert isinstance(call("saved", "targets_of_cli:crashes").exception, KeyError)
    assert isinstance(call("saved", "needs_other:pair").exception, ModuleNotFoundError)


def test_errors_of_remat_are_one_message(targets):
    result = call("saved", "targets_of_cli:broken")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "while" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.filterwarnings("default::remat.RematWarning")
def test_warnings_of_remat_are_one_message(targets):
    result = call("saved", "targets_of_cli:pair", "--policy", "names:produkt")
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: ")
    assert "Did you mean 'product'?" in result.stderr
    assert "Warning" not in result.stdout


@pytest.mark.parametrize("verb", [["saved", "m:f"], ["demo"]])
def test_unknown_policy_is_a_usage_error(verb):
    result = call(*verb, "--policy", "dotz")
    assert result.exit_code == 2
    assert "Did you mean 'dots'?" in result.stderr
    assert "remat policies" in result.stderr


def test_policies_lists_forms_that_parse():
    result = call("policies")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    for form, meaning in policy_forms().items():
        assert str(policies.parse(form)).split(":")[0] == form.split(":")[0]
        assert meaning
        assert any(line.split()[:1] == [form] for line in result.stdout.splitlines()), form
    assert {"everything", "dots", "dots_no_batch", "nothing", "names:a,b"} <= set(policy_forms())


def test_plan(targets):
    listed = call("plan", "targets_of_cli:pair", "--target", "gpu:H100")
    assert listed.stdout.startswith("plans for loss, for gpu:H100:")
    result = call("plan", "targets_of_cli:pair", "--budget", "30MiB", "--verify", "-o", "plan.json")
    assert "peak within 30.0 MiB" in result.stdout
    assert "not yet" not in result.stdout
    policy = remat.load_plan("plan.json")
    import targets_of_cli

    planned = json.loads(Path("plan.json").read_text())
    timeline = remat.timeline(targets_of_cli.loss, *targets_of_cli.ARGS, policy=policy, target="cpu")
    assert timeline.set_aside == planned["simulated"]["peak_bytes"] <= 30 * 2**20
    refused = call("plan", "targets_of_cli:pair", "--budget", "1KiB")
    assert (refused.exit_code, "no plan was found" in refused.stderr) == (1, True)
    assert "give a --budget" in call("plan", "targets_of_cli:pair", "--verify").stderr


def test_timeline(targets):
    result = call("timeline", "targets_of_cli:pair", "--policy", "names:product", "--target", "gpu:H100")
    assert result.exit_code == 0, result.output
    assert "for gpu:H100" in result.stdout
    assert "'product' x6 in loops  targets_of_cli.py:" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    data = json.loads(call("timeline", "targets_of_cli:thing", "--json").stdout)
    assert data["peak_bytes"] == max(data["bytes"])


def test_report(targets, tmp_path):
    file = tmp_path / "page.html"
    options = ["--policies", "nothing", "names:nobody", "--budget", "100MiB", "-o", str(file)]
    result = call("report", "targets_of_cli:pair", "--policy", "names:product", *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("1 finding\n")
    page = file.read_text()
    assert page.startswith("<!doctype html>")
    assert "names:product" in page
    assert call("report", "targets_of_cli:pair", "--budget", "100MiB", "--json", "-o", str(file)).exit_code == 0
    data = json.loads(file.read_text())
    assert (data["policy"], data["budget_bytes"]) == ("budget:100MiB", 100 * 2**20)
    assert [row["policy"] for row in data["comparison"]][:2] == ["budget:100MiB", "none"]
    assert call("report", "targets_of_cli:pair", "--policy", "dotz").exit_code == 2


def test_compare(targets, tmp_path):
    file = tmp_path / "new.json"
    options = ["--policies", "none", "nothing", "names:product", "--fits", "1GiB", "--json", str(file)]
    result = call("compare", "targets_of_cli:pair", *options)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "3 of 3 policies fit into 1.0 GiB" in result.stdout
    data = json.loads(file.read_text())
    assert [row["policy"] for row in data["rows"]] == ["none", "nothing", "names:product"]
    assert call("compare", "targets_of_cli:pair", "--policies", "nothing", "--fits", "1KiB").exit_code == 1

    same = call("compare", "targets_of_cli:pair", "--policies", "nothing", "--against", str(file))
    assert (same.exit_code, "no policy takes more or less" in same.stdout) == (0, True)
    for row in data["rows"]:
        row["peak_bytes"] = int(row["peak_bytes"] / 1.03)
    file.write_text(json.dumps(data))
    worse = call("compare", "targets_of_cli:pair", "--policies", "nothing", "--against", str(file))
    assert (worse.exit_code, "worse" in worse.stdout) == (1, True)
    file.write_text("{}")
    assert call("compare", "targets_of_cli:pair", "--against", str(file)).exit_code == 2
    assert call("compare", "targets_of_cli:pair", "--policies", "dotz").exit_code == 2


@pytest.mark.slow
def test_demo_prints_and_writes_json(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "COMPARED", ("everything",))
    monkeypatch.setattr(run, "SIZES", Sizes(context=8, width=8, heads=2, layers=2, hidden=16, batch=2))
    file = tmp_path / "demo.json"
    result = call("demo", "--steps", "2", "--policy", "nothing", "--seed", "3", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert "nothing keeps" in " ".join(result.stdout.split())
    assert "training, loss" in result.stderr
    data = json.loads(file.read_text())
    assert (data["policy"], data["seed"], len(data["losses"])) == ("nothing", 3, 2)
    assert [row["policy"] for row in data["policies"]] == ["none", "everything", "nothing"]


def test_demo_options_are_checked_first(tmp_path):
    assert call("demo", "--steps", "0").exit_code == 2
    assert call("demo", "--json", str(tmp_path / "missing" / "file.json")).exit_code == 2


def test_help_and_version():
    assert call("--version").stdout == f"remat, version {remat.__version__}\n"
    text = call("--help").stdout
    assert all(verb in text for verb in ("demo", "saved", "timeline", "compare", "explain", "policies"))
    assert "module:attribute" in call("saved", "--help").stdout
    assert call("unknown").exit_code == 2


def python(code, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_import_remat_is_light():
    heavy = ["rich", "click", "matplotlib", "scipy.optimize", "flax", "equinox"]
    done = python("import sys, remat; print([m for m in sys.argv[1:] if m in sys.modules])", *heavy)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


@pytest.mark.parametrize("missing", ["rich", "click"])
def test_missing_extra_says_what_to_install(missing):
    done = python("import sys; sys.modules[sys.argv[1]] = None; from remat.cli import main; main()", missing)
    assert done.returncode == 1
    assert f"needs the package {missing}" in done.stderr
    assert "pip install 'remat[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_python_m_remat():
    command = [sys.executable, "-m", "remat", "saved", "nothing_here"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: remat saved")
