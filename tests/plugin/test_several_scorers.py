"""Filters, and several scorers on one reply, from the suite to the terminal and the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.suites_for_tests import CAPITALS
from tests.support import fake_model_conftest, model_calls

GSM = """\
suite: gsm
samples:
  - {id: g1, question: "1 + 1 =", target: "2"}
  - {id: g2, question: "2 + 3 =", target: "5"}
  - {id: g3, question: "4 + 4 =", target: "8"}
  - {id: g4, question: "600 + 400 =", target: "1000"}
score:
  several:
    decides: strict
    scorers:
      flexible:
        filters: [{regex: {pattern: '(-?[$0-9.,]{2,})|(-?[0-9]+)', match: last}}]
        score: {exact: {normalize: [{remove: ","}, {remove: '\\$'}, {remove: '\\.$'}]}}
      strict:
        filters: [{regex: '#### (-?[0-9.,]+)'}]
        score: {exact: {normalize: [{remove: ","}]}}
"""
REPLIES = {"1 + 1": "One and one.\n#### 2", "2 + 3": "That makes 5.", "4 + 4": "no idea", "600": "$600 … #### 1,000"}
"""g1 and g4 right for both, g2 for the flexible one alone, g3 without an answer."""


@pytest.fixture
def gsm(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES))
    llm_pytester.makefile(".yaml", gsm=GSM)
    return llm_pytester


def report_of(pytester: pytest.Pytester) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((Path(pytester.path) / "out.json").read_text(encoding="ascii"))
    return report


def test_strict_and_flexible_side_by_side(gsm: pytest.Pytester, workers: list[str]) -> None:
    result = gsm.runpytest(*workers, "--llm-report=out.json", "gsm.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "suite*n*accuracy*flexible.accuracy*",
            "gsm*4*0.500 [[]*0.750 [[]*",
            "gsm: no answer 2, flexible.no answer 1",
            "*2 passed, 2 wrong in*",
        ]
    )
    report = report_of(gsm)
    (suite,) = report["suites"]
    assert suite["scorer"] == "several"
    assert {name: metric["value"] for name, metric in suite["metrics"].items()} == {
        "accuracy": 0.5,
        "no_answer": 2,
        "flexible.accuracy": 0.75,
        "flexible.no_answer": 1,
    }
    records = {record["id"]: record for record in report["records"]}
    assert records["g2"]["status"] == "wrong"
    assert (records["g2"]["answer"], records["g2"]["no_answer"]) == (None, True)
    assert records["g2"]["output"] == "That makes 5."
    assert records["g2"]["details"]["scorers"]["flexible"]["answer"] == "5"
    assert records["g4"]["details"]["scorers"]["strict"] == {"status": "correct", "answer": "1000", "no_answer": False}


def test_one_request_serves_all_scorers(gsm: pytest.Pytester) -> None:
    gsm.runpytest("gsm.yaml")
    assert [len(call["prompts"]) for call in model_calls(gsm.path, "generate")] == [4]


def test_which_scorer_decides_can_be_overridden(gsm: pytest.Pytester, workers: list[str]) -> None:
    result = gsm.runpytest(*workers, "--llm-set", "gsm: score.several.decides=flexible", "gsm.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["suite*accuracy*strict.accuracy*", "gsm*0.750*0.500*", "*3 passed, 1 wrong in*"])


def test_strict_shows_what_the_deciding_scorer_found(gsm: pytest.Pytester) -> None:
    result = gsm.runpytest("--llm-strict", "gsm.yaml::g2")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["wrong: expected '5', found no answer"])


def test_filters_of_a_suite(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    replies = {"France": "<think>Rome? No.</think>\n\nThe answer is: Paris.", "Italy": "Paris? </think> It is Rome."}
    llm_pytester.makeconftest(fake_model_conftest(replies=replies, default_reply="<think>Hmm, Oslo"))
    filters = "filters:\n- drop_reasoning\n- regex: '(Paris|Rome|Oslo|Bern)'\n"
    capitals = CAPITALS.replace("score: choice", filters + "score: exact").replace("target: 0", "target: Paris")
    llm_pytester.makefile(".yaml", capitals=capitals.replace("target: 2", "target: Oslo"))
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "capitals.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["capitals*3*0.667*", "capitals: no answer 1", "*2 passed, 1 wrong in*"])
    report = report_of(llm_pytester)
    assert report["suites"][0]["settings"]["filters"][0]["kind"] == "drop_reasoning"
    records = {record["id"]: record for record in report["records"]}
    assert [records[name]["answer"] for name in ("q1", "q2", "q3")] == ["Paris", "Rome", None]
    assert (records["q3"]["output"], records["q3"]["reasoning"]) == ("", "Hmm, Oslo")


ERRORS = {
    "filters of likelihoods": (
        CAPITALS + "filters: [strip]\n",
        "*.yaml:9: filters: the scorer choice uses no reply that could be filtered; remove the filters, or use a "
        "scorer that judges a reply",
    ),
    "epochs of likelihoods": (
        CAPITALS + "epochs: 4\n",
        "*.yaml:9: epochs: the scorer choice compares loglikelihoods, which would be the same 4 times; remove epochs, "
        "or use a scorer that judges a reply",
    ),
    "a pattern": (
        GSM.replace("#### (-?[0-9.,]+)", "#### ("),
        "*.yaml:15: score.several.scorers.strict.filters.0.regex: pattern '#### (' is not a regular expression: *",
    ),
    "a setting": (
        GSM.replace("decides: strict", "decides: stric"),
        "*.yaml:9: score.several.decides: there is no scorer 'stric' in scorers; did you mean 'strict'?",
    ),
    "different requests": (
        GSM + "      number: {score: number}\n      letter: {score: letter}\nchoices: ['2', '5', '8', '1000']\n"
        'prompt: {template: "{{ lettered_choices }}"}\n',
        "*.yaml:18: score.several.scorers.letter: sends different requests from strict: max_tokens 10 where the other "
        "has 256; set generate.max_tokens, and no max_tokens of letter's own",
    ),
}


@pytest.mark.parametrize(("suite", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_a_mistake_is_one_line_with_its_place(llm_pytester: pytest.Pytester, suite: str, message: str) -> None:
    llm_pytester.makeconftest(fake_model_conftest())
    llm_pytester.makefile(".yaml", broken=suite)
    result = llm_pytester.runpytest("broken.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines([message.replace("[", "[[]")])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_json_by_a_schema_in_a_file(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    replies = {"first": '```json\n{"name": "Ann"}\n```', "second": '{"name": 3}', "third": "[" * 50_000}
    llm_pytester.makeconftest(fake_model_conftest(replies=replies))
    llm_pytester.makefile(".json", person=json.dumps({"properties": {"name": {"type": "string"}}}))
    samples = json.dumps([{"id": name, "question": f"the {name}"} for name in replies])
    suite = f"suite: people\nsamples: {samples}\nscore: {{json: {{schema: person.json, fenced: true}}}}\n"
    llm_pytester.makefile(".yaml", people=suite)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "people.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["people: no answer 1", "*1 passed, 2 wrong in*"])
    report = report_of(llm_pytester)
    assert report["suites"][0]["settings"]["schema"] == {"properties": {"name": {"type": "string"}}}
    problems = {record["id"]: record["details"].get("problem") for record in report["records"]}
    assert problems == {
        "first": None,
        "second": "name: 3 is not of type 'string'",
        "third": "not JSON: nested deeper than 100 levels",
    }
    fingerprint = report["suites"][0]["fingerprint"]
    llm_pytester.makefile(".json", person=json.dumps({"properties": {"name": {"type": "integer"}}}))
    llm_pytester.runpytest(*workers, "--llm-report=out.json", "people.yaml")
    assert report_of(llm_pytester)["suites"][0]["fingerprint"] != fingerprint


def test_a_schema_that_is_not_there(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest())
    llm_pytester.makefile(".yaml", people="suite: s\nsamples: [{question: a}]\nscore:\n  json: {schema: x.json}\n")
    result = llm_pytester.runpytest("people.yaml")
    result.stdout.fnmatch_lines(["people.yaml:4: score.json.schema: x.json: there is no such file"])
