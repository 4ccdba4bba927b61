"""Each kind of finding is told, with place, bytes and advice, where it is right, and not where it almost is."""

import re
from pathlib import Path

import pytest
from findings import finding_cases
from findings.finding_cases import CASES

from remat import errors
from remat.findings.codes import KINDS

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "findings.md"


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.code)
def test_told(case):
    found = case.fires.check()
    assert {case.code} <= set(found.codes) <= {case.code, *case.also}
    (finding,) = [f for f in found if f.code == case.code]
    assert finding.level == KINDS[case.code].level
    assert finding.source.file == finding_cases.__file__
    assert finding.source.line > 0
    assert (finding.subject, finding.bytes) == (case.subject, case.bytes)
    assert case.fix in finding.fix
    assert finding.message.endswith((".", "?"))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.code)
def test_not_told(case):
    assert case.code not in case.silent.check().codes


def test_there_is_a_case_of_each_kind():
    assert {c.code for c in CASES} == set(KINDS)


def test_each_kind_is_documented_and_has_a_warning_of_its_own():
    sections = re.findall(r"^### `([a-z-]+)`", DOCS.read_text(), re.MULTILINE)
    assert set(sections) == set(KINDS)
    assert len(sections) == len(set(sections))
    assert len({k.warning for k in KINDS.values()}) == len(KINDS)
    for code, kind in KINDS.items():
        assert kind.warning.code == code
        assert issubclass(kind.warning, errors.RematWarning)
