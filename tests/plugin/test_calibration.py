"""Calibration in the report, and the scorers that compare log-likelihoods, from suite to report."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.scoring.metrics.calibration import reliability
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.types import Score
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest, model_calls

WINOGRANDE = """\
suite: winogrande
samples:
  - {sentence: "Ann thanked Bea because _ had helped.", options: [Ann, Bea], answer: "2"}
  - {sentence: "Tom beat Tim because _ was strong.", options: [Tom, Tim], answer: "1"}
choices: ["{{ sentence.partition('_')[0] }}{{ options[0] }}", "{{ sentence.partition('_')[0] }}{{ options[1] }}"]
target: "{{ answer | int - 1 }}"
score: {choice: {normalize: sum, continuation: "{{ sentence.partition('_')[2].strip() }}", metrics: [mcc]}}
"""
TRUTHFUL = """\
suite: truthful
samples:
  - {id: t1, question: "Capital of France?", choices: [Paris, Rome, "Paris, Ile-de-France"], labels: [1, 0, 1]}
  - {id: t2, question: "Capital of Italy?", choices: [Oslo, Rome], labels: [0, 1]}
target: "{{ labels | indices(1) }}"
score: mass
"""
LAST_WORDS = """\
suite: last_words
samples: [{id: w1, question: "Capital of France:", target: " Paris"}, {id: w2, question: "1 +", target: " one two"}]
prompt: {delimiter: ""}
score: continuation
"""


def read(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "out.json").read_text(encoding="ascii"))
    return report


def scores_of(report: dict[str, Any], suite: str) -> list[Score]:
    records = [record for record in report["records"] if record["suite"] == suite]
    return [Score(status=record["status"], values=record["values"], chance=record["chance"]) for record in records]


def test_calibration_is_in_the_report(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "capitals.yaml", "sums.yaml")
    assert result.ret == 0
    report = read(llm_pytester.path)
    suites = {suite["name"]: suite for suite in report["suites"]}
    capitals = suites["capitals"]
    scores = scores_of(report, "capitals")
    for name in ("nll", "ece"):
        assert capitals["metrics"][name] == asdict(summarize(scores, [name])[name])
        assert capitals["metrics"][name]["n"] == 3
    assert [part["metrics"]["ece"]["n"] for part in capitals["categories"].values()] == [1, 1, 1]
    right = [record["details"]["probabilities"][0] for record in report["records"] if record["id"] == "q1"]
    assert scores[0].values["nll"] == pytest.approx(-math.log(right[0]))
    bins = reliability(scores)
    assert bins is not None
    assert capitals["reliability"] == [asdict(part) for part in bins]
    assert sum(part["n"] for part in capitals["reliability"]) == 3
    assert suites["sums"]["reliability"] is None
    assert "ece" not in suites["sums"]["metrics"]
    # The table stays as narrow as it was: what is of minor interest is in the report.
    result.stdout.no_fnmatch_line("*ece*")
    result.stdout.no_fnmatch_line("*confidence*")


def test_options_in_the_prompt(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(likely={"because Bea": "had helped.", "because Tim": "was strong."}))
    llm_pytester.makefile(".yaml", winogrande=WINOGRANDE)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "winogrande.yaml")
    assert result.ret == 0
    report = read(llm_pytester.path)
    assert [record["status"] for record in report["records"]] == ["correct", "wrong"]
    assert report["records"][0]["answer"] == "Ann thanked Bea because Bea"
    (suite,) = report["suites"]
    assert suite["metrics"]["accuracy_sum"]["value"] == 0.5
    assert suite["metrics"]["mcc"]["kind"] == "corpus"
    asked = sorted(prompt for call in model_calls(llm_pytester.path, "loglikelihood") for prompt in call["prompts"])
    assert asked[:2] == [f"Ann thanked Bea because {name} had helped." for name in ("Ann", "Bea")]


def test_options_in_the_prompt_are_shown(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", winogrande=WINOGRANDE)
    result = llm_pytester.runpytest("--llm-show-prompts", "winogrande.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["Ann thanked Bea because Ann⟦ had helped.⟧", "Ann thanked Bea because Bea⟦ had helped.⟧ [*]"], consecutive=True
    )


def test_mass_and_continuation(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY))
    llm_pytester.makefile(".yaml", truthful=TRUTHFUL, last_words=LAST_WORDS)
    result = llm_pytester.runpytest(
        *workers, "--llm-report=out.json", "truthful.yaml", "last_words.yaml", "--llm-strict"
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "wrong: expected ' Paris', found another text",
            "suite  *n *accuracy *perplexity *token_perplexity *",
            "last_words *2  0.000 *",
            "suite  *n *probability_mass*",
            "truthful *2  0.*",
        ]
    )
    report = read(llm_pytester.path)
    truthful, last_words = (
        next(suite for suite in report["suites"] if suite["name"] == name) for name in ("truthful", "last_words")
    )
    assert [score.status for score in scores_of(report, "truthful")] == ["scored", "scored"]
    masses = [score.values["probability_mass"] for score in scores_of(report, "truthful")]
    assert truthful["metrics"]["probability_mass"]["value"] == pytest.approx(sum(masses) / 2)
    assert "accuracy" not in truthful["metrics"]
    sums = [score.values["loglikelihood"] for score in scores_of(report, "last_words")]
    assert last_words["metrics"]["perplexity"]["value"] == pytest.approx(math.exp(-sum(sums) / 2))
    assert last_words["metrics"]["accuracy"]["value"] == 0.0
