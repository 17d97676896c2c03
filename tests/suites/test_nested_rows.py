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
    "data.*.by.*.rows": (
        "a.json: found 'me' (text) at 'data.0.by', expected a list or mapping, which '*' of 'key' goes through"
    ),
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


ANSWERS = {"q1": {"answer": "4"}, "q2": {"answer": "5"}}


@pytest.mark.parametrize(
    ("content", "key", "rows"),
    [
        (ANSWERS, "'*'", [{"id": "q1", "answer": "4"}, {"id": "q2", "answer": "5"}]),
        ({"data": ANSWERS}, "data.*", [{"id": "q1", "answer": "4"}, {"id": "q2", "answer": "5"}]),
        ({"q1": "4", "q2": ["5"]}, "'*'", [{"id": "q1", "value": "4"}, {"id": "q2", "value": ["5"]}]),
        ({"q1": {"id": 7, "answer": "4"}}, "'*'", [{"id": 7, "answer": "4"}]),
        ({"easy": [{"answer": "4"}], "hard": [{"answer": "5"}]}, "'*'", [{"answer": "4"}, {"answer": "5"}]),
        ({"none": [], "hard": [{"answer": "5"}]}, "'*'", [{"answer": "5"}]),
        ({"a": {"rows": [{"answer": "4"}], "of": "a"}}, "'*.rows'", [{"of": "a", "answer": "4"}]),
    ],
)
def test_a_mapping_of_ids_to_rows(load: Load, content: object, key: str, rows: list[dict[str, object]]) -> None:
    for name in ("a.json", "a.yaml"):  # JSON is YAML too
        text = f"suite: s\nscore: exact\ntarget: '{{{{ row }}}}'\ndataset: {{path: {name}, key: {key}}}\n"
        text = text.replace("'{{ row }}'", "'{{ 1 }}'")
        suite = load(text, {name: json.dumps(content)})
        assert [sample.variables["row"] for sample in suite.samples] == rows


def test_a_mapping_of_ids_to_rows_without_a_key_is_said(load: Load) -> None:
    with pytest.raises(
        SuiteError, match=r"a\.json: found a mapping with .*; for a mapping of ids to rows write key: '\*'$"
    ):
        load("suite: s\nscore: exact\ndataset: {path: a.json}\n", {"a.json": json.dumps(ANSWERS)})


JOINED = "suite: s\nscore: exact\ndataset:\n  path: q.jsonl\n  join: {path: %s, on: id}\n  fields: {target: %s}\n"
QUESTIONS = '{"id": "q2", "question": "2+3"}\n{"id": "q1", "question": "2+2"}\n'


@pytest.mark.parametrize(
    ("name", "content", "target"),
    [
        ("a.json", json.dumps(ANSWERS), "answer"),
        ("a.json", json.dumps([{"id": name, **row} for name, row in ANSWERS.items()]), "answer"),
        ("a.json", json.dumps({"q1": "4", "q2": "5", "q3": "6"}), "value"),
        ("a.csv", "id;answer\nq1;4\nq2;5\n", "answer"),
        ("a.yaml", "q1: '4'\nq2: '5'\n", "value"),
    ],
)
def test_answers_of_a_second_file(load: Load, name: str, content: str, target: str) -> None:
    suite = load(JOINED % (name, target), {"q.jsonl": QUESTIONS, name: content})
    assert [(sample.id, sample.question, sample.target) for sample in suite.samples] == [
        ("q2", "2+3", "5"),
        ("q1", "2+2", "4"),
    ]
    assert suite.samples[0].line == 1, "a sample stands where its question stands"


def test_ids_are_joined_as_text_and_few_shot_examples_too(load: Load) -> None:
    text = JOINED % ("a.csv", "answer") + "prompt:\n  fewshot: {count: 1, path: t.jsonl, join: {path: a.csv, on: id}}\n"
    files: dict[str, str | bytes] = {
        "q.jsonl": '{"id": 1, "question": "2+2"}',
        "t.jsonl": '{"id": 2, "question": "2+3"}\n{"id": 3, "question": "3+3"}',
        "a.csv": "id,answer\n1,4\n2,5\n3,6\n",
    }
    suite = load(text, files)
    assert [sample.target for sample in suite.samples] == ["4"]
    assert {shot.target for shot in suite.shots_for(suite.samples[0])} <= {"5", "6"}


@pytest.mark.parametrize(
    ("questions", "answers", "message"),
    [
        (QUESTIONS, '{"q1": "4"}', "q.jsonl:1: a.json, which dataset.join names, has no row whose id is 'q2'"),
        (
            '{"question": "x"}',
            '{"q1": "4"}',
            "q.jsonl:1: found no value in the column 'id', on which rows are joined, exp",
        ),
        (
            '{"id": 1.0, "question": "x"}',
            '{"1": "4"}',
            "q.jsonl:1: found 1.0 (a number) in the column 'id', on which rows are joined, expected text or a whole "
            "number",
        ),
        (QUESTIONS, '[{"id": "q1"}, {"id": "q1"}]', "a.json: row 2: found the id 'q1' twice, first in a.json, row 1"),
        (QUESTIONS, '[{"i": "q1"}]', "a.json: row 1: found no value in the column 'id'"),
        (
            '{"id": "q1", "question": "x", "value": "5"}',
            '{"q1": "4"}',
            "q.jsonl:1: found the column 'value' here and in a.json, row 1, with other values; leave it out of one",
        ),
    ],
)
def test_rows_that_cannot_be_joined(load: Load, questions: str, answers: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(JOINED % ("a.json", "value"), {"q.jsonl": questions, "a.json": answers})
    assert str(caught.value).startswith(message)


def test_the_second_file_is_not_there(load: Load) -> None:
    with pytest.raises(SuiteError, match=r"s\.yaml:5: dataset\.join\.path: .*there is no such file"):
        load(JOINED % ("b.json", "value"), {"q.jsonl": QUESTIONS})
