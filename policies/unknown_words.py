"""What is said of a word that is no policy: what it may have been meant to be, and what to write.

A word may be a slip of the pen, the name of a value, a constructor of `jax.checkpoint_policies`, or another library's.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from remat.decisions import Policy
from remat.policies.maxtext import maxtext_text

CONSTRUCTORS = {
    "save_only_these_names": "names",
    "save_any_names_but_these": "names_but",
    "save_anything_except_these_names": "except",
    "offload_dot_with_no_batch_dims": "offload_dots",
}
"""Functions of `jax.checkpoint_policies` that make policies, and the words here whose argument is theirs."""

AMBIGUOUS = {
    "save_and_offload_only_these_names": (
        "which of the names are moved away and which stay",
        "'offload:z' to move z to the host's memory, 'offload:z:saved=y' to keep y in place too",
    ),
    "save_from_both_policies": ("which two policies", "the two with | between them, such as 'dots|names:a'"),
}
"""The others: what a text does not say, and what to write."""


Words = Mapping[str, Policy]
Examples = Mapping[str, str]
"""Words with an argument, and an example of it."""


def unknown_word_text(word: str, has_argument: bool, text: str, at: int, words: Words, examples: Examples) -> str:
    """The message about a word of the policy `text` that cannot be read; it begins at the character `at`."""
    got = f"but got {text!r}"
    if word in CONSTRUCTORS:
        ours = CONSTRUCTORS[word]
        return f"{word!r} makes policies and needs an argument, {got}. Write {_example(ours, examples)}."
    if word in AMBIGUOUS:
        missing, write = AMBIGUOUS[word]
        return f"{text!r} does not say {missing}, as {word} of jax.checkpoint_policies has to know. Write {write}."
    if word in examples:
        what = "a scope and a policy" if word == "within" else "an argument"
        return f"the policy {word!r} needs {what}, for example {_example(word, examples)}, {got}."
    if word in words:
        return f"the policy {word!r} takes no argument, {got}. Write {word!r}."
    explained = None if has_argument else maxtext_text(word)
    if explained is not None:
        return explained
    place = "" if word == text.strip() else f" (character {at + 1} of {text!r})"
    hints = _slips(word, words, examples)
    if not has_argument and "." not in word:
        hints += _as_names(word)
    return " ".join([f"no policy is called {word!r}{place}.", *hints, known_words_text(words, examples)])


def known_words_text(words: Words, examples: Examples) -> str:
    """All words, in a sentence."""
    plain = sorted(w for w, policy in words.items() if str(policy) == w)
    known = [*plain, *(f"{w}:..." for w in sorted(examples))]
    return f"Known: {', '.join(known)}; combined with | and &."


def _example(word: str, examples: Examples) -> str:
    return repr(f"{word}:{examples[word]}")


def _slips(word: str, words: Words, examples: Examples) -> list[str]:
    """What the word may have been meant to be."""
    known = [*words, *examples, *CONSTRUCTORS, *AMBIGUOUS]
    last = word.rpartition(".")[2]
    if last != word and last in known:
        return [f"Write {last!r}, without what stands before it."]
    close = difflib.get_close_matches(word, known, n=1)
    return [f"Did you mean {close[0]!r}?"] if close else []


def _as_names(word: str) -> list[str]:
    """The same as names that were given to values."""
    which = "these are names" if "," in word else "it is the name"
    return [f"If {which} that checkpoint_name gives, write {f'names:{word}'!r}."]
