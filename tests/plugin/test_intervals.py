"""Intervals and means over suites, from suite to terminal and report."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.types import Score
from tests.support import fake_model_conftest

SUMS = """\
suite: {name}
{key}
samples:
  - {{id: a, question: "1 + 1 =", target: 2}}
  - {{id: b, question: "1 + 2 =", target: 3}}
  - {{id: c, question: "1 + 3 =", target: 4}}
  - {{id: d, question: "1 + 4 =", target: 5}}
score: number
"""
BLEU = """\
suite: {name}
samples: [{{id: a, question: Say, target: The cat sat on the mat.}}, {{id: b, question: Say it, target: A dog ran.}}]
score: {{bleu: {{k: [4], tokenize: {tokenize}}}}}
"""


def test_a_bootstrap_on_request_changes_intervals_alone(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={"1 + 1": "2", "1 + 2": "3", "1 + 4": "5"}))
    llm_pytester.makefile(".yaml", usual=SUMS.format(name="usual", key=""))
    llm_pytester.makefile(".yaml", drawn=SUMS.format(name="drawn", key="interval: bootstrap"))
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*drawn: *intervals by bootstrap*"])
    report = json.loads((llm_pytester.path / "out.json").read_text(encoding="ascii"))
    suites = {suite["name"]: suite for suite in report["suites"]}
    usual, drawn = (suites[name]["metrics"]["accuracy"] for name in ("usual", "drawn"))
    assert (usual["value"], usual["stderr"]) == (drawn["value"], drawn["stderr"])
    scores = [Score(status="correct" if right else "wrong") for right in (1, 1, 0, 1)]
    assert drawn == asdict(summarize(scores, ["accuracy"], interval="bootstrap")["accuracy"])
    assert usual == asdict(summarize(scores, ["accuracy"])["accuracy"]) != drawn
    assert suites["usual"]["fingerprint"] == suites["drawn"]["fingerprint"]
    shown = llm_pytester.run("llmeval", "show", "out.json")
    shown.stdout.fnmatch_lines(["*drawn: *intervals by bootstrap*"])


def test_one_sample_shows_no_interval_and_says_why(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={"1 + 1": "2"}))
    llm_pytester.makefile(".yaml", sums=SUMS.format(name="sums", key=""))
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-report=out.md", "sums.yaml::a")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["sums *1.000*", "sums: *no interval for accuracy (n is 1)*"])
    result.stdout.no_fnmatch_line("*1.000 [[]*")
    written = (llm_pytester.path / "out.md").read_text(encoding="utf-8")
    assert "no interval for accuracy (n is 1)" in written


def test_bleu_of_two_tokenizers_has_no_mean_over_suites(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(default_reply="The cat sat on the mat."))
    for name, tokenize in (("latin", "13a"), ("letters", "char")):
        llm_pytester.makefile(".yaml", **{name: BLEU.format(name=name, tokenize=tokenize)})
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-report=out.json")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("macro average over suites*")
    result.stdout.fnmatch_lines(
        [
            "no average over suites for bleu_4, sentence_bleu_4: tokenize 13a, smoothing exp, lowercase false in "
            "latin; tokenize",
            "  char, smoothing exp, lowercase false in letters",
        ]
    )
    (averages,) = json.loads((llm_pytester.path / "out.json").read_text(encoding="ascii"))["averages"]
    assert (averages["macro"], averages["micro"]) == ({}, {})
    assert set(averages["unlike"]) == {"bleu_4", "sentence_bleu_4"}
    again = llm_pytester.run("llmeval", "show", "out.json")
    again.stdout.fnmatch_lines(["no average over suites for bleu_4, *"])
