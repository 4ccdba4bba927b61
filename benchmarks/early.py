"""Figures of a TPU program before its code is there.

The TPU compiler spends more than nine tenths of its time on making code, after it has decided where arrays are. What it
decided it writes into a folder if asked (`xla_dump_to`). So the program is compiled in a process of its own, which ends
when that is written: seconds in place of minutes, and the same figures.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from remat.targets.hlo import parse_hlo
from remat.targets.work import work_of

ASSIGNMENT = "*after_optimizations-buffer-assignment.txt"
PROGRAM = "*after_optimizations_after_buffer_assignment.txt"


def figures_of(command: list[str]) -> dict[str, Any]:
    """Run a command that compiles one program for a TPU, with the folder to write to as its last argument.

    **Returns** bytes of temporaries and output, FLOPs of products; or the `error` that the command printed because the
    program does not fit.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([*command, folder], stdout=subprocess.PIPE, text=True)
        try:
            sizes = before = None
            while process.poll() is None and (sizes is None or sizes != before):  # until both are there, whole
                time.sleep(0.3)
                before, sizes = sizes, _sizes(Path(folder))
        finally:
            process.kill()
        printed, _ = process.communicate()
        seconds = time.perf_counter() - start
        if _sizes(Path(folder)) is not None and not printed.strip():
            return {**read_dump(Path(folder)), "seconds": seconds}
    if not printed.strip():
        raise RuntimeError(f"the process that compiled ended with {process.returncode} and no result")
    return {"error": printed.strip(), "seconds": seconds}


def _sizes(folder: Path) -> tuple[int, ...] | None:
    """The sizes of the two files; None while one is missing or empty."""
    files = [next(folder.glob(name), None) for name in (ASSIGNMENT, PROGRAM)]
    sizes = tuple(0 if file is None else file.stat().st_size for file in files)
    return sizes if all(sizes) else None


def read_dump(folder: Path) -> dict[str, Any]:
    """The figures in what the compiler wrote. Memory without a color is the device's main memory."""
    assignment = next(folder.glob(ASSIGNMENT)).read_text()
    sizes = re.findall(r"^allocation \d+: size (\d+), page \d+, (.*):$", assignment, re.MULTILINE)
    work = work_of(parse_hlo(next(folder.glob(PROGRAM)).read_text()))
    return {
        "temp_bytes": sum(int(size) for size, kind in sizes if "preallocated-temp" in kind),
        "output_bytes": sum(int(size) for size, kind in sizes if "maybe-live-out" in kind),
        "dot_flops": work.flops,
        "collectives": [{"kind": kind, "bytes": moved} for kind, moved in work.collective_bytes.items()],
    }
