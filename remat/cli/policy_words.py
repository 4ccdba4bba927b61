"""What may come next in the text of a policy that is being typed: the words that its grammar knows."""

from __future__ import annotations

import re

from remat.cli.policy_forms import policy_forms
from remat.policies.parse import WITH_ARGUMENT, WORDS

_BEGUN = re.compile(r"(?s)(.*[|&(]\s*)?(.*)")
_BEFORE_A_POLICY = re.compile(r"(?:scan_body:|segments:|substituting:|within:[^:]+:|scan_segments:\d+:)+")
"""What stands before another policy, see `remat.policies.parse`."""


def complete_policy(incomplete: str) -> list[tuple[str, str]]:
    """Each text that it may become, up to the end of the word that is being typed, with what the word means.

    >>> from remat.cli.policy_words import complete_policy
    >>> [text for text, _ in complete_policy("names:a|dots_n")]
    ['names:a|dots_no_batch']
    """
    match = _BEGUN.fullmatch(incomplete)
    assert match is not None
    before, word = match[1] or "", match[2]
    prefix = _BEFORE_A_POLICY.match(word)
    if prefix is not None:
        before, word = before + prefix[0], word[prefix.end() :]
    return [(before + known, meaning) for known, meaning in known_words().items() if known.startswith(word)]


def known_words() -> dict[str, str]:
    """All words, those that take an argument with the colon before it, and what they mean."""
    forms = policy_forms()
    plain = {w: forms[w] if w in forms else f"the same as {policy}" for w, policy in WORDS.items()}
    with_argument = {f"{word}:": forms[f"{word}:{example}"] for word, (_, example) in WITH_ARGUMENT.items()}
    return dict(sorted((plain | with_argument).items()))
