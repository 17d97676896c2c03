"""Yes or no, by generation or by log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pytest_llmeval.scoring.base import Presented, reply_request
from pytest_llmeval.scoring.calibration import CALIBRATION, calibration_values
from pytest_llmeval.scoring.metrics import skill
from pytest_llmeval.scoring.responses import finite_or_none, loglikelihood_problem, loglikelihoods, reply, softmax
from pytest_llmeval.scoring.targets import quote
from pytest_llmeval.suites.schema import GenerateSpec, YesNoSettings
from pytest_llmeval.types import JSON, LoglikelihoodRequest, Prompt, Request, Response, Sample, Score

__all__ = ["YesNoScorer", "find_yes_or_no"]

Answer: TypeAlias = Literal["yes", "no"]

_ANSWERS: tuple[Answer, Answer] = ("yes", "no")
_CHANCE = 0.5
_MAX_TOKENS = 10
_TARGETS: Mapping[str, Answer] = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}


def find_yes_or_no(text: str) -> Answer | None:
    """The answer that a reply begins with, after leading white space; None where it has none.

    Of two characters or more, the first three are looked at in lower case: ``yes`` is yes, and a start of ``no`` is no.
    """
    text = text.lstrip()
    if len(text) < 2:
        return None
    start = text[:3].lower()
    if start == "yes":
        return "yes"
    return "no" if start.startswith("no") else None


@dataclass(frozen=True, slots=True)
class YesNoScorer:
    """The reply begins with yes or no; or the likelier of the two continuations is the answer."""

    settings: YesNoSettings

    @property
    def name(self) -> str:
        return "yes_no"

    @property
    def version(self) -> int:
        return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        counts = ("correct", "total", "yes_predicted", "no_predicted", "no_answer")
        probable = ("brier", *CALIBRATION) if self.settings.by == "loglikelihood" else ()
        return ("accuracy", "skill", *probable, *counts)

    @property
    def default_template(self) -> str:
        return "{{ question }}"

    def present(self, sample: Sample) -> Presented:
        """``ValueError`` for a target that is neither a truth value nor the text yes, no, true or false."""
        target = sample.target
        answer: Answer | None = None
        if isinstance(target, bool):
            answer = "yes" if target else "no"
        elif isinstance(target, str):
            answer = _TARGETS.get(target.strip().lower())
        if answer is None:
            found = "the sample has no target" if target is None else f"target {quote(target)} is neither yes nor no"
            raise ValueError(f"{found}; expected yes, no, true or false")
        return Presented(sample=sample, references=(answer,), target=answer)

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """None of its own."""
        return {}

    def answer_text(self, presented: Presented) -> str:
        """``yes`` or ``no``."""
        return presented.references[0]

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """One generated reply (of 10 tokens, unless the suite sets ``generate.max_tokens``), or two log-likelihoods."""
        if self.settings.by == "loglikelihood":
            return tuple(LoglikelihoodRequest(prompt, delimiter + answer) for answer in _ANSWERS)
        max_tokens = None if "max_tokens" in generate.model_fields_set else _MAX_TOKENS
        return (reply_request(prompt, generate, max_tokens=max_tokens),)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Accuracy, skill and predictions; by log-likelihood Brier score and calibration over yes and no too."""
        if self.settings.by == "generation":
            return _judge(presented, find_yes_or_no(reply(responses)), {}, {})
        sums = [response.loglikelihood for response in loglikelihoods(responses, len(_ANSWERS))]
        details: dict[str, JSON] = {"loglikelihoods": [finite_or_none(value) for value in sums]}
        problem = loglikelihood_problem(sums, _ANSWERS)
        if problem is not None:
            return Score(status="unscored", reason=problem, details=details)
        probabilities = softmax(sums)
        details["probabilities"] = list(probabilities)
        expected = presented.references[0]
        squares = [(p - (answer == expected)) ** 2 for answer, p in zip(_ANSWERS, probabilities, strict=True)]
        values = {"brier": math.fsum(squares) / len(squares), **calibration_values(sums, {_ANSWERS.index(expected)})}
        yes, no = sums
        return _judge(presented, "yes" if yes > no else "no", values, details)


def _judge(
    presented: Presented, answer: Answer | None, values: Mapping[str, float], details: Mapping[str, JSON]
) -> Score:
    correct = float(answer == presented.references[0])
    return Score(
        status="correct" if correct else "wrong",
        answer=answer,
        no_answer=answer is None,
        values={
            "accuracy": correct,
            "skill": skill(correct, _CHANCE),
            **values,
            "yes_predicted": float(answer == "yes"),
            "no_predicted": float(answer == "no"),
        },
        chance=_CHANCE,
        details=details,
    )
