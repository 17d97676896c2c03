"""Metrics of trust in a judge: the sums that a bootstrap draws give what the statistics themselves give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score, recall_score
from statsmodels.stats.proportion import proportion_confint

from pytest_llmeval.scoring.metrics.corpus import CORPUS, corpus_formula, corpus_value, ingredients_among
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.judged import is_of_trust
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.scoring.paired_metrics import PairingError, pair_metric
from pytest_llmeval.scoring.statistics.paired_tests import PairedSums
from pytest_llmeval.scoring.statistics.raters import (
    judge_counts,
    krippendorff_alpha,
    ppi_mean,
    rogan_gladen,
    weighted_kappa,
)
from pytest_llmeval.types import Score
from tests.properties import examples

LABELS = st.sampled_from([0.0, 1.0])
SCORES = st.integers(1, 5).map(float)


def rated(values: st.SearchStrategy[float], min_size: int = 1) -> st.SearchStrategy[list[dict[str, float]]]:
    """Samples that a judge rated, some of them people too."""
    one = st.fixed_dictionaries({"judge_value": values}, optional={"human_value": values})
    return st.lists(one, min_size=min_size, max_size=30)


def parts(samples: Sequence[Mapping[str, float]]) -> tuple[list[float], list[float], list[float]]:
    """What people gave, what the judge gave to the same samples, and to the others."""
    both = [one for one in samples if "human_value" in one]
    others = [one["judge_value"] for one in samples if "human_value" not in one]
    return [one["human_value"] for one in both], [one["judge_value"] for one in both], others


def same(found: float | None, expected: float | None) -> bool:
    return found is expected if None in (found, expected) else found == pytest.approx(expected, abs=1e-9)


@settings(max_examples=examples(100))
@given(rated(LABELS))
def test_corrected_accuracy(samples: list[dict[str, float]]) -> None:
    people, judge, others = parts(samples)
    found = corpus_value("corrected_accuracy", samples)
    if not others:
        assert same(found.value, sum(people) / len(people))
        assert found.interval == pytest.approx(proportion_confint(sum(people), len(people), method="wilson"), abs=1e-9)
        return
    counts = judge_counts([int(one) for one in people], [int(one) for one in judge], 1)
    expected = rogan_gladen(int(sum(judge) + sum(others)), len(samples), counts)
    assert same(found.value, expected.value)
    if expected.value is None:
        assert found.interval is None
    else:
        sensitivity = recall_score(people, judge, pos_label=1)
        specificity = recall_score(people, judge, pos_label=0)
        share = (sum(judge) + sum(others)) / len(samples)
        by_hand = (share + specificity - 1) / (sensitivity + specificity - 1)
        assert found.value == pytest.approx(min(1, max(0, by_hand)), abs=1e-9)
        assert found.interval == (None if expected.ci_low is None else (expected.ci_low, expected.ci_high))


@settings(max_examples=examples(100))
@given(rated(SCORES))
def test_corrected_mean(samples: list[dict[str, float]]) -> None:
    people, judge, others = parts(samples)
    found, expected = corpus_value("corrected_aspects", samples), ppi_mean(people, judge, others)
    assert same(found.value, expected.value)
    if others:
        assert found.interval == (None if expected.ci_low is None else (expected.ci_low, expected.ci_high))
    elif found.interval is not None:  # what people gave, as it is elsewhere
        limits = stats.t.interval(0.95, len(people) - 1, np.mean(people), stats.sem(people))
        assert found.interval == pytest.approx(limits, abs=1e-9)


@settings(max_examples=examples(100))
@given(rated(SCORES))
def test_kappa_with_people(samples: list[dict[str, float]]) -> None:
    people, judge, _ = parts(samples)
    both = [one for one in samples if "human_value" in one]
    found, expected = corpus_value("judge.kappa", both), weighted_kappa(people, judge)
    assert same(found.value, expected.value)
    if len({*people, *judge}) > 1:
        assert found.value == pytest.approx(
            cohen_kappa_score(people, judge, weights="quadratic", labels=[1, 2, 3, 4, 5])
        )
        assert found.interval == (None if expected.ci_low is None else (expected.ci_low, expected.ci_high))


@settings(max_examples=examples(60))
@given(st.lists(st.lists(SCORES, min_size=3, max_size=3), min_size=1, max_size=20), st.booleans())
def test_alpha_of_a_panel(rows: list[list[float]], one_lacks: bool) -> None:
    kept = [row[: 2 if one_lacks and place == 0 else 3] for place, row in enumerate(rows)]
    samples = [{f"rating_{number}": value for number, value in enumerate(row, 1)} for row in kept]
    formula = corpus_formula("judge.alpha")
    assert formula is not None
    expected, found = krippendorff_alpha(kept), corpus_value("judge.alpha", samples)
    assert same(formula.compute(samples), expected.value)
    assert same(found.value, expected.value)
    sorted_rows = krippendorff_alpha(sorted(kept))
    assert found.interval == (None if sorted_rows.ci_low is None else (sorted_rows.ci_low, sorted_rows.ci_high))
    assert corpus_value("judge.alpha", samples[::-1]) == found, "the order of samples makes no difference"


@pytest.mark.parametrize("name", ["judge.kappa", "corrected_accuracy", "corrected_aspects"])
def test_clusters_are_drawn_where_samples_lie_in_them(name: str) -> None:
    samples = [
        {"judge_value": float((number * 7 % 5 < 2) != (number % 9 == 0)), "human_value": float(number * 7 % 5 < 2)}
        for number in range(80)
    ]
    for number in range(0, 80 if name != "judge.kappa" else 0, 4):
        del samples[number]["human_value"]
    alone, together = corpus_value(name, samples), corpus_value(name, samples, [i // 4 for i in range(len(samples))])
    assert same(alone.value, together.value)
    assert together.interval is not None
    assert together.interval != alone.interval


def test_samples_without_a_label_count_where_the_judge_does() -> None:
    """A metric's n counts the samples that it is taken over, and nothing that it is made of is shown as one."""
    scores = [
        Score(status="correct", values={"accuracy": 1.0, "judge_value": 1.0, "human_value": 1.0}),
        Score(status="wrong", values={"accuracy": 0.0, "judge_value": 0.0, "human_value": 0.0}),
        Score(status="wrong", values={"accuracy": 0.0, "judge_value": 0.0}),
    ]
    found = summarize(scores, ["accuracy", "judge.kappa", "corrected_accuracy"])
    assert [found[name].n for name in found] == [3, 2, 3]
    assert found["corrected_accuracy"].value == pytest.approx(1 / 3)
    assert ingredients_among(scores[0].values) == {"judge_value", "human_value"}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in ("judge.kappa", "judge.alpha", "judge.2.accuracy", "judge.1.dissent")),
        *((name, True) for name in ("corrected_accuracy", "corrected_aspects")),
        *((name, False) for name in ("accuracy", "judge.accuracy", "judge.rubric", "exact.accuracy")),
    ],
)
def test_what_a_scorer_called_judge_gives_is_its_own(name: str, is_one: bool) -> None:
    assert is_of_trust(name) == is_one


@pytest.mark.parametrize("name", [*CORPUS, "corrected_accuracy", "corrected_aspects"])
def test_definitions(name: str) -> None:
    assert definition(name).kind == "corpus"
    assert math.isfinite(definition("judge.kappa").lowest)


@settings(max_examples=examples(20))
@given(st.lists(st.tuples(LABELS, LABELS, st.none() | LABELS, st.lists(SCORES, min_size=3, max_size=3)), min_size=4))
def test_what_two_runs_are_tested_by(samples: list[tuple[float, float, float | None, list[float]]]) -> None:
    """The sums of both sides have what only some samples have: what people said, and a third judge's number."""

    def side(own: int) -> dict[str, Score]:
        found = {}
        for number, (*judged, people, ratings) in enumerate(samples):
            values = {"judge_value": judged[own], **({} if people is None else {"human_value": people})}
            values |= {f"rating_{place}": one for place, one in enumerate(ratings[own:] + ratings[:own], 1)}
            found[f"s{number}"] = Score(status="scored", values=values)
        return found

    for metric in ("corrected_accuracy", "corrected_score", "judge.kappa", "judge.alpha"):
        expected = [summarize(list(side(own).values()), [metric])[metric].value for own in (0, 1)]
        try:
            paired = pair_metric(metric, side(0), side(1), higher_is_better=True)
        except PairingError:
            assert None in expected
            continue
        assert [paired.difference.first, paired.difference.second] == pytest.approx(expected)
        assert isinstance(paired.paired, PairedSums)
        first, second = expected
        assert first is not None
        assert second is not None
        assert paired.paired.gain() == pytest.approx(second - first, abs=1e-9)
