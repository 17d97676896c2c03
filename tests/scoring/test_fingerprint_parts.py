"""What differs between two suites is said by the part of their fingerprints in which they differ."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.evaluation.fingerprints import sample_fingerprint
from pytest_llmeval.scoring.base import PreparedSample
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.types import GenerateRequest
from tests.scoring.helpers import a_sample

ROWS = [{"ask": f"Word {place}?", "options": ["a", "b"], "answer": place % 2, "note": "x"} for place in range(12)]
SHOTS = [{"ask": f"Shot {place}?", "options": ["a", "b"], "answer": 0, "note": "y"} for place in range(4)]
SUITE: dict[str, Any] = {
    "suite": "s",
    "dataset": {
        "path": "rows.jsonl",
        "fields": {"question": "ask", "choices": "options", "target": "answer", "hint": "note"},
    },
    "prompt": {"template": "{{ question }} ({{ hint }})", "fewshot": {"count": 2, "path": "shots.jsonl"}},
    "score": "choice",
}
HASH = 64
Changes: TypeAlias = dict[tuple[str, ...], Any]


def parts_of(
    folder: Path,
    changes: Changes | None = None,
    *,
    rows: list[dict[str, Any]] = ROWS,
    shots: list[dict[str, Any]] = SHOTS,
) -> tuple[str, dict[str, str]]:
    value = copy.deepcopy(SUITE)
    for keys, new in (changes or {}).items():
        inside = value
        for key in keys[:-1]:
            inside = inside[key]
        inside[keys[-1]] = new
    for name, data in (("rows", rows), ("shots", shots), ("same", shots)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    (folder / "s.yaml").write_text(json.dumps(value))
    evaluation = Evaluation(load_suite(folder / "s.yaml"))
    return evaluation.fingerprints()[0], evaluation.fingerprint_parts()


NO_PARTS: dict[str, Changes] = {
    "another name": {("suite",): "t"},
    "gates": {("gates",): ["accuracy >= 0.5"]},
    "another order": {("dataset", "shuffle_seed"): 3},
    "the same examples in another file": {("prompt", "fewshot", "path"): "same.jsonl"},
    "clusters": {("cluster",): "ask"},
    "all rows": {("dataset", "where"): "note == 'x'"},
    "top_k without sampling": {("generate",): {"top_k": 5}},
    "a penalty that does nothing": {("generate",): {"repetition_penalty": 1.0}},
}
LETTERED: Changes = {("prompt", "template"): "{{ question }} ({{ hint }})\n{{ lettered_choices }}"}
PARTS: dict[str, tuple[Changes, set[str]]] = {
    "a category": ({("category",): "{{ question[-2:] }}"}, {"questions"}),
    "fewer samples": ({("dataset", "limit"): 11}, {"questions"}),
    "template": ({("prompt", "template"): "Q: {{ question }} ({{ hint }})"}, {"prompt"}),
    "system": ({("prompt", "system"): "Be brief."}, {"prompt"}),
    "a variable": ({("dataset", "fields", "hint"): "{{ note * 2 }}"}, {"prompt"}),
    "number of examples": ({("prompt", "fewshot", "count"): 1}, {"fewshot"}),
    "their separator": ({("prompt", "fewshot", "delimiter"): "\n"}, {"fewshot"}),
    "no examples": ({("prompt", "fewshot", "count"): 0}, {"fewshot"}),
    "scorer": ({("score",): "letter", **LETTERED}, {"scorer", "judging", "prompt"}),
    "setting": ({("score",): {"choice": {"normalize": "sum"}}}, {"scorer", "judging"}),
    "filters": ({("score",): "letter", ("filters",): ["strip"], **LETTERED}, {"scorer", "judging", "prompt"}),
}


@pytest.mark.parametrize("changes", NO_PARTS.values(), ids=NO_PARTS.keys())
def test_what_changes_no_number_changes_no_part(tmp_path: Path, changes: Changes) -> None:
    (suite, before), (other, after) = parts_of(tmp_path), parts_of(tmp_path, changes)
    assert (suite, before) == (other, after)


@pytest.mark.parametrize(("changes", "differing"), PARTS.values(), ids=PARTS.keys())
def test_what_is_changed_is_the_part_that_differs(tmp_path: Path, changes: Changes, differing: set[str]) -> None:
    (suite, before), (other, after) = parts_of(tmp_path), parts_of(tmp_path, changes)
    assert suite != other
    assert {name for name in before if before[name] != after[name]} == differing


def test_what_is_generated_is_of_the_prompt(tmp_path: Path) -> None:
    number: Changes = {("score",): "number"}
    suite, before = parts_of(tmp_path, number)
    other, after = parts_of(tmp_path, {**number, ("generate",): {"max_tokens": 5}})
    assert suite != other
    assert {name for name in before if before[name] != after[name]} == {"prompt"}


LETTER: Changes = {("score",): "letter", **LETTERED}
SEVERAL: Changes = {("score",): {"several": {"scorers": {"one": {"score": "exact"}, "two": {"score": "f1"}}}}}
TEXT = {("dataset", "fields"): {"question": "ask", "target": "note"}, ("prompt",): {"template": "{{ ask }}"}}
FILTERS: dict[str, tuple[Changes, list[Any], set[str]]] = {
    "take text out": (LETTER, ["drop_reasoning", {"regex": "[A-D]"}, "strip"], {"scorer"}),
    "take text out of replies to epochs": (
        {**LETTER, ("epochs",): 3, ("generate",): {"temperature": 1.0}},
        ["first_line", {"after": ":"}],
        {"scorer"},
    ),
    "take text out for several scorers": ({**SEVERAL, **TEXT}, [{"before": "."}, "last_line"], {"scorer"}),
    "change what a text means": ({**LETTER, ("filters",): ["strip"]}, [{"map": {"1": "A"}}], {"scorer", "judging"}),
    "both": (LETTER, ["strip", "lower"], {"scorer", "judging"}),
}


@pytest.mark.parametrize(("changes", "filters", "differing"), FILTERS.values(), ids=FILTERS.keys())
def test_filters_that_only_take_text_out_leave_the_judging(
    tmp_path: Path, changes: Changes, filters: list[Any], differing: set[str]
) -> None:
    before = parts_of(tmp_path, changes)[1]
    after = parts_of(tmp_path, {**changes, ("filters",): filters})[1]
    assert {name for name in before if before[name] != after[name]} == differing


@pytest.mark.parametrize("setting", [{"repetition_penalty": 1.2}, {"temperature": 1.0, "top_k": 5}])
def test_sampling_is_of_the_prompt_where_it_decides_replies(tmp_path: Path, setting: dict[str, Any]) -> None:
    number: Changes = {("score",): "number"}
    plain = {name: value for name, value in setting.items() if name == "temperature"}
    suite, before = parts_of(tmp_path, {**number, ("generate",): plain})
    other, after = parts_of(tmp_path, {**number, ("generate",): setting})
    assert suite != other
    assert {name for name in before if before[name] != after[name]} == {"prompt"}


def test_a_request_without_what_came_later_has_the_fingerprint_that_it_had() -> None:
    """The fingerprints of all but the last were made before requests had tools."""
    plain, tags = GenerateRequest("q", max_tokens=8, stop=("\n",)), (("<a>", "</a>"),)
    every = replace(plain, json_schema="{}", reasoning=tags, temperature=1.0, top_k=5, repetition_penalty=1.2)
    expected = {
        plain: "b07fddb255cff4ad",
        replace(plain, json_schema="{}"): "d3d63b0885b97f60",
        replace(plain, reasoning=tags): "c001df1f1af27358",
        every: "d66faa7b9ddc873d",
        replace(plain, tools="[]"): "1d0a6f957a036309",
    }
    for request, fingerprint in expected.items():
        assert sample_fingerprint("x", PreparedSample(sample=a_sample(), requests=(request,)))[:16] == fingerprint


def test_answers_of_a_second_file_are_the_same_questions(tmp_path: Path) -> None:
    rows = [{"id": f"q{place}", **row} for place, row in enumerate(ROWS)]
    answers = {row["id"]: {"answer": row["answer"]} for row in rows}
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    apart = [{name: value for name, value in row.items() if name != "answer"} for row in rows]
    joined: Changes = {("dataset", "join"): {"path": "answers.json", "on": "id"}}
    assert parts_of(tmp_path, joined, rows=apart) == parts_of(tmp_path, rows=rows)


@pytest.mark.parametrize("column", ["ask", "options", "answer"])
def test_another_question_is_a_part(tmp_path: Path, column: str) -> None:
    new = {"ask": "New?", "options": ["a", "c"], "answer": 1 - int(str(ROWS[5]["answer"]))}[column]
    before, after = parts_of(tmp_path)[1], parts_of(tmp_path, rows=[*ROWS[:5], {**ROWS[5], column: new}, *ROWS[6:]])[1]
    assert {name for name in before if before[name] != after[name]} == {"questions"}


def test_another_example_is_a_part(tmp_path: Path) -> None:
    before, after = parts_of(tmp_path)[1], parts_of(tmp_path, shots=[{**shot, "ask": "New?"} for shot in SHOTS])[1]
    assert {name for name in before if before[name] != after[name]} == {"fewshot"}


def test_a_column_that_nothing_shows(tmp_path: Path) -> None:
    rows = [{**row, "source": "a book"} for row in ROWS]
    assert parts_of(tmp_path, rows=rows) == parts_of(tmp_path)


def test_questions_that_stand_in_columns_alone(tmp_path: Path) -> None:
    fields = {name: rule for name, rule in SUITE["dataset"]["fields"].items() if name != "question"}
    changes: Changes = {("dataset", "fields"): fields, ("prompt", "template"): "{{ ask }} ({{ hint }})"}
    before = parts_of(tmp_path, changes)[1]
    after = parts_of(tmp_path, changes, rows=[{**row, "ask": "Which?"} for row in ROWS])[1]
    assert {name for name in before if before[name] != after[name]} == {"questions"}


def test_the_forms_of_the_parts(tmp_path: Path) -> None:
    parts = parts_of(tmp_path)[1]
    assert list(parts) == ["questions", "prompt", "fewshot", "scorer", "judging"]
    assert {len(part) for part in parts.values()} == {HASH}
    assert parts_of(tmp_path, {("prompt",): {"template": "{{ ask }}"}})[1]["fewshot"] == ""


JUDGED: dict[str, tuple[Any, bool]] = {
    "a judge": ({"rubric": {"criteria": {"kind": "Is it kind?"}}}, True),
    "a judge among several scorers": (
        {"several": {"scorers": {"one": {"score": "exact"}, "two": {"score": {"equivalence": {}}}}}},
        True,
    ),
    "recorded verdicts": ({"pairwise": {"against": "note", "recorded": ["first", "second"]}}, False),
}


@pytest.mark.parametrize(("score", "asks"), JUDGED.values(), ids=JUDGED.keys())
def test_the_words_in_which_a_judge_is_asked_are_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, score: Any, asks: bool
) -> None:
    """Where they change, so does the fingerprint; where nobody is asked, neither does."""
    fields = {"question": "ask", "target": "note", "response": "note"}
    changes: Changes = {("score",): score, ("dataset", "fields"): fields, ("prompt",): {"template": "{{ ask }}"}}
    rows = [{**row, "first": "reply", "second": "reply"} for row in ROWS]
    suite, before = parts_of(tmp_path, changes, rows=rows)
    assert ("judge_prompt" in before) == asks
    for module in ("pytest_llmeval.evaluation.evaluation", "pytest_llmeval.scorers.judging.judged_scorer"):
        monkeypatch.setattr(f"{module}.PROMPT_VERSION", 1000)
    other, after = parts_of(tmp_path, changes, rows=rows)
    assert (suite != other) == asks
    differing = {"scorer", "judging", "judge_prompt"} if asks else set()
    assert {name for name in before if before[name] != after[name]} == differing


@pytest.mark.parametrize("sampler", ["seeded", "first_n", "lm_eval"])
def test_examples_from_the_data_set_itself(tmp_path: Path, sampler: str) -> None:
    changes: Changes = {("prompt", "fewshot"): {"count": 2, "sampler": sampler}}
    parts = parts_of(tmp_path, changes)[1]
    assert len(parts["fewshot"]) == HASH
    seeded: Changes = {("prompt", "fewshot"): {"count": 2, "sampler": sampler, "seed": 5}}
    assert parts_of(tmp_path, seeded)[1]["fewshot"] != parts["fewshot"]
    assert parts_of(tmp_path, changes)[1] == parts
