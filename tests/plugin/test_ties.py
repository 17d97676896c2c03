"""Ties from suite to report: a model that gives every option the same knows nothing, and a report says so."""

from __future__ import annotations

import json

import pytest

KNOWS_NOTHING = """\
import pytest

from pytest_llmeval.types import LoglikelihoodResponse


class KnowsNothing:
    def loglikelihood(self, requests):
        return [LoglikelihoodResponse(loglikelihood=-2.5, num_tokens=1) for request in requests]


@pytest.fixture(scope="session")
def llm_model():
    return KnowsNothing()
"""
FIRST_IS_RIGHT = """\
suite: {name}
samples:
  - {{id: a, question: Who?, choices: [Ann, Bob, Eve, Joe]}}
  - {{id: b, question: Where?, choices: [Oslo, Rome, Bonn, Bern]}}
target: 0
score: {{choice: {{{settings}}}}}
"""
YES_NO = """\
suite: truth
samples: [{question: "Is water wet?", target: yes}, {question: "Is fire cold?", target: no}]
score: {yes_no: {by: loglikelihood}}
"""


def test_a_model_that_knows_nothing_has_the_accuracy_of_guessing(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(KNOWS_NOTHING)
    llm_pytester.makefile(
        ".yaml",
        shared=FIRST_IS_RIGHT.format(name="shared", settings=""),
        first=FIRST_IS_RIGHT.format(name="first", settings="ties: first"),
        truth=YES_NO,
    )
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-report=out.json", "--llm-gate=*: ties <= 2")
    assert result.ret == 0
    result.stdout.fnmatch_lines_random(["shared: ties 2", "first: ties 2", "truth: *yes predicted 0, *ties 2*"])
    report = json.loads((llm_pytester.path / "out.json").read_text(encoding="ascii"))
    suites = {suite["name"]: suite["metrics"] for suite in report["suites"]}
    values = {name: metrics["accuracy"]["value"] for name, metrics in suites.items()}
    assert values == {"shared": 0.25, "first": 1.0, "truth": 0.5}
    assert suites["shared"]["skill"]["value"] == 0.0
    assert suites["shared"]["accuracy_first"]["value"] == suites["first"]["accuracy_first"]["value"] == 1.0
    assert {name: metrics["ties"]["value"] for name, metrics in suites.items()} == dict.fromkeys(suites, 2.0)
    records = {(record["suite"], record["id"]): record for record in report["records"]}
    assert records["shared", "a"]["status"] == "scored"
    assert records["shared", "a"]["answer"] == "Ann | Bob | Eve | Joe (tie)"
    assert records["shared", "a"]["details"]["tied"] == [0, 1, 2, 3]
    assert records["first", "a"]["status"] == "correct"


def test_of_equal_options_the_right_one_alone_is_marked(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(KNOWS_NOTHING)
    row = "{id: q1, question: Who?, choices: [Ann, Ann, Bob], target: 1}"
    llm_pytester.makefile(".yaml", equal=f"suite: equal\nsamples: [{row}]\nscore: {{choice: {{ties: first}}}}\n")
    llm_pytester.runpytest_inprocess("-p", "no:xdist", "-Wdefault", "--llm-report=out.json")
    shown = llm_pytester.run("llmeval", "show", "out.json", "--id", "q1")
    shown.stdout.fnmatch_lines(
        ["*choices: Ann: 0.333 (answered, tied)", "*Ann: 0.333 (right, tied)", "*Bob: 0.333 (tied)"]
    )


def test_a_tie_is_no_wrong_answer_and_can_be_found(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(KNOWS_NOTHING)
    llm_pytester.makefile(".yaml", shared=FIRST_IS_RIGHT.format(name="shared", settings=""))
    strict = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-strict", "--llm-report=out.json")
    strict.assert_outcomes(passed=2)
    assert strict.ret == 0
    shown = llm_pytester.run("llmeval", "show", "out.json", "--samples", "tied")
    shown.stdout.fnmatch_lines(["a (shared*): scored", "b (shared*): scored", "2 samples"])
    gated = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-gate=ties <= 0")
    assert gated.ret == 1
