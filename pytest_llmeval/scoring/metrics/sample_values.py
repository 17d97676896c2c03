"""What a metric reads of one sample's score: a value of its own, or what it is made of."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_llmeval.scoring.metrics.corpus import corpus_formula
from pytest_llmeval.scoring.metrics.corpus_formula import Ingredients
from pytest_llmeval.scoring.metrics.definitions import split_name
from pytest_llmeval.scoring.metrics.pooled import POOLED
from pytest_llmeval.types import Score

__all__ = ["ingredients", "made_of", "value_of"]


def made_of(name: str) -> tuple[str, ...]:
    """Names in ``Score.values``, without a prefix, of what a pooled or corpus metric is made of; none for another.

    Those that not every sample has are not among them.
    """
    base = split_name(name)[1]
    if base in POOLED:
        return ("loglikelihood", POOLED[base].unit)
    formula = corpus_formula(base)
    return () if formula is None else formula.needs


def ingredients(scores: Iterable[Score], name: str) -> list[Ingredients]:
    """What the metric ``name`` is made of, from those scores, unscored ones aside, that hold all of it.

    A prefix of the metric's name (``flexible.word_perplexity``) is one of its ingredients' names too, and not of what
    is returned. Empty for a metric that is made of nothing.
    """
    (prefix, _), needs = split_name(name), made_of(name)
    if not needs:
        return []
    names = {prefix + need: need for need in needs}
    formula = corpus_formula(name)
    others = {prefix + need: need for need in (() if formula is None else formula.may_have)}
    needed, wanted = names.keys(), tuple({**names, **others}.items())
    return [
        {need: float(values[name]) for name, need in wanted if name in values}
        for values in (score.values for score in scores if score.status != "unscored")
        if needed <= values.keys()
    ]


def value_of(score: Score, name: str) -> float | None:
    """The score's value of a metric; right or wrong alone is an accuracy of 1 or 0. None where it has none."""
    if score.status == "unscored":
        return None
    if name in score.values:
        return float(score.values[name])
    return float(score.status == "correct") if name == "accuracy" and score.status != "scored" else None
