"""A suite of mathematics in a session: bombs cost their sample, and the session ends as it should."""

from __future__ import annotations

import json

import pytest

from tests.support import fake_model_conftest

SUITE = r"""
suite: sums
samples:
  - {id: half, question: "one half", target: '\frac{1}{2}'}
  - {id: tower, question: "a tower", target: 5}
  - {id: factorials, question: "factorials", target: 5}
  - {id: braces, question: "braces", target: 5}
  - {id: code, question: "code", target: 5}
  - {id: set, question: "a set", target: 'So we get $\boxed{\{1,2\}}$.'}
  - {id: none, question: "no idea", target: 5}
  - {id: last, question: "the last", target: [4, 5]}
score: {math: {timeout_s: 0.5}}
"""

REPLIES = {
    "one half": r"It is $\boxed{0.5}$.",
    "a tower": r"It is $\boxed{9^{9^{9^9}}}$.",
    "factorials": r"It is $\boxed{((9!)!)!}$.",
    "braces": "{" * 100_000,
    "code": r"\boxed{__import__('os').system('touch made')}",
    "a set": r"The final answer is $\{2, 1\}$. I hope it is correct.",
    "no idea": "I do not know.",
    "the last": "The answer is 5.",
}


@pytest.fixture
def sums(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES))
    llm_pytester.makefile(".yaml", sums=SUITE)
    return llm_pytester


def test_bombs_cost_their_samples(sums: pytest.Pytester, workers: list[str]) -> None:
    result = sums.runpytest(*workers, "--llm-report", "report.json", "sums.yaml")
    assert result.ret == 0
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*3 passed, 5 wrong in*"])
    records = {
        record["id"]: record
        for record in json.loads((sums.path / "report.json").read_text(encoding="utf-8"))["records"]
    }
    assert {id_ for id_, record in records.items() if record["status"] == "correct"} == {"half", "set", "last"}
    assert records["tower"]["answer"] == "9^{9^{9^9}}"
    assert "it took longer than 0.5 s (score.math.timeout_s)" in json.dumps(records["tower"])
    assert not (sums.path / "made").exists()


def test_a_target_that_takes_for_ever_fails_its_sample(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(default_reply="5"))
    suite = SUITE.replace("target: 5", "target: '9^{9^{9^9}}'", 1)
    llm_pytester.makefile(".yaml", sums=suite)
    result = llm_pytester.runpytest("sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*target '9^{9^{9^9}}': it took longer than 0.5 s (score.math.timeout_s)*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_lm_evals_two_tasks(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(
        fake_model_conftest(default_reply="Final Answer: The final answer is $0.25$. I hope it is correct.")
    )
    suite = SUITE.replace("5", "'1/4'")
    for compare, right in (("hendrycks", 0), ("minerva", 6)):
        start = suite.index("score:")
        llm_pytester.makefile(".yaml", sums=suite[:start] + f"score: {{math: {{compare: {compare}}}}}\n")
        result = llm_pytester.runpytest("sums.yaml")
        assert result.ret == 0
        result.assert_outcomes(passed=right)


def test_a_wrong_setting_is_explained(sums: pytest.Pytester) -> None:
    sums.makefile(".yaml", sums=SUITE.replace("timeout_s: 0.5", "extract: [box]"))
    result = sums.runpytest("sums.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*sums.yaml:*extract*'box'*boxed*"])
    result.stdout.no_fnmatch_line("*Traceback*")
