"""The programs in docs/ run as they are; those for a library that is not installed are skipped. One that imports
nothing goes on from the one above it. The reference has all public names, and links lead to files.
"""

import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

import remat
from remat import policies

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def blocks() -> list[object]:
    found = []
    for page in sorted(DOCS.glob("*.md")):
        text, programs = page.read_text(), []
        for i, match in enumerate(re.finditer(r"```python\n(.*?)```", text, re.DOTALL)):
            section = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)[-1]
            line, code = text[: match.start()].count("\n") + 1, match.group(1)
            programs = [*(programs if not imported(code) else []), (line, code)]
            found.append(pytest.param(page, programs, id=f"{page.stem}-{i}-{section}"))
    return found


def imported(code: str) -> set[str]:
    """The libraries that a program imports."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize(("page", "programs"), blocks())
def test_program(page, programs):
    for library in imported(programs[0][1]):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    names = {"__name__": "example"}
    for line, code in programs:
        exec(compile("\n" * line + code, str(page), "exec"), names)


def reference() -> list[str]:
    """What the pages of the reference describe, by its public name: a function in a module of its own name stands there
    with the name of the module, and the site would take the one for the other otherwise."""
    pages = [page.read_text() for page in sorted((DOCS / "api").glob("*.md"))]
    found = [name for text in pages for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)]
    return [re.sub(r"\.(\w+)\.\1$", r".\1", name) for name in found]


def test_the_reference_has_all_public_functions_and_reports_once():
    listed = reference()
    assert sorted(set(listed)) == sorted(listed)
    elsewhere = {"remat", "name", "policies"}  # other names of functions that are there, and a page of its own
    public = {n for n in remat.__all__ if n not in elsewhere and getattr(remat, n).__module__ != "remat.errors"}
    assert public - {n.removeprefix("remat.") for n in listed} == set()


def test_the_reference_has_all_policies():
    listed = [getattr(policies, n.rpartition(".")[2]) for n in reference() if n.startswith("remat.policies.")]
    makers = [v for v in vars(policies).values() if inspect.isfunction(v) and not v.__name__.startswith("_")]
    assert [v.__name__ for v in makers if v not in listed] == []


def test_what_the_reference_describes_is_there():
    for name in reference():
        package, _, last = name.rpartition(".")
        described = getattr(importlib.import_module(package), last)
        assert described.__doc__
        where = f"{package}.{last}.{last}" if f"{package}.{last}" in sys.modules and callable(described) else name
        assert f"::: {where}\n" in "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))


PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("api/*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files(page):
    """As they do on GitHub, and on the site."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = [t.partition("#")[0] for t in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in t]
    assert [t for t in targets if t and not (page.parent / t).exists()] == []
