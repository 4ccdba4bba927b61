"""The notebooks run, and their committed outputs are clean.

`python tests/test_notebooks.py` runs them in the same way and writes the outputs back.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MACHINE_PATHS = re.compile(r"ipykernel_\d+|site-packages|/(?:tmp|root|home|Users)/|[A-Z]:\\\\")


def run(notebook: Any) -> None:
    """Run all cells, in place, with the interpreter that runs this."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class ThisInterpreter(AsyncKernelManager):
        """An installed kernel called python3 may belong to another environment."""

        @property
        def kernel_spec(self) -> KernelSpec:
            command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            return KernelSpec(argv=command, display_name="Python 3", language="python")

    client = nbclient.NotebookClient(
        notebook,
        kernel_manager_class=ThisInterpreter,
        kernel_name="python3",
        timeout=300,
        allow_errors=False,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def output_texts(notebook: Any) -> list[str]:
    """All text in the outputs; pictures are left out."""
    texts = []
    for output in (o for cell in code_cells(notebook) for o in cell.outputs):
        texts.append(output.get("text", ""))
        texts.extend(str(d) for kind, d in output.get("data", {}).items() if not kind.startswith("image/"))
    return texts


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs_without_errors_and_warnings(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    run(notebook)
    assert all(cell.execution_count is not None for cell in code_cells(notebook) if cell.source.strip())
    assert not [text for text in output_texts(notebook) if re.search(r"\w*Warning: ", text)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_committed_outputs_are_clean(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1)), "run all cells once, from the top"
    assert any(cell.outputs for cell in code_cells(notebook))
    assert not [o for cell in code_cells(notebook) for o in cell.outputs if o.get("name") == "stderr"]
    assert not [text for text in output_texts(notebook) if MACHINE_PATHS.search(text)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_first_cell_is_short(path: Path) -> None:
    """The first cell shows what there is to win, within ten lines."""
    first = code_cells(nbformat.read(path, as_version=4))[0]
    assert len([line for line in first.source.splitlines() if line.strip()]) <= 10
    assert first.outputs


if __name__ == "__main__":
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        run(notebook)
        nbformat.write(notebook, path)
