"""Reading back the JSON that reports and plans are written as."""

from __future__ import annotations

import json
from typing import Any

from remat.errors import ArgumentError, RematError


def read_json(
    text: str, schema: str, writer: str, what: str = "this", error: type[RematError] = ArgumentError
) -> dict[str, Any]:
    """The data in a text of that schema, which `writer` wrote.

    **Raises** `error` for anything else, which says what it is and what the text should have been.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as problem:
        raise error(f"{what} is no JSON ({problem}), but must be what {writer} wrote.") from None
    found = data.get("schema") if isinstance(data, dict) else None  # pyright: ignore[reportUnknownMemberType]
    if found != schema:
        raise error(f"{what} is JSON with the schema {found!r}, but must be {schema!r}.")
    return data  # pyright: ignore[reportUnknownVariableType]
