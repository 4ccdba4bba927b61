"""The programs in docs/ run as they are; those for a library that is not installed are skipped."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"


def blocks() -> list[object]:
    found = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        for i, match in enumerate(re.finditer(r"```python\n(.*?)```", text, re.DOTALL)):
            section = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)[-1]
            line = text[: match.start()].count("\n") + 1
            found.append(pytest.param(page, line, match.group(1), id=f"{page.stem}-{i}-{section}"))
    return found


def imported(code: str) -> set[str]:
    """The libraries that a program imports."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize(("page", "line", "code"), blocks())
def test_program(page, line, code):
    for library in imported(code):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    exec(compile("\n" * line + code, str(page), "exec"), {"__name__": "example"})
