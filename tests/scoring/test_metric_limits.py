"""No value and no interval lies beyond a metric's limits, and every interval holds its value, by property."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.scorers.choice import ChoiceScorer, ChoiceSettings
from pytest_llmeval.scoring.metrics.averages import macro_average
from pytest_llmeval.scoring.metrics.definitions import METRICS, definition
from pytest_llmeval.scoring.metrics.sample_values import made_of
from pytest_llmeval.scoring.metrics.summary import Interval, Metric, by_category, summarize
from pytest_llmeval.scoring.model_differences import compare
from pytest_llmeval.types import Score
from tests.properties import examples
from tests.scoring.helpers import a_sample, judge_loglikelihoods

FAMILIES = (
    *("rouge_2", "rouge_s4", "criterion_clear", "ndcg@10", "f1@5", "hit_rate@1", "judged@3", "pass@8", "pass^2"),
    *("sentence_bleu_2", "aspect_tone", "flexible.f1", "my_own_number"),
)
MEANS = [name for name in (*METRICS, *FAMILIES) if definition(name).kind in ("mean", "proportion") and name != "skill"]
LABELS = st.sampled_from([0.0, 1.0])
INGREDIENTS: Mapping[str, st.SearchStrategy[float]] = {
    "accuracy": LABELS,
    "confidence": st.floats(0, 1),
    "gold": st.integers(0, 3).map(float),
    "predicted": st.integers(0, 3).map(float),
    "first_order": LABELS,
    "second_order": LABELS,
    "human_value": LABELS,
    "judge_value": LABELS,
    "rating_1": st.integers(1, 5).map(float),
    "rating_2": st.integers(1, 5).map(float),
    "loglikelihood": st.floats(-300, 0) | st.just(0.0),
    **dict.fromkeys(("words", "bytes", "tokens"), st.integers(1, 400).map(float)),
    "samples": st.just(1.0),
}
WHOLE = [name for name in METRICS if made_of(name) and set(made_of(name)) <= INGREDIENTS.keys()]


def is_sound(metric: Metric, limits: tuple[float, float], where: object) -> None:
    numbers = [metric.value, metric.stderr, metric.ci_low, metric.ci_high, metric.skewness]
    assert all(math.isfinite(number) for number in numbers if number is not None), where
    assert (metric.ci_low is None) == (metric.ci_high is None), where
    if metric.value is not None:
        assert limits[0] <= metric.value <= limits[1], where
    if metric.ci_low is not None and metric.ci_high is not None:
        assert metric.value is not None
        assert limits[0] <= metric.ci_low <= metric.value <= metric.ci_high <= limits[1], where
        assert metric.ci_low < metric.ci_high, where


def check(name: str, rows: Sequence[Score], limits: tuple[float, float], data: st.DataObject) -> None:
    """The metric of all scores, of categories, of their mean, and of the scores against themselves reversed."""
    clusters: list[str | None] | None = None
    if data.draw(st.booleans()):
        clusters = [str(data.draw(st.integers(0, 25))) for _ in rows]
    interval: Interval | None = "bootstrap" if len(rows) < 12 and data.draw(st.booleans()) else None
    is_sound(summarize(rows, [name], clusters, interval)[name], limits, (name, rows, clusters))
    parts = by_category(rows, [str(place % 3) for place in range(len(rows))], [name], clusters)
    for part in parts.values():
        is_sound(part[name], limits, (name, rows, clusters))
    for average in macro_average(parts.values()).values():
        is_sound(average, limits, (name, rows, clusters))
    first, second = ({str(place): score for place, score in enumerate(scores)} for scores in (rows, rows[::-1]))
    own = None if clusters is None else {str(place): cluster for place, cluster in enumerate(clusters)}
    span = limits[1] - limits[0]
    for found in compare(first, second, [name], own).values():
        assert math.isfinite(found.difference)
        if found.ci_low is not None and found.ci_high is not None:
            assert -span <= found.ci_low <= found.difference <= found.ci_high <= span, (name, rows, clusters)
            assert found.ci_low < found.ci_high


@pytest.mark.parametrize("name", MEANS)
@settings(max_examples=examples(40))
@given(st.data())
def test_means(name: str, data: st.DataObject) -> None:
    known = definition(name)
    low, high = max(known.lowest, -1e3), min(known.highest, 1e3)
    values = st.floats(low, high) | st.sampled_from([low, high]) | st.just(low + (high - low) / 3)
    rows = [
        Score(status="scored", values={name: value}) for value in data.draw(st.lists(values, min_size=1, max_size=30))
    ]
    check(name, rows, (known.lowest, known.highest), data)


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=examples(40))
@given(st.data())
def test_metrics_of_all_samples(name: str, data: st.DataObject) -> None:
    known = definition(name)
    one = st.fixed_dictionaries({need: INGREDIENTS[need] for need in made_of(name)})
    rows = [Score(status="scored", values=values) for values in data.draw(st.lists(one, min_size=1, max_size=30))]
    check(name, rows, (known.lowest, known.highest), data)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(LABELS, st.sampled_from([0.0, 0.25, 0.5])), min_size=1, max_size=30), st.data())
def test_skill(pairs: list[tuple[float, float]], data: st.DataObject) -> None:
    """No model has less than one that is always wrong."""
    rows = [
        Score(status="scored", values={"skill": (correct - chance) / (1 - chance)}, chance=chance)
        for correct, chance in pairs
    ]
    lowest = math.fsum(-chance / (1 - chance) for _, chance in pairs) / len(pairs)
    is_sound(summarize(rows, ["skill"])["skill"], (lowest - 1e-12, 1.0), rows)
    check("skill", rows, (-math.inf, 1.0), data)


@settings(max_examples=examples(100))
@given(st.data())
def test_the_scorer_of_options_stays_within_its_metrics_limits(data: st.DataObject) -> None:
    """``brier_sum`` has no limit of its own: it is at most r + 1 where r options are right."""
    scorer, rows = ChoiceScorer(ChoiceSettings()), []
    num_right = data.draw(st.integers(1, 4))
    for _ in range(data.draw(st.integers(1, 15))):
        values = data.draw(st.lists(st.floats(-900, 0) | st.sampled_from([0.0, -900.0]), min_size=5, max_size=5))
        right = data.draw(st.permutations(range(5)))[:num_right]
        sample = a_sample(right, [f"option {number}" for number in range(5)])
        rows.append(judge_loglikelihoods(scorer, sample, values, [1] * 5))
    names = [name for name in rows[0].values if definition(name).kind in ("mean", "proportion", "corpus")]
    for name, metric in summarize(rows, [*names, "ece"]).items():
        limits = definition(name).lowest, definition(name).highest
        is_sound(metric, limits, (name, rows))
    assert all(score.values["brier_sum"] <= num_right + 1 + 1e-12 for score in rows)


def test_three_right_options_of_four() -> None:
    scores = [3.9, 3.95, 3.85, 3.9, 3.92]
    metric = summarize([Score(status="wrong", values={"brier_sum": score}) for score in scores], ["brier_sum"])[
        "brier_sum"
    ]
    assert metric.ci_low is not None
    assert metric.ci_high is not None
    assert metric.ci_low < metric.value < metric.ci_high  # type: ignore[operator]


@given(st.lists(st.floats(0, 100), min_size=2, max_size=20).filter(lambda values: max(values) > 1))
def test_a_users_own_numbers_under_a_known_name_are_not_cut(values: list[float]) -> None:
    """F1 in percent, from a scorer of their own."""
    metric = summarize([Score(status="scored", values={"f1": value}) for value in values], ["f1"])["f1"]
    if metric.ci_low is not None and metric.ci_high is not None:
        assert metric.value is not None
        assert metric.ci_low <= metric.value <= metric.ci_high
