"""Several reports over time: what a history of them says, and how it is drawn."""

from __future__ import annotations

import csv
import io
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_llmeval.cli import main
from pytest_llmeval.errors import ReportError
from pytest_llmeval.gates.history import history_of
from pytest_llmeval.reporting.report.history import History
from pytest_llmeval.reporting.report.origin import ReportOrigin
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.storage.report_file import write_report
from pytest_llmeval.reporting.writers.history import history_csv, history_markdown, history_text
from pytest_llmeval.reporting.writers.html.history import history_page
from tests.properties import examples
from tests.reporting.made_reports import HOSTILE, hostile_report
from tests.reporting.reports import make_record, make_report


def records(right: Iterable[bool], *, suite: str = "sums", model: str = "fake") -> list[Record]:
    return [
        make_record(suite, f"s{n}", status="correct" if one else "wrong", values={"accuracy": float(one)}, model=model)
        for n, one in enumerate(right)
    ]


def run(day: int, own: list[Record], *, commit: str | None = None, **values: object) -> tuple[str, Report]:
    origin = None if commit is None else ReportOrigin(commit=commit * 10, branch="main")
    return f"{day}.json", make_report(own, created=f"2026-01-{day:02}T00:00:00+00:00", origin=origin, **values)


HALF = [n % 2 == 0 for n in range(60)]
"""Half of 60 right."""
GOOD, BAD = [n < 50 for n in range(60)], [n < 30 for n in range(60)]


def accuracy(history: History, suite: str = "sums") -> list[float | None]:
    (series,) = [one for one in history.series if (one.suite, one.metric) == (suite, "accuracy")]
    return [point.value for point in series.points]


def test_runs_are_in_the_order_of_time_and_a_step_is_marked_with_its_commits() -> None:
    runs = [run(3, records(BAD), commit="c"), run(1, records(GOOD), commit="a"), run(2, records(GOOD), commit="b")]
    history = history_of(runs)
    assert [one.path for one in history.runs] == ["1.json", "2.json", "3.json"]
    assert accuracy(history) == pytest.approx([50 / 60, 50 / 60, 0.5])
    (series,) = history.series
    ((point, step),) = series.steps
    assert (point.run, step.before, step.n, step.is_better) == (2, 1, 60, False)
    assert step.p_value == pytest.approx(stats.binomtest(20, 20, 0.5).pvalue)
    assert step.p_adjusted == pytest.approx(2 * step.p_value)  # the smaller one of two tests
    assert history.num_tests == 2
    text = "\n".join(history_text(history, width=160))
    assert "#3 is worse than #2: -0.333" in text
    assert f"p < 0.001 after Holm; commit {'b' * 10} -> {'c' * 10}" in text
    assert "3 runs, 2 steps between neighbours tested, sample by sample: 1 significant" in text
    (line,) = [line for line in text.splitlines() if line.strip().startswith("#3  0.500")]
    assert line.endswith("WORSE")


@given(changes=st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=2, max_size=6))
@settings(max_examples=examples(60))
def test_p_values_are_those_of_scipys_binomial_test_and_holms_of_statsmodels_by_hand(
    changes: list[list[bool]],
) -> None:
    history = history_of([run(day, records(right)) for day, right in enumerate(changes, 1)])
    (series,) = history.series
    expected = []
    for before, after in pairwise(changes):
        worse = sum(one and not other for one, other in zip(before, after, strict=True))
        better = sum(other and not one for one, other in zip(before, after, strict=True))
        expected.append(stats.binomtest(worse, worse + better, 0.5).pvalue if worse + better else 1.0)
    steps = [point.step for point in series.points[1:]]
    assert [step.p_value for step in steps if step] == pytest.approx(expected)
    adjusted = [step.p_adjusted for step in steps if step]
    ranked = sorted(expected)
    largest = [min(1.0, max((len(ranked) - rank) * p for rank, p in enumerate(ranked) if p <= one)) for one in expected]
    assert adjusted == pytest.approx(largest)


def test_a_suite_that_a_run_lacks_is_compared_with_the_run_before_that_has_it() -> None:
    other = records(HALF, suite="other")
    runs = [run(1, records(GOOD) + other), run(2, other), run(3, records(BAD) + other)]
    history = history_of(runs)
    (series,) = [one for one in history.series if one.suite == "sums"]
    assert [point.run for point in series.points] == [0, 2]
    ((_, step),) = series.steps
    assert step.before == 0
    assert history.num_tests == 3


def test_other_questions_are_not_compared_and_the_reason_is_said() -> None:
    def asked(day: int, question: str) -> tuple[str, Report]:
        own = [replace(one, question_fingerprint=question + one.id, fingerprint=question) for one in records(GOOD)]
        path, report = run(day, own)
        parts = {"questions": question, "scorer": "exact"}
        suites = [
            replace(suite, info=replace(suite.info, fingerprint=question, fingerprint_parts=parts))
            for suite in report.suites
        ]
        return path, replace(report, suites=tuple(suites))

    history = history_of([asked(1, "a"), asked(2, "a"), asked(3, "b")])
    (series,) = history.series
    assert [point.step is not None for point in series.points] == [False, True, False]
    assert "no question is known to be the same in both" in str(series.points[2].untested)
    text = "\n".join(history_text(history, width=160))
    assert "#3 is not compared with the run before: no question is known" in text


def test_models_are_told_apart_where_a_run_has_several() -> None:
    def several(day: int, first: Sequence[bool], second: Sequence[bool]) -> tuple[str, Report]:
        both = [(records(right, model=name), name) for right, name in ((first, "one"), (second, "two"))]
        reports = [make_report(own, models=({"name": name},)) for own, name in both]
        return f"{day}.json", replace(
            reports[0],
            created=f"2026-01-{day:02}T00:00:00+00:00",
            options={"model": ["one", "two"]},
            suites=tuple(suite for report in reports for suite in report.suites),
            records=tuple(record for own, _ in both for record in own),
        )

    history = history_of([several(1, GOOD, BAD), several(2, GOOD, GOOD)])
    assert [(one.model, [step.is_better for _, step in one.steps]) for one in history.series] == [
        ("one", []),
        ("two", [True]),
    ]
    renamed = [run(1, records(GOOD, model="ckpt-1")), run(2, records(BAD, model="ckpt-2"))]
    assert [one.model for one in history_of(renamed).series] == [None]


def test_a_metric_whose_better_direction_is_down() -> None:
    def brier(value: float) -> list[Record]:
        chance = random.Random(value)
        return [
            make_record(id_=f"s{n}", values={"accuracy": 1.0, "brier": value + chance.uniform(-0.05, 0.05)})
            for n in range(40)
        ]

    history = history_of([run(1, brier(0.2)), run(2, brier(0.4))], metrics=["brier"])
    (series,) = history.series
    ((_, step),) = series.steps
    assert (series.metric, step.is_better) == ("brier", False)
    assert step.p_value <= 2 / 1000


def test_what_samples_used_is_a_series_if_it_is_named() -> None:
    def used(day: int, factor: int, num_tokens: int) -> tuple[str, Report]:
        costs = [factor * (n + 1) / 1000 for n in range(60)]
        own = [replace(one, cost=cost, num_tokens=num_tokens) for cost, one in zip(costs, records(GOOD), strict=True)]
        return run(day, own)

    runs = [used(1, 2, 5), used(2, 2, 7), used(3, 3, 7)]
    history = history_of(runs, metrics=["cost", "num_tokens"])
    cost, tokens = history.series
    assert [(one.metric, one.higher_is_better) for one in history.series] == [("cost", False), ("num_tokens", False)]
    assert [point.value for point in cost.points] == pytest.approx([0.061, 0.061, 0.0915])
    assert [(point.run, step.is_better) for point, step in cost.steps] == [(2, False)]
    assert cost.points[2].step is not None
    assert cost.points[2].step.difference == pytest.approx(0.0305)
    assert [point.value for point in tokens.points] == [5, 7, 7]
    assert [(point.run, step.is_better) for point, step in tokens.steps] == [(1, False)]
    assert [one.metric for one in history_of(runs).series] == ["accuracy"]


def test_small_amounts_of_money_and_time_are_shown() -> None:
    own = [[replace(one, cost=cost * (n + 1)) for n, one in enumerate(records(GOOD))] for cost in (1e-6, 3e-6)]
    history = history_of([run(day, some) for day, some in enumerate(own, 1)], metrics=["cost"])
    text = "\n".join(history_text(history, width=160))
    assert re.findall(r"#\d  (\S+) \[", text) == ["0.0000305", "0.0000915"]
    assert "#2 is worse than #1: +0.0000610 [" in text
    page = history_page(history)
    assert "+0.0000610 [" in page
    assert "0.000 [" not in page


def test_samples_of_which_it_is_not_known_what_they_used_are_left_out() -> None:
    def some(day: int, known: int, *, is_timed: bool = True) -> tuple[str, Report]:
        return run(
            day,
            [
                replace(one, cost=0.5 if n < known else None, seconds=1.0, is_timed=is_timed)
                for n, one in enumerate(records(GOOD))
            ],
        )

    cost, seconds = history_of(
        [some(1, 60), some(2, 20), some(3, 0, is_timed=False)], metrics=["cost", "seconds"]
    ).series
    assert [(point.value, point.n) for point in cost.points] == [(0.5, 60), (0.5, 20), (None, 0)]
    assert [point.step for point in cost.points] == [None] * 3
    assert "cost has no value now in 40 samples" in str(cost.points[1].untested)
    assert [(point.value, point.n) for point in seconds.points] == [(1.0, 60), (1.0, 60), (None, 0)]
    assert "60 of 60 samples were not timed by themselves" in str(seconds.points[2].untested)


def test_a_suites_own_metric_hides_that_of_usage() -> None:
    own = [make_record(id_=f"s{n}", values={"accuracy": 1.0, "cost": 3.0}) for n in range(4)]
    (series,) = history_of([run(1, own)], metrics=["cost"]).series
    assert series.points[0].value == 3


def test_without_a_change_there_is_seldom_a_step() -> None:
    """20 histories of 8 runs in each of which every answer is drawn anew: a step in one of twenty at most, in the mean;
    3 or more would be seen in 8 of 100 such tests, and these seeds are fixed.
    """
    found = 0
    for seed in range(20):
        draw = random.Random(seed)
        runs = [run(day, records(draw.random() < 0.7 for _ in range(100))) for day in range(1, 9)]
        history = history_of(runs)
        assert history.num_tests == 7
        found += any(list(series.steps) for series in history.series)
    assert found <= 2


REFUSED: dict[str, tuple[list[tuple[str, Report]], dict[str, list[str]], str]] = {
    "nothing in common": (
        [run(1, records(GOOD)), run(2, records(GOOD, suite="other"))],
        {},
        "the reports have no suite in common: 1.json has 'sums'; 2.json has 'other'",
    ),
    "no suite": ([run(1, [])], {}, "there is no history to show: no report has a suite"),
    "unknown suite": ([run(1, records(GOOD))], {"suites": ["sum"]}, "no report has a suite 'sum'; did you mean"),
    "unknown variant": ([run(1, records(GOOD))], {"suites": ["sums@polite"]}, "suite 'sums' has no variants"),
    "unknown metric": ([run(1, records(GOOD))], {"metrics": ["acuracy"]}, "no suite has a metric 'acuracy'; did you"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    reports, chosen, message = REFUSED[case]
    with pytest.raises(ReportError) as error:
        history_of(reports, **chosen)  # type: ignore[arg-type]
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_one_report_is_a_history_too() -> None:
    text = "\n".join(history_text(history_of([run(1, records(GOOD))]), width=100))
    assert "1 run; no two neighbours could be compared" in text


def test_csv_and_markdown_have_every_number() -> None:
    history = history_of([run(1, records(GOOD), commit="a"), run(2, records(BAD), commit="b")])
    rows = list(csv.DictReader(io.StringIO("\n".join(history_csv(history)))))
    assert [(row["suite"], row["metric"], row["commit"], row["n"]) for row in rows] == [
        ("sums", "accuracy", "a" * 10, "60"),
        ("sums", "accuracy", "b" * 10, "60"),
    ]
    assert [row["is_significant"] for row in rows] == ["", "true"]
    assert float(rows[1]["difference"]) == pytest.approx(-1 / 3)
    markdown = "\n".join(history_markdown(history))
    assert "2 is worse than" in markdown
    assert "```\n#1  0.833 [" in markdown


def test_csv_says_which_model_answered_in_each_run() -> None:
    checkpoints = [(records(GOOD, model=name), name) for name in ("ckpt-1", "ckpt-2")]
    runs = [
        (f"{day}.json", run(day, own, models=({"name": name},))[1]) for day, (own, name) in enumerate(checkpoints, 1)
    ]
    rows = csv.DictReader(io.StringIO("\n".join(history_csv(history_of(runs)))))
    assert [(row["report"], row["model"]) for row in rows] == [("1.json", "ckpt-1"), ("2.json", "ckpt-2")]


@pytest.mark.parametrize(("num_runs", "shown"), [(3, ["#1", "#2", "#3"]), (50, [f"#{n}" for n in range(1, 51, 3)])])
def test_the_pages_charts_have_the_numbers_of_runs(num_runs: int, shown: list[str]) -> None:
    """Not of all runs if there are many: their texts would lie on each other."""
    reports = [run(1, records([True, False])) for _ in range(num_runs)]
    page = history_page(history_of(reports))
    assert re.findall(r'text-anchor="middle">(#\d+)<', page) == shown


def test_the_page_draws_each_series_and_runs_nothing() -> None:
    history = history_of([run(1, records(GOOD), commit="a"), run(2, records(BAD), commit="b")])
    page = history_page(history)
    assert page.count('<svg class="chart"') == 1
    assert page.count("<circle") == 2
    assert '<circle class="worse"' in page
    assert f"commit {'a' * 10} -&gt; {'b' * 10}" in page
    assert "<script" not in page
    assert "default-src &#39;none&#39;" in page


def test_texts_of_reports_do_nothing_in_any_format() -> None:
    found = replace(
        hostile_report(), created="2026-01-01T00:00:00+00:00", origin=ReportOrigin(labels={"a": " ".join(HOSTILE)})
    )
    found = replace(found, records=())
    history = history_of([("a.json", found)])
    texts = [*history_text(history, width=100), *history_markdown(history)]
    assert all(line.isprintable() or set(line) <= {"\u200b"} or "\x1b" not in line for line in texts)
    assert "\x1b" not in "".join(history_csv(history))
    page = history_page(history)
    assert "<script" not in page
    assert "<img" not in page


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    Path("runs").mkdir()
    for path, report in (run(2, records(BAD), commit="b"), run(1, records(GOOD), commit="a")):
        write_report(report, Path("runs") / path)
    Path("copy.json").write_bytes(Path("runs/1.json").read_bytes())
    return tmp_path


def test_the_command(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "runs/2.json", "runs/1.json"]) == 0
    whole = capsys.readouterr()
    assert "#2 is worse than #1" in whole.out
    assert whole.err == ""
    assert main(["history", "runs/*.json"]) == 0  # a pattern that no shell has replaced
    assert capsys.readouterr().out == whole.out
    for form, beginning in (("markdown", "# History"), ("html", "<!DOCTYPE html>"), ("csv", "created,report,")):
        assert main(["history", "runs/*.json", "--format", form, "--output", "out"]) == 0
        assert (files / "out").read_text("utf-8").startswith(beginning)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs/1.json", "runs/../runs/1.json"], "runs/../runs/1.json was given twice (as runs/1.json)"),
        (["runs/*.json", "copy.json"], "copy.json is a copy of runs/1.json, and each run counts once: leave one of"),
        (["no/*.json"], "no file fits no/*.json"),
        (["no.json"], "cannot read the report no.json: there is no such file"),
        (["runs/1.json", "-o", "runs/1.json"], "--output runs/1.json is one of the reports that are read"),
    ],
)
def test_calls_that_cannot_be_done(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["history", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"llmeval history: {message}")
    assert error.count("\n") == 1


def test_a_report_that_was_changed_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = files / "runs" / "1.json"
    path.write_text(path.read_text().replace('"s7"', '"t7"'))
    assert main(["history", "runs/1.json", "runs/2.json"]) == 1
    assert "llmeval history: the report runs/1.json" in capsys.readouterr().err
