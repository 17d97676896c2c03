"""Calibration: against scikit-learn, scipy, and an expected calibration error written otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss

from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.scorers.choice import ChoiceScorer, ChoiceSettings
from pytest_llmeval.scorers.yes_no import YesNoSettings
from pytest_llmeval.scoring.metrics.calibration import (
    NUM_BINS,
    calibration_values,
    negative_loglikelihood,
    reliability,
)
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.summary import Interval, Metric, summarize, why_no_interval
from pytest_llmeval.scoring.model_differences import compare
from pytest_llmeval.types import Score
from tests.properties import examples
from tests.scoring.helpers import a_sample, judge_loglikelihoods

CONFIDENCE = st.one_of(st.floats(0.01, 1.0), st.integers(1, NUM_BINS).map(lambda edge: edge / NUM_BINS))
PAIRS = st.lists(st.tuples(CONFIDENCE, st.booleans()), min_size=1, max_size=40)


def scored(confidence: float, is_right: bool) -> Score:
    values = {"confidence": confidence, "accuracy": float(is_right)}
    return Score(status="correct" if is_right else "wrong", values=values)


def error_of_guo(pairs: Sequence[tuple[float, bool]]) -> float:
    """Equation 3 of Guo et al. (2017), bin by bin, with masks: in no way a function of sums."""
    confidence = np.array([pair[0] for pair in pairs])
    right = np.array([pair[1] for pair in pairs], dtype=float)
    total = 0.0
    for low, high in ((edge / NUM_BINS, (edge + 1) / NUM_BINS) for edge in range(NUM_BINS)):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return float(total)


def test_by_hand() -> None:
    # Of (0.8, 0.8667] two samples, one right; of (0.9333, 1] one, right: 2/3 * |1/2 - 0.85| + 1/3 * |1 - 0.95|.
    pairs = [(0.84, True), (0.86, False), (0.95, True)]
    metric = summarize([scored(*pair) for pair in pairs], ["ece"])["ece"]
    assert metric.value == pytest.approx(2 / 3 * 0.35 + 1 / 3 * 0.05)
    assert (metric.n, metric.kind) == (3, "corpus")


@given(PAIRS)
def test_the_error_is_that_of_its_definition(pairs: list[tuple[float, bool]]) -> None:
    scores = [scored(*pair) for pair in pairs]
    assert summarize(scores, ["ece"])["ece"].value == pytest.approx(error_of_guo(pairs), abs=1e-12)
    bins = reliability(scores)
    assert bins is not None
    from_bins = [
        part.n / len(pairs) * abs(part.accuracy - part.confidence)
        for part in bins
        if part.accuracy is not None and part.confidence is not None
    ]
    assert math.fsum(from_bins) == pytest.approx(error_of_guo(pairs), abs=1e-12)


def is_off_the_edges(confidence: float) -> bool:
    """Beside an edge two programs could round its place differently."""
    return bool(np.min(np.abs(np.linspace(0.0, 1.0, NUM_BINS + 1) - confidence)) > 1e-9)


@given(st.lists(st.tuples(st.floats(0.01, 1.0).filter(is_off_the_edges), st.booleans()), min_size=1, max_size=40))
@settings(max_examples=examples(40))
def test_bins_are_those_of_scikit_learn(pairs: list[tuple[float, bool]]) -> None:
    bins = reliability([scored(*pair) for pair in pairs])
    assert bins is not None
    accuracy, confidence = calibration_curve(
        [right for _, right in pairs], [confidence for confidence, _ in pairs], n_bins=NUM_BINS
    )
    filled = [part for part in bins if part.n]
    assert [part.accuracy for part in filled] == pytest.approx(list(accuracy))
    assert [part.confidence for part in filled] == pytest.approx(list(confidence))
    assert sum(part.n for part in bins) == len(pairs)


def test_bins_cover_everything_once() -> None:
    bins = reliability([scored(1 / 15, True), scored(1.0, True), scored(1 / 15 + 1e-12, False)])
    assert bins is not None
    assert (len(bins), bins[0].low, bins[-1].high) == (15, 0.0, 1.0)
    assert [before.high for before in bins[:-1]] == [after.low for after in bins[1:]]
    assert [part.n for part in bins] == [1, 1, *[0] * 12, 1]  # an edge belongs to the bin below it
    assert (bins[2].confidence, bins[2].accuracy) == (None, None)
    assert asdict(bins[0]) == {"low": 0.0, "high": 1 / 15, "n": 1, "confidence": 1 / 15, "accuracy": 1.0}


def test_what_has_no_confidence_has_no_bins() -> None:
    unscored = Score(status="unscored", reason="no room", values={"confidence": 0.5, "accuracy": 1.0})
    plain = Score(status="correct", values={"accuracy": 1.0})
    assert reliability([]) is reliability([plain, unscored]) is None
    both = reliability([plain, unscored, scored(0.5, True)])
    assert both is not None
    assert sum(part.n for part in both) == 1
    assert summarize([plain, unscored], ["ece"])["ece"].value is None


@given(st.lists(st.floats(-60, 0), min_size=2, max_size=8), st.data())
def test_values_of_a_sample_are_those_of_scipy_and_scikit_learn(scores: list[float], data: st.DataObject) -> None:
    right = data.draw(st.integers(0, len(scores) - 1))
    values = calibration_values(scores, [right])
    probabilities = softmax(scores)
    assert values["confidence"] == pytest.approx(float(probabilities.max()))
    assert values["nll"] == pytest.approx(-float(log_softmax(scores)[right]), abs=1e-9)
    assume(probabilities[right] > 1e-12)  # scikit-learn clips below
    theirs = log_loss([right], [probabilities], labels=list(range(len(scores))))
    assert values["nll"] == pytest.approx(theirs, rel=1e-6, abs=1e-9)


@given(st.lists(st.floats(-60, 0), min_size=3, max_size=8), st.data())
def test_several_right_options_count_together(scores: list[float], data: st.DataObject) -> None:
    right = data.draw(st.sets(st.integers(0, len(scores) - 1), min_size=1, max_size=len(scores) - 1))
    together = math.fsum(float(softmax(scores)[index]) for index in right)
    assert negative_loglikelihood(scores, right) == pytest.approx(-math.log(together), rel=1e-9, abs=1e-9)


def test_a_probability_below_every_float_has_a_loglikelihood() -> None:
    assert negative_loglikelihood([0.0, -5000.0], [1]) == pytest.approx(5000.0)
    assert negative_loglikelihood([0.0, -math.inf], [1]) == math.inf
    assert calibration_values([0.0, -math.inf], [1]) == {"confidence": 1.0}
    assert calibration_values([0.0, -math.inf], [0]) == {"confidence": 1.0, "nll": 0.0}


def test_every_scorer_with_probabilities_carries_them() -> None:
    choice = judge_loglikelihoods(ChoiceScorer(ChoiceSettings()), a_sample(1, ["a", "b"]), [-1.0, -2.0], [1, 1])
    yes_no = make_scorer(YesNoSettings(by="loglikelihood"))
    for scorer, score in (
        (ChoiceScorer(ChoiceSettings()), choice),
        (yes_no, judge_loglikelihoods(yes_no, a_sample(False), [-1.0, -2.0], [1, 1])),
    ):
        assert {"nll", "ece"} < set(scorer.metrics)
        assert score.values["confidence"] == pytest.approx(1 / (1 + math.exp(-1)))
        assert score.values["nll"] == pytest.approx(math.log(1 + math.exp(1)))
    assert not {"nll", "ece"} & set(make_scorer(YesNoSettings()).metrics)


def test_confidence_follows_normalize() -> None:
    scorer = ChoiceScorer(ChoiceSettings(normalize="sum"))
    score = judge_loglikelihoods(scorer, a_sample(0, ["a", "b"]), [-1.0, -4.0], [1, 4])
    assert score.values["confidence"] == pytest.approx(float(softmax([-1.0, -4.0]).max()))


def drawn(rng: np.random.Generator, n: int, overconfidence: float = 0.0) -> list[Score]:
    """Scores of a model that is right as often as it says, less ``overconfidence``."""
    confidence = rng.uniform(0.25, 1.0, n)
    right = rng.uniform(size=n) < confidence - overconfidence
    return [scored(float(c), bool(r)) for c, r in zip(confidence, right, strict=True)]


def error_of(scores: Sequence[Score]) -> Metric:
    return summarize(scores, ["ece"])["ece"]


def test_a_difference_of_two_models() -> None:
    rng = np.random.default_rng(0)
    good, sure = ([*drawn(rng, 1000, overconfidence)] for overconfidence in (0.0, 0.2))
    before, after = error_of(good).value, error_of(sure).value
    assert before is not None
    assert after is not None
    assert before < 0.1 < 0.15 < after
    by_id = [{str(place): score for place, score in enumerate(scores)} for scores in (good, sure)]
    difference = compare(by_id[0], by_id[1], ["ece"])["ece"]
    assert difference.difference == pytest.approx(after - before)
    assert (difference.stderr, difference.ci_low, difference.ci_high) == (None, None, None)


@pytest.mark.parametrize("interval", [None, "bootstrap"])
def test_it_is_biased_upwards_and_has_no_interval(interval: Interval | None) -> None:
    """Of a perfectly calibrated model it is 0, and no interval around what samples show holds that."""
    rng = np.random.default_rng(1)
    found = [summarize(drawn(rng, 100), ["ece"], interval=interval)["ece"] for _ in range(60)]
    assert math.fsum(metric.value or 0.0 for metric in found) / len(found) > 0.1
    assert all((metric.stderr, metric.ci_low, metric.ci_high) == (None, None, None) for metric in found)
    assert {why_no_interval(metric) for metric in found} == {"chance makes it larger than it is"}
    assert "too high" in definition("ece").description


def test_definitions_say_what_is_computed() -> None:
    assert f"in {NUM_BINS} bins" in definition("ece").description
    assert definition("ece").higher_is_better is definition("nll").higher_is_better is False
