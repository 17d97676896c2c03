"""Reads one sample's score for a metric: a value of its own, or what it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from pytest_llmeval.scoring.metrics.corpus import POOLED, corpus_formula
from pytest_llmeval.scoring.metrics.corpus_formulas import Ingredients
from pytest_llmeval.scoring.metrics.definitions import split_name
from pytest_llmeval.types import Status

__all__ = ["ScoreLike", "contradiction", "ingredients", "ingredients_by_score", "made_of", "value_of"]


class ScoreLike(Protocol):
    """A score as metrics read it; a record of a report is one, too."""

    @property
    def status(self) -> Status: ...

    @property
    def no_answer(self) -> bool: ...

    @property
    def values(self) -> Mapping[str, float]: ...

    @property
    def chance(self) -> float | None: ...

    @property
    def not_measurable(self) -> Mapping[str, str]: ...


def made_of(name: str) -> tuple[str, ...]:
    """Return names in ``Score.values``, without a prefix, of what a pooled or corpus metric is made of; none for
    another.

    Those that not every sample has are not among them.
    """
    base = split_name(name)[1]
    if base in POOLED:
        return ("loglikelihood", POOLED[base].unit)
    formula = corpus_formula(base)
    return () if formula is None else formula.needs


def ingredients(scores: Iterable[ScoreLike], name: str) -> list[Ingredients]:
    """Return what the metric ``name`` is made of, from those scores, unscored ones aside, that hold all of it.

    A prefix of the metric's name (``flexible.word_perplexity``) is one of its ingredients' names too, and not of what
    is returned. Empty for a metric that is made of nothing.
    """
    return [found for found in ingredients_by_score(scores, name) if found is not None]


def ingredients_by_score(scores: Iterable[ScoreLike], name: str) -> list[Ingredients | None]:
    """Return ``ingredients`` of each of the scores, None for one that does not hold all of it."""
    (prefix, _), needs = split_name(name), made_of(name)
    if not needs:
        return [None for _ in scores]
    names = {prefix + need: need for need in needs}
    formula = corpus_formula(name)
    others = {prefix + need: need for need in (() if formula is None else formula.may_have)}
    needed, wanted = names.keys(), tuple({**names, **others}.items())
    return [
        {need: float(score.values[name]) for name, need in wanted if name in score.values}
        if score.status != "unscored" and needed <= score.values.keys()
        else None
        for score in scores
    ]


def value_of(score: ScoreLike, name: str) -> float | None:
    """Return the score's value of a metric; right or wrong alone is an accuracy of 1 or 0. None where it has none."""
    if score.status == "unscored":
        return None
    if name in score.values:
        return float(score.values[name])
    return float(score.status == "correct") if name == "accuracy" and score.status != "scored" else None


def contradiction(status: Status, values: Mapping[str, float]) -> str | None:
    """Return what a status and an accuracy say against each other, and what would agree; None where nothing does.

    An accuracy between 0 and 1 (of options that share a tie, of several replies) goes with every status, and any
    accuracy with ``scored``.
    """
    accuracy = values.get("accuracy")
    for given, other, right in (("correct", "wrong", 1.0), ("wrong", "correct", 0.0)):
        if status == given and accuracy == 1.0 - right:
            return f"the status {given} and accuracy = {accuracy}, expected accuracy = {right}, or the status {other}"
    return None
