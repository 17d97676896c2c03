"""When the gate against a baseline compares nothing, or not all: it never passes for that."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_llmeval.gates.options import BaselineSettings
from tests.gates.reports_for_tests import (
    COMMON,
    DEFAULT,
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


def test_another_judge_is_refused() -> None:
    for settings in (DEFAULT, COMMON):
        result = the_one(ran([True], judge="gpt"), ran([True], judge="llama"), settings)
        assert (result.outcome, result.reason) == ("failed", "another judge: 'gpt' -> 'llama'")


def test_judges_are_named_as_their_scorers_name_them() -> None:
    before = ran([True], judge="5e1f", judged_by=("gpt, prompt 1", "bge"))
    assert the_one(before, ran([True], judge="70a3", judged_by=("gpt, prompt 2", "bge"))).reason == (
        "another judge: 'gpt, prompt 1', 'bge' -> 'gpt, prompt 2', 'bge'"
    )
    assert the_one(before, ran([True])).reason == "another judge: 'gpt, prompt 1', 'bge' -> none"
    of_an_older_version = ran([True], judge="70a3")
    assert the_one(before, of_an_older_version).reason == "another judge: 'gpt, prompt 1', 'bge' -> '70a3'"


def test_another_suite_is_refused_and_says_what_differs() -> None:
    before = ran(
        {"a": True, "b": True, "c": False},
        fingerprint_parts={"questions": "1", "prompt": "1", "fewshot": "1", "scorer": "1"},
        scorer="choice",
    )
    after = ran(
        {"b": True, "c": False, "d": True, "e": True},
        fingerprint="other",
        changed=("c",),
        fingerprint_parts={"questions": "1", "prompt": "2", "fewshot": "1", "scorer": "2"},
        scorer="letter",
    )
    result = the_one(before, after)
    assert (result.outcome, result.name) == ("failed", "accuracy vs baseline")
    assert result.reason == (
        "the suite differs from the baseline's: the prompt, the scorer ('choice' -> 'letter'); 1 sample is changed "
        "('c'), 2 samples are new ('d', 'e'), 1 sample is gone ('a'); --llm-compare common compares the samples that "
        "did not change"
    )
    assert result.regression is None


def test_other_settings_of_the_scorer_are_named() -> None:
    before = ran([True], scorer="choice", settings={"normalize": "token"})
    after = ran([True], scorer="choice", settings={"normalize": "sum"}, fingerprint="other", changed=("0",))
    assert "the scorer (normalize: 'token' -> 'sum'); 1 sample is changed ('0')" in the_one(before, after).reason


def test_settings_that_an_older_report_leaves_out_are_not_said_to_have_changed() -> None:
    before = ran([True], scorer="yes_no", settings={"by": "generation"})
    now = {"by": "loglikelihood", "tie_is_no": False}
    after = ran([True], scorer="yes_no", settings=now, fingerprint="other", changed=("0",))
    assert "the scorer (by: 'generation' -> 'loglikelihood'); 1 sample" in the_one(before, after).reason


@pytest.mark.parametrize("before", [{}, {"judge_prompt": "1"}], ids=["of an older version", "of another version"])
def test_other_words_for_the_judge_are_named(before: dict[str, str]) -> None:
    """A report of a version that asked in the first words does not say which these were."""
    old = ran([True], scorer="rubric", fingerprint_parts={"questions": "1", "scorer": "1", **before})
    parts = {"questions": "1", "scorer": "2", "judge_prompt": "2"}
    new = ran([True], scorer="rubric", fingerprint_parts=parts, fingerprint="other", changed=("0",))
    assert "baseline's: the scorer (the prompt of its judge changed); 1 sample is changed" in the_one(old, new).reason


def test_what_differs_can_lie_outside_of_the_samples() -> None:
    assert "but others, or the categories, differ" in the_one(ran([True]), ran([True], fingerprint="other")).reason


def test_of_a_selection_nobody_knows_what_is_gone() -> None:
    after = ran({"1": True}, fingerprint="other", changed=("1",), num_samples=3)
    result = the_one(ran([True, True, True]), after)
    assert "gone" not in result.reason
    assert "1 sample is changed ('1')" in result.reason


def test_common_compares_what_agrees() -> None:
    before, after = answers(100, right=80, lost=20)
    changed = [str(place) for place in range(5)]
    result = the_one(ran(before), ran(after, fingerprint="other", changed=changed), COMMON)
    assert result.outcome == "failed"
    assert result.regression is not None
    assert (result.regression.n, result.regression.num_worse, result.regression.num_left_out) == (95, 15, 10)
    assert "the suite differs from the baseline's: 95 of 100 samples did not change" in result.notes


def test_common_of_a_selection_is_reported() -> None:
    before, _ = answers(100, right=80)
    after = ran(before[:50], fingerprint="other", changed=("1",), num_samples=100)
    result = the_one(ran(before), after, COMMON)
    assert result.outcome == "passed"
    assert {
        "50 of 100 samples: a selection",
        "the suite differs from the baseline's: 49 of 100 samples did not change",
    } <= {*result.notes}
    assert the_one(ran(before), after, COMMON, require=True).outcome == "failed"


def test_common_of_nothing_fails() -> None:
    result = the_one(ran([True]), ran([True], fingerprint="other", changed=("0",)), COMMON)
    assert (result.outcome, "no fingerprints agree" in result.reason) == ("failed", True)


def test_hand_written_tests_are_compared_by_id() -> None:
    before, after = answers(40, right=30, lost=9)
    result = the_one(ran(before, fingerprint=None), ran(after, fingerprint=None))
    assert result.outcome == "failed"
    assert result.regression is not None
    assert result.regression.n == 40
    assert "the suite differs" in the_one(ran(before, fingerprint=None), ran(after)).reason


@pytest.mark.parametrize(
    ("definition", "changed"),
    [
        ({"kind": "proportion", "higher_is_better": True, "version": 0}, "version 0 -> 1"),
        ({"kind": "corpus", "higher_is_better": True, "version": 1}, "kind corpus -> proportion"),
        ({"kind": "proportion", "higher_is_better": False, "version": 1}, "higher_is_better false -> true"),
    ],
)
def test_another_definition_of_the_metric_is_refused(definition: Mapping[str, object], changed: str) -> None:
    one = ran([True, False])
    (result,) = compared(report(one, definitions={"accuracy": definition}), report(one))
    assert (result.outcome, result.regression) == ("failed", None)
    assert result.reason == f"accuracy has another definition in the baseline: {changed}"


def test_a_report_without_definitions_is_known_by_its_kinds() -> None:
    one = ran([True, False] * 4)
    (result,) = compared(report(one, definitions={}), report(one))
    assert result.outcome == "passed"
    summary = one.suite.summary
    other = dataclasses.replace(summary.metrics["accuracy"], kind="corpus")
    old = Ran(
        dataclasses.replace(one.suite, summary=dataclasses.replace(summary, metrics={"accuracy": other})), one.records
    )
    (result,) = compared(report(old, definitions={}), report(one))
    assert result.reason == "accuracy has another definition in the baseline: kind corpus -> proportion"


@pytest.mark.parametrize(
    ("outcomes_now", "options", "expected", "text"),
    [
        ([None, *[True] * 9], {}, "failed", "1 of 10 samples unscored"),
        (
            [None, None, *[True] * 8],
            {"allow_unscored": 1},
            "failed",
            "2 of 10 samples unscored; 2 in the session, 1 allowed",
        ),
        ([None, *[True] * 9], {"allow_unscored": 1}, "passed", "1 sample unscored, which is allowed: left out"),
    ],
)
def test_unscored_samples(outcomes_now: list[Outcome], options: dict[str, Any], expected: str, text: str) -> None:
    result = the_one(ran([True] * 10), ran(outcomes_now), **options)
    assert result.outcome == expected
    assert text in (result.reason, *result.notes)


def test_what_is_allowed_is_counted_over_the_session() -> None:
    same: list[Outcome] = [True] * 10
    now: list[Outcome] = [None, *[True] * 9]
    before = report(*(ran(list(same), name) for name in "abc"))
    after = report(ran(list(now), "a"), ran(list(now), "b"), ran(list(same), "c"))
    assert [one.outcome for one in compared(before, after, allow_unscored=1)] == ["failed", "failed", "passed"]
    assert [one.outcome for one in compared(before, after, allow_unscored=2)] == ["passed", "passed", "passed"]


def test_a_sample_without_a_record_is_unscored() -> None:
    result = the_one(ran([True] * 9), ran([True] * 8, num_expected=9, num_samples=9))
    assert (result.outcome, result.reason) == ("failed", "1 of 9 samples unscored")
    result = the_one(ran([True] * 9), ran([True] * 8, num_expected=9, num_samples=9), allow_unscored=1)
    assert result.outcome == "passed"


def test_a_sample_that_was_skipped_and_was_scored_in_the_baseline_fails() -> None:
    after = ran({str(place): True for place in range(9) if place != 1}, num_samples=9, num_skipped=1)
    result = the_one(ran([True] * 9), after)
    assert result.outcome == "failed"
    assert result.reason == "1 sample that the baseline scored has no score now ('1')"
    assert the_one(ran([True, None, *[True] * 7]), after, allow_unscored=1).outcome == "passed"


def test_a_sample_of_hand_written_tests_that_is_missing_fails() -> None:
    before, after = ran([True] * 9, fingerprint=None), ran([True] * 8, fingerprint=None)
    assert the_one(before, after).reason == "1 sample that the baseline scored has no score now ('8')"
    result = the_one(before, after, is_selection=True)
    assert (result.outcome, "8 of 9 samples: a selection" in result.notes) == ("passed", True)


def test_a_selection_is_compared_and_told() -> None:
    before, _ = answers(1000, right=500)
    after = ran(before[:50], num_samples=1000)
    result = the_one(ran(before), after)
    assert result.outcome == "passed"
    assert "50 of 1,000 samples: a selection" in result.notes
    assert result.regression is not None
    assert (result.regression.n, result.regression.num_left_out) == (50, 950)
    result = the_one(ran(before), after, require=True)
    assert (result.outcome, result.reason) == (
        "failed",
        "50 of 1,000 samples: a selection, and --llm-require-gates requires all",
    )


def test_what_the_baseline_lacks_is_left_out() -> None:
    """Of a suite of hand-written tests, which has more of them now."""
    result = the_one(ran([True] * 8, fingerprint=None), ran([True] * 9, fingerprint=None))
    assert (result.outcome, "1 sample left out, not in the baseline" in result.notes) == ("passed", True)


def test_nothing_in_common_fails() -> None:
    result = the_one(ran([None, True]), ran({"0": True}, num_samples=2), allow_unscored=1)
    assert (result.outcome, result.reason) == ("failed", "no sample that both reports scored")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_fails(value: float) -> None:
    now = ran([{"score": 1.0}, {"score": 2.0}])
    records = (dataclasses.replace(now.records[0], values={"score": value}), now.records[1])
    result = the_one(now, Ran(now.suite, records))
    assert (result.outcome, result.reason) == (
        "failed",
        "score is made of a number that is not finite in 1 sample ('0')",
    )


def test_a_value_that_is_gone_fails() -> None:
    """A sample whose right options the model excludes has no nll: it must not leave the mean."""
    rest: list[Outcome] = [{"nll": 2.0, "brier": 0.5}] * 8
    values: list[Outcome] = [{"nll": 1.0, "brier": 0.5}, *rest]
    now = ran([{"brier": 0.5}, *rest], metrics=("nll", "brier"))
    results = compared(report(ran(values)), report(now), margins("brier=0.1"))
    assert outcomes(results) == [("s", "nll vs baseline", "failed"), ("s", "brier vs baseline", "passed")]
    assert results[0].reason == "nll has no value now in 1 sample ('0') that had one in the baseline"
    (result,) = compared(report(now), report(ran(values)))
    told = "nll has no value in the baseline in 1 sample that it scored; --llm-compare common leaves them out"
    assert (result.outcome, result.reason) == ("failed", told)


def test_a_session_that_stopped_early_fails() -> None:
    one = ran([True])
    (result,) = compared(report(one), report(one, stopped="stopping after 1 failures"))
    assert (result.outcome, result.reason) == ("failed", "the session stopped early: stopping after 1 failures")


def test_a_baseline_that_stopped_early_fails() -> None:
    one = ran([True] * 8)
    broken = report(one, stopped="interrupted", problems=("a", "b\n", "c", "d", "e"))
    found = "the baseline stopped early: interrupted; the baseline has problems: 'a', 'b\\n', 'c', and 2 more"
    (result,) = compared(broken, report(one))
    assert (result.outcome, result.suite, result.regression) == ("failed", "s", None)
    assert result.reason == f"{found}; --llm-compare common compares the samples that it has"
    (result,) = compared(broken, report(one), COMMON)
    assert result.outcome == "passed"
    assert result.notes == tuple(found.split("; "))
    (result,) = compared(report(one, problems=("a",)), report(one))
    assert result.reason.startswith("the baseline has problems: 'a';")


def test_a_baseline_with_unscored_samples() -> None:
    before, now = ran([None] * 450 + [True] * 50), ran([True] * 500)
    found = "450 of 500 samples of the baseline are unscored"
    result = the_one(before, now)
    assert (result.outcome, result.regression) == ("failed", None)
    assert result.reason == f"{found}; --llm-compare common leaves them out"
    for settings, allowed in ((COMMON, 0), (COMMON, 450), (DEFAULT, 450)):
        result = the_one(before, now, settings, allow_unscored=allowed)
        assert (result.outcome, result.reason) == (
            "failed",
            "accuracy is not measured on one side of 450 of 500 pairs (unscored: 450); a comparison needs values "
            "on both sides of at least 0.9 of the pairs (min_measurable)",
        )
        result = the_one(before, ran([True] * 500, min_measurable=0.1), settings, allow_unscored=allowed)
        assert (result.outcome, result.notes) == ("passed", (f"{found}: left out",))
        assert result.regression is not None
        assert (result.regression.n, result.regression.num_left_out) == (50, 450)
    result = the_one(before, now, allow_unscored=449)
    assert (result.outcome, "450 in all that is compared, 449 allowed" in result.reason) == ("failed", True)
    result = the_one(ran([True] * 8, num_expected=9, num_samples=9), ran([True] * 9))
    assert result.reason.startswith("1 of 9 samples of the baseline is unscored;")


@pytest.mark.parametrize("require", [False, True])
@pytest.mark.parametrize(("before", "after"), [(0, 5), (5, 0), (5, 5), (2, 5)])
def test_what_is_allowed_to_be_unscored_belongs_to_the_comparison(before: int, after: int, require: bool) -> None:
    """A sample without a score was not measured, and nothing says that it cannot be."""
    first, second = (ran([None] * number + [True] * (40 - number)) for number in (before, after))
    result = the_one(first, second, allow_unscored=40, require=require)
    assert result.outcome == "failed"
    assert result.reason.startswith("accuracy is not measured on one side of 5 of 40 pairs (unscored: 5); a comparison")
    first, second = (ran([None] * min(number, 4) + [True] * (40 - min(number, 4))) for number in (before, after))
    assert the_one(first, second, allow_unscored=4, require=require).outcome == "passed"


def test_unscored_samples_of_the_baseline_are_counted_over_what_is_compared() -> None:
    some, whole = [None, *[True] * 9], [True] * 10
    elsewhere = ran([None] * 9, "c", path="elsewhere.yaml")
    before = report(ran(some, "a"), ran(some, "b"), elsewhere)
    after = report(ran(whole, "a"), ran(whole, "b"))

    def other(allowed: int) -> list[str]:
        results = compared(before, after, covers=lambda info: info.name != "c", allow_unscored=allowed)
        return [one.outcome for one in results]

    assert other(1) == ["failed", "failed", "skipped"]
    assert other(2) == ["passed", "passed", "skipped"]
    twice = report(ran(whole, "a", model="x"), ran(whole, "a", model="y"))
    results = compared(report(ran(some, "a")), twice, allow_unscored=1)
    assert [one.outcome for one in results] == ["passed", "passed"], "one suite, with which two are compared"


def test_an_unscored_sample_that_was_not_expected_is_seen() -> None:
    """As one that is marked xfail: it is recorded, and not among those that were to run."""
    now = ran([None, *[True] * 9], num_expected=9, num_skipped=1)
    result = the_one(ran([True] * 10), now)
    assert (result.outcome, result.reason) == ("failed", "1 of 10 samples unscored")
    before = ran([None, *[True] * 9], num_expected=9, num_skipped=1)
    assert the_one(before, ran([True] * 10)).reason.startswith("1 of 10 samples of the baseline is unscored;")


def test_samples_without_the_metric_in_the_baseline_are_reported() -> None:
    after = ran([{"f1": 0.5, "other": 1.0}] * 500, metrics=("f1",))
    for num_lacking, outcome in ((50, "passed"), (51, "failed")):
        before = ran(
            [{"f1": 0.5, "other": 1.0}] * (500 - num_lacking) + [{"other": 1.0}] * num_lacking, metrics=("f1",)
        )
        assert the_one(before, after).outcome == "failed"
        result = the_one(before, after, COMMON)
        assert result.outcome == outcome
        if outcome == "passed":
            assert "50 samples left out, without f1 in the baseline" in result.notes
            assert result.regression is not None
            assert (result.regression.n, result.regression.num_left_out) == (450, 50)
        else:
            assert result.reason.startswith("f1 is not measurable on one side of 51 of 500 pairs (now: 0, in the b")


@pytest.mark.parametrize(
    ("name", "values", "metric", "reason"),
    [
        ("score", (1e308, 1e308, 1e308), "score", "score cannot be computed: intermediate overflow in fsum"),
        # Summed in order, 1 is lost beside 1e16: exactly the sum is 1, in a table of floats it is 0.
        ("words", (1e16, 1.0, -1e16), "word_perplexity", "word_perplexity has no value in one of the two reports"),
    ],
)
def test_numbers_too_large_cost_their_own_suite_alone(
    name: str, values: tuple[float, ...], metric: str, reason: str
) -> None:
    one = ran([{name: 1.0, "loglikelihood": -1.0} for _ in values], "broken", metrics=(metric,))
    records = tuple(
        dataclasses.replace(record, values={**record.values, name: value})
        for record, value in zip(one.records, values, strict=True)
    )
    both = report(Ran(one.suite, records), ran([True] * 8, "fine"))
    results = compared(both, both)
    assert [(one.suite, one.outcome) for one in results] == [("broken", "failed"), ("fine", "passed")]
    assert (results[0].metric, results[0].reason) == (metric, reason)


def test_a_model_that_did_not_run() -> None:
    same: list[Outcome] = [True] * 8
    before = report(*(ran(same, name, model=model) for name in "st" for model in "abc"), ran(same, "u", model="c"))
    results = compared(before, report(*(ran(same, name, model=model) for name in "su" for model in "ab")))
    assert [(one.suite, one.model, one.outcome) for one in results] == [
        *((name, model, "passed") for name in "su" for model in "ab"),
        ("s", "c", "failed"),
        *(("t", model, "failed") for model in "abc"),
    ]
    assert results[4].reason == "in the baseline, and did not run on 'c'"
    assert results[4].path == "s.yaml"
    found = compared(before, report(ran(same, "s", model="b")))
    assert [(one.suite, one.model) for one in found] == [("s", None), ("t", None), ("u", None)], (
        "a session of one model"
    )


def test_a_suite_that_did_not_run() -> None:
    same: list[Outcome] = [True, False]
    before, after = report(ran(same, "a"), ran(same, "b")), report(ran(same, "a"))

    def other(settings: BaselineSettings = DEFAULT, **options: Any) -> tuple[str, str]:
        result = compared(before, after, settings, **options)[1]
        return result.outcome, result.reason

    assert other() == ("failed", "in the baseline, and did not run")
    assert other(COMMON) == ("failed", "in the baseline, and did not run")
    assert other(is_selection=True) == ("skipped", "in the baseline, and not selected")
    elsewhere = ("skipped", "in the baseline, and not among the suites of this session")
    assert other(covers=lambda info: info.path != "b.yaml") == elsewhere
    for options in ({"is_selection": True}, {"covers": lambda info: False}):
        assert other(require=True, **options)[0] == "failed"


def test_a_new_suite_is_skipped() -> None:
    same: list[Outcome] = [True, False]
    before, after = report(ran(same, "a")), report(ran(same, "a"), ran(same, "b"))
    result = compared(before, after)[1]
    assert (result.suite, result.outcome, result.reason) == ("b", "skipped", "not in the baseline")
    assert compared(before, after, require=True)[1].outcome == "failed"


def test_nothing_compared_fails() -> None:
    results = compared(report(ran([True], "a")), report(ran([True], "b")), is_selection=True)
    assert outcomes(results) == [
        ("b", "accuracy vs baseline", "skipped"),
        ("a", "accuracy vs baseline", "skipped"),
        (None, "baseline", "failed"),
    ]
    assert results[-1].reason == "nothing was compared: b: not in the baseline; a: in the baseline, and not selected"
    (*_, last) = compared(report(), report(*(ran([True], name) for name in "vwxyz")))
    assert last.reason == "nothing was compared: not in the baseline"
    (*_, last) = compared(report(ran([True], "a")), report(*(ran([True], name) for name in "vwxyz")), is_selection=True)
    assert last.reason.startswith("nothing was compared: v, w, x and 2 more: not in the baseline; a: in the baseline")
    (result,) = compared(report(), report())
    assert (result.outcome, result.suite) == ("failed", None)


def test_nothing_compared_with_the_baseline_of_the_ini_file() -> None:
    """Nobody asked this session for a comparison."""
    before, after = report(ran([True], "a")), report(ran([True], "b"))
    results = compared(before, after, is_selection=True, origin="ini")
    assert [(one.outcome, one.origin) for one in results] == [("skipped", "ini")] * 3
    assert results[-1].reason.startswith("nothing was compared: ")
    assert compared(before, after, is_selection=True, origin="ini", require=True)[-1].outcome == "failed"
    assert compared(before, after, origin="ini")[1].outcome == "failed", "a suite that is gone is gone"
    assert the_one(ran([True] * 8), ran([False] * 8), origin="ini").outcome == "failed"


def test_a_suite_in_which_nothing_was_scored_fails() -> None:
    result = the_one(ran([True, True]), ran([None, None]), allow_unscored=2)
    assert (result.outcome, result.reason) == ("failed", "no sample that both reports scored")
