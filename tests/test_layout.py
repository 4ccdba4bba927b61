"""The shape of the repository: packages listed, imports one way, no private JAX, no module loaded twice."""

import ast
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

import remat

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"remat": ROOT / "remat", "remat.policies": ROOT / "policies", "remat.transforms": ROOT / "transforms"}

FLOORS = [
    {
        "remat.errors",
        "remat.libraries",
        "remat.units",
        "remat.jax_compat",
        "remat.eager",
        "remat.name_patterns",
        "remat.signature",
        "remat.statics",
        "remat.ir",
        "remat.targets",
    },
    {
        "remat.decisions",
        "remat.region_primitive",
        "remat.trace",
        "remat.lower",
        "remat.custom_rules",
        "remat.simulate",
    },
    {"remat.transforms", "remat.loops.plan", "remat.loops.nested"},
    {"remat.planning"},
    {"remat.policies"},
    {
        "remat.graph_nodes",
        "remat.recognition",
        "remat.regions",
        "remat.checkpoint",
        "remat.recursive",
        "remat.autodiff",
        "remat.differentiate",
        "remat.gradient_checks",
        "remat.loops",
    },
    {"remat.inspect", "remat.findings", "remat.targets.measure"},
    {"remat.report"},
    {"remat.testing", "remat.frameworks"},
    {"remat.demo", "remat.cli", "remat.__main__"},
]
"""From the ground up: a module imports from its own floor and from those below. The longest name that fits counts."""

UPWARD = {
    ("remat.ir.program", "remat.ir.printer"): "__str__ of a program",
    ("remat.inspect.residuals", "remat.report.kept"): "__str__ of the data is its report",
    ("remat.inspect.residuals", "remat.report.kept_markup"): "_repr_html_ of the data is its report",
    ("remat.inspect.residuals_diff", "remat.report.kept_diff"): "__str__ of the data is its report",
    ("remat.inspect.fwd_bwd", "remat.report.text"): "__str__ of the data is its report",
    ("remat.inspect.requirements", "remat.report.retrievals"): "__str__ of the data is its report",
    ("remat.inspect.retrieval_log", "remat.report.retrievals"): "__str__ of the data is its report",
    ("remat.inspect.timeline", "remat.report.timeline"): "__str__ of the data is its report",
    ("remat.inspect.why", "remat.report.why"): "__str__ of the data is its report",
    ("remat.inspect.plan", "remat.report.plan"): "__str__ of the data is its report",
    ("remat.inspect.schedule", "remat.report.schedule"): "__str__ of the data is its report",
    ("remat.inspect.comparison", "remat.report.comparison"): "__str__ of the data is its report",
    ("remat.inspect.comparison", "remat.report.plot"): "a picture is a report",
    ("remat.inspect.pareto", "remat.report.plot"): "a picture is a report",
    ("remat.inspect.pareto", "remat.report.plan"): "__str__ of the data is its report",
    ("remat.inspect.explanation", "remat.report.explanation"): "__str__ of the data is its report",
    ("remat.targets.measure", "remat.report.measurement"): "__str__ of the data is its report",
    ("remat.findings.finding", "remat.report.findings"): "__str__ of the data is its report",
}


def modules() -> dict[str, Path]:
    """All modules of the package by their import name, each file once."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if package == "remat" and parts[0] in ("policies", "transforms"):
                continue  # the links
            name = ".".join([package, *parts])
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imported_modules(path: Path) -> set[str]:
    """Modules of ours that a file imports at run time, at any depth (not under TYPE_CHECKING)."""
    found = set()
    for node in _runtime_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names if a.name.split(".")[0] == "remat")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "remat":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else str(node.module))
    return found


def _runtime_nodes(tree: ast.AST):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _runtime_nodes(node)


def floor_of(module: str) -> int:
    fitting = [(len(n), i) for i, names in enumerate(FLOORS) for n in names if f"{module}.".startswith(f"{n}.")]
    assert fitting, f"{module} stands on no floor; add it to FLOORS"
    return max(fitting)[1]


@pytest.mark.parametrize("module", [m for m in MODULES if m != "remat"])
def test_imports_go_one_way(module):
    for other in imported_modules(MODULES[module]):
        if other == "remat":
            assert floor_of(module) == len(FLOORS) - 1, f"{module} imports the whole package; import what it needs"
        elif (module, other) not in UPWARD:
            assert floor_of(other) <= floor_of(module), f"{module} imports {other}, which is above it"


def test_no_circles():
    """No two modules import each other, directly or through others, at import time."""
    graph = {m: {o for o in imported_modules(p) if o in MODULES and (m, o) not in UPWARD} for m, p in MODULES.items()}
    graph.pop("remat")
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"circle: {' -> '.join([*path[path.index(module) :], module])}"
        if module not in done:
            for other in sorted(graph.get(module, ())):
                visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_exceptions_are_used():
    for (module, other), why in UPWARD.items():
        assert other in imported_modules(MODULES[module]), f"the exception {module} -> {other} ({why}) is not needed"


def test_package_list_matches_the_tree():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {m for m, p in MODULES.items() if p.name == "__init__.py"}
    assert set(listed) == found


def test_data_files_are_part_of_the_package():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for package, patterns in listed.items():
        folder = MODULES[package].parent
        others = {p.name for p in folder.iterdir() if p.is_file() and p.suffix != ".py"}
        assert {p.name for pattern in patterns for p in folder.glob(pattern)} == others
        assert all(list(folder.glob(pattern)) for pattern in patterns), f"{package} has no files for one of {patterns}"
    for name, path in MODULES.items():
        if path.name == "__init__.py" and name not in listed:
            assert not [p for p in path.parent.iterdir() if p.is_file() and p.suffix not in (".py", ".md")]


def test_links():
    for name in ("policies", "transforms"):
        assert os.readlink(ROOT / "remat" / name) == f"../{name}"


def test_no_module_is_loaded_twice():
    """At the root, `import policies` also works and would give every class a second identity."""
    twice = [m for m in sys.modules if m.split(".")[0] in ("policies", "transforms")]
    assert not twice


def test_private_jax_only_in_the_compatibility_module():
    pattern = re.compile(r"jax\._src|__version_info__|__version__(?!,|\}|\)|$)")
    for module, path in MODULES.items():
        if module != "remat" and not module.startswith("remat.jax_compat"):
            lines = [line for line in path.read_text().splitlines() if pattern.search(line) and "jax" in line]
            assert not lines, f"{module}: {lines}"


def test_module_docstrings():
    for module, path in MODULES.items():
        assert ast.get_docstring(ast.parse(path.read_text())), f"{module} has no docstring"


def test_public_names_are_documented():
    for name in vars(remat):
        value = getattr(remat, name)
        if not name.startswith("_") and callable(value):
            assert value.__doc__, f"remat.{name} has no docstring"
