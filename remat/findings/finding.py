"""Findings as data: what happened, where, how many bytes are at stake, and what to write instead."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from remat.errors import ArgumentError
from remat.findings.codes import KINDS
from remat.inspect.json_text import read_json
from remat.ir.source import Position
from remat.transforms.decide import warn_user

SCHEMA = "remat.findings/1"


@dataclass(frozen=True)
class Finding:
    """One thing that is likely to be wrong, or worth knowing.

    **Attributes**

    - `code`: its kind, such as `unknown-name`; docs/findings.md says what each means.
    - `level`: `warning`, or `note` for what may well be meant.
    - `source`: the user's file, line and function; `file` is empty where nobody knows.
    - `subject`: the value or name that it is about.
    - `bytes`: how many bytes are at stake; 0 where none are.
    - `message`: what happened. `fix`: what to write.
    """

    code: str
    level: str
    source: Position
    subject: str
    bytes: int
    message: str
    fix: str

    def __str__(self) -> str:
        place = f" ({self.source.file}:{self.source.line})" if self.source.file else ""
        return f"[{self.code}] {self.message} {self.fix}{place}"


@dataclass(frozen=True)
class Findings(Sequence[Finding]):
    """The findings about a function, warnings first; prints as a table.

    **Attributes**

    - `function`, `policy`, `target`: what was looked at (`none` without a policy), and for which compiler.
    """

    function: str
    policy: str
    target: str
    findings: tuple[Finding, ...]

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.findings[index]

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Those of level `warning`."""
        return tuple(f for f in self if f.level == "warning")

    @property
    def notes(self) -> tuple[Finding, ...]:
        """Those of level `note`."""
        return tuple(f for f in self if f.level == "note")

    @property
    def codes(self) -> tuple[str, ...]:
        """The kinds that there are, each once."""
        return tuple(dict.fromkeys(f.code for f in self))

    def without(self, *codes: str) -> Findings:
        """The same without some kinds.

        **Raises** `ArgumentError` for a code that there is not.
        """
        known_codes(codes)
        return Findings(self.function, self.policy, self.target, tuple(f for f in self if f.code not in codes))

    def warn(self) -> None:
        """Give each finding as a Python warning of the class of its kind (`remat.errors`), which `warnings` and pytest
        filter one by one. Notes are given too."""
        for finding in self:
            warn_user(KINDS[finding.code].warning(str(finding)))

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        data = {
            "schema": SCHEMA,
            "function": self.function,
            "policy": self.policy,
            "target": self.target,
            "findings": [{**asdict(f), "source": f.source._asdict()} for f in self],
        }
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Findings:
        """What `to_json` wrote. **Raises** `ArgumentError` for anything else."""
        data = read_json(text, SCHEMA, "Findings.to_json")
        found = [Finding(**{**f, "source": Position(**f["source"])}) for f in data["findings"]]
        return cls(data["function"], data["policy"], data["target"], tuple(found))

    def to_markdown(self) -> str:
        """The same as a table in Markdown."""
        from remat.report.findings import findings_markdown

        return findings_markdown(self)

    def __str__(self) -> str:
        from remat.report.findings import findings_text

        return findings_text(self)


def known_codes(codes: Sequence[str]) -> Sequence[str]:
    """Codes that there are. **Raises** `ArgumentError` for others, with the nearest."""
    for code in codes:
        if code not in KINDS:
            close = difflib.get_close_matches(code, KINDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ArgumentError(f"there is no finding {code!r}.{hint} There are: {', '.join(KINDS)}.")
    return codes
