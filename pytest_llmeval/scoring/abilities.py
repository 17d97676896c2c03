"""What a suite asks a model for, and how else it could be scored by one that has no such thing."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.scoring.evaluation import Evaluation
from pytest_llmeval.suites.format.score_settings.scorer_settings import ScorerSettings
from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest

__all__ = ["inability", "method_of"]


def method_of(evaluation: Evaluation) -> str:
    """The method of ``Model`` that the suite calls: ``generate``, ``loglikelihood`` or ``loglikelihood_rolling``."""
    request = evaluation.question(evaluation.suite.samples[0]).requests[0]
    if isinstance(request, GenerateRequest):
        return "generate"
    return "loglikelihood" if isinstance(request, LoglikelihoodRequest) else "loglikelihood_rolling"


def inability(evaluation: Evaluation, model: str, method: str, reason: str = "") -> SuiteError:
    """The error of a suite that needs ``method`` of a model that has none, with the way out.

    ``reason`` is why it has none, where that was found out.
    """
    name = evaluation.scorer.name
    why = f" ({reason})" if reason else ""
    match method:
        case "generate":
            message = f"{name} reads a reply, and {model} gives log-likelihoods only{why}"
        case "loglikelihood":
            way_out = evaluation.suite.spec.score.by_reply(lambda settings: _works(evaluation, settings))
            message = f"{name} compares log-likelihoods, and {model} gives texts only{why}; {way_out}"
        case _:
            message = f"{name} needs the log-likelihood of whole texts, which {model} does not give{why}"
    return evaluation.suite.error(message, keys=("score",))


def _works(evaluation: Evaluation, settings: ScorerSettings) -> bool:
    suite = evaluation.suite
    try:
        other = Evaluation(replace(suite, spec=suite.spec.model_copy(update={"score": settings})))
        other.question(suite.samples[0])
    except SuiteError:
        return False
    return True
