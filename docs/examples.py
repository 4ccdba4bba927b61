"""Examples in docstrings as code blocks: for the documentation site, which reads docstrings as markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*\n(?:(?!\s*$).*\n?)*", re.MULTILINE)
"""Lines from a prompt up to an empty line: what is typed, and what is printed."""


def fenced(text: str) -> str:
    """A docstring with its examples in fences; markdown takes `>>>` for a quotation."""
    return EXAMPLE.sub(lambda found: f"```pycon\n{found.group().rstrip()}\n```\n", text)


class Examples(griffe.Extension):
    """Puts the examples of everything that has a docstring into fences."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
