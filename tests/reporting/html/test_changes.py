"""Which samples changed, against a baseline and against the first model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import GateResult, Regression, Report
from pytest_llmeval.reporting.report.summaries import GroupRecords, compare_models, with_suites
from pytest_llmeval.reporting.writers.html.samples import Changes
from pytest_llmeval.scoring.paired_metrics import flipped_samples
from tests.reporting.reports import make_record, make_report


def changes_of(report: Report, records: Iterable[Record]) -> list[tuple[str, float, float] | None]:
    changes = Changes(report)
    for record in report.records:
        changes.read(record)
    found = map(changes.of, records)
    return [None if one is None else (one.direction, one.before, one.now) for one in found]


def of_model(model: str, values: Iterable[float | None], metric: str = "accuracy") -> list[Record]:
    return [
        make_record(id_=f"s{number}", model=model, status="unscored", values={})
        if value is None
        else make_record(id_=f"s{number}", model=model, status="scored", values={metric: value})
        for number, value in enumerate(values)
    ]


def test_against_the_first_model() -> None:
    first, second = of_model("one", [1, 1, 0, 0, None, 1]), of_model("two", [1, 0, 1, 0, 1, None])
    compared = tuple(compare_models("sums", {"one": first, "two": second}, ["one", "two"], ["accuracy"]))
    report = make_report([*second, *first], comparisons=compared)
    assert changes_of(report, second) == [
        ("same", 1, 1),
        ("worse", 1, 0),
        ("better", 0, 1),
        ("same", 0, 0),
        None,
        None,
    ]
    assert changes_of(report, first) == [None] * 6


def test_lower_can_be_better() -> None:
    first, second = of_model("one", [0.2, 0.2], "brier"), of_model("two", [0.1, 0.3], "brier")
    compared = tuple(compare_models("sums", {"one": first, "two": second}, ["one", "two"], ["brier"]))
    report = make_report([*first, *second], comparisons=compared)
    assert changes_of(report, second) == [("better", 0.2, 0.1), ("worse", 0.2, 0.3)]


def test_what_another_order_of_summing_changes_is_the_same() -> None:
    first, second = (
        of_model("one", [0.5, 0.5, 0.5], "f1"),
        of_model("two", [0.5 + 1e-12, 0.5 - 1e-12, 0.5 + 1e-8], "f1"),
    )
    compared = tuple(compare_models("sums", {"one": first, "two": second}, ["one", "two"], ["f1"]))
    report = make_report([*first, *second], comparisons=compared)
    found = [change and change[0] for change in changes_of(report, second)]
    assert found == ["same", "same", "better"]


@pytest.mark.parametrize("models", [("m",), ("m", "other")])
def test_against_the_first_variant(models: tuple[str, ...]) -> None:
    """Of several models, the others are compared with the first model, and its variants with its first one."""
    values: dict[str, list[float | None]] = {"short": [1, 1, 0, None], "polite": [1, 0, 1, 1]}
    records = [
        replace(record, suite=f"sums@{variant}", question_fingerprint=record.id)
        for model in models
        for variant, own in values.items()
        for record in of_model(model, own)
    ]
    compared_models = models if len(models) > 1 else ()
    groups = {
        (f"sums@{variant}", model if compared_models else None): GroupRecords(
            records=[one for one in records if (one.suite, one.model) == (f"sums@{variant}", model)],
            info=SuiteInfo(name=f"sums@{variant}", variant=variant, metrics=("accuracy",)),
            num_expected=4,
            model=model if compared_models else None,
        )
        for model in models
        for variant in values
    }
    problems: list[str] = []
    made = replace(with_suites(make_report([]), groups, compared_models, problems), records=records)
    assert problems == []
    found = dict(zip([(one.suite, one.model, one.id) for one in records], changes_of(made, records), strict=True))
    assert [found["sums@short", "m", f"s{number}"] for number in range(4)] == [None] * 4
    assert [found["sums@polite", "m", f"s{number}"] for number in range(4)] == [
        ("same", 1, 1),
        ("worse", 1, 0),
        ("better", 0, 1),
        None,
    ]
    for model in models[1:]:
        assert found["sums@polite", model, "s1"] == ("same", 0, 0)


def regression(**values: Any) -> Regression:
    known: dict[str, Any] = {
        "mode": "significant",
        "metric": "accuracy",
        "higher_is_better": True,
        "n": 3,
        "baseline": 1.0,
        "current": 0.5,
        "difference": -0.5,
        "ci_low": -1.0,
        "ci_high": 0.1,
        "drop": 0.5,
        "margin": 0.0,
        "method": "mcnemar",
        "p_value": 0.2,
        "p_adjusted": 0.2,
        "p_improved": 0.9,
        "p_improved_adjusted": 0.9,
        "family": 1,
        "alpha": 0.05,
    }
    return Regression(**{**known, **values})


@pytest.mark.parametrize("model", [None, "two"])
def test_a_baseline_takes_precedence(model: str | None) -> None:
    first, second = of_model("one", [1, 1, 0]), of_model("two", [1, 0, 1])
    compared = tuple(compare_models("sums", {"one": first, "two": second}, ["one", "two"], ["accuracy"]))
    ids = [record.id for record in second]
    gates = [
        GateResult(
            name=f"{metric} vs baseline",
            kind="baseline",
            origin="option",
            outcome="passed",
            reason="found",
            suite="sums",
            model=model,
            metric=metric,
            regression=regression(
                metric=metric, movers=flipped_samples(ids, before, [1.0, 0.0, 1.0], higher_is_better=True)
            ),
        )
        for metric, before in (("brier", [9.0, 9.0, 9.0]), ("accuracy", [0.0, 0.0, 1.0]))
    ]
    report = make_report([*first, *second], comparisons=compared, gates=tuple(gates))
    assert changes_of(report, second) == [("better", 0.0, 1.0), None, None]


def test_nothing_was_compared() -> None:
    record = make_record()
    report = make_report([record])
    assert Changes(report).is_empty
    assert changes_of(report, [record]) == [None]
