"""A suite that a model cannot answer, as far as that is known, is refused before anything runs, with a way out."""

from __future__ import annotations

import json

import pytest

CSQA_ROW = {
    "id": "q1",
    "question": "Where is a book kept?",
    "choices": {"label": list("ABCDE"), "text": ["shelf", "sea", "sky", "sun", "sand"]},
    "answerKey": "A",
}
CHOICE = "suite: s\nsamples: [{question: Q, choices: [one, two], target: one}]\nscore: choice\n"
YES_NO = "suite: s\nsamples: [{question: Q, target: yes}]\nscore: {yes_no: {by: loglikelihood}}\n"
PERPLEXITY = "suite: s\nsamples: [{text: Some words.}]\nprompt: {template: '{{ text }}'}\nscore: perplexity\n"
MODELS = """
from pytest_llmeval.types import GenerateResponse, LoglikelihoodResponse

def function(prompt): return "A"
def factory(): return Scores()

class Writes:
    def generate(self, requests): return [GenerateResponse(text="A") for _ in requests]

class Scores:
    def loglikelihood(self, requests):
        return [LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1) for _ in requests]

class Late(Writes):
    def __init__(self): self.loglikelihood = Scores().loglikelihood

class Dynamic:
    def __getattr__(self, name): return getattr(Scores(), name)

writes = Writes()
"""
NO_XDIST = ["-p", "no:xdist"]
FUNCTION = "python:models:function"


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makepyfile(models=MODELS)
    (llm_pytester.path / "rows.jsonl").write_text(json.dumps(CSQA_ROW))
    return llm_pytester


def refusal(project: pytest.Pytester, suite: str, model: str) -> str | None:
    """The line that says why the suite was not collected; None where it ran."""
    (project.path / "s.yaml").write_text(suite)
    result = project.runpytest_inprocess("-p", "no:xdist", f"--llm-model={model}", "s.yaml")
    if result.ret == pytest.ExitCode.INTERRUPTED:
        result.stdout.no_fnmatch_line("*Traceback*")
        return next(line for line in result.outlines if line.startswith("s.yaml:"))
    assert result.ret == pytest.ExitCode.OK
    return None


@pytest.mark.parametrize("model", ["function", "Writes", "writes"])
def test_log_likelihoods_of_a_model_that_writes(project: pytest.Pytester, model: str) -> None:
    assert refusal(project, CHOICE, f"python:models:{model}") == (
        f"s.yaml:3: score: choice compares log-likelihoods, and python:models:{model} gives texts only; write score: "
        "letter, which reads a letter in the reply"
    )
    assert refusal(project, CHOICE.replace("choice\n", "letter\n"), f"python:models:{model}") is None


@pytest.mark.parametrize("model", ["Scores", "factory", "Late", "Dynamic"])
def test_a_model_that_has_them_or_may(project: pytest.Pytester, model: str) -> None:
    assert refusal(project, CHOICE, f"python:models:{model}") is None


def test_replies_of_a_model_that_scores(project: pytest.Pytester) -> None:
    found = refusal(project, CHOICE.replace("choice\n", "letter\n"), "python:models:Scores")
    assert found == "s.yaml:3: score: letter reads a reply, and python:models:Scores gives log-likelihoods only"


def test_a_preset_whose_letters_stand_in_its_prompt(project: pytest.Pytester) -> None:
    csqa = "suite: s\npreset: csqa\ndataset: {path: rows.jsonl}\n"
    advice = "score: {letter: {shuffle: false}}"
    assert refusal(project, csqa, FUNCTION) == (
        f"s.yaml:2: preset csqa: score: choice compares log-likelihoods, and {FUNCTION} gives texts only; write "
        f"{advice}, which reads a letter in the reply"
    )
    assert refusal(project, f"{csqa}{advice}\n", FUNCTION) is None


def test_other_scorers(project: pytest.Pytester) -> None:
    assert "; write score: {yes_no: {by: generation}}, which reads" in str(refusal(project, YES_NO, FUNCTION))
    assert "needs the log-likelihood of whole texts, which" in str(refusal(project, PERPLEXITY, FUNCTION))
    assert refusal(project, YES_NO.replace("by: loglikelihood", "by: generation"), FUNCTION) is None


@pytest.mark.parametrize(
    ("reply", "scorer", "end", "workers"),
    [
        ({"response": "A"}, "choice", "and replay:r.jsonl gives texts only; write score: letter, which *", NO_XDIST),
        ({"scores": [1, 2]}, "letter", "letter reads a reply, and replay:r.jsonl gives log-likelihoods only", ["-n2"]),
        ({"response": "[-1, -2]", "num_tokens": [1, 1]}, "choice", None, NO_XDIST),
        ({"loglikelihoods": [-1, -2], "num_tokens": [1, 1]}, "choice", None, NO_XDIST),
    ],
)
def test_replies_from_a_file(
    project: pytest.Pytester, reply: dict[str, object], scorer: str, end: str | None, workers: list[str]
) -> None:
    (project.path / "r.jsonl").write_text(json.dumps({"id": "1", **reply}))
    (project.path / "s.yaml").write_text(CHOICE.replace("choice\n", f"{scorer}\n"))
    result = project.runpytest(*workers, "--llm-model=replay:r.jsonl", "s.yaml")
    assert result.ret == (
        0 if end is None else 1 if "-n2" in workers else 2
    )  # pytest-xdist's own for an error of collection
    if end is not None:
        result.stdout.fnmatch_lines([f"s.yaml:3: *{end}"])
