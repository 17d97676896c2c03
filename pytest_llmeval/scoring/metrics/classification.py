"""Corpus metrics of classification: the class that was answered against the one that is right, over all samples.

Beside them the agreement of a judge's verdicts in two orders, ``order_kappa``, of ``first_order`` and ``second_order``.
A sample's ingredients are ``gold`` and ``predicted``, two class numbers; samples without both are left out. The metrics
are ``mcc``, ``f1_binary``, ``f1_macro``, ``f1_micro`` and ``f1_weighted``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pytest_llmeval.scoring.metrics.corpus_formula import CorpusFormula, Ingredients, Sums

__all__ = ["CLASSIFICATION"]

_NEEDS = ("gold", "predicted")
_ORDERS = ("first_order", "second_order")


def _per_class(samples: Sequence[Ingredients], needs: tuple[str, str] = _NEEDS) -> list[list[float]]:
    """Return for each sample and class three numbers: answered and right, right, answered; each 1 or 0."""
    classes = sorted({sample[need] for sample in samples for need in needs})
    place = {label: index for index, label in enumerate(classes)}
    rows = []
    for sample in samples:
        row = [0.0] * (3 * len(classes))
        gold, predicted = (place[sample[need]] for need in needs)
        row[3 * gold] = float(gold == predicted)
        row[3 * gold + 1] = row[3 * predicted + 2] = 1.0
        rows.append(row)
    return rows


def _matthews(samples: Sequence[Ingredients]) -> Sums:
    """Return Matthews' correlation of any number of classes (J. Gorodkin, 2004,
    doi:10.1016/j.compbiolchem.2004.09.006).

    0 where all answers, or all right ones, are of one class, as scikit-learn's ``matthews_corrcoef`` has it, which is
    lm-eval's ``mcc``.
    """

    def value(total: Sequence[float]) -> float:
        hits, gold, predicted = total[0::3], total[1::3], total[2::3]
        n = math.fsum(gold)
        covariance = math.fsum(hits) * n - math.fsum(map(float.__mul__, gold, predicted))
        of_gold = n * n - math.fsum(count * count for count in gold)
        of_predicted = n * n - math.fsum(count * count for count in predicted)
        # The square root of each: their product can be too large to be exact.
        scale = math.sqrt(of_gold) * math.sqrt(of_predicted)
        return covariance / scale if scale else 0.0

    return Sums(_per_class(samples), value)


def _binary(samples: Sequence[Ingredients]) -> Sums:
    """Return ``2 tp / (2 tp + fp + fn)`` of class 1, as scikit-learn's ``f1_score`` by default, which is lm-eval's
    ``f1``.

    0 where class 1 is neither right nor answered; None where there is a class other than 0 and 1.
    """
    rows = [
        [
            float(sample["gold"] == sample["predicted"] == 1),
            float(sample["gold"] == 1) + float(sample["predicted"] == 1),
            float(not {sample["gold"], sample["predicted"]} <= {0.0, 1.0}),
        ]
        for sample in samples
    ]
    has_others = any(row[2] for row in rows)

    def value(total: Sequence[float]) -> float | None:
        if has_others:
            return None
        return 2 * total[0] / total[1] if total[1] else 0.0

    return Sums(rows, value)


def _macro(samples: Sequence[Ingredients]) -> Sums:
    """Return the mean of F1 over the classes that are right or answered somewhere; scikit-learn's
    ``average="macro"``.
    """

    def value(total: Sequence[float]) -> float:
        found = [
            2 * hits / (gold + predicted)
            for hits, gold, predicted in zip(total[0::3], total[1::3], total[2::3], strict=True)
            if gold + predicted
        ]
        return math.fsum(found) / len(found)

    return Sums(_per_class(samples), value)


def _weighted(samples: Sequence[Ingredients]) -> Sums:
    """Return the mean of F1 over the classes, each as often as it is right; scikit-learn's ``average="weighted"``."""

    def value(total: Sequence[float]) -> float:
        counts = list(zip(total[0::3], total[1::3], total[2::3], strict=True))
        found = [2 * hits / (gold + predicted) * gold for hits, gold, predicted in counts if gold]
        return math.fsum(found) / math.fsum(gold for _, gold, _ in counts)

    return Sums(_per_class(samples), value)


def _micro(samples: Sequence[Ingredients]) -> Sums:
    """Return F1 from all classes' counts together, scikit-learn's ``average="micro"``: the share of right answers."""
    rows = [[float(sample["gold"] == sample["predicted"]), 1.0] for sample in samples]
    return Sums(rows, lambda total: total[0] / total[1])


def _kappa_of_orders(samples: Sequence[Ingredients]) -> Sums:
    """Return Cohen's kappa of the verdicts in the two orders of a pair (J. Cohen, 1960,
    doi:10.1177/001316446002000104).

    None where all verdicts of both orders are the same one.
    """

    def value(total: Sequence[float]) -> float | None:
        same, first, second = total[0::3], total[1::3], total[2::3]
        n = math.fsum(first)
        by_chance = math.fsum(map(float.__mul__, first, second)) / (n * n)
        return None if by_chance == 1.0 else (math.fsum(same) / n - by_chance) / (1.0 - by_chance)

    return Sums(_per_class(samples, _ORDERS), value)


CLASSIFICATION: Mapping[str, CorpusFormula] = MappingProxyType(
    {
        "mcc": CorpusFormula(_NEEDS, _matthews),
        "f1_binary": CorpusFormula(_NEEDS, _binary),
        "f1_macro": CorpusFormula(_NEEDS, _macro),
        "f1_micro": CorpusFormula(_NEEDS, _micro),
        "f1_weighted": CorpusFormula(_NEEDS, _weighted),
        "order_kappa": CorpusFormula(_ORDERS, _kappa_of_orders),
    }
)
"""Corpus metrics of classification by name. ``mcc`` and ``f1_binary`` are lm-eval 0.4.13's aggregations
``matthews_corrcoef`` and ``f1``."""
