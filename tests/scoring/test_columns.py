"""What is taken from scores by columns is what one look at each score finds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.scoring.metrics.calibration import CALIBRATION_FORMULAS
from pytest_llmeval.scoring.metrics.sample_values import Places, ScoreColumns, ingredients, value_of
from pytest_llmeval.scoring.metrics.summary import by_category, summarize
from pytest_llmeval.scoring.statistics.intervals import mean, sum_of_squares
from pytest_llmeval.types import Score, Status
from tests.properties import examples

NAMES = ("accuracy", "skill", "brier", "nll", "confidence", "loglikelihood", "words", "own.accuracy")
METRICS = ("accuracy", "skill", "brier", "nll", "own.accuracy", "correct", "total", "no_answer", "word_perplexity", "x")
_STATUSES: tuple[Status, ...] = ("correct", "wrong", "scored", "unscored")

shares = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)


@st.composite
def made_scores(draw: st.DrawFn) -> list[Score]:
    """Some of them unscored, some without some of the values, as far as they go with a status."""
    of_all = draw(st.sets(st.sampled_from(NAMES)))
    found = []
    for _ in range(draw(st.integers(0, 12))):
        own = of_all | draw(st.sets(st.sampled_from(NAMES), max_size=2))
        found.append(
            Score(
                status=draw(st.sampled_from(_STATUSES)),
                values={name: draw(shares) for name in own},
                chance=draw(st.sampled_from([None, 0.25, 0.5])),
                no_answer=draw(st.booleans()),
            )
        )
    return found


@given(made_scores(), st.data())
@settings(max_examples=examples(300))
def test_a_column_is_what_one_look_at_each_score_finds(scores: list[Score], data: st.DataObject) -> None:
    columns = ScoreColumns(scores)
    places = data.draw(st.lists(st.integers(0, len(scores) - 1), unique=True)) if scores else []
    clusters = [place % 3 for place in range(len(scores))]
    for selected in (None, places):
        own = range(len(scores)) if selected is None else selected
        at = None if selected is None else Places(selected)
        for name in (*NAMES, "x"):
            having = [place for place in own if value_of(scores[place], name) is not None]
            values, found_clusters = columns.values(name, at, clusters)
            assert values == [value_of(scores[place], name) for place in having]
            assert found_clusters == [clusters[place] for place in having]
            assert columns.values(name, at) == (values, None)
        for name in ("ece", "word_perplexity", "own.ece"):
            parts = [part for place in own for part in ingredients((scores[place],), name)]
            assert columns.ingredients(name, at)[0] == parts
            assert columns.has_ingredients(name) == bool(ingredients(scores, name))
            needed = columns.needed(name, at)
            assert [dict(zip(needed, row, strict=True)) for row in zip(*needed.values(), strict=True)] == parts
        of_skill = [place for place in own if scores[place].status != "unscored" and "skill" in scores[place].values]
        assert columns.chances("skill", at) == [scores[place].chance for place in of_skill]


@given(made_scores(), st.sampled_from([None, "bootstrap"]))
@settings(max_examples=examples(60))
def test_a_category_has_the_numbers_of_its_scores_alone(scores: list[Score], interval: None) -> None:
    categories = [("a", "b", None)[place % 3] for place in range(len(scores))]
    columns = ScoreColumns(scores)
    assert summarize(columns, METRICS, interval=interval) == summarize(scores, METRICS, interval=interval)
    for category, found in by_category(columns, categories, METRICS, interval=interval).items():
        own = [score for score, name in zip(scores, categories, strict=True) if name == category]
        alone = summarize(own, METRICS, interval=interval)
        # The kind, and with it the interval, is that of all scores.
        assert {name: metric for name, metric in found.items() if metric.kind == alone[name].kind} == {
            name: metric for name, metric in alone.items() if metric.kind == found[name].kind
        }
        assert [(metric.value, metric.n) for metric in found.values()] == [
            (metric.value, metric.n) for metric in alone.values()
        ]


def test_nothing_is_averaged_over_a_value_that_is_not_finite() -> None:
    for broken in ([1.0, math.inf], [math.inf, -math.inf], [math.nan], [1e308, 1e308, -math.inf]):
        with pytest.raises(ValueError, match="among the values: nothing is averaged over it"):
            mean(broken)


@given(st.lists(st.tuples(shares, shares), max_size=40))
@settings(max_examples=examples(200))
def test_the_calibration_error_by_columns_is_that_of_the_rows(samples: list[tuple[float, float]]) -> None:
    parts = [{"confidence": confidence, "accuracy": accuracy} for confidence, accuracy in samples]
    formula = CALIBRATION_FORMULAS["ece"]
    assert formula.of_columns is not None
    columns = {need: [part[need] for part in parts] for need in formula.needs}
    sums = formula.sums(parts)
    by_rows = sums.value([math.fsum(column) for column in zip(*sums.rows, strict=True)]) if parts else None
    assert formula.of_columns(columns) == by_rows


numbers = st.floats(-1e6, 1e6)


@given(st.lists(numbers, min_size=1, max_size=5), st.lists(st.integers(0, 4), max_size=300), numbers)
@settings(max_examples=examples(300))
def test_the_squares_of_few_distinct_values_sum_to_the_same_digit(
    few: list[float], picked: list[int], centre: float
) -> None:
    values = [few[place % len(few)] for place in picked]
    assert sum_of_squares(values, centre) == math.fsum([(value - centre) ** 2 for value in values])
