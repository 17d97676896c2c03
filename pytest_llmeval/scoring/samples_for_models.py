"""A sample as models see it that answer by sample: its options and what is right, as its suite's scorer has them."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmeval.scoring.base import Presented
from pytest_llmeval.scoring.evaluation import Evaluation
from pytest_llmeval.types import AskedSample, Request, Sample

__all__ = ["asked_sample", "whole_suite"]


def whole_suite(evaluation: Evaluation) -> list[AskedSample]:
    """All samples of the suite, without requests."""
    return [asked_sample(evaluation, sample, number) for number, sample in enumerate(evaluation.suite.samples, 1)]


def asked_sample(evaluation: Evaluation, sample: Sample, number: int, requests: Sequence[Request] = ()) -> AskedSample:
    """The sample, which is the suite's ``number``-th, with the requests that other models would be asked."""
    suite = evaluation.suite
    presented = evaluation.scorer.present(sample)
    try:
        options, right = evaluation.scorer.options(presented)
    except ValueError as error:
        raise suite.error(str(error), sample) from None
    targets = (presented.target,) if isinstance(presented.target, str) else presented.target
    keys = presented.references if len(presented.references) == len(targets) else targets
    answers = () if options else _answers(evaluation, presented, targets)
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
    )


def _answers(evaluation: Evaluation, presented: Presented, targets: Sequence[str]) -> tuple[str, ...]:
    """Replies that would be right, as far as the scorer can write any: JSON of a schema has none."""
    try:
        return (evaluation.scorer.answer_text(presented), *targets[1:])
    except ValueError:
        return ()
