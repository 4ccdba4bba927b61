"""The short string form of policies, for Python, command lines and JSON: `str(policy)` read back.

    policy  ::= both ('|' both)*                  either may keep a value
    both    ::= single ('&' single)*              both must
    single  ::= '(' policy ')' | word [':' argument]

Words without an argument: `everything`, `nothing`, `dots`, `dots_no_batch`, `balanced`, `burn`,
`burn_no_checkpointing`. With one: `names:a,b`, `names_but:a,b`, `except:a,b`, `offload:a,b`
(`offload:a@unpinned_host`), `offload_dots:pinned_host`, `balanced:compute_bound=exp:memory_bound=sort`,
`substituting:POLICY`, `scan_body:POLICY`, `within:SCOPE:POLICY`. The full names of JAX's policies without
arguments work too.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from remat.decisions import Policy, as_policy
from remat.errors import PolicyError
from remat.policies.algebra import Both, Either

WORDS: dict[str, Policy] = {}
"""Words without an argument. Each family of policies adds its own."""

WITH_ARGUMENT: dict[str, tuple[Callable[[str], Policy], str]] = {}
"""Words with an argument: how to make the policy, and an example of the argument."""


def names_of(text: str) -> list[str]:
    """The names in `a, b`.

    **Raises** `PolicyError` when there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise PolicyError(f"a policy about names needs names, separated by commas, but got {text!r}. Write names:a,b.")
    return names


def parse(text: Any) -> Policy:
    """Read the short form of a policy.

    **Arguments**

    - `text`: a short form such as `"dots"`, `"names:a,b"`, `"offload:z"`, `"dots|names:a"`,
      `"scan_body:(dots|names:a)"`. Policies are returned as they are, and what JAX accepts as a policy is wrapped.

    **Returns** the policy; `parse(str(policy)) == policy` for every policy that has a short form.

    **Raises** `PolicyError` for unknown words, with the nearest known one, and for what cannot be read.

    >>> from remat import policies
    >>> policies.parse("dots | names:a")
    Either(policies=(DotsSaveable(batch_dims=True), SaveOnlyTheseNames(names=frozenset({'a'}))))
    """
    if not isinstance(text, str):
        return as_policy(text)
    for mark, kind in (("|", Either), ("&", Both)):
        parts = _split(text, mark)
        if len(parts) > 1:
            if not all(part.strip() for part in parts):
                raise PolicyError(
                    f"the policy {text!r} has nothing on one side of {mark!r}. Name a policy on both sides."
                )
            return kind.of(*map(parse, parts))
    return _single(text.strip())


def _single(text: str) -> Policy:
    if text.startswith("(") and text.endswith(")"):
        return parse(text[1:-1])
    if text in WORDS:
        return WORDS[text]
    word, colon, argument = text.partition(":")
    if word in WITH_ARGUMENT and colon and argument:
        return WITH_ARGUMENT[word][0](argument)
    raise PolicyError(_unknown(text, word))


def _unknown(text: str, word: str) -> str:
    if word in WITH_ARGUMENT:
        return (
            f"the policy {word!r} needs an argument, for example '{word}:{WITH_ARGUMENT[word][1]}', but got {text!r}."
        )
    if word in WORDS:
        return f"the policy {word!r} takes no argument, but got {text!r}. Write {word!r}."
    close = difflib.get_close_matches(word, [*WORDS, *WITH_ARGUMENT], n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    plain = sorted(w for w, policy in WORDS.items() if str(policy) == w)
    known = [*plain, *(f"{w}:..." for w in sorted(WITH_ARGUMENT))]
    wrong = f"no policy is called {text!r}" if text else "the text of the policy is empty"
    return f"{wrong}.{hint} Known: {', '.join(known)}; combined with | and &."


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
        raise PolicyError(f"the parentheses of the policy {text!r} do not match. Close each one that is opened.")
    return [*parts, text[start:]]
