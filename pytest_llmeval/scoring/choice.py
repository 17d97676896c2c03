"""Multiple choice by log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.base import Presented
from pytest_llmeval.scoring.metrics import skill
from pytest_llmeval.scoring.responses import finite_or_none, loglikelihood_problem, loglikelihoods, softmax
from pytest_llmeval.scoring.targets import quote, right_choices, several_or_one
from pytest_llmeval.suites.schema import ChoiceSettings, GenerateSpec, Normalize
from pytest_llmeval.types import (
    JSON,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    Prompt,
    Request,
    Response,
    Sample,
    Score,
)

__all__ = ["ChoiceScorer", "option_scores"]

_NORMALIZATIONS: tuple[Normalize, ...] = ("token", "sum", "char", "byte")


def option_scores(
    options: Sequence[str], responses: Sequence[LoglikelihoodResponse], normalize: Normalize
) -> list[float]:
    """What options are compared by: loglikelihood (nats) per token, as it is, per character or per UTF-8 byte.

    Characters and bytes are those of the option's own text, without the delimiter before it, as lm-eval counts them for
    ``acc_norm`` and ``acc_bytes``.
    """
    lengths: list[int]
    match normalize:
        case "token":
            lengths = [response.num_tokens for response in responses]
        case "sum":
            lengths = [1 for _ in responses]
        case "char":
            lengths = [len(option) for option in options]
        case "byte":
            # surrogatepass: a lone surrogate, which has no UTF-8 form, counts as the three bytes that it would take.
            lengths = [len(option.encode("utf-8", "surrogatepass")) for option in options]
    return [response.loglikelihood / length for response, length in zip(responses, lengths, strict=True)]


@dataclass(frozen=True, slots=True)
class ChoiceScorer:
    """The likeliest option is the answer; a softmax over the options' scores is a distribution with a Brier score."""

    settings: ChoiceSettings

    @property
    def name(self) -> str:
        return "choice"

    @property
    def version(self) -> int:
        return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "skill", "brier", "brier_sum", *(f"accuracy_{name}" for name in _NORMALIZATIONS))

    @property
    def default_template(self) -> str:
        return "{{ question }}"

    def present(self, sample: Sample) -> Presented:
        """All choices in their order. ``ValueError``: fewer than two, an empty one, or a target that does not fit."""
        right = right_choices(sample)
        for index, choice in enumerate(sample.choices):
            if not choice.strip():
                raise ValueError(f"choice {index} is empty: there is nothing whose likelihood could be taken")
        return Presented(
            sample=sample,
            choices=sample.choices,
            right=right,
            order=tuple(range(len(sample.choices))),
            target=several_or_one([sample.choices[index] for index in right]),
        )

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """None of its own."""
        return {}

    def answer_text(self, presented: Presented) -> str:
        """The first right option."""
        return presented.choices[presented.right[0]]

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """One log-likelihood for each option. White space at the prompt's end is the backend's business, not ours."""
        return tuple(LoglikelihoodRequest(prompt, delimiter + choice) for choice in presented.choices)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Accuracy, skill and Brier score of the distribution; accuracy by each of the four normalisations."""
        options = presented.choices
        found = loglikelihoods(responses, len(options))
        details: dict[str, JSON] = {
            "loglikelihoods": [finite_or_none(response.loglikelihood) for response in found],
            "num_tokens": [response.num_tokens for response in found],
        }
        problem = _problem(options, found)
        if problem is not None:
            return Score(status="unscored", reason=problem, details=details)
        scores = option_scores(options, found, self.settings.normalize)
        probabilities = softmax(scores)
        details["probabilities"] = list(probabilities)
        top = _first_best(scores)
        chance = len(presented.right) / len(options)
        squares = [(p - (index in presented.right)) ** 2 for index, p in enumerate(probabilities)]
        correct = float(top in presented.right)
        values = {
            "accuracy": correct,
            "skill": skill(correct, chance),
            "brier": math.fsum(squares) / len(squares),
            "brier_sum": math.fsum(squares),
        }
        for name in _NORMALIZATIONS:
            best = _first_best(option_scores(options, found, name))
            values[f"accuracy_{name}"] = float(best in presented.right)
        return Score(
            status="correct" if correct else "wrong", answer=options[top], values=values, chance=chance, details=details
        )


def _problem(options: Sequence[str], responses: Sequence[LoglikelihoodResponse]) -> str | None:
    for option, response in zip(options, responses, strict=True):
        if response.num_tokens < 1:
            return f"the model counts {response.num_tokens} tokens in option {quote(option)}"
    return loglikelihood_problem([response.loglikelihood for response in responses], options)


def _first_best(scores: Sequence[float]) -> int:
    """Index of the highest score, the first of equal ones."""
    return max(range(len(scores)), key=scores.__getitem__)
