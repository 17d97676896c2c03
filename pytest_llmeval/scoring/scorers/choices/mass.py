"""The probability of all right options together, by log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.base import Presented
from pytest_llmeval.scoring.metrics.calibration import negative_loglikelihood
from pytest_llmeval.scoring.metrics.probabilities import softmax
from pytest_llmeval.scoring.scorers.choices.option_scores import (
    alike_as_one,
    options_problem,
    present_options,
    rank,
)
from pytest_llmeval.scoring.scorers.responses import finite_or_none, loglikelihoods
from pytest_llmeval.suites.format.prompt_spec import GenerateSpec
from pytest_llmeval.suites.format.score_settings.choices import MassSettings
from pytest_llmeval.types import JSON, LoglikelihoodRequest, Prompt, Request, Response, Sample, Score

__all__ = ["MassScorer"]


@dataclass(frozen=True, slots=True)
class MassScorer:
    """A softmax over the options' scores is a distribution; what the right options have of it is the score.

    TruthfulQA's MC2 (S. Lin et al., 2022, arXiv:2109.07958): with ``normalize: sum`` it is the ``acc`` of lm-eval
    0.4.13's ``truthfulqa_mc2``. The score is a number, and neither right nor wrong.
    """

    settings: MassSettings

    @property
    def name(self) -> str:
        return "mass"

    @property
    def version(self) -> int:
        return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("probability_mass", "nll")

    @property
    def default_template(self) -> str:
        return "{{ question }}"

    def present(self, sample: Sample) -> Presented:
        """All choices in their order. ``ValueError``: fewer than two, an empty one, a target of all or of none."""
        return present_options(sample)

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """None of its own."""
        return {}

    def answer_text(self, presented: Presented) -> str:
        """The first right option."""
        return presented.choices[presented.right[0]]

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """One log-likelihood for each option."""
        return tuple(LoglikelihoodRequest(prompt, delimiter + choice) for choice in presented.choices)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Probability of the right options, and its negative logarithm; ``answer`` is the likeliest option."""
        options, right = presented.choices, presented.right
        found = alike_as_one(options, loglikelihoods(responses, len(options)))
        details: dict[str, JSON] = {
            "loglikelihoods": [finite_or_none(response.loglikelihood) for response in found],
            "num_tokens": [response.num_tokens for response in found],
        }
        problem = options_problem(options, found, self.settings.normalize)
        if problem is not None:
            return Score(status="unscored", reason=problem, details=details)
        ranking = rank(options, found, self.settings.normalize)
        probabilities = softmax(ranking.scores)
        details["probabilities"] = list(probabilities)
        nll = negative_loglikelihood(ranking.scores, right)
        values = {
            "probability_mass": min(1.0, math.fsum(probabilities[index] for index in right)),
            **({"nll": nll} if math.isfinite(nll) else {}),
        }
        return Score(status="scored", answer=ranking.answer(options), values=values, details=details)
