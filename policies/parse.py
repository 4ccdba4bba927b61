"""The short string form of policies, for Python, command lines and JSON: `str(policy)` read back.

    policy  ::= both ('|' both)*                  either may keep a value
    both    ::= single ('&' single)*              both must
    single  ::= '(' policy ')' | word [':' argument]

Words without an argument: `everything`, `nothing`, `dots`, `dots_no_batch`. With one: `names:a,b`, `names_but:a,b`,
`except:a,b`, `offload:a,b` (`offload:a@unpinned_host`), `offload_dots:pinned_host`, `scan_body:POLICY`,
`within:SCOPE:POLICY`. The full names of JAX's policies without arguments work too.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from remat.decisions import Policy, as_policy
from remat.errors import PolicyError
from remat.policies.combine import Both, Either
from remat.policies.dots import OffloadDotWithNoBatchDims, dots_saveable, dots_with_no_batch_dims_saveable
from remat.policies.extremes import everything_saveable, nothing_saveable
from remat.policies.names import (
    SaveAndOffloadOnlyTheseNames,
    save_any_names_but_these,
    save_anything_except_these_names,
    save_only_these_names,
)
from remat.policies.scope import scan_body, within

WORDS: dict[str, Policy] = {
    "everything": everything_saveable,
    "nothing": nothing_saveable,
    "dots": dots_saveable,
    "dots_no_batch": dots_with_no_batch_dims_saveable,
    "everything_saveable": everything_saveable,
    "nothing_saveable": nothing_saveable,
    "dots_saveable": dots_saveable,
    "checkpoint_dots": dots_saveable,
    "dots_with_no_batch_dims_saveable": dots_with_no_batch_dims_saveable,
    "checkpoint_dots_with_no_batch_dims": dots_with_no_batch_dims_saveable,
}


def _offload(names: str) -> Policy:
    names, _, memory = names.partition("@")
    return SaveAndOffloadOnlyTheseNames(frozenset(), frozenset(_names(names)), "device", memory or "pinned_host")


def _within(argument: str) -> Policy:
    scope, _, policy = argument.partition(":")
    return within(scope, parse(policy))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


WITH_ARGUMENT: dict[str, Callable[[str], Policy]] = {
    "names": lambda a: save_only_these_names(*_names(a)),
    "names_but": lambda a: save_any_names_but_these(*_names(a)),
    "except": lambda a: save_anything_except_these_names(*_names(a)),
    "offload": _offload,
    "offload_dots": lambda a: OffloadDotWithNoBatchDims("device", a or "pinned_host"),
    "scan_body": lambda a: scan_body(parse(a)),
    "within": _within,
}


def parse(text: str) -> Policy:
    """Read the short form of a policy.

    **Arguments**

    - `text`: such as `"dots"`, `"names:a,b"`, `"offload:z"`, `"dots|names:a"`, `"scan_body:(dots|names:a)"`.

    **Returns** the policy; `parse(str(policy)) == policy` for every policy that has a short form.

    **Raises** `PolicyError` for unknown words, with the nearest known one.

    >>> from remat import policies
    >>> policies.parse("dots | names:a")
    Either(policies=(DotsSaveable(batch_dims=True), SaveOnlyTheseNames(names=frozenset({'a'}))))
    """
    if not isinstance(text, str):
        return as_policy(text)
    parts = _split(text, "|")
    if len(parts) > 1:
        return Either.of(*map(parse, parts))
    parts = _split(text, "&")
    if len(parts) > 1:
        return Both.of(*map(parse, parts))
    return _single(text.strip())


def _single(text: str) -> Policy:
    if text.startswith("(") and text.endswith(")"):
        return parse(text[1:-1])
    if text in WORDS:
        return WORDS[text]
    word, colon, argument = text.partition(":")
    if word in WITH_ARGUMENT and colon and argument:
        return WITH_ARGUMENT[word](argument)
    raise PolicyError(_unknown(text, word))


def _unknown(text: str, word: str) -> str:
    if word in WITH_ARGUMENT:
        return f"the policy {word!r} needs an argument, for example '{word}:{_EXAMPLES[word]}', but got {text!r}."
    close = difflib.get_close_matches(word, [*WORDS, *WITH_ARGUMENT], n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    known = [*list(WORDS)[:4], *(f"{w}:..." for w in WITH_ARGUMENT)]
    return f"no policy is called {text!r}.{hint} Known: {', '.join(known)}; combined with | and &."


_EXAMPLES: dict[str, Any] = {
    "names": "a,b",
    "names_but": "a,b",
    "except": "a,b",
    "offload": "a",
    "offload_dots": "pinned_host",
    "scan_body": "dots",
    "within": "attention:dots",
}


def _split(text: str, mark: str) -> list[str]:
    """Split at a mark that is not inside parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth < 0:
            break
        if c == mark and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    if depth != 0:
        raise PolicyError(f"the parentheses of the policy {text!r} do not match.")
    return [*parts, text[start:]]
