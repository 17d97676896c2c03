"""Variants of suites in comparisons: with a baseline, and of each variant with the first of its suite."""

from __future__ import annotations

import random

import pytest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from pytest_llmeval.gates.options import BaselineSettings
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.report.summaries import GroupRecords, with_suites
from tests.gates.reports_for_tests import Ran, compared, ran, report

VARIANTS = ("short", "polite")


def variants(outcome: bool, suites: int, *, n: int = 8) -> Report:
    """Suites of ``n`` samples with two variants each, all right or all wrong."""
    names = [(f"s{place}", variant) for place in range(suites) for variant in VARIANTS]
    return report(*(ran([outcome] * n, f"{suite}@{variant}", variant=variant) for suite, variant in names))


def test_small_suites_are_tested_together_one_variant_of_each() -> None:
    """The variants of a suite answer the same questions: they are no further samples."""
    results = compared(variants(True, 20), variants(False, 20))
    first, second = (result for result in results if result.suite is None)
    name = "accuracy vs baseline, small suites together"
    assert (first.name, second.name) == (name, f"{name}, variant 2 of each")
    for result, variant in ((first, "short"), (second, "polite")):
        assert result.outcome == "failed"
        assert result.regression is not None
        assert (result.regression.n, result.regression.num_worse, result.regression.family) == (160, 160, 42)
        assert result.notes == (f"20 suites: {', '.join(f's{place}@{variant}' for place in range(20))}",)


def test_variants_of_one_small_suite_are_not_tested_together() -> None:
    results = compared(variants(True, 1, n=5), variants(False, 1, n=5))
    assert [(result.suite, result.outcome) for result in results if result.suite] == [
        ("s0@short", "skipped"),
        ("s0@polite", "skipped"),
    ]
    assert not any("together" in result.name for result in results)


def test_a_baseline_of_before_there_were_variants() -> None:
    """Only ``questions`` lets the prompt differ, and a variant of another name is another prompt."""
    before = report(ran([True] * 40, "s"))
    after = report(*(ran([True] * 40, f"s@{variant}", variant=variant) for variant in VARIANTS))
    found = [(result.suite, result.outcome) for result in compared(before, after)]
    assert found == [("s@short", "skipped"), ("s@polite", "skipped"), ("s", "failed")]
    found = [
        (result.suite, result.outcome) for result in compared(before, after, BaselineSettings(compare="questions"))
    ]
    assert found == [("s@short", "passed"), ("s@polite", "passed")]


def of_session(models: tuple[str, ...], outcomes: dict[tuple[str, str], list[bool]], names: list[str]) -> Report:
    groups, compared_models = {}, models if len(models) > 1 else ()
    for name in names:
        base, _, variant = name.partition("@")
        for model in models:
            own: Ran = ran(outcomes[name, model], name, model=model, variant=variant or None)
            records: tuple[Record, ...] = own.records
            info: SuiteInfo = own.suite.info
            groups[name, model if compared_models else None] = GroupRecords(
                records=records, info=info, num_expected=len(records), model=model if compared_models else None
            )
        assert base
    problems: list[str] = []
    made = with_suites(report(), groups, compared_models, problems)
    assert problems == []
    return made


@pytest.mark.parametrize("models", [("m",), ("m", "other")])
def test_each_variant_against_the_first_is_one_family_under_holm(models: tuple[str, ...]) -> None:
    draw = random.Random(3)
    names = ["a", "a@x", "a@y", "b@x", "b@y", "alone"]
    outcomes = {
        (name, model): [draw.random() < 0.5 + 0.1 * place for _ in range(80)]
        for place, name in enumerate(names)
        for model in models
    }
    found = of_session(models, outcomes, names).variants
    expected_pairs = [("a", "a", "a@x"), ("a", "a", "a@y"), ("b", "b@x", "b@y")]
    assert sorted((one.suite, one.first, one.second, one.model or "m") for one in found) == sorted(
        (*pair, model) for pair in expected_pairs for model in models
    )
    p_values = []
    for one in found:
        first, second = (outcomes[name, one.model or "m"] for name in (one.first, one.second))
        gained = sum(now and not then for then, now in zip(first, second, strict=True))
        lost = sum(then and not now for then, now in zip(first, second, strict=True))
        p_values.append(mcnemar([[0, gained], [lost, 0]], exact=True).pvalue)
    assert [one.p_value for one in found] == pytest.approx(p_values)
    assert [one.p_adjusted for one in found] == pytest.approx(list(multipletests(p_values, method="holm")[1]))
    assert {one.family for one in found} == {3 * len(models)}
    assert {one.metric for one in found} == {"accuracy"}


def test_the_first_variant_that_has_scores_is_the_first() -> None:
    outcomes: dict[tuple[str, str], list[bool]] = {
        ("a@x", "m"): [None, None],  # type: ignore[list-item]  # unscored
        ("a@y", "m"): [True, False],
        ("a@z", "m"): [True, True],
    }
    found = of_session(("m",), outcomes, ["a@x", "a@y", "a@z"]).variants
    assert [(one.first, one.second) for one in found] == [("a@y", "a@z")]


def test_means_over_suites_have_one_variant_of_each() -> None:
    outcomes = {("a@x", "m"): [True] * 4, ("a@y", "m"): [False] * 4, ("b", "m"): [True, False] * 2}
    (averages,) = of_session(("m",), outcomes, ["a@x", "a@y", "b"]).averages
    assert averages.macro["accuracy"].value == 0.75
    assert averages.micro["accuracy"].n == 8
