"""Rows in lists inside lists: a ``key`` with ``*``."""

from __future__ import annotations

import json

import pytest
import yaml

from pytest_llmeval.errors import SuiteError
from tests.suites.conftest import Load

SUITE = "suite: s\nscore: exact\nprompt: {{template: x}}\ndataset: {{path: {path}, key: {key}}}\n"
NESTED = {
    "version": 1,
    "data": [
        {"title": "a", "by": "me", "parts": [{"text": "t1", "rows": [{"n": 1}, {"n": 2, "by": "you"}]}]},
        {"title": "b", "parts": [{"text": "t2", "rows": []}, {"text": "t3", "title": "c", "rows": [{"n": 3}]}]},
    ],
}
ROWS = [
    {"title": "a", "by": "me", "text": "t1", "n": 1},
    {"title": "a", "by": "you", "text": "t1", "n": 2},
    {"title": "c", "text": "t3", "n": 3},
]


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_rows_inherit_the_columns_around_them(load: Load, name: str) -> None:
    content = json.dumps(NESTED) if name.endswith("json") else yaml.safe_dump(NESTED, sort_keys=False)
    suite = load(SUITE.format(path=name, key="data.*.parts.*.rows"), {name: content})
    assert [sample.variables["row"] for sample in suite.samples] == ROWS
    if name.endswith("yaml"):
        lines = content.splitlines()
        assert [lines[(sample.line or 0) - 1].strip() for sample in suite.samples] == ["- n: 1", "- n: 2", "- n: 3"]


def test_lists_of_lists_and_mappings_between_them(load: Load) -> None:
    suite = load(SUITE.format(path="a.json", key='"*"'), {"a.json": "[[{}, {}], [{}]]"})
    assert len(suite.samples) == 3
    content = json.dumps({"x": [{"in": {"k": 1, "rows": [{"n": 1}]}, "o": 2}]})
    suite = load(SUITE.format(path="a.json", key="x.*.in.rows"), {"a.json": content})
    assert suite.samples[0].variables["row"] == {"n": 1, "k": 1, "o": 2}


def test_a_key_that_is_an_asterisk(load: Load) -> None:
    suite = load(SUITE.format(path="a.json", key='"*.rows"'), {"a.json": '{"k": 1, "*": {"rows": [{"n": 1}]}}'})
    assert suite.samples[0].variables["row"] == {"n": 1}


PROBLEMS = {
    "data.*.parts.*.rws": "a.json: there is no key 'rws' in 'data.0.parts.0', which 'key' names; did you mean 'rows'?",
    "data.*.by.*.rows": "a.json: found 'me' (text) at 'data.0.by', expected a list, which '*' of 'key' goes through",
    "data.*.by": "a.json: found 'me' (text) at the key 'data.0.by', expected a list of rows",
    "data.*": (
        "a.json: found a mapping with the keys 'title', 'by', 'parts' at the key 'data.0', expected a list of rows; "
        "'key' names the list: expected one of data.*.parts"
    ),
    "data.parts": (
        "a.json: found a list of 2 at 'data', expected a mapping with the key 'parts'; did you mean data.*.parts?"
    ),
}


@pytest.mark.parametrize("key", PROBLEMS)
def test_problems_name_the_place(load: Load, key: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(SUITE.format(path="a.json", key=key), {"a.json": json.dumps(NESTED)})
    assert PROBLEMS[key] in str(caught.value)
