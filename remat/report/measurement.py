"""The text of a measurement: one figure a line, at most 80 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from remat.report.markdown import markdown_report, markdown_table
from remat.report.width import WIDTH
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.targets.measure import Measurement

UNITS = ("", "k", "M", "G", "T", "P", "E")


def measurement_text(measured: Measurement) -> str:
    """A table of what a compiled program takes on one device."""
    lines = [*textwrap.wrap(_title(measured), WIDTH), ""]
    if measured.error is not None:
        lines += [REFUSED, *_indented(measured.error)]
    else:
        width = max(len(name) for name, _, _ in _rows(measured))
        for name, figure, note in _rows(measured):
            lines.append(f"  {name:<{width}}  {figure:>12}" + (f"  {note}" if note else ""))
    lines += ["", *(line for note in _notes(measured) for line in textwrap.wrap(note, WIDTH))]
    return "\n".join(line.rstrip() for line in lines)


def measurement_markdown(measured: Measurement) -> str:
    """The same as a table in Markdown."""
    head = ["", "on one device", "note"]
    if measured.error is not None:
        rows = [["the program", "refused", " ".join(_indented(measured.error)).strip()]]
    else:
        rows = [[*row] for row in _rows(measured)]
    return markdown_report(_title(measured), markdown_table(head, rows), _notes(measured))


REFUSED = "the compiler refuses the program:"


def _title(measured: Measurement) -> str:
    what = "as it is" if measured.policy is None else f"value and gradient, policy {measured.policy}"
    which = "one device" if measured.devices == 1 else f"each of {measured.devices} devices"
    return f"{measured.function} ({what}) for {measured.target}, {which}"


def count_text(count: float) -> str:
    """A large number for people: `12.3 T`."""
    size, unit = float(count), 0
    while abs(size) >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} " if unit == 0 else f"{size:.2f} {UNITS[unit]}"


def _rows(m: Measurement) -> list[tuple[str, str, str]]:
    def size(count: int | None) -> str:
        return "not known" if count is None else bytes_text(count)

    rows = [
        ("temporaries", size(m.temp_bytes), ""),
        ("output", size(m.output_bytes), f"of it {size(m.alias_bytes)} in place of arguments" if m.alias_bytes else ""),
        ("temporaries + output", size(m.live_bytes), ""),
        ("arguments", size(m.argument_bytes), ""),
        ("code", size(m.code_bytes), ""),
        ("in all", size(m.total_bytes), _fits_text(m)),
    ]
    if m.peak_bytes is not None:
        rows.append(("peak, as XLA says", size(m.peak_bytes), ""))
    if m.host_bytes:
        rows.append(("host memory", size(m.host_bytes), ""))
    rows.append(("products", f"{count_text(m.dot_flops or 0)}FLOP", ""))
    for c in m.collectives:
        rows.append((c.kind, bytes_text(c.bytes), f"in {c.count}"))
    return rows


def _fits_text(m: Measurement) -> str:
    if m.target.memory_bytes is None:
        return ""
    return f"{'fits into' if m.fits else 'more than'} {bytes_text(m.target.memory_bytes)}"


def _notes(m: Measurement) -> list[str]:
    notes: list[str] = []
    if m.endless_loops:
        notes.append(f"{m.endless_loops} loops of unknown length are counted as if they ran once.")
    if m.kernels:
        kernels = ", ".join(f"{name} x{count}" for name, count in m.kernels)
        notes.append(f"Not counted among the products: {kernels}.")
    versions = ", ".join(f"{name} {version}" for name, version in m.versions)
    notes.append(f"compiled in {m.compile_seconds:.1f} s by {versions}")
    return notes


def _indented(text: str) -> list[str]:
    wrap = {"initial_indent": "  ", "subsequent_indent": "  ", "break_long_words": True}
    lines = [line for paragraph in text.splitlines() for line in textwrap.wrap(paragraph, WIDTH, **wrap)]
    return lines[:12]
