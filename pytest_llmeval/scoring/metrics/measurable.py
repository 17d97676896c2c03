"""Which scores lack a metric, and which of these lack it because their scorer says that it has no meaning there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_llmeval.scoring.metrics.definitions import WILDCARD, split_name
from pytest_llmeval.scoring.metrics.judged import OF_RATED
from pytest_llmeval.scoring.metrics.sample_values import ScoreLike
from pytest_llmeval.scoring.metrics.summary import Metric, is_carried
from pytest_llmeval.types import Score

__all__ = ["count_not_measurable", "names_given", "num_missing", "why_not_measurable", "with_numbers"]

_IS_THERE_OR_NONE = "no_answer"
"""A count that several scorers give only where there is one."""


def why_not_measurable(score: ScoreLike, metric: str) -> str | None:
    """Return the reason that the score's scorer gives for the metric's having no meaning; None where it gives none.

    ``*`` is for all metrics, ``b.*`` for those of a scorer ``b``.
    """
    said = score.not_measurable
    if not said:
        return None
    prefix = metric.partition(".")[0]
    return next((said[name] for name in (metric, f"{prefix}.{WILDCARD}", WILDCARD) if name in said), None)


def with_numbers(score: Score, numbers: Mapping[str, float]) -> Score:
    """Return the score with the ``numbers`` of those metrics that it says to have no meaning; the reasons stay."""
    if not numbers or not score.not_measurable or score.status == "unscored":
        return score
    counted = {
        name: float(number)
        for name, number in numbers.items()
        if name not in score.values and why_not_measurable(score, name) is not None
    }
    return replace(score, values={**score.values, **counted})


def names_given(score: ScoreLike, numbers: Collection[str]) -> Iterator[str]:
    """Yield the metrics for which the scorer gave a value or a reason: not those that only ``with_numbers`` added."""
    yield from (name for name in score.values if name not in numbers or why_not_measurable(score, name) is None)
    yield from (name for name in score.not_measurable if name.rpartition(".")[2] != WILDCARD)


def count_not_measurable(scores: Iterable[ScoreLike], metrics: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return for each of the metrics that some of the scores, unscored ones aside, are said to have no value of, how
    many, by reason.

    What is none of the metrics, for no score has a value of it, is counted under the name that its scorer gives it:
    ``*`` and ``b.*`` too where that stands for none of the metrics.
    """
    found: dict[str, dict[str, int]] = {}
    for score in scores:
        if score.status == "unscored" or not score.not_measurable:
            continue
        for name, reason in _lacking(score, metrics):
            reasons = found.setdefault(name, {})
            reasons[reason] = reasons.get(reason, 0) + 1
    return found


def _lacking(score: ScoreLike, metrics: Sequence[str]) -> Iterator[tuple[str, str]]:
    for metric in metrics:
        reason = why_not_measurable(score, metric)
        if reason is not None and not is_carried((score,), metric):
            yield metric, reason
    for name, reason in score.not_measurable.items():
        if name == WILDCARD or name.endswith(f".{WILDCARD}"):
            prefix = name.removesuffix(WILDCARD)
            is_named = any(one.startswith(prefix) for one in (*metrics, *score.values))
        else:
            is_named = name in metrics
        if not is_named:
            yield name, reason


def num_missing(name: str, metric: Metric, num_scored: int, not_measurable: Mapping[str, Mapping[str, int]]) -> int:
    """Return how many of the samples that were scored have no value of the metric, and nothing that says why."""
    if split_name(name)[1] == _IS_THERE_OR_NONE or name in OF_RATED:
        return 0
    return max(0, num_scored - metric.n - sum(not_measurable.get(name, {}).values()))
