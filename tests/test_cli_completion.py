"""What the tab key completes: commands, options, policies, targets, formats; and in bash, words with colons."""

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from remat.cli import main
from remat.cli.completion import SHELLS, completion_of
from remat.cli.policy_words import complete_policy
from remat.policies.parse import WITH_ARGUMENT, WORDS
from remat.targets.target import Target, target_names


def completed(*words):
    """What the last of the words may become."""
    *arguments, incomplete = words
    return [item.value for item in completion_of("zsh", main).get_completions(arguments, incomplete)]


def test_commands_and_options():
    assert completed("sa") == ["saved"]
    assert {"saved", "why", "timeline", "completion"} <= set(completed(""))
    assert completed("saved", "m:f", "--pol") == ["--policy"]
    assert "--format" in completed("compare", "m:f", "--")
    assert completed("saved", "m:f", "--format", "") == ["table", "json", "md"]


def test_policies():
    words = completed("saved", "m:f", "--policy", "")
    assert set(words) == {*WORDS, *(f"{word}:" for word in WITH_ARGUMENT)}
    assert completed("saved", "m:f", "--policy", "dots_no") == ["dots_no_batch"]
    assert completed("saved", "m:f", "--policy=offload") == ["offload:", "offload_dots:"]
    assert completed("compare", "m:f", "--policies", "non") == ["none"]
    assert completed("compare", "m:f", "--policies", "dots", "noth") == ["nothing", "nothing_saveable"]
    assert "none" in completed("compare", "m:f", "--policies", "dots", "--policies", "")
    assert completed("compare", "m:f", "--policies", "dots", "--me") == ["--measure"]
    assert completed("plan", "m:f", "--budget", "a") == ["auto"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("names:a|dots_no", ["names:a|dots_no_batch"]),
        ("(dots&nam", ["(dots&names:", "(dots&names_but:"]),
        ("scan_body:every", ["scan_body:everything", "scan_body:everything_saveable"]),
        ("within:mlp:burn_no", ["within:mlp:burn_no_checkpointing"]),
        ("scan_segments:16:not", ["scan_segments:16:nothing", "scan_segments:16:nothing_saveable"]),
        ("names:do", []),
        ("dotz", []),
    ],
)
def test_what_comes_next_in_a_policy(typed, words):
    assert [text for text, _ in complete_policy(typed)] == words


def test_every_policy_word_says_what_it_means():
    meanings = dict(complete_policy(""))
    assert all(meanings.values())
    assert meanings["dots_saveable"] == "the same as dots"


def test_targets():
    names = completed("saved", "m:f", "--target", "")
    assert names == target_names()
    assert all(str(Target.parse(name)) == name for name in names)
    assert "tpu:v5e:2x2" in completed("measure", "m:f", "--target", "tpu:v5e")
    assert completed("measure", "m:f", "--target", "GPU:h1") == ["gpu:H100"]


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts(shell):
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_REMAT_COMPLETE" in result.stdout
    assert f"{SHELLS[shell].name}_complete" in result.stdout
    assert CliRunner().invoke(main, ["completion", "tcsh"]).exit_code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("remat saved m:f --policy names:a|dots_no", ["a|dots_no_batch"]),
        ("remat saved m:f --target tpu:v5e", ["v5e:2x2"]),
        ("remat saved m:f --policy=offload_", ["offload_dots:"]),
    ],
)
def test_bash_replaces_what_comes_after_the_last_colon(tmp_path, line, replies):
    command = tmp_path / "remat"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m remat "$@"\n')
    command.chmod(0o755)
    script = CliRunner().invoke(main, ["completion", "bash"]).stdout
    asked = f"COMP_LINE='{line}' COMP_POINT={len(line)} _remat_completion remat"
    code = f"{script}\n{asked}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        ["bash", "--norc", "-c", f"compopt() {{ :; }}\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.stdout.splitlines() == replies, done.stderr
