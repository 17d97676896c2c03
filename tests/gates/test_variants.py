"""Variants of suites in comparisons: with a baseline, and of each variant with the first of its suite."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

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


def test_a_suite_is_not_replaced_by_a_variant_that_the_baseline_has() -> None:
    """A variant stands for the suite only where it is compared with it."""
    settings = BaselineSettings(compare="questions")
    before = report(ran([True] * 40, "s"), ran([True] * 40, "s@polite", variant="polite"))
    polite, kind = (report(ran([True] * 40, f"s@{name}", variant=name)) for name in ("polite", "kind"))
    found = compared(before, polite, settings)
    assert [(result.suite, result.outcome) for result in found] == [("s@polite", "passed"), ("s", "failed")]
    assert found[1].reason == "in the baseline, and did not run"
    found = compared(before, kind, settings)
    assert [(result.suite, result.outcome) for result in found] == [("s@kind", "passed"), ("s@polite", "failed")]
    only = report(ran([True] * 40, "s", model="m"), ran([True] * 40, "s", model="n"))
    both = [ran([True] * 40, "s@kind", model=model, variant="kind") for model in ("m", "n")]
    assert [result.outcome for result in compared(only, report(*both), settings)] == ["passed", "passed"]


def of_session(
    models: tuple[str, ...],
    outcomes: dict[tuple[str, str], list[bool]],
    names: list[str],
    *,
    changed: Mapping[str, Collection[str]] = MappingProxyType({}),
    parts: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Report:
    """A session of these suites. Those in ``changed`` ask other questions under these ids."""
    groups, compared_models = {}, models if len(models) > 1 else ()
    for name in names:
        base, _, variant = name.partition("@")
        for model in models:
            own: Ran = ran(
                outcomes[name, model],
                name,
                model=model,
                variant=variant or None,
                fingerprint_parts=parts.get(name, {}),
            )
            records: tuple[Record, ...] = tuple(
                replace(one, question_fingerprint=one.id + "'" * (one.id in changed.get(name, ())))
                for one in own.records
            )
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


def test_other_questions_under_the_same_ids_are_not_compared() -> None:
    """A variant may change its data and its targets: its scores then say nothing of the prompt."""
    outcomes = {(name, "m"): [name == "a@x"] * 40 for name in ("a@x", "a@y", "a@z")}
    changed = {"a@y": [str(place) for place in range(40)], "a@z": ["3", "5"]}
    other, partly = of_session(("m",), outcomes, ["a@x", "a@y", "a@z"], changed=changed).variants
    assert (other.second, other.differences, other.p_value) == ("a@y", {}, None)
    assert other.note == "not compared: no question is the same in both"
    assert (partly.second, partly.differences["accuracy"].n, partly.family) == ("a@z", 38, 1)
    assert partly.note == "2 of 40 samples left out, whose question or target differs"


def test_variants_that_are_judged_in_another_way_are_not_compared() -> None:
    outcomes = {(name, "m"): [name == "a@x"] * 40 for name in ("a@x", "a@y", "a@z")}
    parts = {
        "a@x": {"scorer": "1", "judging": "1"},
        "a@y": {"scorer": "2", "judging": "2"},
        "a@z": {"scorer": "3", "judging": "1"},
    }
    other, filtered = of_session(("m",), outcomes, ["a@x", "a@y", "a@z"], parts=parts).variants
    assert (other.differences, other.note, other.family) == ({}, "not compared: the scorer differs", 0)
    assert (filtered.differences["accuracy"].n, filtered.note, filtered.family) == (40, None, 1)


def test_means_over_suites_have_one_variant_of_each() -> None:
    outcomes = {("a@x", "m"): [True] * 4, ("a@y", "m"): [False] * 4, ("b", "m"): [True, False] * 2}
    (averages,) = of_session(("m",), outcomes, ["a@x", "a@y", "b"]).averages
    assert averages.macro["accuracy"].value == 0.75
    assert averages.micro["accuracy"].n == 8
