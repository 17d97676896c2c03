"""What a suite asks a model for, and how else it could be scored by one that has no such thing."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.scoring.evaluation import Evaluation
from pytest_llmeval.suites.format.schema import ChoiceSettings, LetterSettings, YesNoSettings
from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest

__all__ = ["inability", "method_of"]


def method_of(evaluation: Evaluation) -> str:
    """The method of ``Model`` that the suite calls: ``generate``, ``loglikelihood`` or ``loglikelihood_rolling``."""
    request = evaluation.question(evaluation.suite.samples[0]).requests[0]
    if isinstance(request, GenerateRequest):
        return "generate"
    return "loglikelihood" if isinstance(request, LoglikelihoodRequest) else "loglikelihood_rolling"


def inability(evaluation: Evaluation, model: str, method: str) -> SuiteError:
    """The error of a suite that needs ``method`` of a model that has none, with the way out."""
    name = evaluation.scorer.name
    match method:
        case "generate":
            message = f"{name} reads a reply, and {model} gives log-likelihoods alone"
        case "loglikelihood":
            message = f"{name} compares log-likelihoods, and {model} gives texts alone{_way_out(evaluation)}"
        case _:
            message = f"{name} needs the log-likelihood of whole texts, which {model} does not give"
    return evaluation.suite.error(message, keys=("score",))


def _way_out(evaluation: Evaluation) -> str:
    match evaluation.suite.spec.score:
        case YesNoSettings():
            return "; write score: {yes_no: {by: generation}}, which reads the reply"
        case ChoiceSettings():
            for text, settings in _LETTERS.items():
                if _works(evaluation, settings):
                    return f"; write {text}, which reads a letter in the reply"
            return "; write score: letter and show {{ lettered_choices }} in prompt.template: it reads a letter"
    return "; use a scorer that reads a reply"


_LETTERS = {"score: letter": LetterSettings(), "score: {letter: {shuffle: false}}": LetterSettings(shuffle=False)}


def _works(evaluation: Evaluation, settings: LetterSettings) -> bool:
    suite = evaluation.suite
    try:
        other = Evaluation(replace(suite, spec=suite.spec.model_copy(update={"score": settings})))
        other.question(suite.samples[0])
    except SuiteError:
        return False
    return True
