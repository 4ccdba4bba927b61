"""How wide reports are, and their sentences in lines."""

from __future__ import annotations

import textwrap

WIDTH = 80


def wrapped(text: str) -> list[str]:
    """The lines of a sentence, those after the first indented."""
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")
