"""Names by pattern: which names of `checkpoint_name` a name or a pattern such as `*_proj` stands for.

A text with one of `*`, `?` and `[` in it is a pattern, in the style of file names: `*` is any text, `?` any character,
`[abc]` and `[a-z]` one of these, `[!abc]` any other. It also stands for the name that is written like it.
"""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Iterable
from typing import Any


def is_pattern(name: Any) -> bool:
    """Whether a name in a policy may stand for several.

    >>> from remat.name_patterns import is_pattern
    >>> is_pattern("*_proj"), is_pattern("q_proj"), is_pattern(3)
    (True, False, False)
    """
    return isinstance(name, str) and not set("*?[").isdisjoint(name)


def stands_for_name(asked: Any, tag: Any) -> bool:
    """Whether what a policy asks for, a name or a pattern, is the name `tag`.

    >>> from remat.name_patterns import stands_for_name
    >>> stands_for_name("*_proj", "q_proj"), stands_for_name("[!q]*", "q_proj"), stands_for_name("a[0]", "a[0]")
    (True, False, True)
    """
    if asked == tag:
        return True
    return is_pattern(asked) and isinstance(tag, str) and fnmatch.fnmatchcase(tag, asked)


def has_name(asked: Iterable[Any], tag: Any) -> bool:
    """Whether one of several names and patterns stands for the name `tag`."""
    return any(stands_for_name(one, tag) for one in asked)


def literally(name: Any) -> Any:
    """The pattern that stands for this name alone; names without marks of a pattern stay what they are.

    >>> from remat.name_patterns import literally
    >>> literally("a*"), literally("a")
    ('a[*]', 'a')
    """
    return glob.escape(name) if is_pattern(name) else name
