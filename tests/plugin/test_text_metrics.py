"""Suites whose metrics are no accuracy: BLEU and its kin, from YAML to terminal, report and comparison."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU

from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.types import Score
from tests.plugin.scripted_models import scripted_models_conftest
from tests.plugin.suites_for_tests import SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

TRANSLATIONS = """\
suite: translations
samples:
  - {id: t1, question: "Die Katze", target: ["the cat sat on the mat", "a cat was on the mat"], genre: pets}
  - {id: t2, question: "Der Hund", target: "there was a dog in the garden", genre: pets}
  - {id: t3, question: "Der Regen", target: "it rained all day long in the hills", genre: weather}
score: bleu
category: genre
"""

REPLIES = {
    "Die Katze": "the cat sat on a mat",
    "Der Hund": "a dog was in the garden",
    "Der Regen": "it rained all day in the hills",
}
BETTER = {**REPLIES, "Der Hund": "there was a dog in the garden"}

REFERENCES: Any = [
    ["the cat sat on the mat", "there was a dog in the garden", "it rained all day long in the hills"],
    ["a cat was on the mat", None, None],
]


def corpus_bleu(replies: dict[str, str]) -> float:
    return sacrebleu.corpus_bleu(list(replies.values()), REFERENCES).score


def read(pytester: pytest.Pytester) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((pytester.path / "out.json").read_text(encoding="ascii"))
    return report


def test_bleu_from_suite_to_report(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={**REPLIES, **SUMS_REPLIES}))
    llm_pytester.makefile(".yaml", translations=TRANSLATIONS, sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "translations.yaml", "sums.yaml")
    assert result.ret == 0
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(
        [
            "suite*n  accuracy*",
            "sums*4  0.500 *",
            "",
            "suite*n  bleu_4 *",
            f"translations*3  {corpus_bleu(REPLIES):.3f} *–*",
            "suite* sentence_bleu_1",
            "translations * *–*",
            "by category*n  bleu_4 *",
            "translations",
        ]
    )
    result.stdout.no_fnmatch_line("*bleu_matches*")
    report = read(llm_pytester)
    (suite,) = [suite for suite in report["suites"] if suite["name"] == "translations"]
    orders = (4, 3, 2, 1)
    assert list(suite["metrics"]) == [
        *(f"bleu_{k}" for k in orders),
        *(f"sentence_bleu_{k}" for k in orders),
        "no_answer",
    ]
    bleu = suite["metrics"]["bleu_4"]
    assert bleu["value"] == corpus_bleu(REPLIES)
    assert (bleu["n"], bleu["kind"]) == (3, "corpus")
    assert bleu["ci_low"] < bleu["value"] < bleu["ci_high"] <= 100
    assert suite["categories"]["weather"]["metrics"]["bleu_4"]["value"] == pytest.approx(
        sacrebleu.corpus_bleu([REPLIES["Der Regen"]], [["it rained all day long in the hills"]]).score
    )
    assert suite["settings"]["smoothing"] == "exp"
    assert report["environment"]["versions"]["sacrebleu"]
    records = [record for record in report["records"] if record["suite"] == "translations"]
    assert {record["status"] for record in records} == {"scored"}
    assert records[0]["target"] == ["the cat sat on the mat", "a cat was on the mat"]
    again = summarize([Score(status=record["status"], values=record["values"]) for record in records], suite["metrics"])
    assert {name: asdict(metric) for name, metric in again.items()} == suite["metrics"]


def test_unscored_samples_and_empty_replies(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={**REPLIES, "Die Katze": ""}, errors={"Regen": "too hot"}))
    llm_pytester.makefile(".yaml", translations=TRANSLATIONS.replace("score: bleu", "score: {bleu: {k: [1]}}"))
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "translations.yaml")
    assert result.ret == 1
    expected = BLEU(max_ngram_order=1).corpus_score(["", REPLIES["Der Hund"]], [stream[:2] for stream in REFERENCES])
    result.stdout.fnmatch_lines(
        [
            "suite*n  bleu_1*sentence_bleu_1*",
            f"translations*2/3  {expected.score:.3f} *",
            "translations: no answer 1, unscored 1",
        ]
    )


def test_two_models_are_compared_by_the_corpus(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(scripted_models_conftest({"base": REPLIES, "tuned": BETTER}))
    llm_pytester.makefile(".yaml", translations=TRANSLATIONS)
    result = llm_pytester.runpytest(
        *workers, "--llm-model=base", "--llm-model=tuned", "--llm-report=out.json", "translations.yaml"
    )
    assert result.ret == 0
    before, after = corpus_bleu(REPLIES), corpus_bleu(BETTER)
    result.stdout.fnmatch_lines(
        ["against base, *", f"*translations*bleu_4*3  {before:.3f} * {after:.3f} (+{after - before:.3f} [[]0.000, *"]
    )
    (comparison,) = read(llm_pytester)["comparisons"]
    difference = comparison["differences"]["bleu_4"]
    assert (difference["first"], difference["second"]) == (before, after)
    assert (difference["n"], difference["kind"]) == (3, "corpus")
    assert difference["ci_low"] == 0, "two of the three samples are alike"
    assert difference["ci_high"] > after - before


OTHERS = {
    "f1": ("translations  3  0.333 ", "translations: f1 0.937 "),
    "rouge": (" rouge_1 ", " rouge_2 ", " rouge_l "),
    "chrf": (" chrf ", " chrf_pp ", " sentence_chrf "),
    "ter": (" ter ", " sentence_ter "),
    "{meteor: {synonyms: false}}": (" meteor ",),
}


@pytest.mark.parametrize("score", OTHERS)
def test_other_scorers_by_name(llm_pytester: pytest.Pytester, score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES))
    llm_pytester.makefile(".yaml", texts=TRANSLATIONS.replace("score: bleu", f"score: {score}"))
    result = llm_pytester.runpytest("texts.yaml")
    assert result.ret == 0
    lines = result.outlines
    start = next(number for number, line in enumerate(lines) if "LLM evaluation" in line)
    assert all(len(line) <= 50 for line in lines[start:]), "a narrow terminal is not broken"
    for text in OTHERS[score]:
        assert any(text in f"{line} " for line in lines[start:]), text


ERRORS = {
    "score: {bleu: {k: [0]}}": "score.bleu.k.0: found 0 *expected*at least 1",
    "score: {bleu: {k: []}}": "score.bleu.k: found an empty list, expected one entry or more",
    "score: {bleu: {k: [4, 4]}}": "*4 twice*",
    "score: {bleu: {smooth_value: 0.5}}": "*smooth_value*smoothing 'exp' takes no value*",
    "score: {bleu: {smooting: floor}}": "*smooting*smoothing*",
    "score: {rouge: {types: [W]}}": "*types*",
    "score: {chrf: {word_order: [3]}}": "*word_order*",
    "score: {meteor: {alpha: 2}}": "*alpha*",
}


@pytest.mark.parametrize("score", ERRORS)
def test_settings_that_cannot_be_used_are_named(llm_pytester: pytest.Pytester, score: str) -> None:
    llm_pytester.makeconftest(fake_model_conftest())
    llm_pytester.makefile(".yaml", texts=TRANSLATIONS.replace("score: bleu", score))
    result = llm_pytester.runpytest("texts.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines([f"*texts.yaml:6: {ERRORS[score]}"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_target_that_is_no_text_names_the_sample(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest())
    llm_pytester.makefile(
        ".yaml", texts=TRANSLATIONS.replace('target: "there was a dog in the garden"', "target: true")
    )
    result = llm_pytester.runpytest("texts.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*texts.yaml:4: *sample 't2'*the target is true, which is not text*"])


CHINESE = """\
suite: chinese
samples:
  - {id: t1, question: "Die Katze", target: "猫坐在垫子上睡了一整天。"}
  - {id: t2, question: "Der Hund", target: "花园里有一只很大的狗。"}
score: bleu
"""


def test_references_that_a_tokenizer_cannot_cut_are_warned_of_once(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={"Die Katze": "猫坐在垫子上睡了一整天。"}))
    llm_pytester.makefile(".yaml", chinese=CHINESE)
    options = ["-W", "default::pytest.PytestWarning", *workers]
    result = llm_pytester.runpytest(*options, "chinese.yaml")
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*PytestWarning: chinese.yaml:5: score: references are in Chinese, and tokenize 13a cuts words at spaces: "
            "their BLEU will be near 0 whatever the replies; set score.bleu.tokenize: zh"
        ]
    )


def test_one_reference_that_a_tokenizer_cannot_cut_is_enough_for_a_warning(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={"Die Katze": "the cat"}))
    english = '  - {id: t3, question: "Die Maus", target: "the mouse, which is called 老鼠"}\n'
    more = english + english.replace("t3", "t4") + english.replace("t3", "t5")
    one = CHINESE.replace('  - {id: t2, question: "Der Hund", target: "花园里有一只很大的狗。"}\n', more)
    llm_pytester.makefile(".yaml", chinese=one)
    result = llm_pytester.runpytest("-W", "default::pytest.PytestWarning", "chinese.yaml")
    result.stdout.fnmatch_lines(["*score: 1 of 4 references is in Chinese, and tokenize 13a cuts words at spaces: *"])


LONG = """\
suite: long
samples: [{id: t1, question: "Die Katze", target: "the cat sat on the mat"}]
score: {chrf: {max_reply_chars: 22}}
"""


def test_a_reply_that_is_cut_says_so_in_its_record(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={"Die Katze": "the cat sat on the mat" + " and on" * 1_000}))
    llm_pytester.makefile(".yaml", long=LONG)
    result = llm_pytester.runpytest("-p", "no:xdist", "--llm-report=out.json", "long.yaml")
    assert result.ret == 0
    (record,) = read(llm_pytester)["records"]
    assert record["details"] == {"reply_chars": 7_022, "judged_chars": 22}
    assert read(llm_pytester)["suites"][0]["metrics"]["chrf"]["value"] == pytest.approx(100)
