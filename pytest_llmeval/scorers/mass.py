"""The probability that a model gives to the right options together, by log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings
from pytest_llmeval.scoring.metrics.calibration import negative_loglikelihood, softmax
from pytest_llmeval.scoring.option_scores import (
    Normalize,
    OptionsScorer,
    option_details,
    options_problem,
    rank,
    unify_equal_options,
)
from pytest_llmeval.scoring.responses import loglikelihoods
from pytest_llmeval.types import Response, Score

__all__ = ["MassScorer", "MassSettings"]


class MassSettings(ScorerSettings):
    """The probability that the model gives to the right options together: a score with no right or wrong."""

    kind: Literal["mass"] = "mass"
    needs_options = True
    normalize: Normalize = Field("sum", description="What an option's loglikelihood is divided by.")

    def make(self) -> MassScorer:
        return MassScorer.of(self)


class MassScorer(OptionsScorer[MassSettings]):
    """A scorer that makes a distribution of the options' scores by a softmax; what the right options have of it is the
    score.

    TruthfulQA's MC2 (S. Lin et al., 2022, arXiv:2109.07958): with ``normalize: sum`` it is the ``acc`` of lm-eval
    0.4.13's ``truthfulqa_mc2``. The score is a number, and neither right nor wrong.
    """

    metrics = ("probability_mass", "nll")

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Return the probability of the right options, and its negative logarithm; ``answer`` is the likeliest."""
        options, right = presented.choices, presented.right
        found = unify_equal_options(options, loglikelihoods(responses, len(options)))
        details = option_details(found)
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
