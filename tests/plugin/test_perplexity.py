"""``score: perplexity`` from suite to report. The scripted model gives -1 for each character but white space."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.types import Score
from tests.plugin.suites_for_tests import SUMS
from tests.support import FAKE_MODEL_CONFTEST, fake_model_conftest, model_calls

TEXTS = """\
suite: texts
samples:
  - {id: t1, text: "ab cde\\nf", language: x}
  - {id: t2, text: "abcd abcd", language: y}
  - {id: t3, text: "a b c d e", language: y}
score: {perplexity: {stride: 16}}
category: language
"""


def test_from_suite_to_report(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makefile(".yaml", texts=TEXTS, sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "texts.yaml", "sums.yaml")
    assert result.ret == 0
    result.assert_outcomes(passed=3)
    word, byte = 19 / 10, 19 / 26
    result.stdout.fnmatch_lines(
        [
            "suite*n  accuracy*",
            "sums*4  *",
            "",
            "suite*n  word_perplexity*byte_perplexity*bits_per_byte*token_perplexity*",
            f"texts*3  {math.exp(word):.3f} [[]*{math.exp(byte):.3f} [[]*{byte / math.log(2):.3f} [[]*",
            "by category*word_perplexity*",
            "texts",
            f"*  {math.exp(2):.3f} *",
            f"*  {math.exp(13 / 7):.3f} [[]1.000, *",
        ]
    )
    result.stdout.no_fnmatch_line("*loglikelihood*")
    report = json.loads((llm_pytester.path / "out.json").read_text(encoding="ascii"))
    (suite,) = [suite for suite in report["suites"] if suite["name"] == "texts"]
    assert list(suite["metrics"]) == ["word_perplexity", "byte_perplexity", "bits_per_byte", "token_perplexity"]
    assert suite["settings"] == {"windows": "sliding", "stride": 16}
    records = [record for record in report["records"] if record["suite"] == "texts"]
    assert {record["status"] for record in records} == {"scored"}
    assert records[0]["values"] == {"loglikelihood": -6.0, "words": 3.0, "bytes": 8.0, "tokens": 3.0}
    assert (records[0]["num_prompt_tokens"], records[0]["num_tokens"]) == (1, 3)
    again = summarize([Score(status=record["status"], values=record["values"]) for record in records], suite["metrics"])
    assert {name: asdict(metric) for name, metric in again.items()} == suite["metrics"]


def test_a_chunk_is_one_call(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makefile(".yaml", texts=TEXTS)
    llm_pytester.runpytest("texts.yaml")
    (call,) = model_calls(llm_pytester.path, "loglikelihood_rolling")
    assert call["prompts"] == ["ab cde\nf", "abcd abcd", "a b c d e"]


def test_a_text_that_fails_is_unscored_and_left_out(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(errors={"cde": "no room"}))
    llm_pytester.makefile(".yaml", texts=TEXTS)
    result = llm_pytester.runpytest(*workers, "texts.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*sample 't1': no room*", f"texts*2/3  {math.exp(13 / 7):.3f} *"])


def test_a_model_without_the_method_is_reported_which(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST.replace("def loglikelihood_rolling(", "def something_else("))
    llm_pytester.makefile(".yaml", texts=TEXTS)
    result = llm_pytester.runpytest(*workers, "texts.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*model fake: has no method loglikelihood_rolling(requests), which this suite's*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_prompts_are_shown(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", texts=TEXTS)
    result = llm_pytester.runpytest("--llm-show-prompts", "texts.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["texts.yaml::t1", "⟦ab cde", "f⟧", "", "texts.yaml::t2"], consecutive=True)
    result.stdout.no_fnmatch_line("target*")
