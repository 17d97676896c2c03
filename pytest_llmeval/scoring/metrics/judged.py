"""Metrics of trust in a judge: how far it agrees with people, what people would have found, how far a panel agrees.

A sample has ``judge_value``, the judge's number, and where people rated it ``human_value``, theirs. Of a panel it has
``rating_1`` and so on, each judge's number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import regex

from pytest_llmeval.roles import ROLES
from pytest_llmeval.scoring.metrics.corpus_formulas import CorpusFormula, FormulaEstimate, Ingredients, Sums
from pytest_llmeval.scoring.statistics.clustered import mean_interval, standard_error
from pytest_llmeval.scoring.statistics.intervals import Estimate, mean, wilson_interval, with_width
from pytest_llmeval.scoring.statistics.raters import (
    JudgeCounts,
    krippendorff_alpha,
    ppi_mean,
    rogan_gladen,
    weighted_kappa,
)

__all__ = [
    "CORRECTED",
    "HUMAN",
    "JUDGE",
    "JUDGED",
    "JUDGE_PROMPT",
    "RATED_METRICS",
    "corrected_formula",
    "is_judged_ingredient",
    "is_of_trust",
    "rating",
]

HUMAN, JUDGE = "human_value", "judge_value"
JUDGE_PROMPT = "judge_prompt"
"""The part of a suite's fingerprint that says in which of our words its judge is asked."""
CORRECTED = "corrected_"
"""The beginning of a corrected metric's name."""
RATED_METRICS = frozenset(
    f"judge.{name}" for name in ("agreement", "base_rate", "human_mean", "kappa", "sensitivity", "specificity")
)
"""Metrics of the samples that people rated: where these have a value, no other sample lacks one."""


def rating(number: int) -> str:
    """Return the ingredient that is the number of the ``number``-th judge of a panel, from 1."""
    return f"rating_{number}"


_RATINGS = tuple(rating(number) for number in range(1, ROLES["judge"].most + 1))
_INGREDIENTS = frozenset((HUMAN, JUDGE, *_RATINGS))


def is_judged_ingredient(name: str) -> bool:
    """Return whether a name in ``Score.values`` is what these metrics are made of, and none itself."""
    return name in _INGREDIENTS


@lru_cache(maxsize=4_096)
def is_of_trust(name: str) -> bool:
    """Return whether a metric's name is one of those that say how far a judge is trusted, or what people would have
    found.

    The metrics of one of several scorers that a suite calls ``judge`` are none of them.
    """
    return name in RATED_METRICS or regex.fullmatch(rf"judge\.(alpha|\d+\..+)|{CORRECTED}.+", name) is not None


def _kappa_sums(samples: Sequence[Ingredients]) -> Sums:
    """Return what ``raters.weighted_kappa`` does, from sums of n, x, y, x², y², xy, of numbers less the lowest."""
    low = min(min(sample[HUMAN], sample[JUDGE]) for sample in samples)
    rows = []
    for sample in samples:
        x, y = sample[HUMAN] - low, sample[JUDGE] - low
        rows.append([1.0, x, y, x * x, y * y, (x - y) ** 2])

    def value(total: Sequence[float]) -> float | None:
        n, x, y, xx, yy, observed = total
        expected = (n * xx + n * yy - 2 * x * y) / n  # n times the mean over all pairs
        return None if expected <= 0 else 1 - observed / expected

    return Sums(rows, value)


def _kappa(samples: Sequence[Ingredients]) -> FormulaEstimate:
    return _taken(weighted_kappa([one[HUMAN] for one in samples], [one[JUDGE] for one in samples]))


def _accuracy_sums(samples: Sequence[Ingredients]) -> Sums:
    """Return what ``raters.rogan_gladen`` does, from sums of samples, of those that the judge calls right, of what
    people call right and of those what the judge does too, and the same of wrong ones. Where people rated all of them,
    it is their share.
    """
    rows = []
    for sample in samples:
        judge, people = sample[JUDGE], sample.get(HUMAN)
        right, wrong = float(people == 1), float(people is not None and people != 1)
        rows.append([1.0, judge, right, right * judge, wrong, wrong * (1 - judge)])

    def value(total: Sequence[float]) -> float | None:
        n, judged, right, both_right, wrong, both_wrong = total
        if right + wrong == n:
            return right / n
        if not right or not wrong or both_right * wrong + both_wrong * right <= right * wrong:
            return None
        specificity = both_wrong / wrong
        share = (judged / n + specificity - 1) / (both_right / right + specificity - 1)
        return min(1.0, max(0.0, share))

    return Sums(rows, value)


def _accuracy(samples: Sequence[Ingredients]) -> FormulaEstimate:
    rated = [sample for sample in samples if HUMAN in sample]
    people = [int(one[HUMAN] == 1) for one in rated]
    if len(rated) == len(samples):
        right, n = sum(people), len(people)
        return FormulaEstimate(
            right / n, math.sqrt(right * (n - right) / (n - 1)) / n if n > 1 else None, wilson_interval(right, n)
        )
    counts = JudgeCounts(
        true_positives=math.fsum(one[JUDGE] for one in rated if one[HUMAN] == 1),
        positives=sum(people),
        true_negatives=math.fsum(1 - one[JUDGE] for one in rated if one[HUMAN] != 1),
        negatives=len(people) - sum(people),
    )
    return _taken(rogan_gladen(math.fsum(sample[JUDGE] for sample in samples), len(samples), counts))


def _mean_sums(samples: Sequence[Ingredients]) -> Sums:
    """Return what ``raters.ppi_mean`` does, from sums over rated samples (n, h, f, f², hf) and over the others (N,
    f, f²), of numbers less the judge's mean.
    """
    centre = math.fsum(sample[JUDGE] for sample in samples) / len(samples)
    rows = []
    for sample in samples:
        judge = sample[JUDGE] - centre
        if HUMAN in sample:
            people = sample[HUMAN] - centre
            rows.append([1.0, people, judge, judge * judge, people * judge, 0.0, 0.0, 0.0])
        else:
            rows.append([0.0] * 5 + [1.0, judge, judge * judge])

    def value(total: Sequence[float]) -> float | None:
        n, people, judge, squares, products, others, of_others, other_squares = total
        if n < 2:
            return None
        found = people / n
        if others >= 2:
            count = n + others
            variance = (squares + other_squares - (judge + of_others) ** 2 / count) / (count - 1)
            covariance = (products - people * judge / n) / (n - 1)
            if variance > _LEAST_VARIANCE:
                weight = min(1.0, max(0.0, covariance / ((1 + n / others) * variance)))
                found += weight * (of_others / others - judge / n)
        return centre + found

    return Sums(rows, value)


_LEAST_VARIANCE = 1e-24


def _mean(samples: Sequence[Ingredients]) -> FormulaEstimate:
    rated = [sample for sample in samples if HUMAN in sample]
    others = [sample[JUDGE] for sample in samples if HUMAN not in sample]
    if not others:  # the mean of what people gave, with the interval that it has elsewhere
        people = [one[HUMAN] for one in rated]
        return FormulaEstimate(mean(people), standard_error(people), with_width(mean_interval(people)))
    return _taken(ppi_mean([one[HUMAN] for one in rated], [one[JUDGE] for one in rated], others))


def _alpha_sums(samples: Sequence[Ingredients]) -> Sums:
    """Return what ``raters.krippendorff_alpha`` does."""
    low = min(min(_ratings(sample)) for sample in samples)
    rows = []
    for sample in samples:
        own = [one - low for one in _ratings(sample)]
        count, total, squares = float(len(own)), math.fsum(own), math.fsum(one * one for one in own)
        apart = math.fsum((one - other) ** 2 for one in own for other in own)
        rows.append([count, total, squares, apart / (count - 1)])

    def value(sums: Sequence[float]) -> float | None:
        count, total, squares, apart = sums
        expected = 2 * (count * squares - total * total) / (count - 1)  # times the number of ratings, as ``apart``
        return None if expected <= 0 else 1 - apart / expected

    return Sums(rows, value)


def _alpha(samples: Sequence[Ingredients]) -> FormulaEstimate:
    rows = sorted(_ratings(sample) for sample in samples)  # the order of samples draws no other bootstrap samples
    return _taken(krippendorff_alpha(rows))


def _ratings(sample: Ingredients) -> list[float]:
    return [sample[name] for name in _RATINGS if name in sample]


def _taken(found: Estimate) -> FormulaEstimate:
    interval = None if found.ci_low is None or found.ci_high is None else (found.ci_low, found.ci_high)
    return FormulaEstimate(found.value, found.stderr, interval)


JUDGED: Mapping[str, CorpusFormula] = MappingProxyType(
    {
        "judge.kappa": CorpusFormula((HUMAN, JUDGE), _kappa_sums, estimate=_kappa),
        "judge.alpha": CorpusFormula(_RATINGS[:2], _alpha_sums, may_have=_RATINGS[2:], estimate=_alpha),
    }
)
"""Corpus metrics of trust, but for corrected ones."""
_CORRECTED: Mapping[
    bool, tuple[Callable[[Sequence[Ingredients]], Sums], Callable[[Sequence[Ingredients]], FormulaEstimate]]
]
_CORRECTED = MappingProxyType({True: (_accuracy_sums, _accuracy), False: (_mean_sums, _mean)})


@lru_cache(maxsize=4_096)
def corrected_formula(name: str) -> CorpusFormula | None:
    """Return the formula of ``corrected_accuracy``, which is of labels, and of any other corrected metric, which is a
    mean.

    None for another name.
    """
    found = regex.fullmatch(rf"{CORRECTED}([A-Za-z_]\w*)", name)
    if found is None:
        return None
    sums, of_independent = _CORRECTED[found[1] == "accuracy"]
    return CorpusFormula((JUDGE,), sums, may_have=(HUMAN,), estimate=of_independent)
