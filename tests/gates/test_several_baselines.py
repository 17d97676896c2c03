"""Several earlier reports: the mean of each sample over the last ones, and the oldest, in one family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.cli import main
from pytest_llmeval.gates.baseline import compare_reports
from pytest_llmeval.gates.earlier_reports import EarlierReports
from pytest_llmeval.gates.options import BaselineSettings, GateOptions, Selection
from pytest_llmeval.reporting.report.report import GateResult, Report
from pytest_llmeval.reporting.report.served_models import REPLIES, replies_identity
from pytest_llmeval.reporting.storage.report_file import write_report
from tests.gates.reports_for_tests import DEFAULT, Outcome, Ran, answers, ran, report
from tests.properties import examples


def at(day: int, *suites: Ran) -> tuple[str, Report]:
    return f"{day}.json", replace(report(*suites), created=f"2026-01-{day:02}T00:00:00+00:00")


def compared(
    earlier: Sequence[tuple[str, Report]], now: Report, last: int = 5, rules: BaselineSettings = DEFAULT
) -> list[GateResult]:
    found = EarlierReports.of(earlier, last)
    options = GateOptions(comparison=rules)
    return list(compare_reports(found, now, options, Selection()))


def exact_p(differences: Sequence[float]) -> float:
    """How likely so small a sum is where each difference has a sign by chance: all signs are tried."""
    sizes = [abs(one) for one in differences if one]
    sums = [
        sum(sign * size for sign, size in zip(signs, sizes, strict=True))
        for signs in product((1, -1), repeat=len(sizes))
    ]
    return fmean(one <= sum(differences) + 1e-9 for one in sums)


def exchanged_p(runs: Sequence[Sequence[bool]], now: Sequence[bool]) -> float:
    """How likely so few right answers are where any of a sample's runs could have been the last one."""
    chances = {0: 1.0}
    for column in zip(*runs, now, strict=True):
        share = sum(column) / len(column)
        chances = {
            total: chances.get(total, 0) * (1 - share) + chances.get(total - 1, 0) * share
            for total in range(max(chances) + 2)
        }
    return sum(chance for total, chance in chances.items() if total <= sum(now))


RUNS = st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=3, max_size=6)


@given(runs=RUNS, last=st.integers(1, 4))
@settings(max_examples=examples(60))
def test_p_values_are_the_larger_ones_of_signs_and_of_exchanged_runs(runs: list[list[bool]], last: int) -> None:
    *earlier, now = [ran(list(one)) for one in runs]
    results = compared([at(day, one) for day, one in enumerate(earlier, 1)], report(now), last)
    tail = runs[:-1][-last:]
    means = [fmean(column) for column in zip(*tail, strict=True)]
    expected = [
        exact_p([after - before for before, after in zip(side, runs[-1], strict=True)]) for side in (means, runs[0])
    ]
    if len(tail) > 1:
        expected[0] = max(expected[0], exchanged_p(tail, runs[-1]))
    found = [result.regression for result in results]
    assert [one.p_value for one in found if one] == pytest.approx(expected)
    assert [one.baseline for one in found if one] == pytest.approx([fmean(means), fmean(runs[0])])
    assert [one.family for one in found if one] == [2, 2]
    adjusted = [min(1.0, 2 * min(expected)), max(2 * min(expected), max(expected))]
    assert sorted(one.p_adjusted for one in found if one) == pytest.approx([min(1.0, one) for one in sorted(adjusted)])


SELDOM_RIGHT: dict[str, tuple[Outcome, bool, bool, int]] = {
    # a right answer, whether samples lie in clusters of two, whether a run lacks one, units of which runs are exchanged
    "all samples in all runs": (True, False, False, 30),
    "a sample that a run could not score": (True, False, True, 29),
    "clusters": (True, True, False, 15),
    "a cluster of which a run lacks a sample": (True, True, True, 14),
    "graded values": ({"accuracy": 0.3}, False, False, 30),
}


@pytest.mark.parametrize(
    ("what", "num_suites"),
    [
        *((what, 1) for what in SELDOM_RIGHT),
        *((what, 10) for what, (_, is_clustered, *_) in SELDOM_RIGHT.items() if not is_clustered),
    ],
)
def test_runs_are_exchanged_whatever_the_samples_have(what: str, num_suites: int) -> None:
    """Each of 30 samples was right in one of five runs, and none is now: by signs alone, p is 0.5 to the power of 30.

    If any of six runs could have been the last, each sample is wrong in it with a probability of 5/6. What a run lacks
    is its only right answer. Of suites that are too small, that is the test of all together.
    """
    right, is_clustered, has_gap, num_units = SELDOM_RIGHT[what]
    wrong: Outcome = False if right is True else {"accuracy": 0.0}
    names = [f"s{place % num_suites}" for place in range(30)]

    def of_run(day: int) -> list[Ran]:
        outcomes = [right if place // 2 % 5 == day else wrong for place in range(30)]
        if has_gap and day == 0:
            outcomes[0] = None
            outcomes[1] = wrong if is_clustered else outcomes[1]
        return [
            ran(
                {str(place): one for place, one in enumerate(outcomes) if names[place] == name},
                name,
                clusters={str(place): str(place // 2) for place in range(30)} if is_clustered else None,
            )
            for name in dict.fromkeys(names)
        ]

    results = compared([at(1 + day, *of_run(day)) for day in range(5)], report(*of_run(5)))
    (found,) = [one for one in results if "mean of 5" in one.name and (one.suite is None or num_suites == 1)]
    assert found.regression is not None
    assert found.regression.p_value == pytest.approx((5 / 6) ** num_units)


def creeping(day: int) -> Ran:
    """One more of 100 samples is wrong with each run, and six others are right on every other day."""
    return ran([(day + n) % 2 == 0 if n < 6 else n < 90 - day for n in range(100)])


def test_a_slow_creep_is_found_by_the_oldest_and_the_names_say_what_is_compared() -> None:
    results = compared([at(day, creeping(day)) for day in range(1, 9)], report(creeping(9)))
    assert [(result.name, result.outcome) for result in results] == [
        ("accuracy vs mean of 5 reports", "passed"),
        ("accuracy vs oldest report", "failed"),
    ]
    assert results[1].notes == ("the oldest report is 1.json (2026-01-01T00:00:00+00:00)",)
    (alone,) = compared([at(8, creeping(8))], report(creeping(9)))
    assert (alone.name, alone.outcome) == ("accuracy vs baseline", "passed")


def test_a_suite_is_compared_with_the_oldest_report_that_has_it() -> None:
    first, second = answers(40, right=30, lost=20)
    old = [at(1, ran(first, name="old")), at(2, ran(first, name="old"), ran(first, name="new"))]
    results = compared(old, report(ran(first, name="old"), ran(second, name="new")))
    assert [(one.suite, one.name, one.outcome) for one in results if "oldest" in one.name] == [
        ("old", "accuracy vs oldest report", "passed"),
        ("new", "accuracy vs oldest report", "failed"),
    ]


def test_small_suites_are_tested_together_for_each_comparison_apart() -> None:
    def small(right: bool) -> list[Ran]:
        return [ran([right, right], name=f"s{n}") for n in range(6)]

    results = compared([at(1, *small(True)), at(2, *small(True))], report(*small(False)))
    together = [result for result in results if "small suites together" in result.name]
    assert [(one.name, one.outcome) for one in together] == [
        ("accuracy vs mean of 2 reports, small suites together", "failed"),
        ("accuracy vs oldest report, small suites together", "failed"),
    ]
    assert all(one.regression and one.regression.n == 12 for one in together)


def test_samples_that_were_asked_otherwise_are_not_in_the_mean_and_are_counted() -> None:
    first, second = ran([True] * 4), ran([False] * 4)
    changed = replace(second.records[0], fingerprint="another")
    unscored = replace(second.records[1], status="unscored")
    other = replace(second, records=(changed, unscored, *second.records[2:]))
    found = EarlierReports.of([at(1, other), at(2, first)])
    mean, _ = found.sides(report(first).suites)
    assert [record.values["accuracy"] for record in mean.report.records] == [1.0, 1.0, 0.5, 0.5]
    note = "the mean of 2 samples is over fewer reports: others asked or judged them in another way, or had no score"
    assert mean.notes == {"s": (note,)}
    assert note in compared([at(1, other), at(2, first)], report(first))[0].notes


def test_a_metric_that_meant_something_else_is_not_in_the_mean() -> None:
    before, now = at(1, ran([{"brier": 0.2}] * 3)), at(2, ran([{"brier": 0.4}] * 3))
    changed = replace(before[1], definitions={"brier": {**before[1].definitions["brier"], "version": 99}})
    for first, expected in ((before[1], 0.3), (changed, 0.4)):
        mean, _ = EarlierReports.of([("1.json", first), now]).sides(now[1].suites)
        assert [record.values["brier"] for record in mean.report.records] == pytest.approx([expected] * 3)


SUITES = ("old", "new", "alone")


def test_each_suite_is_compared_with_the_last_reports_that_have_it() -> None:
    """Nightly jobs may write a report for each suite into one folder."""
    good, bad = [True] * 30, [True] * 20 + [False] * 10
    mixed = [at(day, ran(good, name="old" if day % 2 else "new")) for day in range(1, 7)]
    results = compared([*mixed, at(7, ran(good, name="alone"))], report(*(ran(bad, name=one) for one in SUITES)), 2)
    assert [(one.suite, one.name, one.outcome) for one in results[:5]] == [
        ("old", "accuracy vs mean of 2 reports", "failed"),
        ("new", "accuracy vs mean of 2 reports", "failed"),
        ("old", "accuracy vs oldest report", "failed"),
        ("new", "accuracy vs oldest report", "failed"),
        ("alone", "accuracy vs oldest report", "failed"),  # once: it is the latest report of the suite, too
    ]
    assert all(one.regression and one.regression.family == 5 for one in results[:5])


def test_a_variant_is_compared_with_reports_of_its_name_or_else_of_its_suite() -> None:
    """With those of its suite by ``questions`` alone, and a note on these is a note on the variant."""
    good, bad = [True] * 30, [True] * 20 + [False] * 10
    now = report(*(ran(bad, f"s@{variant}", variant=variant, fingerprint="now") for variant in ("old", "new")))
    earlier = [
        at(1, ran(good, changed=("0",))),
        at(2, ran(good)),
        at(3, ran(bad, "s@old", variant="old"), ran(good)),
    ]
    found = EarlierReports.of(earlier)
    by_questions = [
        (side.name, side.suites, len(list(side.report.records)), [*side.notes])
        for side in found.sides(now.suites, "questions")
    ]
    assert by_questions == [
        ("mean of 3 reports", ("s@new",), 30, ["s@new"]),
        ("oldest report", ("s@old",), 60, ["s@old"]),
        ("oldest report", ("s@new",), 30, ["s@new"]),
    ]
    assert [(side.name, side.suites) for side in found.sides(now.suites)] == [
        ("latest report", ("s@new",)),
        ("oldest report", ("s@old",)),
    ]


def test_a_suite_is_not_replaced_by_a_variant_that_an_older_report_has() -> None:
    """The variant is compared with itself in that report, and nothing with the suite in the newest one."""
    good = [True] * 30
    earlier = [at(1, ran(good, "s@old", variant="old"), ran(good)), at(2, ran(good))]
    rules = BaselineSettings(compare="questions")
    for variant, missed in (("old", [("s", "failed", "in the baseline, and did not run")]), ("new", [])):
        results = compared(earlier, report(ran(good, f"s@{variant}", variant=variant)), rules=rules)
        assert {one.outcome for one in results if one.suite == f"s@{variant}"} == {"passed"}
        assert [(one.suite, one.outcome, one.reason) for one in results if one.suite == "s"] == missed


def test_a_suite_without_variants_is_compared_with_reports_of_its_only_variant() -> None:
    earlier = [at(day, ran([True] * 30, "s@old", variant="old")) for day in (1, 2)]
    now = report(ran([True] * 30))
    assert [(one.suite, one.outcome) for one in compared(earlier, now)] == [("s", "skipped"), ("s@old", "failed")]
    assert [
        (one.suite, one.name, one.outcome, one.notes[:1])
        for one in compared(earlier, now, rules=BaselineSettings(compare="questions"))
    ] == [
        ("s", f"accuracy vs {against}", "passed", ("compared with 's@old' of the baseline",))
        for against in ("mean of 2 reports", "oldest report")
    ]


def test_a_suite_that_no_report_has_is_not_compared() -> None:
    results = compared([at(1, ran([True] * 9)), at(2, ran([True] * 9))], report(ran([True] * 9), ran([True], name="b")))
    assert [(one.suite, one.name, one.outcome) for one in results] == [
        ("s", "accuracy vs mean of 2 reports", "passed"),
        ("b", "accuracy vs latest report", "skipped"),
        ("s", "accuracy vs oldest report", "passed"),
    ]


def test_models_are_compared_with_themselves() -> None:
    first, second = answers(40, right=30, lost=20)
    both = [at(day, ran(first, model="a"), ran(first, model="b")) for day in (1, 2)]
    results = compared(both, report(ran(second, model="a"), ran(first, model="b")))
    assert [(one.model, one.name, one.outcome) for one in results] == [
        ("a", "accuracy vs mean of 2 reports", "failed"),
        ("b", "accuracy vs mean of 2 reports", "passed"),
        ("a", "accuracy vs oldest report", "failed"),
        ("b", "accuracy vs oldest report", "passed"),
    ]


def test_replies_that_were_judged_against_the_newest_report_are_compared_with_no_other() -> None:
    reports = [at(day, ran([{"win_rate": 0.5}] * 9)) for day in (1, 2)]
    identity = replies_identity(reports[1][1], reports[1][1].suites[0])
    now = report(ran([{"win_rate": 0.0}] * 9, fingerprint_parts={REPLIES: identity}))
    (result,) = compared(reports, now)
    assert (result.name, result.outcome) == ("win_rate vs latest report", "failed")


def test_only_what_is_used_is_checked() -> None:
    seen: list[str] = []

    def check(name: str, one: Report) -> Report:
        seen.append(name)
        return one

    reports = [at(day, ran([True])) for day in (3, 1, 2, 5, 4)]
    found = EarlierReports.of(reports, 2, check)
    assert seen == ["1.json", "4.json", "5.json"]
    assert [name for name, _ in found.reports] == ["1.json", "2.json", "3.json", "4.json", "5.json"]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine reports, in each of which one answer more is wrong."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    for day in range(1, 10):
        name, made = at(day, creeping(day))
        write_report(made, tmp_path / name)


@pytest.mark.usefixtures("saved")
def test_saved_reports_are_compared_with_those_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "9.json", "--baseline", "*.json"]) == 1
    shown = capsys.readouterr().out
    assert "failed: s, accuracy vs oldest report: accuracy 0.860 -> 0.780: -0.080" in shown
    assert "passed: s, accuracy vs mean of 5 reports: accuracy 0.810 -> 0.780: -0.030" in shown
    assert "the oldest report is 1.json (2026-01-01T00:00:00+00:00)" in shown
    assert main(["gate", "4.json", "--baseline", "*.json"]) == 0  # not with those that came later
    assert "accuracy vs mean of 3 reports" in capsys.readouterr().out
    assert main(["gate", "9.json", "--baseline", "*.json", "--baseline-last", "1"]) == 1
    assert "accuracy vs latest report: accuracy 0.790 -> 0.780" in capsys.readouterr().out


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("report_name", "baseline", "message"),
    [
        ("1.json", "*.json", "none of the 8 other reports is earlier than this one, of 2026-01-01T00:00:00+00:00"),
        ("1.json", "[1].json", "--baseline [1].json fits no report but 1.json itself"),
        ("1.json", "no/*.json", "no file fits no/*.json"),
    ],
)
def test_saved_reports_that_have_none_before_them(
    capsys: pytest.CaptureFixture[str], report_name: str, baseline: str, message: str
) -> None:
    assert main(["gate", report_name, "--baseline", baseline]) == 1
    assert capsys.readouterr().err == f"llmeval gate: {message}\n"


@pytest.mark.usefixtures("saved")
def test_a_mean_of_no_report_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["gate", "9.json", "--baseline", "*.json", "--baseline-last", "0"])
    assert stopped.value.code == 2
    assert "expected a whole number above 0, found '0'" in capsys.readouterr().err
