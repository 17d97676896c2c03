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
from pytest_llmeval.reporting.tables.comparisons import comparison_notes
from pytest_llmeval.reporting.writers.text_report import summary_lines
from tests.gates.reports_for_tests import DEFAULT, Ran, compared, ran, report

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


BY_QUESTIONS = BaselineSettings(compare="questions")
HINT = "--llm-compare questions compares"


def asked(name: str, prompt: str = "of the suite", *, right: bool = True) -> Ran:
    """A suite, or a variant of one, that asks by this prompt."""
    base, _, variant = name.partition("@")
    assert base
    parts = {"questions": "40 of them", "prompt": prompt, "fewshot": "", "scorer": "exact"}
    return ran([right] * 40, name, variant=variant or None, fingerprint=prompt, fingerprint_parts=parts)


def decided(before: Report, after: Report, settings: BaselineSettings = BY_QUESTIONS) -> dict[str | None, str]:
    return {result.suite: result.outcome for result in compared(before, after, settings)}


def test_a_baseline_of_before_there_were_variants() -> None:
    """Only ``questions`` lets the prompt differ, and a variant of another name is another prompt."""
    before, after = report(asked("s")), report(asked("s@short", "short"), asked("s@polite", "polite"))
    found = compared(before, after)
    assert [(result.suite, result.outcome, result.reason) for result in found] == [
        *(
            (name, "skipped", f"not in the baseline, which has 's': {HINT} the two, whatever the prompt")
            for name in ("s@short", "s@polite")
        ),
        ("s", "failed", f"in the baseline, and did not run; {HINT} 's@short', 's@polite' with it, whatever the prompt"),
    ]
    assert decided(before, after) == {"s@short": "passed", "s@polite": "passed"}
    assert {result.notes[0] for result in compared(before, after, BY_QUESTIONS)} == {
        "compared with 's' of the baseline"
    }


@pytest.mark.parametrize("now", ["s", "s@kind"])
def test_a_baseline_of_variants_that_are_no_more(now: str) -> None:
    """Of several, the one that asks in the same way takes their place; the others did not run."""
    short, polite = asked("s@short", "short"), asked("s@polite", "polite")
    for only in (asked(now, "short"), asked(now, "new")):
        assert decided(report(short), report(only)) == {now: "passed"}
        found = compared(report(short), report(only))
        assert [(result.suite, result.outcome, result.reason) for result in found] == [
            (now, "skipped", f"not in the baseline, which has 's@short': {HINT} the two, whatever the prompt"),
            ("s@short", "failed", f"in the baseline, and did not run; {HINT} '{now}' with it, whatever the prompt"),
        ]
    both = report(short, polite)
    assert decided(both, report(asked(now, "polite"))) == {now: "passed", "s@short": "failed"}
    assert decided(both, report(asked(now, "polite", right=False))) == {now: "failed", "s@short": "failed"}
    for settings in (DEFAULT, BY_QUESTIONS):
        (new, *gone) = compared(both, report(asked(now, "new")), settings)
        why = "which has it in variants only (s@short, s@polite), none of which is asked in this way"
        assert (new.outcome, new.reason) == ("skipped", f"not in the baseline, {why}")
        reason = "in the baseline, and did not run"
        assert [(one.suite, one.outcome, one.reason) for one in gone] == [
            ("s@short", "failed", reason),
            ("s@polite", "failed", reason),
        ]


def test_a_suite_without_a_partner_is_no_pass_in_a_selection_either() -> None:
    both = report(asked("s@short", "short"), asked("s@polite", "polite"))
    found = compared(both, report(asked("s", "new")), BY_QUESTIONS, is_selection=True)
    assert [(one.suite, one.outcome) for one in found] == [
        ("s", "skipped"),
        ("s@short", "skipped"),
        ("s@polite", "skipped"),
        (None, "failed"),
    ]


def test_variants_beside_their_suite_take_the_place_of_others() -> None:
    """The suite's own name comes first, and the suite before any variant."""
    before = report(asked("s"), asked("s@short", "short"))
    after = report(asked("s"), asked("s@kind", "short"))
    assert decided(before, after) == {"s": "passed", "s@kind": "passed", "s@short": "failed"}
    (_, kind, _) = compared(before, after, BY_QUESTIONS)
    assert kind.notes[0] == "compared with 's' of the baseline"


def test_a_suite_is_not_replaced_by_a_variant_that_the_baseline_has() -> None:
    """A variant stands for the suite only where it is compared with it."""
    settings = BY_QUESTIONS
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
    made = with_suites(report(options={"model": list(models)}), groups, compared_models, problems)
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
    made = of_session(("m",), outcomes, ["a@x", "a@y", "a@z"])
    assert [(one.first, one.second) for one in made.variants] == [("a@y", "a@z")]
    note = "a: x has no score: the others are compared with y"
    assert list(comparison_notes(made, {})) == [note]
    assert note in list(summary_lines(made, width=100))


def test_the_first_model_that_has_scores_is_the_first() -> None:
    outcomes = {("a", model): [None if model == "m" else True] * 3 for model in ("m", "n", "o")}
    made = of_session(("m", "n", "o"), outcomes, ["a"])  # type: ignore[arg-type]
    assert [(one.first, one.second) for one in made.comparisons] == [("n", "o")]
    assert "m has no score: the others are compared with n" in list(summary_lines(made, width=100))


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
