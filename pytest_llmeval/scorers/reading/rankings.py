"""The measures of a ranking against relevance judgements, as trec_eval computes them.

The formulas of all but ``f1``, ``judged`` and ``ndcg_exp`` are those of NIST's trec_eval 9; ``judged`` is that of
ir-measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

__all__ = ["MEASURES", "JudgedRanking", "Measure"]


@dataclass(frozen=True)
class JudgedRanking:
    """A ranking as judgements see it: ``grades[i]`` is that of the document at rank i + 1, None where it is unjudged.

    ``judgements`` are the grades of all documents that were judged for the query. A document is relevant from the grade
    ``relevant_from`` on.
    """

    grades: Sequence[int | None]
    judgements: Sequence[int]
    relevant_from: int = 1

    @cached_property
    def num_relevant(self) -> int:
        """Return how many documents are relevant, found or not."""
        return sum(grade >= self.relevant_from for grade in self.judgements)

    @cached_property
    def hits(self) -> Sequence[bool]:
        """Tell whether each document of the ranking is relevant."""
        return [grade is not None and grade >= self.relevant_from for grade in self.grades]

    def num_hits(self, k: int | None) -> int:
        """Return how many of the first ``k`` documents are relevant; of all of them for None."""
        return sum(self.hits[:k])


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of a ranking.

    ``value`` is that of the first k documents, or of all of them for None. ``lacks`` says why it has no meaning for a
    ranking; None where it has one.
    """

    value: Callable[[JudgedRanking, int | None], float]
    lacks: Callable[[JudgedRanking], str | None]


NO_RELEVANT = "no document is relevant"


def _without_relevant(judged: JudgedRanking) -> str | None:
    return None if judged.num_relevant else NO_RELEVANT


def _without_gain(judged: JudgedRanking) -> str | None:
    """Any grade above 0 is a gain, whatever ``relevant_from`` says."""
    return None if any(grade > 0 for grade in judged.judgements) else NO_RELEVANT


def _without_documents(judged: JudgedRanking) -> str | None:
    return None if judged.grades else "nothing was found"


def precision(judged: JudgedRanking, k: int | None) -> float:
    """Relevant documents among the first k, by k, also where fewer were found."""
    k = len(judged.grades) if k is None else k
    return judged.num_hits(k) / k if k else 0.0


def recall(judged: JudgedRanking, k: int | None) -> float:
    """Relevant documents among the first k, by all relevant ones."""
    return judged.num_hits(k) / judged.num_relevant


def f1(judged: JudgedRanking, k: int | None) -> float:
    """Return the harmonic mean of precision and recall."""
    hits = judged.num_hits(k)
    num_shown = len(judged.grades) if k is None else k
    return 2 * hits / (num_shown + judged.num_relevant)


def hit_rate(judged: JudgedRanking, k: int | None) -> float:
    """Tell whether one of the first k documents is relevant (trec_eval's success)."""
    return float(judged.num_hits(k) > 0)


def reciprocal_rank(judged: JudgedRanking, k: int | None) -> float:
    """1 by the rank of the first relevant document; 0 where none of the first k is."""
    return next((1 / rank for rank, is_hit in enumerate(judged.hits[:k], 1) if is_hit), 0.0)


def average_precision(judged: JudgedRanking, k: int | None) -> float:
    """Precision at the rank of each relevant document among the first k, summed, by all relevant ones."""
    total, hits = 0.0, 0
    for rank, is_hit in enumerate(judged.hits[:k], 1):
        if is_hit:
            hits += 1
            total += hits / rank
    return total / judged.num_relevant


def r_precision(judged: JudgedRanking, _: int | None) -> float:
    """Precision at the rank that is the number of relevant documents."""
    return precision(judged, judged.num_relevant)


def bpref(judged: JudgedRanking, _: int | None) -> float:
    """Return how seldom documents that were judged not relevant stand before relevant ones; what is unjudged does not
    count.

    C. Buckley and E. M. Voorhees (2004, doi:10.1145/1008992.1009000), as trec_eval counts: a grade below 0 is no
    judgement.
    """
    num_relevant = judged.num_relevant
    bound = min(num_relevant, sum(0 <= grade < judged.relevant_from for grade in judged.judgements))
    total, num_before = 0.0, 0
    for grade, is_hit in zip(judged.grades, judged.hits, strict=True):
        if is_hit:
            total += 1 - min(num_before, num_relevant) / bound if num_before else 1.0
        elif grade is not None and grade >= 0:
            num_before += 1
    return total / num_relevant


def judged_share(judged: JudgedRanking, k: int | None) -> float:
    """Judged documents among the first k, by the number of these that were found."""
    shown = judged.grades[:k]
    return sum(grade is not None for grade in shown) / len(shown)


def ndcg(judged: JudgedRanking, k: int | None) -> float:
    """Normalised discounted cumulative gain: the gain is the grade, the discount log2(rank + 1).

    K. Järvelin and J. Kekäläinen (2002, doi:10.1145/582415.582418), with the discount from the first rank on.
    """
    return _ndcg(judged, k, float)


def ndcg_exp(judged: JudgedRanking, k: int | None) -> float:
    """``ndcg`` with the gain 2^grade - 1, by C. Burges et al. (2005, doi:10.1145/1102351.1102363)."""
    return _ndcg(judged, k, lambda grade: 2.0**grade - 1)


def _ndcg(judged: JudgedRanking, k: int | None, gain: Callable[[int], float]) -> float:
    best = sorted((grade for grade in judged.judgements if grade > 0), reverse=True)
    return _dcg(judged.grades[:k], gain) / _dcg(best[:k], gain)


def _dcg(grades: Iterable[int | None], gain: Callable[[int], float]) -> float:
    return sum(gain(grade) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1) if grade and grade > 0)


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "ndcg": Measure(ndcg, _without_gain),
        "ndcg_exp": Measure(ndcg_exp, _without_gain),
        "recall": Measure(recall, _without_relevant),
        "precision": Measure(precision, _without_relevant),
        "f1": Measure(f1, _without_relevant),
        "hit_rate": Measure(hit_rate, _without_relevant),
        "ap": Measure(average_precision, _without_relevant),
        "rr": Measure(reciprocal_rank, _without_relevant),
        "r_precision": Measure(r_precision, _without_relevant),
        "bpref": Measure(bpref, _without_relevant),
        "judged": Measure(judged_share, _without_documents),
    }
)
"""The measures by the names that metrics have before their ``@k``, in the order in which they are shown."""
