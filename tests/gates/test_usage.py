"""Gates on what samples used: money, time and tokens, of reports made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.gates.kept_baseline import kept_report
from pytest_llmeval.gates.options import BaselineSettings, GateOptions, Margin, Selection
from pytest_llmeval.gates.thresholds import decide_thresholds
from pytest_llmeval.gates.usage import usage_metric
from pytest_llmeval.reporting.report.report import GateResult
from pytest_llmeval.reporting.report.summaries import summarize_suite
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.suites.format.gates_spec import GateRuleError, GivenGate
from pytest_llmeval.types import COSTS_NOTHING, Score
from tests.gates.reports_for_tests import Ran, compared, ran, report
from tests.properties import examples

BEFORE = "2025-12-31T00:00:00+00:00"
"""A time before the session of ``report`` began, and one after."""
AFTER = "2026-01-01T00:00:01+00:00"


def used(samples: Sequence[dict[str, Any]], **info: Any) -> Ran:
    """A suite whose samples are right, and used this."""
    made = ran([True] * len(samples), **info)
    records = tuple(replace(one, **own) for one, own in zip(made.records, samples, strict=True))
    return Ran(made.suite, records)


def timed(*seconds: float, **more: Any) -> list[dict[str, Any]]:
    return [{"seconds": one, "is_timed": True, **more} for one in seconds]


def decided(made: Ran, rule: str, **options: Any) -> GateResult:
    given_gate = GivenGate.parse(rule)
    (result,) = decide_thresholds(report(made), GateOptions(given=[(given_gate, "option")], **options), Selection())
    return result


COSTS = [{"cost": 0.001}, {"cost": 0.002}, {"cost": 0.006}]


@pytest.mark.parametrize(
    ("samples", "rule", "outcome", "reason"),
    [
        (COSTS, "cost <= 0.0031", "passed", "cost 0.00300 [0.000, *], n 3"),
        (COSTS, "cost <= 0.002", "failed", "cost 0.00300 [0.000, *], n 3: above 0.002"),
        (COSTS, "sum(cost) <= 0.0091", "passed", "sum(cost) 0.00900, n 3"),
        (COSTS, "sum(cost) < 0.009", "failed", "sum(cost) 0.00900, n 3: not below 0.009"),
        (COSTS, "p50(cost) <= 0.002", "passed", "p50(cost) 0.00200, n 3"),
        (COSTS, "ci_low(cost) >= 0", "passed", "*"),
        (
            [*COSTS, {"cost": None}],
            "sum(cost) <= 5",
            "failed",
            "cost is not known for 1 of 4 samples: a model or judge that was asked has no price: give price_in*",
        ),
        (
            [{"cost": 0.001, "num_judge_requests": 2, "judge_cost": 0.01}] * 2,
            "sum(cost) <= 0.02",
            "failed",
            "sum(cost) 0.0220, n 2: above 0.02",
        ),
        (
            [{"cost": 0.001, "num_judge_requests": 1}] * 2,
            "cost <= 5",
            "failed",
            "cost is not known for 2 of 2 samples: *",
        ),
        (timed(1.0, 2.0, 4.0), "p95(seconds) <= 3.8", "passed", "p95(seconds) 3.800, n 3"),
        (timed(1.0, 2.0, 4.0), "p95(seconds) <= 3", "failed", "p95(seconds) 3.800, n 3: above 3"),
        (
            [{"seconds": 1.0}] * 3,
            "seconds <= 3",
            "skipped",
            "3 of 3 samples were not timed by themselves: replies from a store or from a shared batch have no time *",
        ),
        (timed(1.0, 2.0, asked_at=BEFORE), "seconds <= 3", "skipped", "2 of 2 samples were not timed*"),
        (timed(1.0, 2.0, asked_at=AFTER, is_reused=True), "seconds <= 3", "skipped", "2 of 2 samples were not timed*"),
        (timed(1.0, 2.0, asked_at=AFTER), "seconds <= 3", "passed", "seconds 1.500 [*], n 2"),
        ([*timed(*[1.0] * 9), {"seconds": 9.0}], "p99(seconds) <= 3", "passed", "p99(seconds) 1.000, n 9"),
        ([*timed(*[1.0] * 9), {"seconds": 9.0}], "sum(seconds) <= 30", "skipped", "1 of 10 samples was not timed by*"),
        ([*timed(*[1.0] * 8), *[{"seconds": 9.0}] * 2], "p99(seconds) <= 3", "skipped", "2 of 10 samples were not*"),
        ([{"num_tokens": 5, "num_prompt_tokens": 20}] * 2, "num_tokens <= 5", "passed", "num_tokens 5.000, n 2"),
        ([{"num_prompt_tokens": 20}] * 2, "num_tokens < 1", "passed", "num_tokens 0.000, n 2"),
        ([{}] * 2, "num_prompt_tokens <= 5", "failed", "num_prompt_tokens is not known for 2 of 2 samples: the *"),
    ],
)
def test_thresholds(samples: list[dict[str, Any]], rule: str, outcome: str, reason: str) -> None:
    result = decided(used(samples), rule)
    assert result.outcome == outcome
    start, star, _ = reason.partition("*")
    assert result.reason.startswith(start), result.reason
    assert star or result.reason == reason


def test_undecided_time_fails_where_a_decision_is_required() -> None:
    result = decided(used([{"seconds": 1.0}] * 3), "seconds <= 3", require=True)
    assert result.outcome == "failed"
    assert result.reason.endswith("--llm-require-gates requires a decision")


def test_undecided_time_ends_with_the_remedy() -> None:
    reason = decided(used([{"seconds": 1.0}] * 3), "seconds <= 3").reason
    assert reason.endswith("; --llm-store-refresh asks again, --llm-batch-size 1 times each by itself")


@pytest.mark.parametrize(("is_free", "outcome"), [((True, True), "passed"), ((True, False), "failed")])
def test_costs_of_models_and_judges_for_which_nothing_is_paid(is_free: tuple[bool, bool], outcome: str) -> None:
    made = used([{"num_judge_requests": 1}] * 3)
    models: list[dict[str, Any]] = [{"name": "m", "details": {COSTS_NOTHING: one}} for one in is_free]
    saved = replace(report(made, models=models[:1]), judges=({**models[1], "role": "judge"},))
    gate = GivenGate.parse("cost <= 0")
    (result,) = decide_thresholds(saved, GateOptions(given=[(gate, "option")]), Selection())
    assert result.outcome == outcome


def test_samples_that_were_not_timed_are_named() -> None:
    result = decided(used([*timed(*[1.0] * 9), {"seconds": 9.0}]), "seconds <= 3")
    assert result.notes == ("1 of 10 samples was not timed by itself: left out",)


def test_a_sum_needs_all_samples() -> None:
    made = ran([True, None])
    made = Ran(made.suite, tuple(replace(one, cost=0.5) for one in made.records))
    assert decided(made, "sum(cost) <= 5", allow_unscored=1).reason == (
        "1 unscored sample allowed, but a sum needs all samples"
    )
    assert decided(made, "cost <= 5").reason == "1 of 2 samples unscored"
    assert decided(made, "cost <= 5", allow_unscored=1).outcome == "passed"


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("p95(accuracy) <= 3", "p95 is for cost, seconds, num_tokens and num_prompt_tokens, and not for accuracy"),
        ("macro.cost <= 3", "cost has no mean over categories; leave out macro., or name a category"),
    ],
)
def test_what_cannot_be_asked_for(rule: str, reason: str) -> None:
    assert reason in decided(used(COSTS), f"s: {rule}").reason


def test_a_metric_of_the_suite_hides_ours() -> None:
    made = ran([{"cost": 7.0}, {"cost": 9.0}])
    assert decided(made, "cost <= 8").reason.startswith("cost 8.000")
    assert decided(made, "s: sum(cost) <= 8").reason.startswith("sum is for ")


def test_a_category_has_its_own() -> None:
    made = ran([True] * 3)
    categories = ("a", "b", "a")
    records = [replace(one, category=own) for one, own in zip(made.records, categories, strict=True)]
    records = [replace(one, cost=cost) for one, cost in zip(records, (1.0, 50.0, 3.0), strict=True)]
    suite = summarize_suite(made.suite.info, records, num_expected=3, model="m")
    assert decided(Ran(suite, tuple(records)), "s: category.a.cost <= 2").reason.startswith("category.a.cost 2.000")


@settings(max_examples=examples(100))
@given(st.lists(st.floats(1.5, 1e6), min_size=2, max_size=30))
def test_the_interval_is_that_of_a_mean_of_a_users_own(values: list[float]) -> None:
    ours = usage_metric(values)
    (other,) = summarize([Score(status="scored", values={"own": one}) for one in values], ["own"]).values()
    assert (ours.value, ours.stderr, ours.ci_high) == (other.value, other.stderr, other.ci_high)
    assert ours.ci_low == (None if other.ci_low is None else max(0.0, other.ci_low))


# Against a baseline


def margin(text: str) -> BaselineSettings:
    return BaselineSettings(margins=(Margin.parse(text),))


def against(before: Ran, after: Ran, text: str, **options: Any) -> GateResult:
    first, second = compared(report(before), report(after), margin(text), **options)
    assert first.metric == "accuracy"
    return second


LOAD = "load changes all times of a run: p-values, intervals and rates do not count it, only the margin allows for it"
TIMES = [1.0 + 0.01 * place for place in range(40)]


@pytest.mark.parametrize(
    ("factor", "text", "outcome"),
    [
        (1.3, "seconds=10%", "failed"),
        (1.05, "seconds=10%", "passed"),
        (1.05, "seconds=0", "failed"),
        (1.05, "s: seconds=0.001", "failed"),
        (1.3, "seconds=0.5", "passed"),
        (0.5, "seconds=0", "passed"),
    ],
)
def test_slower_is_worse(factor: float, text: str, outcome: str) -> None:
    result = against(used(timed(*TIMES)), used(timed(*[factor * one for one in TIMES])), text)
    assert (result.outcome, result.metric) == (outcome, "seconds")
    assert result.regression is not None
    assert result.regression.baseline == pytest.approx(np.mean(TIMES))
    assert result.regression.drop == pytest.approx((factor - 1) * np.mean(TIMES))
    if text.endswith("%"):
        assert result.regression.margin == pytest.approx(0.1 * np.mean(TIMES))
        assert result.notes == (LOAD, "the margin is 10% of the baseline's 1.195")
    else:
        assert result.notes == (LOAD,)


def test_costs_are_shown_with_their_digits() -> None:
    costs = [[{"cost": factor * (1e-4 + 1e-6 * place)} for place in range(20)] for factor in (1, 2)]
    result = against(used(costs[0]), used(costs[1]), "cost=10%")
    assert result.outcome == "failed"
    assert result.reason.startswith("cost 0.000110 -> 0.000219: +0.00011 [")
    assert LOAD not in result.notes


@pytest.mark.parametrize("side", [0, 1])
def test_times_of_a_store_are_undecided(side: int) -> None:
    sides = [timed(*TIMES), timed(*TIMES)]
    sides[side] = timed(*TIMES, asked_at=BEFORE)
    before, after = map(used, sides)
    result = against(before, after, "seconds=10%")
    assert result.outcome == "skipped"
    assert result.reason.startswith("40 of 40 samples were not timed by themselves")
    assert against(before, after, "seconds=10%", require=True).outcome == "failed"


def test_a_few_that_were_not_timed_are_left_out() -> None:
    before, after = used(timed(*TIMES)), used([*timed(*TIMES[:-1]), {"seconds": 99.0}])
    result = against(before, after, "seconds=10%")
    assert result.outcome == "passed"
    assert result.notes[0] == "in one of the two runs 1 of 40 samples was not timed by itself: left out"
    assert result.regression is not None
    assert (result.regression.n, result.regression.num_left_out) == (39, 1)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            [{"cost": 1.0}] * 8,
            [{"cost": 1.0}] * 7 + [{}],
            "cost has no value now in 1 sample ('7') that had one in the*",
        ),
        ([{}] * 8, [{"cost": 1.0}] * 8, "cost has no value in any sample that both reports scored"),
        ([{"cost": 1.0}] * 7 + [{}], [{"cost": 1.0}] * 8, "cost has no value in the baseline in 1 sample that it*"),
    ],
)
def test_an_unknown_cost_is_no_pass(before: list[dict[str, Any]], after: list[dict[str, Any]], reason: str) -> None:
    result = against(used(before), used(after), "cost=10%")
    assert result.outcome == "failed"
    assert result.reason.startswith(reason.removesuffix("*"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "accuracy=1%",
            "a share of the baseline's value is for metrics without an upper limit, such as seconds; write",
        ),
        ("seconds=-1%", "'-1%' is not a valid drop"),
        ("seconds=%", "'%' is not a valid drop"),
    ],
)
def test_margins_that_cannot_be(text: str, problem: str) -> None:
    with pytest.raises(GateRuleError, match=problem.replace("'", ".")):
        Margin.parse(text)


@pytest.mark.parametrize("text", ["seconds=10%", "boolq: cost=2.5%", "perplexity=1%", "cost=0.5"])
def test_margins_are_written_as_they_are_read(text: str) -> None:
    assert str(Margin.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("seconds=10%", timed(*TIMES)),
        ("cost=10%", [{"cost": 0.5, "judge_cost": 0.25, "num_judge_requests": 1}] * 40),
        ("num_tokens=10%", [{"num_tokens": 5, "num_prompt_tokens": 7}] * 40),
    ],
)
def test_a_kept_baseline_keeps_what_its_margins_name(text: str, samples: list[dict[str, Any]]) -> None:
    made = used(samples)
    for kept, outcome in (([Margin.parse(text)], "passed"), ([], "failed")):
        baseline = kept_report(report(made), kept, {})
        _, second = compared(baseline, report(made), margin(text))
        assert second.outcome == outcome
        name = text.partition("=")[0]
        assert outcome == "passed" or second.reason.startswith(f"the baseline has no {name}: ")


@pytest.mark.parametrize("samples", [timed(*TIMES, asked_at=BEFORE), [{"seconds": one} for one in TIMES]])
def test_a_kept_baseline_whose_samples_were_not_timed_says_so(samples: list[dict[str, Any]]) -> None:
    """Its replies came from a store, or from a shared batch: that its margin names seconds is of no help."""
    baseline = kept_report(report(used(samples)), [Margin.parse("seconds=10%")], {})
    _, second = compared(baseline, report(used(timed(*TIMES))), margin("seconds=10%"))
    assert second.outcome == "skipped"
    assert second.reason.startswith("40 of 40 samples were not timed by themselves: replies from a store ")


def test_a_kept_baseline_of_which_the_cost_is_not_known_does_not_say_that_it_was_not_named() -> None:
    baseline = kept_report(report(used([{}] * 8)), [Margin.parse("cost=10%")], {})
    _, second = compared(baseline, report(used([{"cost": 1.0}] * 8)), margin("cost=10%"))
    assert (second.outcome, second.reason) == (
        "failed",
        "the baseline has no cost: a kept baseline has it only if it was known and --llm-max-drop named it",
    )
