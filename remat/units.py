"""Bytes as text and back: IEC units (KiB = 1024 B), as GPU tools print them; decimal units are read too."""

from __future__ import annotations

import math
import re

from remat.errors import ArgumentError, ArgumentTypeError

IEC = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
FACTORS = {unit.lower(): 1024**i for i, unit in enumerate(IEC)} | {
    unit.lower(): 1000**i for i, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB"))
}


def bytes_text(count: int | float) -> str:
    """A size for people: `16 B`, `1.5 KiB`, `12.0 MiB`."""
    size = float(count)
    for unit in IEC:
        if abs(size) < 1024 or unit == IEC[-1]:
            return f"{int(size)} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def parse_bytes(text: str | int | float) -> int:
    """Read a size such as `8GiB`, `1.5 MB` or a plain number of bytes.

    **Raises** `ArgumentError` for anything else, `ArgumentTypeError` for what is no text and no number.

    >>> from remat.units import parse_bytes
    >>> parse_bytes("1.5 KiB")
    1536
    """
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise ArgumentTypeError(
            f"a size must be a number of bytes or a text such as '8GiB', but is {text!r} of type {type(text).__name__}."
        )
    if not isinstance(text, str):
        if not 0 <= text < math.inf:
            raise ArgumentError(f"a size must be zero or more bytes, but is {text!r}.")
        return int(text)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    unit = (match.group(2) or "B").lower() if match else ""
    if match is None or unit not in FACTORS:
        raise ArgumentError(
            f"{text!r} is no size. Write a number and one of the units {', '.join(IEC)} or KB, MB, GB: 512 KiB, 8GiB."
        )
    return int(float(match.group(1)) * FACTORS[unit])
