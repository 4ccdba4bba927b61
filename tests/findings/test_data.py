"""Findings are data: filtered by code, given as warnings one by one, written as JSON, text and Markdown."""

import json
import warnings
from dataclasses import replace

import pytest
from findings.finding_cases import CASES, MIB, Program, W, X, dropout, named
from findings.finding_cases import KEY as RANDOM_KEY

import remat
from remat import errors

CASE = {c.code: c for c in CASES}
BOTH = Program(lambda w, x, key: dropout(w, x, key) + named(w, x), (W, X, RANDOM_KEY), "names:prodct")


@pytest.fixture(scope="module")
def found():
    return BOTH.check()


def test_warnings_come_first(found):
    assert found.codes == ("unknown-name", "random-recomputed")
    assert [f.level for f in found] == ["warning", "note"]
    assert (len(found), len(found.warnings), len(found.notes)) == (2, 1, 1)
    assert (found.function, found.policy, found.target) == ("<lambda>", "names:prodct", "cpu")


def test_filtered_by_code(found):
    assert found.without("unknown-name").codes == ("random-recomputed",)
    assert found.without("dead-name") == found
    with pytest.raises(errors.ArgumentError, match=r"no finding 'dead_name'\. Did you mean 'dead-name'\?"):
        found.without("dead_name")


def test_given_as_warnings_that_are_filtered_one_by_one(found):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", errors.RandomRecomputedWarning)
        found.warn()
    (one,) = told
    assert one.category is remat.UnknownNameWarning
    assert one.filename == __file__
    assert "Write 'product'." in str(one.message)


def test_nothing_is_warned_of_otherwise():
    """What remat warns of by itself is among the findings; warnings are errors here."""
    assert "unmatched-products" in CASE["unmatched-products"].fires.check().codes


def test_json_and_back(found):
    data = json.loads(found.to_json())
    assert data["schema"] == "remat.findings/1"
    first = data["findings"][0]
    assert (first["code"], first["level"], first["bytes"]) == ("unknown-name", "warning", MIB)
    assert first["source"]["file"] == __file__
    assert remat.Findings.from_json(found.to_json()) == found
    with pytest.raises(errors.ArgumentError, match=r"the schema 'remat\.compare/1', but must be 'remat\.findings/1'"):
        remat.Findings.from_json('{"schema": "remat.compare/1"}')
    with pytest.raises(errors.ArgumentError, match="this is no JSON"):
        remat.Findings.from_json("nothing")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.code)
def test_text_has_all_of_it_in_80_columns(case):
    found = case.fires.check()
    lines = str(found).splitlines()
    assert all(len(line) <= 80 or "/" in line for line in lines)  # a path is not cut
    text = " ".join(str(found).split())
    for f in found:
        assert f"{f.level} {f.code}: {f.subject}" in text
        assert f":{f.source.line} (" in text
        assert f.fix.split()[0] in text


def test_text_of_nothing():
    found = CASE["unknown-name"].silent.check()
    assert not found
    assert str(found) == "named, policy names:product, for cpu: nothing found"


def test_markdown(found):
    title, _, head, line, *rows = found.to_markdown().splitlines()
    assert title.endswith(": 1 warning, 1 note")
    assert head.count("|") == line.count("|") == 8
    assert [row.split(" | ")[1] for row in rows] == ["unknown-name", "random-recomputed"]
    piped = replace(found, findings=(replace(found[0], message="a|b"),)).to_markdown()
    assert r"a\|b" in piped


def test_bad_arguments_are_those_of_grad():
    with pytest.raises(errors.PolicyError, match="dtos"):
        remat.check(named, W, X, policy="dtos")
    with pytest.raises(remat.TargetError, match="no target"):
        remat.check(named, W, X, target="tpu:v9")
    with pytest.raises(TypeError, match="scalar"):
        remat.check(lambda w: w, W, target="cpu")
