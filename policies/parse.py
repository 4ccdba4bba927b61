"""The short string form of policies, for Python, command lines and JSON: `str(policy)` read back.

    policy   ::= both ('|' both)*                     either may keep a value
    both     ::= single ('&' single)*                 both must
    single   ::= '(' policy ')' | WORD | WORD ':' argument

    argument ::= names                                names, names_but, except
               | names ['@' memory] [':saved=' names] offload
               | memory                               offload_dots
               | side '=' names (':' side '=' names)* balanced; side is compute_bound or memory_bound
               | ['saved' ':'] SIZE                   budget; a number of bytes, or a fraction with a point
               | NUMBER [':' single]                  scan_segments
               | scope ':' single                     within
               | single                               substituting, scan_body
    memory   ::= [MEMORY '->'] MEMORY                 from where ('device' if left out) and to where
    names    ::= name (',' name)* | '()'              '()' are no names at all
    name     ::= BARE | QUOTED | '=' LITERAL          '=3' is the number; see remat.name_patterns
    scope    ::= BARE | QUOTED

Spaces between tokens mean nothing. BARE text has none of `, : | & ( ) @ = ' "` in it (a scope may have `, @ =`);
anything else is QUOTED as a Python string, or a Python LITERAL. Prefix words bind to one `single`, so
`within:mlp:dots|nothing` is `(within:mlp:dots)|nothing`.

Words without an argument: `everything`, `nothing`, `dots`, `dots_no_batch`, `balanced`, `burn`, `burn_no_checkpointing`
and `auto`, and the full names of JAX's policies without arguments. The names of JAX's functions that make
policies stand for the words with an argument of the same meaning (`save_only_these_names:a` is `names:a`). Each family
of policies adds its words; what it writes with the functions here, it reads with the method of `Reader` of the same
name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any

from remat.decisions import Policy, as_policy
from remat.errors import PolicyError
from remat.policies.algebra import Both, Either
from remat.policies.unknown_words import CONSTRUCTORS, known_words_text, unknown_word_text

WORDS: dict[str, Policy] = {}
"""Words without an argument. Each family of policies adds its own."""

WITH_ARGUMENT: dict[str, tuple[Callable[[Reader], Policy], str]] = {}
"""Words with an argument: what reads it and makes the policy, and an example of it."""

_WRITTEN_BARE = re.compile(r"""[^\s,:|&()@='"]+""")
_NAME = re.compile(r"""[^,:|&()@='"]+""")
_SCOPE = re.compile(r"""[^:|&()'"]+""")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)


def parse(text: Any) -> Policy:
    """Read the short form of a policy.

    **Arguments**

    - `text`: a short form such as `"dots"`, `"names:a,b"`, `"offload:z"`, `"dots|names:a"`,
      `"scan_body:(dots|names:a)"`. Names that hold one of `, : | & ( ) @ =` are quoted: `"names:'a,b'"`. Policies are
      returned as they are, and what JAX accepts as a policy is wrapped.

    **Returns** the policy; `parse(str(policy)) == policy` for every policy of `remat.policies` whose names are strings
    or other Python literals.

    **Raises** `PolicyError` for unknown words, with the nearest known one and what to write for a name or for a word
    of MaxText's, and for what cannot be read, with the place.

    >>> from remat import policies
    >>> policies.parse("dots | names:a")
    Either(policies=(DotsSaveable(batch_dims=True), SaveOnlyTheseNames(names=frozenset({'a'}))))
    """
    if not isinstance(text, str):
        return as_policy(text)
    reader = Reader(text)
    policy = reader.policy()
    reader.end()
    return policy


class Reader:
    """The text of a policy, and how far it has been read. Each method reads one part of the grammar."""

    def __init__(self, text: str):
        self.text = text
        self.at = 0

    def take(self, pattern: str | re.Pattern[str]) -> str | None:
        """Read what matches the pattern, spaces before it skipped; None where it does not match."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        match = re.compile(pattern).match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match[0]

    def sees(self, pattern: str) -> bool:
        """Whether the pattern comes next."""
        start = self.at
        found = self.take(pattern) is not None
        self.at = start
        return found

    def expected(self, what: str, advice: str = "") -> PolicyError:
        """The error that something else stands here."""
        self.take(r"")
        rest = self.text[self.at :]
        found = f"but found {rest!r} at character {self.at + 1}" if rest else "but it ends there"
        advice = advice and f" {advice}"
        return PolicyError(f"the policy {self.text!r} cannot be read: expected {what}, {found}.{advice}")

    def end(self) -> None:
        if self.sees(r"\)"):
            raise self._unbalanced()
        if not self.sees(r"\Z"):
            raise self.expected("'|', '&' or the end", _ADVICE)

    def policy(self) -> Policy:
        parts = [self._both()]
        while self.take(r"\|"):
            parts.append(self._both("|"))
        return Either.of(*parts) if len(parts) > 1 else parts[0]

    def _both(self, mark: str = "") -> Policy:
        parts = [self.single(mark)]
        while self.take("&"):
            parts.append(self.single("&"))
        return Both.of(*parts) if len(parts) > 1 else parts[0]

    def single(self, mark: str = "") -> Policy:
        """A policy that stands for itself; `mark` is the operator before it."""
        if self.take(r"\("):
            inside = self.policy()
            if not self.take(r"\)"):
                raise self.expected("'|', '&' or ')'", _ADVICE) if not self.sees(r"\Z") else self._unbalanced()
            return inside
        start = self.at
        word = self.take(r"[^\s:|&()]+")
        if word is None:
            raise self._nothing_here(mark)
        colon = self.take(":")
        ours = CONSTRUCTORS.get(word, word)
        if colon and ours in WITH_ARGUMENT and not self.sees(r"\Z"):
            return WITH_ARGUMENT[ours][0](self)
        if word in WORDS and not colon:
            return WORDS[word]
        raise PolicyError(unknown_word_text(word, bool(colon), self.text, start, WORDS, _examples()))

    def names(self) -> list[Any]:
        if self.take(r"\(\s*\)"):
            return []
        found = [self._name()]
        while self.take(","):
            found.append(self._name())
        return found

    def _name(self) -> Any:
        if self.take("="):
            return self._literal()
        quoted = self.take(_QUOTED)
        if quoted is not None:
            return self._evaluated(quoted)
        bare = (self.take(_NAME) or "").strip()
        if not bare:
            raise self.expected(
                "a name, since a policy about names needs names, separated by commas",
                "Write names:a,b, or names:() for none. A name with , : | & ( ) @ = or a quote in it is quoted: "
                "names:'a,b'.",
            )
        return bare

    def scope(self) -> str:
        quoted = self.take(_QUOTED)
        scope = self._evaluated(quoted) if quoted is not None else (self.take(_SCOPE) or "").strip()
        if not scope or not self.take(":") or self.sees(r"\Z"):
            raise self.expected(
                "a scope and a policy, such as 'within:attention:dots'",
                "A scope with : | & ( ) or a quote in it is quoted: within:'jvp(attention)':dots.",
            )
        return scope

    def memory(self) -> tuple[str, str]:
        """From where and to where."""
        first = self.take(r"\w+")
        if first is None:
            raise self.expected("a memory space, such as pinned_host")
        if not self.take("->|,"):  # a comma as in the call of JAX's function
            return "device", first
        second = self.take(r"\w+")
        if second is None:
            raise self.expected("the memory space to move to, such as device->pinned_host")
        return first, second

    def _literal(self) -> Any:
        """A Python literal; it ends at the first mark of the grammar outside brackets and strings."""
        self.take(r"")
        start, depth = self.at, 0
        while self.at < len(self.text):
            quoted = _QUOTED.match(self.text, self.at)
            character = self.text[self.at]
            depth += (character in "([{") - (character in ")]}")
            if depth < 0 or (depth == 0 and character in ",:|&@"):
                break
            self.at = quoted.end() if quoted else self.at + 1
        return self._evaluated(self.text[start : self.at].strip())

    def _evaluated(self, literal: str) -> Any:
        try:
            return ast.literal_eval(literal)
        except (ValueError, SyntaxError, TypeError):  # what literal_eval raises for text that is no literal
            raise PolicyError(
                f"the policy {self.text!r} cannot be read: {literal!r} is no Python literal. After '=' stands a "
                "number, a tuple or another literal; a string is written bare or in quotes."
            ) from None

    def _unbalanced(self) -> PolicyError:
        return PolicyError(
            f"the parentheses of the policy {self.text!r} do not match (character {self.at + 1}). Close each one that "
            "is opened."
        )

    def _nothing_here(self, mark: str) -> PolicyError:
        if not self.text.strip():
            return PolicyError(f"the text of the policy is empty. {known_words_text(WORDS, _examples())}")
        following = self.take(r"[|&]")
        if mark or following:
            return PolicyError(
                f"the policy {self.text!r} has nothing on one side of {mark or following!r} (character {self.at}). "
                "Name a policy on both sides."
            )
        if self.sees(r"\)"):
            self.take(r"")
            opened = self.text.count("(", 0, self.at) - self.text.count(")", 0, self.at)
            return self.expected("a policy inside the parentheses") if opened > 0 else self._unbalanced()
        return self.expected("a policy")


_ADVICE = "Text with , : | & ( ) @ = or a quote in it is quoted, as in names:'a,b'."


def _examples() -> dict[str, str]:
    return {word: example for word, (_, example) in WITH_ARGUMENT.items()}


def names_text(names: Iterable[Any]) -> str:
    """Names as `Reader.names` reads them."""
    return ",".join(sorted(map(_name_text, names))) or "()"


def _name_text(name: Any) -> str:
    return text_or_quoted(name) if isinstance(name, str) else f"={name!r}"


def text_or_quoted(text: str) -> str:
    """A string as it is where the grammar allows that, and otherwise in quotes."""
    text = str.__str__(text)  # members of a StrEnum are their values
    return text if _WRITTEN_BARE.fullmatch(text) else repr(text)


def memory_text(source: str, destination: str) -> str:
    """A pair of memory spaces as `Reader.memory` reads it."""
    return destination if source == "device" else f"{source}->{destination}"
