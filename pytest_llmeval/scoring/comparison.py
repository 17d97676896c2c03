"""Two models on the same samples: differences of metrics, sample by sample."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType
from typing import Literal

from pytest_llmeval.scoring.corpus import corpus_difference, corpus_ingredients
from pytest_llmeval.scoring.definitions import definition, is_known
from pytest_llmeval.scoring.pooled import ingredients, pseudo_values
from pytest_llmeval.scoring.statistics import CONFIDENCE, mean, mean_interval, standard_error, with_width
from pytest_llmeval.types import JSON, Score

__all__ = ["Difference", "compare", "paired_difference", "paired_proportions_interval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A metric of a second model against a first, over the ``n`` samples that both have a value for.

    ``first`` and ``second`` are the two means, ``difference`` is second minus first, ``stderr`` the standard error of
    the mean of the samples' differences, None for n < 2. ``ci_low`` and ``ci_high`` are the 95% interval of the
    difference: Bonett and Price's for proportions, Student's t for other means, None for means with n < 2. Of
    proportions, ``num_gained`` counts the samples that only the second has, ``num_lost`` those that only the first has.
    Of pooled metrics (perplexities), ``first`` and ``second`` are the metrics themselves, and the standard error and
    Student's t interval are those of their difference by the delta method (``pooled.pseudo_values``). Of corpus
    metrics they are the metrics themselves too; their difference has the standard error and interval of a paired
    bootstrap.
    """

    n: int
    kind: Literal["proportion", "mean", "pooled", "corpus"]
    first: float
    second: float
    difference: float
    stderr: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    num_gained: int | None = None
    num_lost: int | None = None

    def to_dict(self) -> dict[str, JSON]:
        """As builtins, for a report."""
        return dataclasses.asdict(self)


def compare(first: Mapping[str, Score], second: Mapping[str, Score], names: Sequence[str]) -> dict[str, Difference]:
    """The named metrics of two models' scores by sample id, over the samples that both scored.

    Left out are counts, metrics that no pair of scores carries, and pooled and corpus metrics that have no value.
    """
    differences = {}
    for name in names:
        kind = definition(name).kind
        whole = _WHOLE[kind](name, first, second) if kind in _WHOLE else None
        if whole is not None:
            differences[name] = whole
        elif kind != "count":
            pairs = [
                (before, after)
                for sample_id, score in first.items()
                if sample_id in second
                and (before := _value(score, name)) is not None
                and (after := _value(second[sample_id], name)) is not None
            ]
            if pairs:
                differences[name] = _difference(name, pairs)
    return differences


def paired_difference(first: Sequence[float], second: Sequence[float], *, is_proportion: bool) -> Difference:
    """Second minus first, value by value; of a proportion all are 0 or 1.

    ``ValueError`` for sequences of two lengths, none, and a value that is not finite or not that of a proportion.
    """
    differences = [after - before for before, after in zip(first, second, strict=True)]
    if is_proportion and not {*first, *second} <= {0.0, 1.0}:
        raise ValueError("a proportion is taken over zeros and ones")
    found = Difference(
        n=len(differences),
        kind="proportion" if is_proportion else "mean",
        first=mean(first),
        second=mean(second),
        difference=mean(differences),
        stderr=standard_error(differences),
    )
    if not is_proportion:
        low, high = with_width(mean_interval(differences)) or (None, None)
        return dataclasses.replace(found, ci_low=low, ci_high=high)
    gained, lost = differences.count(1.0), differences.count(-1.0)
    low, high = paired_proportions_interval(gained, lost, found.n)
    return dataclasses.replace(found, ci_low=low, ci_high=high, num_gained=gained, num_lost=lost)


def paired_proportions_interval(gained: int, lost: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Interval of the difference of two proportions over the same ``n`` pairs, as (low, high).

    ``gained`` pairs are 0 and then 1, ``lost`` pairs 1 and then 0. Wald's interval after one pair of each kind is added
    (D. G. Bonett and R. M. Price, 2012, doi:10.3102/1076998611411915): it covers well for few pairs too, and has a
    width where none differ. Raises ``ValueError`` for counts that n pairs cannot have.
    """
    if n < 1 or gained < 0 or lost < 0 or gained + lost > n:
        raise ValueError(f"{gained} gained and {lost} lost among {n} pairs have no difference")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, found {confidence}")
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    centre = up - down
    half = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt((up + down - centre**2) / (n + 2))
    return max(-1.0, centre - half), min(1.0, centre + half)


def _difference(name: str, pairs: Sequence[tuple[float, float]]) -> Difference:
    first, second = [before for before, _ in pairs], [after for _, after in pairs]
    # As in a summary: a metric that is known as a mean stays one where its values happen to be zeros and ones.
    is_proportion = (not is_known(name) or definition(name).kind != "mean") and {*first, *second} <= {0.0, 1.0}
    return paired_difference(first, second, is_proportion=is_proportion)


def _pooled_difference(name: str, first: Mapping[str, Score], second: Mapping[str, Score]) -> Difference | None:
    """Of the two models' metrics, not of their samples'; None where the scores do not hold the sums to pool."""
    both = [
        sample_id
        for sample_id in first
        if sample_id in second and len(ingredients((first[sample_id], second[sample_id]), name)) == 2
    ]
    before = pseudo_values(name, ingredients((first[sample_id] for sample_id in both), name))
    after = pseudo_values(name, ingredients((second[sample_id] for sample_id in both), name))
    if before is None or after is None:
        return None
    differences = [other - one for one, other in zip(before, after, strict=True)]
    low, high = with_width(mean_interval(differences)) or (None, None)
    return Difference(
        n=len(differences),
        kind="pooled",
        first=mean(before),
        second=mean(after),
        difference=mean(differences),
        stderr=standard_error(differences),
        ci_low=low,
        ci_high=high,
    )


def _corpus_difference(name: str, first: Mapping[str, Score], second: Mapping[str, Score]) -> Difference | None:
    """Of the two models' metrics, not of their samples'; None where the scores do not hold what they are made of."""
    both = [
        sample_id
        for sample_id in first
        if sample_id in second and len(corpus_ingredients((first[sample_id], second[sample_id]), name)) == 2
    ]
    found = corpus_difference(
        name,
        corpus_ingredients((first[sample_id] for sample_id in both), name),
        corpus_ingredients((second[sample_id] for sample_id in both), name),
    )
    if found is None:
        return None
    before, after, between = found
    low, high = between.interval or (None, None)
    return Difference(
        n=len(both),
        kind="corpus",
        first=before,
        second=after,
        difference=after - before,
        stderr=between.stderr,
        ci_low=low,
        ci_high=high,
    )


_WHOLE: Mapping[str, Callable[[str, Mapping[str, Score], Mapping[str, Score]], Difference | None]] = MappingProxyType(
    {"pooled": _pooled_difference, "corpus": _corpus_difference}
)
"""Differences of metrics that are no means over samples, by kind."""


def _value(score: Score, name: str) -> float | None:
    if score.status == "unscored":
        return None
    if name in score.values:
        return float(score.values[name])
    return float(score.status == "correct") if name == "accuracy" and score.status != "scored" else None
