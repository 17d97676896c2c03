"""Letters and yes or no in replies, from a suite file to the report: the default rule, and those of other programs."""

from __future__ import annotations

import json

import pytest

from tests.support import fake_model_conftest

LETTERS = """\
suite: letters
choices: [Rome, Paris, Berlin, Madrid]
samples:
  - {id: q1, question: "Italy?", target: 0}
  - {id: q2, question: "France?", target: 1}
  - {id: q3, question: "Spain?", target: 3}
score: {letter: {shuffle: false, rule: RULE}}
generate: {max_tokens: 64}
"""
TRUTHS = """\
suite: truths
samples:
  - {id: q1, question: "Is Rome a city?", target: true}
  - {id: q2, question: "Is a cat a dog?", target: false}
score: {yes_no: {rule: RULE}}
"""
REPLIES = {
    "Italy?": "The answer is A.",
    "France?": "Answer: **B**",
    "Spain?": "A or D",
    "Is Rome a city?": '"Yes".',
    "Is a cat a dog?": "not known.",
}


@pytest.mark.parametrize(
    ("suite", "rule", "answers"),
    [
        (LETTERS, "stated", ["A", "B", None]),
        (LETTERS, "first_upper", [None, "A", "A"]),
        (TRUTHS, "word", ["yes", None]),
        (TRUTHS, "prefix", [None, "no"]),
    ],
)
def test_what_is_read(llm_pytester: pytest.Pytester, suite: str, rule: str, answers: list[str | None]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES))
    llm_pytester.makefile(".yaml", suite=suite.replace("RULE", rule))
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-report=out.json", "suite.yaml")
    assert result.ret == 0
    records = json.loads((llm_pytester.path / "out.json").read_text(encoding="ascii"))["records"]
    assert [record["answer"] for record in records] == answers


def test_a_rule_that_does_not_fit_is_an_error_with_its_line(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", suite=TRUTHS.replace("rule: RULE", "by: loglikelihood, rule: word"))
    result = llm_pytester.runpytest_subprocess("-p", "no:xdist", "--llm-model=demo", "suite.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*suite.yaml:5: score.yes_no: found a rule, which says how a reply is read*"])
