"""The main job with an encoder-decoder model: a suite of choices and a suite of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.types import GenerateRequest, GenerateResponse, LoglikelihoodRequest, LoglikelihoodResponse
from tests.models.support import load
from tests.tiny_models import make_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.forks_torch]

QUESTIONS = ["The capital of France is", "The capital of Japan is", "Is that so?", "One, two,"]
CHOICES = ["Paris", "Tokyo", "yes", "three, four"]
MAX_TOKENS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5."""
    return make_checkpoint(tmp_path_factory.mktemp("t5"), "t5")


@pytest.fixture(scope="module")
def texts(folder: Path) -> list[str]:
    """What the model writes after each question."""
    responses = load(folder).generate([GenerateRequest(text, max_tokens=MAX_TOKENS) for text in QUESTIONS])
    return [response.text for response in responses if isinstance(response, GenerateResponse)]


@pytest.fixture(scope="module")
def loglikelihoods(folder: Path) -> list[list[float]]:
    """Of each choice after each question, one request at a time."""
    model = load(folder)
    table = []
    for question in QUESTIONS:
        responses = [model.loglikelihood([LoglikelihoodRequest(question, f" {choice}")])[0] for choice in CHOICES]
        table.append([r.loglikelihood for r in responses if isinstance(r, LoglikelihoodResponse)])
    return table


def test_the_main_job(
    folder: Path,
    texts: list[str],
    loglikelihoods: list[list[float]],
    llm_pytester: pytest.Pytester,
    workers: list[str],
) -> None:
    chosen = [{"question": question, "choices": CHOICES, "target": i} for i, question in enumerate(QUESTIONS)]
    targets = [*texts[:-1], "something else"]
    exact = [{"question": question, "target": text} for question, text in zip(QUESTIONS, targets, strict=True)]
    too_long = {"question": "One, two, " * 100, "target": "three"}
    llm_pytester.makefile(
        ".yaml",
        capitals=f"suite: capitals\nscore: {{choice: {{normalize: sum}}}}\nsamples: {json.dumps(chosen)}\n",
        texts=f"suite: texts\nscore: exact\ngenerate: {{max_tokens: {MAX_TOKENS}}}\nsamples: {json.dumps(exact)}\n",
        long=f"suite: long\nscore: exact\ngenerate: {{max_tokens: 4}}\nsamples: {json.dumps([too_long])}\n",
    )
    result = llm_pytester.runpytest_subprocess(
        *workers, "-v", f"--llm-model={folder}", "--llm-report=out.json", "capitals.yaml", "texts.yaml"
    )
    assert result.ret == 0, result.stdout.str()
    report: dict[str, Any] = json.loads((llm_pytester.path / "out.json").read_text(encoding="ascii"))
    (model,) = report["models"]
    assert model["details"]["class"] == "T5ForConditionalGeneration"
    records = {(record["suite"], record["id"]): record for record in report["records"]}
    for i, row in enumerate(loglikelihoods):
        best = row.index(max(row))
        assert records["capitals", str(i + 1)]["status"] == ("correct" if best == i else "wrong")
        assert records["capitals", str(i + 1)]["answer"] == CHOICES[best]
    statuses = [records["texts", str(i + 1)]["status"] for i in range(len(QUESTIONS))]
    assert statuses == ["correct", "correct", "correct", "wrong"]

    result = llm_pytester.runpytest_subprocess(*workers, f"--llm-model={folder}", "long.yaml")
    assert result.ret == 1
    result.stdout.re_match_lines([r".*the prompt needs \d+ tokens and the model's encoder holds 128: \d+ too many.*"])
    result.stdout.no_fnmatch_line("*Traceback*")
