"""The static tables of a page, cell by cell, of reports whose numbers are made by hand: all differ, so that none can
stand in another's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from scipy.stats import binomtest

from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.reporting.report.report import (
    Averages,
    Comparison,
    GateResult,
    PerSample,
    Phases,
    Regression,
    Report,
    StoreUse,
    SuiteReport,
    Summary,
    VariantComparison,
)
from pytest_llmeval.reporting.report.risks import risk_curves
from pytest_llmeval.reporting.tables.comparisons import comparison_tables
from pytest_llmeval.reporting.tables.suites import average_texts
from pytest_llmeval.reporting.writers.html import tables
from pytest_llmeval.reporting.writers.html.page import headline, problem_texts
from pytest_llmeval.reporting.writers.html.tables import PageTable, change_tables, flipped_tables, gate_tables
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin
from pytest_llmeval.scoring.metrics.summary import Distribution, Metric, Percentiles
from pytest_llmeval.scoring.model_differences import Difference
from pytest_llmeval.scoring.paired_metrics import FlippedSample, FlippedSamples
from pytest_llmeval.types import JSON, EngineUse
from tests.reporting.made_reports import gate, record, report
from tests.reporting.reports import make_record, make_report

ONE = {"org/one": "one"}
TWO = {"org/one": "one", "org/two": "two"}


def by_title(tables: Iterable[PageTable]) -> dict[str, PageTable]:
    """The tables, each of them whole: as many alignments as headers, and cells in each row; a tone for each row."""
    found: dict[str, PageTable] = {}
    for table in tables:
        assert table.title not in found
        assert {len(row) for row in table.rows} == {len(table.headers)} == {len(table.align)}
        assert len(table.tones) in (0, len(table.rows))
        found[table.title] = table
    return found


def cells(table: PageTable) -> list[list[str]]:
    return [list(table.headers), *map(list, table.rows)]


def of_suite(name: str = "sums", *, metrics: Mapping[str, Metric] | None = None, **values: Any) -> SuiteReport:
    """A suite of 40 samples, of which 37 could be scored, on a model; what begins with ``info_`` is of its info."""
    info = {key.removeprefix("info_"): values.pop(key) for key in list(values) if key.startswith("info_")}
    counts: dict[str, Any] = {"num_expected": 40, "num_scored": 37, "num_unscored": 3, "num_no_answer": 0}
    counts |= {key: values.pop(key) for key in list(values) if key in counts}
    known: dict[str, Any] = {
        "info": SuiteInfo(name=name, path=f"suites/{name}.yaml", scorer="exact", **info),
        "summary": Summary(metrics=metrics or {}, **counts),
        "categories": {},
        "models": ("org/one",),
    }
    return SuiteReport(**{**known, **values})


def proportion(value: float, low: float | None, high: float | None, n: int = 37, **values: Any) -> Metric:
    return Metric(value=value, n=n, kind="proportion", ci_low=low, ci_high=high, **values)


# The verdict


def test_the_verdict_counts_and_names_five_of_the_gates_that_failed() -> None:
    suites = [of_suite("a"), of_suite("b", num_expected=2400, num_scored=2400, num_unscored=0)]
    passed = gate("passed", reason="well above")
    failed = [gate(name=f"accuracy >= 0.{place}", reason=f"found {place}", suite="a") for place in range(1, 8)]
    found = headline(
        report(suites, gates=(passed, *failed, gate("skipped")), seconds=1234.56, exit_code=1, created="some day"), ONE
    )
    assert found.text == "7 of 9 gates failed, 1 skipped; 3 of 2,440 samples could not be scored"
    assert found.tone == "bad"
    assert found.failed == [
        *(f"a: accuracy >= 0.{place}: found {place}" for place in range(1, 6)),
        "and 2 more, see below",
    ]
    assert found.facts == ["2,437 samples scored in 2 suites", "started some day", "took 1,234.6 s", "exit code 1"]


@pytest.mark.parametrize("count", [0, 1, 5, 6])
def test_as_many_failed_gates_as_have_room_are_all_named(count: int) -> None:
    failed = tuple(gate(name=f"g{place}", reason="low", suite=None) for place in range(count))
    found = headline(report(gates=failed), ONE).failed
    assert found == [f"g{place}: low" for place in range(min(count, 5))] + ["and 1 more, see below"] * (count > 5)


def test_a_failed_gate_of_several_models_says_which() -> None:
    found = headline(report(gates=(gate(model="org/two", reason="low\x1b"),)), TWO)
    assert found.failed == ["boolq (two): accuracy >= 0.6: low\\x1b"]


# Gates


def regression(**values: Any) -> Regression:
    known: dict[str, Any] = {
        "mode": "significant",
        "metric": "accuracy",
        "higher_is_better": True,
        "n": 1200,
        "baseline": 0.8125,
        "current": 0.75,
        "difference": -0.0625,
        "ci_low": -0.0911,
        "ci_high": -0.0352,
        "drop": 0.0625,
        "margin": 0.004,
        "method": "mcnemar",
        "p_value": 0.0113,
        "p_adjusted": 0.0226,
        "p_improved": 0.9711,
        "p_improved_adjusted": 0.9922,
        "family": 2,
        "alpha": 0.05,
        "num_worse": 1130,
        "num_better": 1055,
        "smallest_drop": 0.0432,
    }
    return Regression(**{**known, **values})


def against_baseline(outcome: Any, found: Regression, **values: Any) -> GateResult:
    return gate(
        outcome, f"{found.metric} vs baseline", kind="baseline", metric=found.metric, regression=found, **values
    )


def test_gates_stand_with_what_failed_first() -> None:
    gates = (
        gate("passed", "f1 >= 0.1", reason="f1 is 0.5"),
        gate("skipped", "accuracy >= 0.6", reason="a selection", notes=("2 of 9", "1 unscored")),
        gate("failed", "brier <= 0.2", reason="brier is 0.3", suite=None),
        against_baseline("failed", regression(), model="org/two", reason="accuracy is worse"),
    )
    found = by_title(gate_tables(report(gates=gates), TWO))["Gates"]
    assert cells(found) == [
        ["outcome", "suite", "gate", "what was found"],
        ["failed", "boolq (two)", "accuracy vs baseline", "accuracy is worse"],
        ["failed", "", "brier <= 0.2", "brier is 0.3"],
        ["skipped", "boolq", "accuracy >= 0.6", "a selection; 2 of 9; 1 unscored"],
        ["passed", "boolq", "f1 >= 0.1", "f1 is 0.5"],
    ]
    assert found.tones == ["bad", "bad", "", "good"]
    assert found.align == ["left"] * 4
    assert found.links == {1: ["#suite=boolq&model=org%2Ftwo&metric=accuracy", "", "#suite=boolq", "#suite=boolq"]}


def test_of_many_gates_those_that_did_not_fail_are_folded() -> None:
    outcomes: list[Any] = ["passed", "skipped", *["passed"] * 8]
    few = report(gates=[gate(outcome) for outcome in outcomes])
    assert [table.title for table in gate_tables(few, ONE)] == ["Gates"]
    many = report(gates=[gate(outcome, suite=f"s{place}") for place, outcome in enumerate([*outcomes, "failed"])])
    tables = [*gate_tables(many, ONE)]
    assert [(table.title, len(table.rows), table.is_folded) for table in tables] == [
        ("Gates", 1, False),
        ("1 skipped", 1, True),
        ("9 passed", 9, True),
    ]
    assert [table.rows[0][:2] for table in tables] == [["failed", "s10"], ["skipped", "s1"], ["passed", "s0"]]


def test_numbers_against_the_baseline() -> None:
    better = regression(
        metric="perplexity",
        higher_is_better=False,
        n=90,
        baseline=2345.6,
        current=1987.2,
        difference=-358.4,
        ci_low=None,
        ci_high=None,
        drop=-358.4,
        p_adjusted=1.0,
        p_improved_adjusted=0.05,
        num_worse=11,
        num_better=79,
        smallest_drop=None,
    )
    same = regression(metric="f1", difference=0.0, ci_low=-0.01, ci_high=0.02, drop=0.0, p_adjusted=0.00099)
    not_sure = replace(better, metric="brier", p_improved_adjusted=0.051, p_adjusted=0.001)
    gates = [against_baseline("passed", one) for one in (better, same, not_sure)]
    gates += [against_baseline("failed", regression(), suite="sums", model="org/two"), gate("failed")]
    found = by_title(change_tables(report(gates=gates), TWO))["Against the baseline"]
    head = ["outcome", "suite", "metric", "n", "baseline", "now", "difference [95%]", "p (Holm)", "worse", "better"]
    drop, none = "-0.062 [-0.091, -0.035]", "+0.000 [-0.010, 0.020]"
    assert cells(found) == [
        [*head, "smallest drop"],
        ["failed", "sums (two)", "accuracy", "1,200", "0.812", "0.750", drop, "0.023", "1,130", "1,055", "0.043"],
        ["improved", "boolq", "perplexity", "90", "2,346", "1,987", "-358.400", "0.050", "11", "79", ""],
        ["passed", "boolq", "f1", "1,200", "0.812", "0.750", none, "< 0.001", "1,130", "1,055", "0.043"],
        ["passed", "boolq", "brier", "90", "2,346", "1,987", "-358.400", "0.001", "11", "79", ""],
    ]
    assert found.tones == ["bad", "good", "good", "good"]
    # of samples that changed the page knows those of a gate's movers, of several the accuracy's
    assert found.links[1][:2] == ["#suite=sums&model=org%2Ftwo&metric=accuracy", "#suite=boolq&metric=perplexity"]
    several = [
        against_baseline("passed", regression(metric="f1", movers=moved(7, 3))),
        against_baseline("failed", regression(movers=moved(3, 0))),
        against_baseline("passed", regression(movers=moved(0, 2), num_worse=0), suite="sums"),
    ]
    (links,) = by_title(change_tables(report(gates=several), TWO))["Against the baseline"].links.values()
    assert links == [
        "#suite=boolq&metric=accuracy&change=worse",
        "#suite=boolq&metric=f1",
        "#suite=sums&metric=accuracy",
    ]
    assert found.align == ["left"] * 3 + ["right"] * 8
    assert "adjusted for all tests there are" in found.notes[0]


def test_without_gates_and_without_a_baseline() -> None:
    assert not [*gate_tables(report(), ONE)]
    assert [*by_title(gate_tables(report(gates=(gate(),)), ONE))] == ["Gates"]


# Suites


def test_averages_over_suites() -> None:
    macro = {"accuracy": proportion(0.71, 0.61, 0.81, n=3), "skill": proportion(0.42, None, None, n=2)}
    micro = {"accuracy": proportion(0.73, 0.63, 0.83, n=90), "brier": proportion(0.24, None, None, n=90)}
    unlike = {"f1": {"a": "of words", "b": "", "c": "of words"}, "chrf": {"a": "2 letters", "b": "3 letters"}}
    averages = (
        Averages(model="org/one", macro=macro, micro=micro, unlike=unlike),
        Averages(model="org/two", macro={}, micro={}, unlike=unlike),
    )
    first, second, *others = average_texts(report(averages=averages), TWO)
    assert first == (
        "macro average over suites (one): accuracy 0.710 [0.610, 0.810], "
        "skill 0.420 (n 2) (no interval: not every suite has one)"
    )
    assert second == ("micro average over suites (one): accuracy 0.730 [0.630, 0.830], Brier 0.240")
    assert others == [
        "no average over suites for f1: of words in a, c; no settings in b",
        "no average over suites for chrf: 2 letters in a; 3 letters in b",
    ]
    (alone,) = average_texts(report(averages=(Averages(model=None, macro={}, micro=micro),)), ONE)
    assert alone.startswith("micro average over suites: accuracy 0.730")


# Changes


def difference(gained: int | None, lost: int | None, **values: Any) -> Difference:
    known: dict[str, Any] = {
        "n": 1310,
        "kind": "proportion",
        "first": 0.61,
        "second": 0.58,
        "difference": -0.03,
        "ci_low": -0.07,
        "ci_high": 0.012,
        "num_gained": gained,
        "num_lost": lost,
    }
    return Difference(**{**known, **values})


def compared(differences: Mapping[str, Difference], **values: Any) -> Comparison:
    known: dict[str, Any] = {"suite": "sums", "first": "org/one", "second": "org/two", "differences": differences}
    return Comparison(**{**known, **values})


def test_models_against_the_first() -> None:
    comparisons = (
        compared({"f1": difference(None, None), "accuracy": difference(4, 9)}),
        compared({"accuracy": difference(6, 2, n=1200, second=0.64, difference=0.03)}, second="third"),
        compared({"brier": difference(None, None, kind="mean", ci_low=None, second=0.11)}, suite="capitals"),
    )
    ((found, meaning),) = comparison_tables(comparisons, TWO)
    assert [[*found.headers], *found.rows] == [
        ["suite", "metric", "n", "one", "two", "third"],
        [
            *("sums", "accuracy", "1310", "0.610"),
            "0.580 (-0.030 [-0.070, 0.012], +4 -9)",
            "0.640 (+0.030 [-0.070, 0.012], +6 -2, n 1200)",
        ],
        ["capitals", "brier", "1310", "0.610", "0.110 (-0.030)", ""],
    ]
    assert found.align == ["left", "left", "right", "value", "value", "value"]
    assert meaning == "value (difference [95% interval], samples gained and lost)"


def test_flips_are_counted_and_tested() -> None:
    comparisons = (
        compared({"f1": difference(None, None), "accuracy": difference(1004, 1019), "nll": difference(1, 2)}),
        compared(
            {
                "accuracy": difference(3, 8, num_clusters=11),
                "greedy_match": difference(7, 0, ci_low=None, difference=0.05),
            },
            suite="capitals\x1b",
            second="third",
        ),
    )
    tables = by_title(change_tables(report(comparisons=comparisons), TWO))
    found = tables["Flips"]
    p = binomtest(1004, 1004 + 1019, 0.5).pvalue
    assert cells(found) == [
        ["suite", "model", "metric", "n", "became wrong", "became right", "difference [95%]", "p"],
        ["sums", "two against one", "accuracy", "1,310", "1,019", "1,004", "-0.030 [-0.070, 0.012]", f"{p:.3f}"],
        ["capitals\\x1b", "third against one", "accuracy", "1,310", "8", "3", "-0.030 [-0.070, 0.012]", ""],
    ]
    assert cells(tables["Changes of each suite"]) == [
        ["suite", "model", "metric", "n", "became worse", "became better", "difference [95%]", "p"],
        ["capitals\\x1b", "third against one", "greedy_match", "1,310", "0", "7", "+0.050", "0.016"],
    ]
    assert found.align == ["left"] * 3 + ["right"] * 5


def test_flips_of_variants_stand_beside_those_of_models() -> None:
    moved = {
        "accuracy": FlippedSamples(num_worse=8, num_better=3, num_same=9),
        "f1": FlippedSamples(num_worse=1, num_better=0, num_same=19),
    }
    variant = VariantComparison(
        suite="sums",
        first="sums@short",
        second="sums@polite",
        differences={"accuracy": difference(3, 8, p_value=0.02), "refused": difference(2, 1)},
        movers=moved,
        model="two",
        metric="accuracy",
        p_value=0.02,
        p_adjusted=0.04,
        family=2,
    )
    suites = [of_suite("sums@polite", info_better={"refused": "lower"})]
    comparisons = (compared({"accuracy": difference(4, 9)}),)
    made = report(suites, comparisons=comparisons, variants=(variant,))
    tables = by_title(change_tables(made, TWO))
    assert [row[:2] for row in cells(tables["Flips"])] == [
        ["suite", "compared"],
        ["sums", "two against one"],
        ["sums (two)", "polite against short"],
    ]
    assert [list(row[:6]) for row in tables["Changes of each suite"].rows] == [
        ["sums (two)", "polite against short", "refused", "1,310", "2", "1"]
    ]
    assert "p 0.040" in tables["Against short"].rows[0][-1]
    (flipped,) = flipped_tables(replace(made, comparisons=()), TWO).main
    assert flipped.title == "sums (two): accuracy of polite against short: 8 samples worse, 3 better, 9 the same"


def test_a_change_is_worse_or_better_as_the_metric_says() -> None:
    differences = {
        "accuracy": difference(4, 9),
        "second.accuracy_sum": difference(1, 2),  # not in the terminal
        "second.accuracy": difference(5, 6),
        "judge.accuracy": difference(3, 1),  # of a scorer that is called so
        "dissent": difference(7, 2, difference=0.004),
        "latency_ok": difference(8, 1),
        "refused": difference(6, 5),
        "unknown": difference(2, 3),
        "judge.2.dissent": difference(7, 2),
        "judge.2.accuracy": difference(7, 2),
        "judge.sensitivity": difference(7, 2),
        "judge.base_rate": difference(7, 2),
    }
    suites = [of_suite("sums", info_better={"refused": "lower", "latency_ok": "higher"})]
    found = by_title(change_tables(report(suites, comparisons=(compared(differences),)), TWO))
    assert [row[2:6] for row in found["Flips"].rows] == [
        ["accuracy", "1,310", "9", "4"],
        ["second.accuracy", "1,310", "6", "5"],
        ["judge.accuracy", "1,310", "1", "3"],
    ]
    assert found["Flips"].headers[4:6] == ("became wrong", "became right")
    assert [row[2:6] for row in found["Changes of each suite"].rows] == [
        ["dissent", "1,310", "7", "2"],
        ["latency_ok", "1,310", "1", "8"],
        ["refused", "1,310", "6", "5"],
    ]
    assert found["Changes of each suite"].headers[4:6] == ("became worse", "became better")


def test_p_is_that_of_the_exact_two_sided_test_of_scipy() -> None:
    pairs = [*product(range(12), range(12)), (12, 30), (30, 12), (0, 40), (41, 41), (500, 560)]
    comparisons = tuple(compared({"accuracy": difference(*pair)}) for pair in pairs)
    found = by_title(change_tables(report(comparisons=comparisons), TWO))["Flips (149)"]
    assert found.is_folded
    p_values = [binomtest(gained, gained + lost).pvalue if gained + lost else 1.0 for gained, lost in pairs]
    assert [row[-1] for row in found.rows] == [f"{p:.3f}" if p >= 0.001 else "< 0.001" for p in p_values]


def test_changes_of_all_metrics_have_the_p_of_their_test() -> None:
    moved = {"f1": FlippedSamples(num_worse=30, num_better=12, num_same=1268)}
    differences = {
        "accuracy": difference(3, 8, num_clusters=11, p_value=0.0304),
        "f1": difference(None, None, kind="mean", p_value=0.0125),
        "perplexity": difference(None, None, kind="pooled", p_value=0.0002),
        "bleu_4": difference(None, None, kind="corpus"),  # neither flips nor a test
        "judge.kappa": difference(None, None, kind="corpus", p_value=0.04),
        "corrected_accuracy": difference(None, None, kind="corpus", p_value=0.05),
        "nll": difference(None, None, kind="mean", p_value=0.06),  # not in the terminal
    }
    found = by_title(change_tables(report(comparisons=(compared(differences, movers=moved),)), TWO))
    between = "-0.030 [-0.070, 0.012]"
    assert [list(row[2:]) for row in found["Flips"].rows] == [["accuracy", "1,310", "8", "3", between, "0.030"]]
    assert [list(row[2:]) for row in found["Changes of each suite"].rows] == [
        ["f1", "1,310", "30", "12", between, "0.013"],
        ["perplexity", "1,310", "", "", between, "< 0.001"],
        ["corrected_accuracy", "1,310", "", "", between, "0.050"],
    ]
    assert "exact McNemar test" in found["Flips"].notes[0]
    assert "sign-flip test" in found["Flips"].notes[0]
    assert not found["Changes of each suite"].notes  # it is said once
    del differences["accuracy"]
    rest = by_title(change_tables(report(comparisons=(compared(differences, movers=moved),)), TWO))
    assert "sign-flip test" in rest["Changes of each suite"].notes[0]


def test_nothing_was_compared() -> None:
    assert not [*change_tables(report(), ONE)]
    movers = flipped_tables(report(), ONE)
    assert not movers.main
    assert not movers.further
    assert not movers.num_left_out
    only_means = compared({"f1": difference(None, None, kind="mean")})
    assert not [*change_tables(report(comparisons=(only_means,)), TWO)]


def moved(num_worse: int, num_better: int, num_same: int = 5) -> FlippedSamples:
    """As many on each side as a report keeps."""
    return FlippedSamples(
        num_worse=num_worse,
        num_better=num_better,
        num_same=num_same,
        worse=tuple(
            FlippedSample(id=f"w{n}", before=0.9, now=0.25, difference=-0.65) for n in range(min(num_worse, 10))
        ),
        better=tuple(
            FlippedSample(id=f"b{n}\x1b", before=0.3, now=0.75, difference=0.45) for n in range(min(num_better, 10))
        ),
    )


def test_movers_with_what_became_worse_first() -> None:
    comparison = compared({}, movers={"accuracy": moved(1, 2, 1500), "f1": moved(0, 0), "brier": moved(12, 1013)})
    gates = (
        against_baseline("failed", regression(movers=moved(10, 11)), suite="sums", model="org/two"),
        against_baseline("passed", regression(movers=moved(0, 0))),
        against_baseline("passed", regression(movers=None)),
    )
    found = flipped_tables(report(comparisons=(comparison,), gates=gates), TWO)
    (first, second), (third,) = found.main, found.further
    assert [table.title for table in (first, second, third)] == [
        "sums (two): accuracy vs baseline: 10 samples worse, 11 better, 5 the same",
        "sums: accuracy of two against one: 1 sample worse, 2 better, 1,500 the same",
        "sums: brier of two against one: 12 samples worse, 1,013 better, 5 the same",
    ]
    assert cells(second) == [
        ["", "sample", "before", "now", "change"],
        ["worse", "w0", "0.900", "0.250", "-0.650"],
        ["better", "b0\\x1b", "0.300", "0.750", "+0.450"],
        ["better", "b1\\x1b", "0.300", "0.750", "+0.450"],
    ]
    assert second.tones == ["bad", "good", "good"]
    assert first.tones == third.tones == ["bad"] * 10 + ["good"] * 10
    assert first.notes == ["and 0 more that are worse, 1 that are better: in the list of samples"]
    assert second.notes == []
    assert third.notes == ["and 2 more that are worse, 1,003 that are better: in the list of samples"]
    assert second.align == ["left", "left", "right", "right", "right"]
    assert second.links == {1: [f"#sample={name}&of=sums&by=org%2Ftwo" for name in ("w0", "b0%5Cx1b", "b1%5Cx1b")]}


def test_movers_by_which_samples_are_compared_come_first() -> None:
    comparison = compared({}, movers={"brier": moved(3, 1), "accuracy": moved(1, 2)})
    found = flipped_tables(report(comparisons=(comparison,)), TWO)
    assert [table.title.split()[1] for table in (*found.main, *found.further)] == ["accuracy", "brier"]


def test_main_metrics_of_all_suites_come_before_others_and_those_without_room_are_counted() -> None:
    comparisons = tuple(
        compared({}, suite=f"s{place}", movers={"accuracy": moved(1, 1), "f1": moved(2, 1)}) for place in range(21)
    )
    made = report(comparisons=comparisons)
    found = flipped_tables(made, TWO)
    assert [table.title.split()[:2] for table in found.main] == [[f"s{place}:", "accuracy"] for place in range(21)]
    assert [table.title.split()[:2] for table in found.further] == [[f"s{place}:", "f1"] for place in range(19)]
    assert found.num_left_out == 2
    assert flipped_tables(report(comparisons=comparisons[:20]), TWO).num_left_out == 0
    many = flipped_tables(report(comparisons=comparisons * 2), TWO)
    assert (len(many.main), len(many.further), many.num_left_out) == (40, 0, 44)


# Calibration


def test_bins_of_the_reliability_diagram() -> None:
    bins = (
        ReliabilityBin(low=0.0, high=0.25, n=0, confidence=None, accuracy=None),
        ReliabilityBin(low=0.25, high=0.5, n=1300, confidence=0.41, accuracy=0.6),
        ReliabilityBin(low=0.5, high=0.75, n=7, confidence=None, accuracy=0.55),
        ReliabilityBin(low=0.75, high=1.0, n=30, confidence=0.9, accuracy=0.8),
    )
    error = Metric(value=0.1875, n=37, kind="corpus")
    suites = [
        of_suite("a", reliability=bins, metrics={"ece": error}),
        of_suite("b\x1b", reliability=bins),
        of_suite("c"),
    ]
    found = by_title(tables.calibration_tables(report(suites), ONE, {}))
    assert list(found) == ["a: reliability", "b\\x1b: reliability"]
    assert cells(found["a: reliability"]) == [
        ["confidence", "n", "mean confidence", "accuracy", "gap"],
        ["0.25 to 0.50", "1,300", "0.410", "0.600", "0.190"],
        ["0.50 to 0.75", "7", "", "0.550", ""],
        ["0.75 to 1.00", "30", "0.900", "0.800", "-0.100"],
    ]
    assert found["a: reliability"].notes == ["expected calibration error 0.188"]
    assert found["b\\x1b: reliability"].notes == []


def sure(cluster: str | None) -> Report:
    """Four samples: of the two that the model is surest of one is wrong, of the others both are."""
    pairs = ((0.9, 1.0), (0.8, 0.0), (0.6, 0.0), (0.6, 0.0))
    records = [
        make_record(id_=f"s{place}", values={"confidence": confidence, "accuracy": accuracy})
        for place, (confidence, accuracy) in enumerate(pairs)
    ]
    made = make_report(records)
    (suite,) = made.suites
    bins = (ReliabilityBin(low=0.5, high=1.0, n=4, confidence=0.725, accuracy=0.25),)
    return replace(made, suites=(replace(suite, info=replace(suite.info, cluster=cluster), reliability=bins),))


def test_risk_and_coverage() -> None:
    made = sure(None)
    found = by_title(tables.calibration_tables(made, ONE, risk_curves(made)))["sums: risk and coverage"]
    wilson = [binomtest(wrong, n).proportion_ci(method="wilson") for wrong, n in ((0, 1), (1, 2), (3, 4))]
    ends = [f"[{interval.low:.3f}, {interval.high:.3f}]" for interval in wilson]
    assert cells(found) == [
        ["coverage", "n", "least confidence", "risk [95%]"],
        ["25%", "1", "0.900", f"0.000 {ends[0]}"],
        ["50%", "2", "0.800", f"0.500 {ends[1]}"],
        ["100%", "4", "0.600", f"0.750 {ends[2]}"],
    ]
    assert found.notes == ["area under the curve (AURC) 0.500, n 4"]  # (0 + 1/2 + 2 * 3/4) / 4
    assert found.align == ["right", "right", "right", "value"]


def test_risk_of_clustered_samples_has_no_interval() -> None:
    made = sure("passage")
    found = by_title(tables.calibration_tables(made, ONE, risk_curves(made)))["sums: risk and coverage"]
    assert [row[-1] for row in found.rows] == ["0.000", "0.500", "0.750"]


# Cost and time


def test_what_samples_took_also_of_one_model_alone() -> None:
    values: dict[str, Any] = {
        "num_prompt_tokens": 9000,
        "cost": 12.5,
        "per_sample": PerSample(
            n=37, num_prompt_tokens=243.2, num_tokens=12.25, seconds=0.0314, cost=0.338, num_priced=30, num_counted=35
        ),
        "latency": Percentiles(n=36, mean=0.0314, p50=0.0222, p95=0.512, p99=1.25),
        "tokens_per_second": Percentiles(n=36, mean=8140.0, p50=99.4, p95=9.876, p99=10.04),
        "distributions": {
            "f1": Distribution(n=1037, mean=0.51, sd=0.12, min=0.03, p50=0.52, p95=0.94, max=0.97),
            "brier": Distribution(n=1, mean=0.2, sd=None, min=0.19, p50=0.21, p95=0.22, max=0.23),
            "accuracy": Distribution(n=37, mean=0.5, sd=0.5, min=0.0, p50=0.5, p95=1.0, max=1.0),
        },
        "metrics": {
            "f1": Metric(value=0.51, n=37, kind="mean"),
            "brier": Metric(value=0.2, n=1, kind="mean"),
            "accuracy": proportion(0.5, 0.4, 0.6),
        },
    }
    suites = [of_suite(**values), of_suite("quick")]
    found = by_title(tables.price_tables(report(suites), ONE))
    assert {title: cells(table) for title, table in found.items()} == {
        "A sample took, in the mean": [
            ["suite", "n", "prompt tokens", "tokens", "time", "cost", "cost in all"],
            ["sums", "37", "243 (n 35)", "12.2 (n 35)", "31.4 ms", "0.34 (n 30)", "12.50"],
        ],
        "Time of samples": [
            ["suite", "n", "latency mean", "p50", "p95", "p99", "tokens/s mean", "p50", "p95", "p99"],
            ["sums", "36", "31.4 ms", "22.2 ms", "512 ms", "1.25 s", "8,140", "99.4", "9.88", "10.0"],
        ],
        "Distribution of metrics over samples": [
            ["suite", "metric", "n", "mean", "sd", "min", "p50", "p95", "max"],
            ["sums", "f1", "1,037", "0.510", "0.120", "0.030", "0.520", "0.940", "0.970"],
            ["sums", "brier", "1", "0.200", "", "0.190", "0.210", "0.220", "0.230"],
        ],
    }
    assert [table.align for table in found.values()] == [
        ["left", *["right"] * 6],
        ["left", *["right"] * 9],
        ["left", "left", *["right"] * 7],
    ]
    assert not [*tables.price_tables(report([of_suite("quick")]), ONE)]


def test_what_samples_took_of_one_model_whose_cost_is_not_known() -> None:
    took = PerSample(n=37, num_prompt_tokens=243.0, num_tokens=0.0, seconds=0.0314)
    (found,) = tables.price_tables(report([of_suite(per_sample=took)]), ONE)
    assert found.title == "A sample took, in the mean"
    assert cells(found) == [["suite", "n", "prompt tokens", "time"], ["sums", "37", "243", "31.4 ms"]]


# Problems


def test_problems_are_said() -> None:
    assert [*problem_texts(report(stopped="Ctrl-C\x1b", problems=("a worker died\x1b", "another")))] == [
        "stopped early (Ctrl-C\\x1b): these numbers cover only what had run",
        "a worker died\\x1b",
        "another",
    ]
    assert not [*problem_texts(report())]


def unscored(reasons: Iterable[str | None]) -> PageTable | None:
    found = tables.UnscoredReasons()
    for place, reason in enumerate(reasons):
        found.add(record(f"q{place}", status="unscored", reason=reason))
    return tables.unscored_table(found)


def test_reasons_with_how_many_samples_they_cost() -> None:
    found = tables.UnscoredReasons()
    reasons = ("too long", "boom\x1b", "too long", None, *["boom\x1b"] * 1200)
    for place, reason in enumerate(reasons):
        found.add(record(f"q{place}", status="unscored", reason=reason))
        found.add(record(f"r{place}", reason="scored all the same"))
    table = tables.unscored_table(found)
    assert table is not None
    assert table.title == "Could not be scored: 1,204"
    assert cells(table) == [
        ["samples", "reason", "the first of them"],
        ["1,201", "boom\\x1b", "suites/boolq.yaml::q1"],
        ["2", "too long", "suites/boolq.yaml::q0"],
        ["1", "no reason given", "suites/boolq.yaml::q3"],
    ]
    assert table.notes == []


def test_many_reasons_are_counted_and_few_are_shown() -> None:
    assert unscored([]) is None
    exact = unscored(f"reason {place}" for place in range(20))
    assert exact is not None
    assert (len(exact.rows), exact.notes) == (20, [])
    found = unscored(f"reason {place}" for place in [*range(500), 7])
    assert found is not None
    assert found.title == "Could not be scored: 501"
    assert [row[:2] for row in found.rows[:3]] == [["300", "another reason"], ["2", "reason 7"], ["1", "reason 0"]]
    assert len(found.rows) == 20
    assert found.notes == ["181 more reasons are in the JSON report"]


# What ran


USE: dict[str, JSON] = {
    "num_requests": 41,
    "retries": {"429": 2, "connection": 3},
    "num_prompt_tokens": 5000,
    "num_tokens": 300,
    "cost": 1.5,
    "left_out": [],
    "ended": ["gone"],
}


def test_use_stands_in_its_own_line_alone() -> None:
    judges = ({"name": "gpt", "role": "judge", "use": USE, "fingerprint": "aa"},)
    found = by_title(tables.environment_tables(report(judges=judges), ONE))["Models that scorers ask"]
    assert found.rows == [["gpt", "role judge, fingerprint aa"]]


def test_what_ran() -> None:
    suites = [
        of_suite(
            num_prompt_tokens=9000,
            num_tokens=500,
            seconds=4.0,
            phases=Phases(prefill_tokens=800, prefill_seconds=2.0, decode_tokens=90, decode_seconds=3.0),
            engine=EngineUse(engine="tree", reason="audited", num_audited=6, largest_difference=2e-6, tolerance=1e-3),
            info_settings={"case": True},
        ),
        of_suite("capitals", num_prompt_tokens=60, num_tokens=20, seconds=1.0),
        of_suite("capitals", models=("org/two",)),
    ]
    made = report(
        suites,
        seconds=20.0,
        models=({"name": "org/one", "device": "cpu", "revision": None, "details": {"layers": 2, "store": "on"}},),
        judges=({"name": "gpt\x1b", "role": "judge", "use": USE},),
        store=StoreUse(folder="kept", num_samples=74, num_reused=0),
        environment={"python": "3.11.7", "versions": {"torch": "2.13"}, "platform": ""},
        options={"model": ["org/one"], "seed": 0, "limit": None, "report": "a\x1b"},
    )
    found = by_title(tables.environment_tables(made, ONE))
    (judge,) = found.pop("Models that scorers ask").rows
    assert judge[0] == "gpt\\x1b"
    assert {title: cells(table) for title, table in found.items()} == {
        "Models": [["name", "what is known of it"], ["org/one", "device cpu, layers 2, store on"]],
        "How it was asked": [
            [""],
            [
                "111 samples, 9,060 prompt tokens and 520 scored or generated, in 5.0 s of the model's time: "
                "22.2 samples/s, 1,916 tokens/s"
            ],
            ["generated texts: prefill 400 tokens/s, decode 30.0 tokens/s"],
            ["log-likelihoods: tree (audited); 6 requests were also scored plain, and differed by at most 2e-06"],
            ["store kept: 0 of 74 samples reused"],
            [
                "judge gpt\\x1b: 41 requests to the server, 5,000 prompt tokens and 300 generated as it counts them, "
                "tried again 5 times (429: 2, connection: 3), cost 1.50"
            ],
            ["judge gpt\\x1b: a replica is missing: gone"],
        ],
        "Suites": [
            ["suite", "file", "scorer", "settings"],
            ["sums", "suites/sums.yaml", "exact", '{"case": true}'],
            ["capitals", "suites/capitals.yaml", "exact", ""],
        ],
        "Environment": [["name", "value"], ["python", "3.11.7"], ["torch", "2.13"]],
        "Options": [["name", "value"], ["model", '["org/one"]'], ["seed", "0"], ["report", "a\\x1b"]],
    }


def test_nothing_is_said_of_what_is_not_known() -> None:
    assert not [*tables.environment_tables(report([], models=()), {})]
