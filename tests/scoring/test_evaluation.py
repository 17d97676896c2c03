"""A suite with its scorer: fingerprints, and what a suite's author is told of settings that cannot be used."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation import part
from pytest_llmeval.evaluation.evaluation import Evaluation, QuestionMemory
from pytest_llmeval.scorers.number import NumberScorer
from pytest_llmeval.scorers.reading import reference_texts as reference_scorer
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.suites.prompts import render_prompt
from pytest_llmeval.types import LoglikelihoodRequest, Prompt, Sample

SUITE = """\
suite: sums
samples: [{question: "1 + 1 =", target: "2"}]
generate: {temperature: 0.5}
"""
SEVERAL = "score: {several: {scorers: {a: {score: exact}, b: {score: number}}}}\n"


def evaluation(folder: Path, text: str) -> Evaluation:
    path = folder / "suite.yaml"
    path.write_text(SUITE + text, encoding="utf-8")
    return Evaluation(load_suite(path))


@pytest.mark.parametrize(
    ("text", "changed", "name"),
    [
        (SEVERAL, NumberScorer, "version"),
        ("score: number\nfilters: [strip]\n", NumberScorer, "version"),
        ("score: number\nfilters: [strip]\n", part, "FILTERS_VERSION"),
        ("score: number\nepochs: 3\n", part, "EPOCHS_VERSION"),
    ],
    ids=["one of several", "inside filters", "filters", "epochs"],
)
def test_the_version_of_every_part_is_in_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, changed: object, name: str
) -> None:
    before = evaluation(tmp_path, text).fingerprints()
    assert evaluation(tmp_path, text).fingerprints() == before
    monkeypatch.setattr(changed, name, 99 if name.isupper() else property(lambda _: 99))
    after = evaluation(tmp_path, text).fingerprints()
    assert after[0] != before[0]
    assert after[1].keys() == before[1].keys()
    assert not set(after[1].values()) & set(before[1].values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'score: {contains: {normalize: [strip, {remove: "("}]}}\n',
            "suite.yaml:4: score.contains.normalize.1.remove: pattern '(' is not a regular expression: ",
        ),
        (
            'score: {several: {scorers: {a: {score: {exact: {normalize: [{remove: "("}]}}}}}}\n',
            "suite.yaml:4: score.several.scorers.a.score.exact.normalize.0.remove: pattern '(' is not",
        ),
        (
            "score: {json: {schema: [1]}}\n",
            "suite.yaml:4: score.json.schema: found a list of 1, expected a JSON Schema, or the name of a file",
        ),
        (
            'score:\n  json:\n    schema:\n      items: {$ref: "#/$defs/x"}\n',
            "suite.yaml:7: score.json.schema.items.$ref: found '#/$defs/x', and there is no schema at that place",
        ),
        (
            "score: bleu\nepochs: {count: 2, reduce: [mean, any]}\n",
            "suite.yaml:5: epochs.reduce: any counts right replies, and bleu does not decide whether a reply is right",
        ),
        (
            "score: {several: {scorers: {a: {score: exact}, b: {score: bleu, reduce: pass@1}}}}\nepochs: 2\n",
            "suite.yaml:4: score.several.scorers.b.reduce: pass@1 counts right replies, and bleu does not decide",
        ),
    ],
    ids=["contains", "exact in several", "a schema of a wrong type", "a reference", "epochs", "epochs of several"],
)
def test_what_cannot_be_used_is_said_at_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        evaluation(tmp_path, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_scorer, "find_spec", lambda name: None)
    with pytest.raises(SuiteError, match=r"suite\.yaml:4: score: meteor needs nltk, which is not installed"):
        evaluation(tmp_path, "score: meteor\n")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("math-verify", "score: math with compare: minerva needs Math-Verify; install it with"),
        ("antlr4-python3-runtime", "4.11 to 4.13, which is not installed; install it with"),
    ],
)
def test_a_missing_library_of_mathematics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, message: str
) -> None:
    def version(name: str) -> str:
        if name == missing:
            raise PackageNotFoundError(name)
        return "4.13.2"

    monkeypatch.setattr("importlib.metadata.version", version)
    with pytest.raises(SuiteError) as caught:
        evaluation(tmp_path, "score: {math: {compare: minerva}}\n")
    assert message in str(caught.value)


def test_prompts_are_rendered_once_as_far_as_memory_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "suite.yaml"
    samples = "samples: [{question: '1 + 1 =', target: '2'}, {question: '2 + 3 + 4 =', target: '9'}]\n"
    path.write_text(f"suite: sums\n{samples}score: number\n", encoding="utf-8")
    suite = load_suite(path)
    rendered: list[str] = []

    def counting(suite: Suite, sample: Sample, *others: Any) -> Prompt:
        rendered.append(sample.id)
        return render_prompt(suite, sample, *others)

    monkeypatch.setattr("pytest_llmeval.evaluation.questions.render_prompt", counting)
    plain = Evaluation(suite)
    prompts = [str(plain.question(sample).prompt) for sample in suite.samples]
    rendered.clear()
    kept, nothing_kept = Evaluation(suite, QuestionMemory(sys.getsizeof(prompts[0]) + 500)), Evaluation(suite)
    assert kept.fingerprints() == nothing_kept.fingerprints()
    assert rendered == ["1", "2"] * 2
    rendered.clear()
    for evaluation_, expected in ((kept, ["2"]), (nothing_kept, ["1", "2"])):
        assert [evaluation_.question(sample).prompt for sample in suite.samples] == prompts
        assert rendered == expected
        rendered.clear()


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ("", [" Paris", " Rome"]),
        ('prompt: {delimiter: " "}\n', ["  Paris", " Rome"]),
        ('prompt: {delimiter: ""}\n', [" Paris", "Rome"]),
        ("prompt: {chat: true}\n", [" Paris", "Rome"]),
    ],
    ids=["by default", "a space that is said", "nothing", "chat"],
)
def test_an_option_that_begins_with_a_space_gets_no_second_one(tmp_path: Path, prompt: str, asked: list[str]) -> None:
    """lm-eval's tasks say their delimiter, so that theirs are as lm-eval has them."""
    path = tmp_path / "suite.yaml"
    path.write_text(
        "suite: s\nsamples: [{question: Capital?, choices: [' Paris', Rome], target: 0}]\nscore: choice\n" + prompt,
        encoding="utf-8",
    )
    suite = load_suite(path)
    requests = Evaluation(suite).question(suite.samples[0]).requests
    assert [request.continuation for request in requests if isinstance(request, LoglikelihoodRequest)] == asked


def test_an_examples_answer_that_begins_with_a_space_gets_no_second_one(tmp_path: Path) -> None:
    shots = (
        "[{question: 'Sea?', choices: [' Wet', Dry], target: 0}, {question: 'Sun?', choices: [Wet, Dry], target: 1}]"
    )
    path = tmp_path / "suite.yaml"
    path.write_text(
        "suite: s\nsamples: [{question: Ice?, choices: [' Wet', Dry], target: 1}]\nscore: choice\n"
        f"prompt: {{fewshot: {{count: 2, sampler: first_n, samples: {shots}}}}}\n",
        encoding="utf-8",
    )
    suite = load_suite(path)
    prompt = Evaluation(suite).question(suite.samples[0]).prompt
    assert prompt == "Sea? Wet\n\nSun? Dry\n\nIce?"
