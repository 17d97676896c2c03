"""Metrics: what is taken over the scores of a suite, of a category, or of any other selection of samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from types import MappingProxyType
from typing import cast, get_args

from pytest_llmeval.scoring.corpus import corpus_ingredients, corpus_value, ingredients_among
from pytest_llmeval.scoring.definitions import (
    METRICS,
    OPEN,
    Kind,
    MetricDefinition,
    definition,
    is_known,
    shown_order,
    split_name,
)
from pytest_llmeval.scoring.pooled import ingredients, pooled
from pytest_llmeval.scoring.statistics import mean, mean_interval, standard_error, wilson_interval, with_width
from pytest_llmeval.types import JSON, Score

__all__ = [
    "METRICS",
    "Kind",
    "Metric",
    "MetricDefinition",
    "by_category",
    "definition",
    "expanded",
    "names_in",
    "skill",
    "summarize",
]

_COUNTED: Mapping[str, Callable[[Score], float]] = MappingProxyType(
    {
        "correct": lambda score: float(score.status == "correct"),
        "total": lambda score: 1.0,
        "no_answer": lambda score: float(score.no_answer),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A statistic over ``n`` scores. ``value`` is None where there was nothing to take it over.

    ``stderr`` is the standard error of the mean (of others see ``pooled.py`` and ``corpus.py``), None for counts and
    for n < 2. ``ci_low`` and ``ci_high`` are the 95% interval: Wilson's for proportions, Student's t for other means
    and for pooled metrics, a bootstrap's for corpus metrics, None for counts and, but for proportions, for n < 2. A
    perplexity too large for a float is None too, and so is a corpus metric that these samples have none of.
    """

    value: float | None
    n: int
    kind: Kind
    stderr: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None

    def to_dict(self) -> dict[str, JSON]:
        """As builtins, for a report."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Metric:
        """What ``to_dict`` gave. Unknown keys are left alone; ``ValueError`` says which key cannot be read."""
        n, kind = data.get("n"), data.get("kind")
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ValueError(f"a metric's n is a number of samples, found {n!r}")
        if kind not in get_args(Kind):
            raise ValueError(
                f"a metric's kind is {', '.join(get_args(Kind)[:-1])} or {get_args(Kind)[-1]}, found {kind!r}"
            )
        numbers = {name: _number_or_none(data, name) for name in ("value", "stderr", "ci_low", "ci_high")}
        return cls(n=n, kind=cast(Kind, kind), **numbers)


def skill(correct: float, chance: float) -> float:
    """``(correct - chance) / (1 - chance)``: 0 is guessing, 1 is perfect. ``ValueError`` unless 0 <= chance < 1."""
    if not 0 <= chance < 1:
        raise ValueError(f"skill needs a chance of at least 0 and below 1, found {chance}")
    return (correct - chance) / (1 - chance)


def names_in(scores: Iterable[Score]) -> tuple[str, ...]:
    """Names of the metrics that scores of any origin carry: known ones first, in their order, then others by name.

    What pooled and corpus metrics are made of is no metric, and not among them.
    """
    found: set[str] = set()
    for score in scores:
        if score.status == "unscored":
            continue
        if score.no_answer:
            found.add("no_answer")
        found.update(score.values)
    return tuple(sorted(found - ingredients_among(found), key=shown_order))


def expanded(names: Sequence[str], scores: Sequence[Score]) -> tuple[str, ...]:
    """The names with those of the scores in the place of what stands for names that nobody knows before.

    ``b.*`` are all that begin with ``b.``, those of a scorer ``b`` that names none; ``*`` are all that begin with no
    other scorer's name; no names at all are all of them.
    """
    if not names:
        return names_in(scores)
    if not any(name == OPEN or name.endswith(f".{OPEN}") for name in names):
        return tuple(names)
    carried = names_in(scores)
    prefixes = tuple({f"{name.partition('.')[0]}." for name in names if "." in name})
    found: list[str] = []
    for name in names:
        if name == OPEN:
            found += [own for own in carried if not own.startswith(prefixes)]
        elif name.endswith(f".{OPEN}"):
            found += [own for own in carried if own.startswith(name.removesuffix(OPEN))]
        else:
            found.append(name)
    return tuple(dict.fromkeys(found))


def summarize(scores: Sequence[Score], names: Sequence[str]) -> dict[str, Metric]:
    """Each named metric over the scores that carry it; the order of scores makes no difference.

    Unscored ones are left out of every metric and of its n. A metric that we define keeps its kind; another one is a
    proportion where all of its values are 0 or 1, else a mean. Raises ``ValueError`` for a value that is not finite
    (``checking.checked`` lets none pass): nothing is averaged over NaN.
    """
    return _summarize(scores, _kinds(scores, names))


def by_category(
    scores: Sequence[Score], categories: Sequence[str | None], names: Sequence[str]
) -> dict[str, dict[str, Metric]]:
    """``summarize`` for each category, by name; ``categories[i]`` is that of ``scores[i]``.

    Scores without a category (None) are in no part. A metric has the kind that it has over all scores, so that one
    column never mixes two kinds of interval. ``ValueError`` where the two sequences differ in length.
    """
    parts: dict[str, list[Score]] = {}
    for score, category in zip(scores, categories, strict=True):
        if category is not None:
            parts.setdefault(category, []).append(score)
    kinds = _kinds(scores, names)
    return {category: _summarize(parts[category], kinds) for category in sorted(parts)}


def _summarize(scores: Sequence[Score], kinds: Mapping[str, Kind]) -> dict[str, Metric]:
    return {name: _metric(scores, name, kind) for name, kind in kinds.items()}


def _metric(scores: Sequence[Score], name: str, kind: Kind) -> Metric:
    if kind == "pooled":
        return _pooled(scores, name)
    if kind == "corpus":
        return _corpus(scores, name)
    values = _values(scores, name)
    if kind == "count":
        return Metric(value=math.fsum(values), n=len(values), kind=kind)
    if not values:
        return Metric(value=None, n=0, kind=kind)
    interval: tuple[float, float] | None
    if kind == "proportion":
        interval = wilson_interval(int(math.fsum(values)), len(values))
    else:
        interval = _skill_interval(scores) if name == "skill" else None
        interval = with_width(interval or mean_interval(values))
    low, high = _within(name, scores, interval) if interval is not None else (None, None)
    return Metric(value=mean(values), n=len(values), kind=kind, stderr=standard_error(values), ci_low=low, ci_high=high)


def _pooled(scores: Iterable[Score], name: str) -> Metric:
    parts = ingredients(scores, name)
    found = pooled(name, parts)
    low, high = _within(name, (), found.interval) if found.interval is not None else (None, None)
    return Metric(value=found.value, n=len(parts), kind="pooled", stderr=found.stderr, ci_low=low, ci_high=high)


def _corpus(scores: Iterable[Score], name: str) -> Metric:
    parts = corpus_ingredients(scores, name)
    found = corpus_value(name, parts)
    low, high = _within(name, (), found.interval) if found.interval is not None else (None, None)
    return Metric(value=found.value, n=len(parts), kind="corpus", stderr=found.stderr, ci_low=low, ci_high=high)


def _within(name: str, scores: Iterable[Score], interval: tuple[float, float]) -> tuple[float, float]:
    """Student's t knows no limits, so the interval of few samples can reach beyond what the metric can be."""
    metric = definition(name)
    lowest = _lowest_skill(scores) if name == "skill" else metric.lowest
    return max(interval[0], lowest), min(interval[1], metric.highest)


def _is_skill(name: str) -> bool:
    return split_name(name)[1] == "skill"


def _lowest_skill(scores: Iterable[Score]) -> float:
    """The skill of a model that is always wrong on these samples; it depends on their chances.

    A score's chance is that of the scorer that decides: of the skill of another one of several nothing is known.
    """
    carriers = [score for score in scores if score.status != "unscored" and "skill" in score.values]
    worst = [skill(0.0, score.chance) for score in carriers if score.chance is not None and 0 <= score.chance < 1]
    return mean(worst) if worst and len(worst) == len(carriers) else -math.inf


def _values(scores: Iterable[Score], name: str) -> list[float]:
    values = []
    count = _COUNTED.get(name)
    for score in scores:
        if score.status == "unscored":
            continue
        if count is not None:
            values.append(count(score))
        elif name in score.values:
            values.append(float(score.values[name]))
        elif name == "accuracy" and score.status != "scored":
            values.append(float(score.status == "correct"))
    for value in filterfalse(math.isfinite, values):
        raise ValueError(f"a score's value of {name} is {value}: nothing is averaged over it")
    return values


def _kinds(scores: Sequence[Score], names: Sequence[str]) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for name in names:
        kind = definition(name).kind
        if (kind == "pooled" and ingredients(scores, name)) or (kind == "corpus" and corpus_ingredients(scores, name)):
            kinds[name] = kind
            continue
        if kind != "count" and not _is_skill(name):
            values = _values(scores, name)
            if values and (not is_known(name) or kind in ("proportion", "pooled", "corpus")):
                # A user may record any value under any name; only zeros and ones have a proportion's interval.
                kind = "proportion" if all(value in (0.0, 1.0) for value in values) else "mean"
        kinds[name] = kind
    return kinds


def _skill_interval(scores: Iterable[Score]) -> tuple[float, float] | None:
    """Accuracy's Wilson interval on skill's scale, where every sample has the same chance.

    Skill is then a linear function of accuracy. Student's t would give an interval of no width to a model that is
    always right. None where chances differ, or where a skill is not that of a right or a wrong answer.
    """
    carriers = [score for score in scores if score.status != "unscored" and "skill" in score.values]
    chances = {score.chance for score in carriers}
    chance = chances.pop() if len(chances) == 1 else None
    if chance is None or not 0 <= chance < 1:
        return None
    best, worst = skill(1.0, chance), skill(0.0, chance)
    values = [score.values["skill"] for score in carriers]
    if any(value not in (best, worst) for value in values):
        return None
    low, high = wilson_interval(values.count(best), len(values))
    return skill(low, chance), skill(high, chance)


def _number_or_none(data: Mapping[str, object], name: str) -> float | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a metric's {name} is a finite number or null, found {value!r}")
    return float(value)
