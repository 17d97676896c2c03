"""Reads scores for a metric: the value or the ingredients that one sample's score has, and columns of many samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Generic, TypeVar, cast

from pytest_llmeval.scoring.metrics.corpus import POOLED, corpus_formula
from pytest_llmeval.scoring.metrics.corpus_formulas import Ingredients
from pytest_llmeval.scoring.metrics.definitions import split_name
from pytest_llmeval.types import ScoreLike, Status

__all__ = ["COUNTED", "Places", "ScoreColumns", "contradiction", "ingredients", "made_of", "value_of"]


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
    return [found for found in _ingredients_by_score(scores, name) if found is not None]


def _ingredients_by_score(scores: Iterable[ScoreLike], name: str) -> list[Ingredients | None]:
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


T = TypeVar("T")

COUNTED: Mapping[str, Callable[[ScoreLike], float]] = MappingProxyType(
    {
        "correct": lambda score: float(score.status == "correct"),
        "total": lambda score: 1.0,
        "no_answer": lambda score: float(score.no_answer),
    }
)
"""Counts that every score that is not unscored has a value of, by name."""


class Places:
    """A selection of scores by their places among all, in this order."""

    def __init__(self, places: Sequence[int]) -> None:
        self._places = places
        self._pick = itemgetter(*places) if len(places) > 1 else None

    def of(self, entries: Sequence[T]) -> list[T]:
        """Return the entries at these places."""
        if self._pick is not None:  # a third of the time of one index after the other
            return list(self._pick(entries))
        return [entries[place] for place in self._places]


@dataclass(frozen=True, slots=True)
class _Column(Generic[T]):
    """An entry for each score, None where it has none; ``is_whole``: all have one."""

    entries: list[T | None]
    is_whole: bool


class ScoreColumns:
    """Scores, and what each of them carries of a name, which is looked up once for each name.

    The scores must not change. ``places`` are those of a selection, None for all scores; an unscored score carries
    nothing. Together with what is carried by ``n`` of the scores come their clusters, where ``clusters`` holds one for
    each of the scores, else None.
    """

    def __init__(self, scores: Sequence[ScoreLike]) -> None:
        self.scores = scores
        statuses = list(map(attrgetter("status"), scores))
        self._is_scored = None if "unscored" not in statuses else [status != "unscored" for status in statuses]
        self._mappings = list(map(attrgetter("values"), scores))
        self._chances: list[float | None] | None = None
        self._raw: dict[str, _Column[float]] = {}
        self._values: dict[str, _Column[float]] = {}
        self._ingredients: dict[str, _Column[Ingredients]] = {}

    def values(
        self, name: str, places: Places | None = None, clusters: Sequence[int] | None = None
    ) -> tuple[list[float], list[int] | None]:
        """Return the values of the metric ``name`` (``sample_values.value_of``, or a count)."""
        if name not in self._values:
            self._values[name] = self._column_of(name)
        return _taken(self._values[name], places, clusters)

    def ingredients(
        self, name: str, places: Places | None = None, clusters: Sequence[int] | None = None
    ) -> tuple[list[Ingredients], list[int] | None]:
        """Return what the metric ``name`` is made of, as ``sample_values.ingredients`` gives it."""
        if name not in self._ingredients:
            entries = _ingredients_by_score(self.scores, name)
            self._ingredients[name] = _column(entries)
        return _taken(self._ingredients[name], places, clusters)

    def has_ingredients(self, name: str) -> bool:
        """Return whether any score has all that the metric ``name`` is made of."""
        needs = self._needs(name)
        return bool(needs) and any(self._having(needs))

    def needed(self, name: str, places: Places | None = None) -> dict[str, list[float]]:
        """Return the numbers that ``ingredients`` gives of ``name``, a column for each, without those of
        ``may_have``.
        """
        needs = self._needs(name)
        columns = {need: self._raw_of(own) for need, own in needs.items()}
        if all(column.is_whole for column in columns.values()):
            return {need: _taken(column, places, None)[0] for need, column in columns.items()}
        having = self._having(needs)
        own_having = _at(having, places)
        return {
            need: cast("list[float]", list(compress(_at(column.entries, places), own_having)))
            for need, column in columns.items()
        }

    def chances(self, name: str, places: Places | None = None) -> list[float | None]:
        """Return the chance of each score that has a value of its own under ``name``; None where it is not known."""
        if self._chances is None:
            self._chances = list(map(attrgetter("chance"), self.scores))
        column, chances = self._raw_of(name), _at(self._chances, places)
        if column.is_whole:
            return chances
        return list(compress(chances, [entry is not None for entry in _at(column.entries, places)]))

    def _needs(self, name: str) -> dict[str, str]:
        """Map each ingredient of a metric to its key in ``Score.values``."""
        prefix = split_name(name)[0]
        return {need: prefix + need for need in made_of(name)}

    def _having(self, needs: Mapping[str, str]) -> list[bool]:
        columns = [self._raw_of(own).entries for own in needs.values()]
        return [None not in entries for entries in zip(*columns, strict=True)]

    def _raw_of(self, name: str) -> _Column[float]:
        """Return what lies under ``name`` in ``Score.values``."""
        if name not in self._raw:
            self._raw[name] = self._looked_up(name)
        return self._raw[name]

    def _looked_up(self, name: str) -> _Column[float]:
        entries: list[float | None]
        if self._is_scored is None:
            try:
                found = list(map(float, map(itemgetter(name), self._mappings)))
            except KeyError:
                pass
            else:
                return _Column(cast("list[float | None]", found), is_whole=True)
        entries = [
            float(score.values[name]) if score.status != "unscored" and name in score.values else None
            for score in self.scores
        ]
        return _column(entries)

    def _column_of(self, name: str) -> _Column[float]:
        count = COUNTED.get(name)
        if count is not None:
            return _column([None if score.status == "unscored" else count(score) for score in self.scores])
        raw = self._raw_of(name)
        if name != "accuracy" or raw.is_whole:
            return raw
        # As ``value_of``: right or wrong alone is an accuracy.
        return _column(
            [
                float(score.status == "correct") if entry is None and score.status in ("correct", "wrong") else entry
                for entry, score in zip(raw.entries, self.scores, strict=True)
            ]
        )


def _column(entries: list[T | None]) -> _Column[T]:
    return _Column(entries, is_whole=None not in entries)


def _taken(
    column: _Column[T], places: Places | None, clusters: Sequence[int] | None
) -> tuple[list[T], list[int] | None]:
    entries = _at(column.entries, places)
    own = clusters if clusters is None or places is None else places.of(clusters)
    if column.is_whole:
        return cast("list[T]", entries), None if own is None else list(own)
    having = [entry is not None for entry in entries]
    found = cast("list[T]", list(compress(entries, having)))
    return found, None if own is None else list(compress(own, having))


def _at(entries: list[T], places: Places | None) -> list[T]:
    return entries if places is None else places.of(entries)
