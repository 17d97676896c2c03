"""A suite as a model sees it: its samples, with what is right as its scorer has them, and what it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings
from pytest_llmeval.types import AskedSample, GenerateRequest, LoglikelihoodRequest, Request, Sample

__all__ = ["asked_sample", "first_request", "inability", "method_of", "whole_suite"]


def whole_suite(evaluation: Evaluation) -> list[AskedSample]:
    """Return all samples of the suite, without requests."""
    return [asked_sample(evaluation, sample, number) for number, sample in enumerate(evaluation.suite.samples, 1)]


def asked_sample(evaluation: Evaluation, sample: Sample, number: int, requests: Sequence[Request] = ()) -> AskedSample:
    """Return the sample, which is the suite's ``number``-th, with the requests that other models would be asked."""
    suite = evaluation.suite
    presented = evaluation.scorer.present(sample)
    try:
        options, right = evaluation.scorer.options(presented)
    except ValueError as error:
        raise suite.error(str(error), sample) from None
    targets = (presented.target,) if isinstance(presented.target, str) else presented.target
    keys = presented.references if len(presented.references) == len(targets) else targets
    answers = () if options or not targets else _answers(evaluation, presented, targets)
    if evaluation.scorer.reads_documents:  # the right documents are one right answer together, and not one each
        keys = answers = answers[:1]
    row = sample.variables.get("row")
    return AskedSample(
        suite=suite.name,
        id=sample.id,
        number=number,
        place=suite.place(sample),
        requests=tuple(requests),
        options=options,
        right=right,
        answers=answers,
        answer_keys=keys if answers else (),
        response=sample.response,
        row=row if isinstance(row, dict) else {},
        reads_documents=evaluation.scorer.reads_documents,
    )


def _answers(evaluation: Evaluation, presented: PreparedSample, targets: Sequence[str]) -> tuple[str, ...]:
    """Replies that would be right, as far as the scorer can write any: JSON of a schema has none."""
    try:
        return (evaluation.scorer.answer_text(presented), *targets[1:])
    except ValueError:
        return ()


def first_request(evaluation: Evaluation) -> Request:
    """Return what the suite asks a model first: its other requests have the same method and settings."""
    return evaluation.question(evaluation.suite.samples[0]).requests[0]


def method_of(request: Request) -> str:
    """Return the method of ``Model`` that is called: ``generate``, ``loglikelihood`` or ``loglikelihood_rolling``."""
    if isinstance(request, GenerateRequest):
        return "generate"
    return "loglikelihood" if isinstance(request, LoglikelihoodRequest) else "loglikelihood_rolling"


def inability(evaluation: Evaluation, model: str, method: str, reason: str = "") -> SuiteError:
    """Return the error of a suite that needs ``method`` of a model that has none, with the way out.

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
