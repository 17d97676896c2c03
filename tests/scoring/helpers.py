"""Samples and responses, as the tests of scorers need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scoring.base import Scorer
from pytest_llmeval.types import GenerateResponse, LoglikelihoodResponse, Sample, Score


def a_sample(target: Any = None, choices: Sequence[str] = (), **fields: Any) -> Sample:
    """A sample of a file that does not exist."""
    return Sample(**{"id": "q1", "path": "suite.yaml", "line": 1, **fields}, target=target, choices=tuple(choices))


def judge_reply(settings: ScoreSettings, target: Any, reply: str, **fields: Any) -> Score:
    """The score of a generated reply to a sample with this target."""
    scorer = make_scorer(settings)
    return scorer.score(scorer.present(a_sample(target, **fields)), [GenerateResponse(text=reply)])


def judge_loglikelihoods(scorer: Scorer, sample: Sample, values: Sequence[float], num_tokens: Sequence[int]) -> Score:
    """The score of a sample whose continuations have these log-likelihoods and numbers of tokens."""
    responses = [
        LoglikelihoodResponse(loglikelihood=value, num_tokens=count)
        for value, count in zip(values, num_tokens, strict=True)
    ]
    return scorer.score(scorer.present(sample), responses)


GENERATE = GenerateSpec(max_tokens=77, stop=("\n",), temperature=0.5, seed=3)
"""Generation settings of which none is the default."""
