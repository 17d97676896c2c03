"""The modes of the gate against a baseline, margins, and which metric is compared which way."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from pytest_llmeval.gates.options import BaselineSettings, Margin
from pytest_llmeval.reporting.report.report import GateMode, Regression
from pytest_llmeval.reporting.storage.json_form import part_from_json
from pytest_llmeval.scoring.statistics.paired_tests import mcnemar
from pytest_llmeval.suites.format.gates_spec import GateRuleError
from tests.gates.reports_for_tests import (
    Outcome,
    Ran,
    answers,
    compared,
    margins,
    outcomes,
    ran,
    report,
    the_one,
)


def test_a_margin_allows_a_significant_drop() -> None:
    before, after = answers(2000, right=1400, lost=25, gained=5)
    assert the_one(ran(before), ran(after)).outcome == "failed"
    result = the_one(ran(before), ran(after), margins("accuracy=0.01"))
    assert result.outcome == "passed"
    assert "; within the margin 0.010;" in result.reason
    result = the_one(ran(before), ran(after), margins("accuracy=0.005"))
    assert result.outcome == "failed"
    assert "; beyond the margin 0.005;" in result.reason


def test_a_drop_of_the_margin_is_within_it() -> None:
    """0.70 - 0.69 is 0.010000000000000009 as floats."""
    before, after = ran([{"f1": 0.70}] * 3), ran([{"f1": 0.69}] * 3)
    assert the_one(before, after, margins("f1=0.01", mode="margin")).outcome == "passed"
    assert the_one(before, after, margins("f1=0.00999", mode="margin")).outcome == "failed"


def test_a_margin_alone_is_reported_how_often_it_is_wrong() -> None:
    before, after = answers(100, right=70, lost=8, gained=4)
    result = the_one(ran(before), ran(after), margins("accuracy=0.02", mode="margin"))
    assert result.outcome == "failed"
    rate = mcnemar(8, 4, bound=2).false_alarm_rate
    assert result.regression is not None
    assert result.regression.false_alarm_rate == rate
    assert (
        f"; beyond the margin 0.020; a drop beyond it is seen in {rate:.1%} of runs in which nothing has changed;"
        in result.reason
    )
    assert the_one(ran(before), ran(after), margins("accuracy=0.02")).outcome == "passed"


@pytest.mark.parametrize(("n", "outcome"), [(20, "failed"), (2000, "passed")])
def test_non_inferior_asks_for_an_interval_that_excludes_the_margin(n: int, outcome: str) -> None:
    before, _ = answers(n, right=n // 2)
    result = the_one(ran(before), ran(before), margins("accuracy=0.02", mode="non-inferior"))
    assert result.outcome == outcome
    assert f"a drop beyond the margin 0.020 {'is' if outcome == 'passed' else 'is not'} excluded" in result.reason


def test_non_inferior_of_no_interval_fails() -> None:
    result = the_one(ran([{"score": 1.0}]), ran([{"score": 0.9}]), margins("score=0.5", mode="non-inferior"))
    assert result.outcome == "failed"
    assert "without an interval a drop beyond the margin 0.500 is not excluded" in result.reason


@pytest.mark.parametrize(("n", "outcome"), [(180, "failed"), (190, "passed")])
def test_non_inferior_of_an_unchanged_mean_with_limits(n: int, outcome: str) -> None:
    """Of 183 samples of which none differs, at most 2% do: 1 - 0.025^(1/183) = 0.01996."""
    one = ran([{"f1": (place % 7) / 7} for place in range(n)])
    result = the_one(one, one, margins("f1=0.02", mode="non-inferior"))
    assert result.outcome == outcome
    assert result.regression is not None
    low, high = proportion_confint(0, n, method="beta")
    assert low == 0
    assert (result.regression.ci_low, result.regression.ci_high) == pytest.approx((-high, high), rel=1e-9)


def test_non_inferior_of_an_unchanged_metric_without_limits() -> None:
    one = ran([{"score": 7.0 + place} for place in range(30)])
    result = the_one(one, one, margins("score=0.01", mode="non-inferior"))
    assert result.outcome == "passed"
    assert "; no sample's value has changed" in result.reason
    text = ran([{"loglikelihood": -5.0 - place, "words": 3.0} for place in range(30)], metrics=("word_perplexity",))
    assert the_one(text, text, margins("word_perplexity=0", mode="non-inferior")).outcome == "passed"
    few = {str(place): str(place % 9) for place in range(900)}
    clustered = ran([{"f1": 0.5}] * 900, clusters=few)
    result = the_one(clustered, clustered, margins("f1=0.4", mode="non-inferior"))
    assert (result.outcome, "without an interval" in result.reason) == ("failed", True), "nine clusters say nothing"


def test_a_margin_gates_a_further_metric() -> None:
    before: list[Outcome] = [{"accuracy": 1.0, "brier": 0.1 + place / 1000} for place in range(60)]
    after: list[Outcome] = [{"accuracy": 1.0, "brier": 0.2 + place / 1100} for place in range(60)]
    results = compared(report(ran(before)), report(ran(after)), margins("brier=0.01"))
    assert outcomes(results) == [("s", "accuracy vs baseline", "passed"), ("s", "brier vs baseline", "failed")]
    found = results[1].regression
    assert found is not None
    assert (found.higher_is_better, found.drop > 0, found.family, found.num_draws) == (False, True, 2, 800)
    assert "60 samples became worse and 0 better" in results[1].reason


def test_the_margin_of_a_suite_goes_before_that_of_all() -> None:
    before, after = answers(1000, right=700, lost=90, gained=40)
    results = compared(
        report(ran(before, "a"), ran(before, "b")),
        report(ran(after, "a"), ran(after, "b")),
        margins("b: accuracy=0.1", "accuracy=0.01"),
    )
    assert outcomes(results) == [("a", "accuracy vs baseline", "failed"), ("b", "accuracy vs baseline", "passed")]


LISTED = "Expected one of accuracy, cost, seconds, num_tokens, num_prompt_tokens"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("acuracy=0.1", f"there is no metric 'acuracy'; did you mean 'accuracy'? {LISTED}"),
        ("s: acuracy=0.1", f"there is no metric 'acuracy'; did you mean 'accuracy'? {LISTED}"),
        ("t: accuracy=0.1", "there is no suite 't', only 's'"),
        ("sss: accuracy=0.1", "there is no suite 'sss', only 's'"),
    ],
)
def test_a_margin_of_nothing_fails(text: str, reason: str) -> None:
    before, _ = answers(20, right=10)
    results = compared(report(ran(before)), report(ran(before)), margins(text))
    assert [result.outcome for result in results] == ["passed", "failed"]
    assert results[1].reason == reason
    assert results[1].name == f"max drop {text}"


def test_a_margin_of_a_suite_that_is_spelt_otherwise() -> None:
    one = ran([True, False], "boolq")
    results = compared(report(one), report(one), margins("bolq: accuracy=0.1"))
    assert results[1].reason == "there is no suite 'bolq'; did you mean 'boolq'?"


def test_a_margin_of_a_count_fails() -> None:
    one = ran([True, False], metrics=("accuracy", "correct"))
    results = compared(report(one), report(one), margins("correct=1"))
    assert (results[1].outcome, results[1].reason.startswith("correct is a count of samples")) == ("failed", True)


@pytest.mark.parametrize(
    ("text", "margin"),
    [
        ("accuracy=0.01", Margin("*", "accuracy", 0.01)),
        (" boolq: accuracy = 1e-2 ", Margin("boolq", "accuracy", 0.01)),
        ("a:b: brier=0", Margin("a:b", "brier", 0.0)),
        ("boolq:accuracy=.5", Margin("boolq", "accuracy", 0.5)),
    ],
)
def test_margins_are_read(text: str, margin: Margin) -> None:
    assert Margin.parse(text) == margin
    assert Margin.parse(str(margin)) == margin


@pytest.mark.parametrize(
    "text", ["", "accuracy", "=0.1", "accuracy=", "accuracy=-0.1", "accuracy=nan", "accuracy=inf", "x: =1", ": a=1"]
)
def test_what_is_no_margin(text: str) -> None:
    with pytest.raises(GateRuleError, match=r"'accuracy=0\.01'"):
        Margin.parse(text)


def test_the_primary_metric_of_a_suite() -> None:
    before: list[Outcome] = [{"accuracy": 1.0, "nicety": 1.0 + place} for place in range(12)]
    after: list[Outcome] = [{"accuracy": 1.0, "nicety": 0.5 + place} for place in range(12)]
    lower, higher = (
        the_one(ran(before), ran(after, primary_metric="nicety", higher_is_better=is_higher))
        for is_higher in (False, True)
    )
    assert (lower.name, lower.outcome) == ("nicety vs baseline", "passed")
    assert lower.reason.startswith("improved: ")
    assert (higher.name, higher.outcome) == ("nicety vs baseline", "failed")


def test_without_accuracy_the_first_metric_that_has_a_direction() -> None:
    one = ran([{"length": 3.0, "f1": 0.5}, {"length": 4.0, "f1": 0.25}] * 4)
    assert the_one(one, one).name == "f1 vs baseline"


def test_a_metric_without_a_direction_fails() -> None:
    one = ran([{"length": 3.0}, {"length": 4.0}])
    result = the_one(one, one)
    assert (result.name, result.outcome) == ("length vs baseline", "failed")
    assert "write `primary_metric: {name: length, better: higher}` (or lower)" in result.reason


def test_a_primary_metric_that_is_not_there_fails() -> None:
    result = the_one(ran([True]), ran([True], primary_metric="acuracy"))
    assert (result.outcome, result.reason) == (
        "failed",
        "there is no metric 'acuracy'; did you mean 'accuracy'?",
    )


def test_perplexity_is_lower_for_the_better() -> None:
    random = np.random.default_rng(1)
    lengths = random.integers(5, 50, size=40).tolist()

    def side(nats: float) -> Ran:
        values: list[Outcome] = [
            {"loglikelihood": -length * nats * (1 + 0.01 * math.sin(place)), "words": float(length)}
            for place, length in enumerate(lengths)
        ]
        return ran(values, metrics=("word_perplexity",))

    worse, better = the_one(side(2.0), side(2.1)), the_one(side(2.1), side(2.0))
    assert (worse.name, worse.outcome, better.outcome) == ("word_perplexity vs baseline", "failed", "passed")
    assert better.reason.startswith("improved: word_perplexity 8.")
    assert worse.regression is not None
    assert (worse.regression.num_worse, worse.regression.num_better) == (40, 0)
    assert worse.regression.drop == pytest.approx(math.exp(2.1) - math.exp(2.0), rel=0.02)
    assert worse.regression.ci_low is not None


def test_f1_macro_is_tested_by_exchanging_samples() -> None:
    random = np.random.default_rng(2)
    gold = random.integers(3, size=200)

    def side(share: float) -> Ran:
        predicted = np.where(random.random(200) < share, gold, (gold + 1) % 3)
        values: list[Outcome] = [
            {"gold": float(one), "predicted": float(other)} for one, other in zip(gold, predicted, strict=True)
        ]
        return ran(values, metrics=("f1_macro",))

    result = the_one(side(0.8), side(0.5))
    assert (result.name, result.outcome) == ("f1_macro vs baseline", "failed")
    assert "became" not in result.reason
    assert result.regression is not None
    assert result.regression.num_draws == 400


def test_a_corpus_metric_that_is_unchanged() -> None:
    one = ran([{"gold": float(place % 3), "predicted": 1.0} for place in range(30)], metrics=("mcc",))
    result = the_one(one, one)
    assert result.outcome == "passed"
    assert result.regression is not None
    assert (result.regression.p_value, result.regression.p_improved, result.regression.num_draws) == (1, 1, None)


def test_a_perplexity_that_is_too_large_fails() -> None:
    fine = ran([{"loglikelihood": -3.0, "words": 1.0}] * 4, metrics=("word_perplexity",))
    huge = ran([{"loglikelihood": -3000.0, "words": 1.0}] * 4, metrics=("word_perplexity",))
    result = the_one(fine, huge)
    assert (result.outcome, result.reason) == ("failed", "word_perplexity has no value in one of the two reports")


def test_a_perplexity_that_samples_have_values_of_is_their_mean() -> None:
    """As a hand-written test records it, without what it is made of."""
    before = ran([{"perplexity": 5.0 + place} for place in range(8)])
    result = the_one(before, ran([{"perplexity": 6.0 + place} for place in range(8)]))
    assert (result.name, result.outcome) == ("perplexity vs baseline", "failed")
    assert result.regression is not None
    assert result.regression.drop == 1
    assert result.regression.p_value == pytest.approx(2**-8)


def test_clusters_have_one_sign() -> None:
    """Twenty wrong answers more, all of two passages: as independent samples significant, as passages not."""
    before: list[Outcome] = [True] * 200
    after: list[Outcome] = [place >= 20 for place in range(200)]
    clusters = {str(place): f"passage {place // 10}" for place in range(200)}
    assert the_one(ran(before), ran(after)).outcome == "failed"
    result = the_one(ran(before, clusters=clusters), ran(after, clusters=clusters))
    assert result.outcome == "passed"
    assert result.regression is not None
    assert (result.regression.num_clusters, result.regression.method) == (20, "sign-flip")
    assert result.regression.p_value == pytest.approx(0.25)
    assert "n 200 in 20 clusters" in result.reason
    for first, second in ((clusters, None), (None, clusters)):
        result = the_one(ran(before, clusters=first), ran(after, clusters=second))
        assert result.regression is not None
        assert result.regression.num_clusters == 20, "clusters that one of the two reports does not know"
    alone = {str(place): str(place) for place in range(200)}
    result = the_one(ran(before, clusters=alone), ran(after, clusters=alone))
    assert result.regression is not None
    assert (result.regression.num_clusters, result.regression.method) == (None, "mcnemar")


def test_epochs_are_no_right_and_wrong() -> None:
    before: list[Outcome] = [{"accuracy": 1.0} for _ in range(12)]
    after: list[Outcome] = [{"accuracy": 0.75} for _ in range(12)]
    result = the_one(ran(before), ran(after))
    assert result.outcome == "failed"
    assert result.regression is not None
    assert result.regression.method == "sign-flip"
    assert result.regression.p_value == pytest.approx(2**-12)


def test_a_gate_that_cannot_fail_says_so() -> None:
    """Alone in a session it closes it: nothing was compared."""
    few, many = ran([True] * 4, "few"), ran([True] * 5, "many")
    worse = ran([False] * 4, "few")
    results = compared(report(few), report(worse))
    assert [(result.name, result.outcome) for result in results] == [
        ("accuracy vs baseline", "skipped"),
        ("baseline", "failed"),
    ]
    assert results[0].reason.startswith("undecided: too few samples for any drop to be significant (4; at least ")
    assert the_one(ran([True] * 5), ran([False] * 5)).outcome == "failed"
    then, now = (report(*(ran([answer] * 5, name) for name in "abc")) for answer in (True, False))
    results = compared(then, now)
    assert [result.outcome for result in results] == ["skipped", "skipped", "skipped", "failed"]
    assert "undecided" in results[0].reason, "5 samples are too few in a family of three: 0.5^5 is above 0.05 / 3"
    (found,) = compared(report(few), report(worse), require=True)
    assert found.outcome == "failed"
    assert [result.outcome for result in compared(report(many), report(many))] == ["passed"]


def test_a_shift_of_all_samples_that_is_rounding_alone() -> None:
    """Another batch size moves every logprob a little: significant, and no drop."""
    before: list[Outcome] = [{"score": 0.5 + place / 1000} for place in range(100)]
    for shift, outcome in ((1e-6, "passed"), (1e-3, "failed")):
        after: list[Outcome] = [{"score": 0.5 + place / 1000 - shift} for place in range(100)]
        result = the_one(ran(before), ran(after))
        assert result.outcome == outcome
        assert result.regression is not None
        assert result.regression.p_value < 0.001
        assert result.regression.noise == pytest.approx(1e-4 * result.regression.baseline)
        assert ("; within numeric noise 0.00005" in result.reason) == (outcome == "passed")


@pytest.mark.parametrize("text", ["score=0", "score=0.0000001"])
def test_noise_goes_over_no_margin_of_the_user(text: str) -> None:
    before = ran([{"score": 0.5 + place / 1000} for place in range(100)])
    after = ran([{"score": 0.5 + place / 1000 - 1e-6} for place in range(100)])
    result = the_one(before, after, margins(text))
    assert (result.outcome, "noise" in result.reason) == ("failed", False)
    assert result.regression is not None
    assert result.regression.noise == 0
    for mode in ("margin", "non-inferior"):
        found = the_one(before, after, BaselineSettings(mode=mode)).regression
        assert found is not None
        assert found.noise == 0
        of_before = {name: value for name, value in asdict(found).items() if name != "noise"}
        assert part_from_json(Regression, of_before) == found


@pytest.mark.parametrize("mode", ["significant", "margin", "non-inferior"])
def test_a_drop_is_one_on_any_scale(mode: GateMode) -> None:
    before = [(1 + place / 100) * 1e-10 for place in range(40)]
    sides = (before, [value / 2 for value in before])
    first, second = (ran([{"score": value} for value in values]) for values in sides)
    result = the_one(first, second, BaselineSettings(mode=mode))
    assert result.outcome == "failed"
    assert "score 1.20e-10 -> 5.98e-11: -5.98e-11" in result.reason
    assert the_one(second, first, BaselineSettings(mode=mode)).outcome == "passed"


def test_a_shift_by_rounding_alone_is_shown_as_none() -> None:
    """All differences are those of floats: their standard error says nothing of what would be found."""
    before = [0.1 * place for place in range(1, 60)]
    after = [value + (1e-16 if place % 3 else -1e-16) for place, value in enumerate(before)]
    first, second = (ran([{"score": value} for value in values]) for values in (before, after))
    result = the_one(first, second)
    assert result.outcome == "passed"
    assert ": 0.000" in result.reason
    assert "would be found" not in result.reason
    assert result.regression is not None
    assert result.regression.smallest_drop is None


def test_suites_that_are_too_small_alone_are_tested_together() -> None:
    """Twenty suites of eight questions fall from all to none: each could be chance among so many, all cannot."""
    names = [f"s{place}" for place in range(20)]
    before, after = (
        report(*(ran([True] * 8, name) for name in names)),
        report(*(ran([False] * 8, name) for name in names)),
    )
    *alone, together = compared(before, after)
    assert {result.outcome for result in alone} == {"skipped"}
    assert (together.name, together.suite) == ("accuracy vs baseline, small suites together", None)
    assert together.outcome == "failed"
    found = together.regression
    assert found is not None
    assert (found.n, found.num_worse, found.family) == (160, 160, 21)
    assert found.p_value == pytest.approx(0.5**160)
    assert together.notes == (f"20 suites: {', '.join(names)}",)
    *alone, together = compared(before, before, require=True)
    assert {result.outcome for result in alone} == {"skipped"}, "they are decided, together"
    assert together.outcome == "passed"
