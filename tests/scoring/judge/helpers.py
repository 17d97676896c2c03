"""A judge in a few lines, for the tests of the scorers that ask one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.pipeline import suite_scorer
from pytest_llmeval.models.base import Failed, JudgeSteps
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scoring.base import Scorer
from pytest_llmeval.types import (
    EmbeddingRequest,
    EmbeddingResponse,
    GenerateRequest,
    GenerateResponse,
    Prompt,
    Response,
    Sample,
    Score,
)
from tests.scoring.helpers import a_sample

Judge = Callable[[GenerateRequest], "str | Response | Failed"]
Embedder = Callable[[str], "Sequence[float] | Response | Failed"]

__all__ = ["Embedder", "Judge", "asked_of", "check_refused", "drive", "judged", "material", "scripted"]


def scripted(*replies: object) -> Judge:
    """Says one after the other; what is no text, response or error is written as JSON. The last is repeated."""
    left = list(replies)

    def judge(request: GenerateRequest) -> str | Response | Failed:
        said = left.pop(0) if len(left) > 1 else left[0]
        return said if isinstance(said, str | GenerateResponse | Failed) else json.dumps(said)

    return judge


def no_embedder(_: str) -> Failed:
    raise AssertionError("the embedder is asked")


def drive(
    asking: JudgeSteps, judge: Judge, embedder: Embedder = no_embedder
) -> tuple[Score, list[list[GenerateRequest]]]:
    """The score, and the requests that the judge was asked together."""
    rounds: list[list[GenerateRequest]] = []
    answers: Sequence[Response | Failed] | None = None
    while True:
        try:
            ask = next(asking) if answers is None else asking.send(answers)
        except StopIteration as stop:
            score: Score = stop.value
            return score, rounds
        if not ask.requests:
            answers = []
            continue
        if ask.role == "embedder":
            vectors = [embedder(request.text) for request in ask.requests if isinstance(request, EmbeddingRequest)]
            answers = [EmbeddingResponse(vector=tuple(one)) if isinstance(one, Sequence) else one for one in vectors]
            continue
        rounds.append([request for request in ask.requests if isinstance(request, GenerateRequest)])
        said = [judge(request) for request in rounds[-1]]
        answers = [GenerateResponse(text=one, num_tokens=1) if isinstance(one, str) else one for one in said]


def judged(
    settings: ScoreSettings | Scorer, reply: str, judge: Judge, *, sample: Sample | None = None, prompt: Prompt = "P"
) -> tuple[Score, list[list[GenerateRequest]]]:
    """The score of a reply, and what the judge was asked, round by round."""
    scorer = settings if isinstance(settings, Scorer) else suite_scorer(settings)
    presented = scorer.present(sample or a_sample("Paris", question="Capital of France?"))
    return drive(scorer.asking(replace(presented, prompt=prompt), [GenerateResponse(text=reply)]), judge)


def asked_of(settings: ScoreSettings, reply: str, *, sample: Sample | None = None, prompt: Prompt = "P") -> list[str]:
    """The turns that the judge is shown first: system and user."""
    _, rounds = judged(settings, reply, scripted("no verdict"), sample=sample, prompt=prompt)
    turns = rounds[0][0].prompt
    assert not isinstance(turns, str)
    assert [turn.role for turn in turns] == ["system", "user"]
    return [turn.content for turn in turns]


def material(text: str) -> list[tuple[str, str]]:
    """The titles and what stands in the fences, read as CommonMark does: a fence ends with as many backticks or more.

    Raises ``ValueError`` where anything but titles stands outside.
    """
    found: list[tuple[str, str]] = []
    lines = text.split("\n")
    while lines:
        if not (line := lines.pop(0)):
            continue
        if not line.endswith(":"):
            raise ValueError(f"{line!r} stands outside")
        fence = lines.pop(0)
        if len(fence) < 3 or set(fence) != {"`"}:
            raise ValueError(f"{fence!r} is no fence")
        inside: list[str] = []
        while not (len(lines[0].strip()) >= len(fence) and set(lines[0].strip()) == {"`"}):
            inside.append(lines.pop(0))
        lines.pop(0)
        found.append((line[:-1], "\n".join(inside)))
    return found


def check_refused(load: Callable[[str], object], text: str, words: Sequence[str]) -> None:
    """The suite is an error at its file, in words that say these."""
    with pytest.raises(SuiteError) as caught:
        load(text)
    found = str(caught.value)
    assert found.startswith("s.yaml:")
    for word in words:
        assert word in found, found
