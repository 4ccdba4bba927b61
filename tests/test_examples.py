"""The examples in docstrings and in the README run, and print what they say."""

import contextlib
import doctest
import importlib
import io
import re
from pathlib import Path

import pytest

import remat
from remat import jax_compat

ROOT = Path(__file__).resolve().parent.parent
NEEDS_AN_EXTRA = ("remat.cli", "remat.__main__", "remat.demo")


def module_names() -> list[str]:
    names = []
    for path in sorted((ROOT / "remat").rglob("*.py")):
        names.append(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    for folder in ("policies", "transforms"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            names.append("remat." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    return sorted({n for n in names if not n.startswith(NEEDS_AN_EXTRA)})


@pytest.mark.parametrize("name", module_names())
def test_docstrings(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert result.failed == 0


@pytest.mark.parametrize("name", [n for n in vars(remat) if not n.startswith("_") and n.islower()])
def test_public_functions_have_an_example(name):
    value = getattr(remat, name)
    if callable(value):
        assert ">>>" in (value.__doc__ or ""), f"remat.{name} has no example"


def readme_blocks() -> tuple[str, str]:
    """The first Python block of the README and the output printed below it."""
    text = (ROOT / "README.md").read_text()
    code, output = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL).groups()
    return code, output


def test_readme_example():
    code, expected = readme_blocks()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "example.py", "exec"), {})
    printed = [re.sub(r" from \S*example\.py", " from example.py", line) for line in out.getvalue().splitlines()]
    wanted = [line for line in expected.splitlines() if not line.startswith("...")]
    measured = [line for line in wanted if re.fullmatch(r"[\d.]+ MiB", line)]
    for line in wanted:
        if line not in measured or jax_compat.orders_by_barriers():
            assert line in printed


def test_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    for mark, command in (("demo", "remat demo"), ("tests", "-m pytest")):
        block = re.search(rf"<!-- {mark} -->\n```\n(.*?)```", text, re.DOTALL)
        assert block is not None
        assert command in block.group(1)
