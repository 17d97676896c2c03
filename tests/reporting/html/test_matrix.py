"""Suites beside models or variants: which rows and columns there are, what a cell says, and what its change is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pytest_llmeval.reporting.report.report import Comparison, Report, SuiteReport, Summary, VariantComparison
from pytest_llmeval.reporting.writers.html.matrix import Matrix, MatrixRow, MatrixSuite, changes_texts, suite_matrix
from pytest_llmeval.scoring.metrics.summary import Metric
from tests.reporting.html.test_sections import (
    ONE,
    TWO,
    against_baseline,
    compared,
    difference,
    of_suite,
    proportion,
    regression,
)
from tests.reporting.made_reports import gate, report


def matrix_of(suites: list[SuiteReport], names: Mapping[str, str] = ONE, **values: Any) -> Matrix:
    return suite_matrix(report(suites, **values), names)


def said(row: MatrixRow) -> list[str]:
    """The row as text: its name, what it is of, and its cells."""
    cells = [
        ""
        if cell is None
        else " ".join(filter(None, [cell.text, cell.n, cell.change and cell.change.text, cell.others]))
        for cell in row.cells
    ]
    return [row.name, row.metric, row.n, *cells]


def rows_of(suite: MatrixSuite) -> list[list[str]]:
    return [said(row) for row in (suite.row, *suite.further)]


def test_a_suite_stands_by_its_main_metric_and_opens_into_the_others() -> None:
    accuracy, skill = proportion(0.7, 0.605, 0.781), Metric(value=0.4, n=37, kind="mean", ci_low=0.21, ci_high=0.562)
    brier = Metric(value=0.2, n=30, kind="mean", ci_low=0.15, ci_high=0.26)
    f1, matched = Metric(value=0.5, n=37, kind="mean", ci_low=0.45, ci_high=0.55), proportion(1.0, 0.2, 1.0, n=1)
    total = Metric(value=37.0, n=37, kind="count")
    found = matrix_of(
        [
            of_suite("plain", metrics={"brier": brier, "skill": skill, "accuracy": accuracy, "total": total, "f1": f1}),
            of_suite("part", metrics={"accuracy": accuracy}, info_num_samples=90),
            of_suite("own", metrics={"accuracy": accuracy, "f1": f1}, info_primary_metric="f1"),
            of_suite("words", metrics={"f1": replace(f1, ci_low=None), "greedy_match": matched}),
            of_suite("nothing", metrics={}),
        ]
    )
    assert [column.title for column in found.columns] == ["one"]
    assert [rows_of(suite) for suite in found.suites] == [
        [
            ["plain", "accuracy", "37/40", "0.700 [0.605, 0.781]"],
            ["skill", "skill", "37/40", "0.400 [0.210, 0.562]"],
            ["Brier", "Brier", "37/40", "0.200 [0.150, 0.260] (n 30)"],
            ["f1", "f1", "37/40", "0.500 [0.450, 0.550]"],
        ],
        [["part", "accuracy", "37/40 of 90", "0.700 [0.605, 0.781]"]],
        [["own", "f1", "37/40", "0.500 [0.450, 0.550]"], ["accuracy", "accuracy", "37/40", "0.700 [0.605, 0.781]"]],
        [["words", "f1", "37/40", "0.500"], ["greedy_match", "greedy_match", "37/40", "1.000 (n 1)"]],
        [["nothing", "", "37/40", ""]],
    ]


def test_bars_stand_on_the_scale_of_the_metric() -> None:
    marks = Metric(value=1.5, n=37, kind="mean", ci_low=1.0, ci_high=2.0)
    categories = {
        name: Summary(
            num_expected=9, num_scored=9, num_unscored=0, num_no_answer=0, metrics={"marks": metric, "f1": metric}
        )
        for name, metric in (("x", replace(marks, value=3.0, ci_low=2.0, ci_high=4.0)), ("y", marks))
    }
    huge = {"marks": replace(marks, value=1e300, ci_low=None, ci_high=None)}
    found = matrix_of(
        [
            of_suite("a", metrics={"accuracy": proportion(0.5, 0.25, 0.75)}),
            of_suite("b", metrics={"marks": marks, "f1": marks}, categories=categories, info_metrics=("marks",)),
            of_suite("c", metrics=huge, info_metrics=("marks",)),
        ]
    )
    bars = [[cell.bar for cell in row.cells if cell] for suite in found.suites for row in (suite.row, *suite.further)]
    assert bars == [
        [[25, 50, 75, None]],
        *[[[25, 37.5, 50, None]]] * 2,  # from 0 to the highest end, of the categories too
        [[50, 75, 100, None]],
        [[25, 37.5, 50, None]],
        [[None] * 4],  # a number that is too large
    ]


def test_models_are_columns() -> None:
    def suite(name: str, model: str, value: float, **values: Any) -> SuiteReport:
        return of_suite(name, models=(model,), metrics={"accuracy": proportion(value, None, None)}, **values)

    found = matrix_of(
        [
            suite("sums", "org/one", 0.5),
            suite("sums", "org/two", 0.6, num_scored=36),
            suite("capitals", "org/two", 0.7),
        ],
        TWO,
    )
    assert [column.title for column in found.columns] == ["one", "two"]
    assert [said(one.row) for one in found.suites] == [
        ["sums", "accuracy", "", "0.500 n 37/40", "0.600 (n 37) n 36/40"],
        ["capitals", "accuracy", "37/40", "", "0.700"],
    ]


def variant_of(name: str, variant: str | None, model: str = "org/one") -> SuiteReport:
    suite = of_suite(name, models=(model,), metrics={"accuracy": proportion(0.5, None, None)})
    full = name if variant is None else f"{name}@{variant}"
    return replace(suite, info=replace(suite.info, name=full, variant=variant))


def test_variants_are_columns_of_one_model_and_rows_of_several() -> None:
    suites = [variant_of("sums", "short"), variant_of("sums", "polite"), variant_of("plain", None)]
    found = matrix_of(suites)
    assert [column.title for column in found.columns] == ["short", "polite", "as written"]
    assert [said(one.row)[::3] for one in found.suites] == [["sums", "0.500"], ["plain", ""]]
    both = matrix_of([*suites, *(replace(suite, models=("org/two",)) for suite in suites)], TWO)
    assert [column.title for column in both.columns] == ["one", "two"]
    assert [one.row.name for one in both.suites] == ["sums@short", "sums@polite", "plain"]
    many = matrix_of([variant_of("sums", f"v{place}") for place in range(7)])
    assert (len(many.columns), len(many.suites)) == (1, 7)


def test_categories_and_notes_are_shown_when_a_suite_is_opened() -> None:
    def of_category(value: float, n: int) -> Summary:
        metrics = {
            "accuracy": proportion(value, value - 0.1, value + 0.1, n=n),
            "f1": Metric(value=value / 2, n=n - 1, kind="mean"),
        }
        return Summary(num_expected=n + 2, num_scored=n, num_unscored=2, num_no_answer=0, metrics=metrics)

    categories = {"x\x07": of_category(0.6, 11), "y": of_category(0.8, 26)}
    macro = {"accuracy": proportion(0.7, 0.63, 0.77, n=2)}
    counted = {"total": Metric(value=36.0, n=37, kind="count"), "f1": Metric(value=0.4, n=37, kind="mean")}
    metrics = {"accuracy": proportion(0.5, 0.4, 0.6, num_clusters=12), **counted}
    suites = [
        of_suite("several", categories=categories, macro=macro, metrics=metrics, info_description="Sums\x1b."),
        of_suite("single", categories={"y": categories["y"]}, macro=macro, num_expected=37, num_unscored=0),
        of_suite("judged", num_judge_requests=2, num_judge_tokens=3100, judge_seconds=75.0, info_judged_by=("gpt",)),
    ]
    several, single, judged = matrix_of(suites).suites
    assert rows_of(several)[1:] == [
        ["f1", "f1", "37/40", "0.400"],
        ["x\\x07", "accuracy", "11/13", "0.600 [0.500, 0.700] f1 0.300 (n 10)"],
        ["y", "accuracy", "26/28", "0.800 [0.700, 0.900] f1 0.400 (n 25)"],
    ]
    assert several.notes == [
        "Sums\\x1b.",
        "n 37 in 12 clusters, total 36, unscored 3",
        "macro average over categories: accuracy 0.700 [0.630, 0.770]",
    ]
    assert (single.further, single.notes) == ([], [])
    assert judged.notes == ["unscored 3, judged by gpt: 2 requests, 3,100 tokens, 1 min 15 s"]
    other = replace(suites[0], models=("org/two",), categories={"z": categories["y"], **categories})
    found = matrix_of([suites[0], other], TWO).suites[0]
    assert [said(row)[0::3] for row in found.further[1:4]] == [
        ["x\\x07", "0.600 [0.500, 0.700] f1 0.300 (n 10)"],
        ["y", "0.800 [0.700, 0.900] f1 0.400 (n 25)"],
        ["z", ""],
    ]
    assert [note.partition(": ")[0] for note in found.notes[1:]] == ["one", "one", "two", "two"]


def changes_of(made: Report, names: Mapping[str, str] = TWO) -> list[list[str | None]]:
    """The change in each cell of the first rows."""
    suites = suite_matrix(made, names).suites
    return [[cell and cell.change and cell.change.text for cell in suite.row.cells] for suite in suites]


ACCURACY = {"accuracy": proportion(0.5, 0.4, 0.6)}


@pytest.mark.parametrize(
    ("outcome", "values", "text"),
    [
        ("failed", {}, "−0.062 worse"),
        ("passed", {}, "−0.062 worse"),  # within the margin
        ("failed", {"p_adjusted": 0.051}, "−0.062 ="),  # of the mode margin
        ("passed", {"difference": 0.1, "drop": -0.1, "p_improved_adjusted": 0.05, "p_adjusted": 1.0}, "+0.100 better"),
        ("passed", {"difference": 0.1, "drop": -0.1, "p_improved_adjusted": 0.06, "p_adjusted": 1.0}, "+0.100 ="),
        ("passed", {"difference": 0.0, "drop": 0.0, "p_adjusted": 1.0}, "0.000 ="),
    ],
)
def test_a_change_from_the_baseline_is_called_by_the_test_of_its_gate(
    outcome: Any, values: dict[str, Any], text: str
) -> None:
    found = regression(**values)
    made = report([of_suite("sums", metrics=ACCURACY)], gates=(against_baseline(outcome, found, suite="sums"),))
    assert changes_of(made, ONE) == [[text]]
    (suite,) = suite_matrix(made, ONE).suites
    (cell,) = suite.row.cells
    assert cell is not None
    assert cell.bar == [40, 50, 60, 81.25]  # the last is the baseline's


def test_a_change_between_models_is_called_by_its_interval() -> None:
    def suites(name: str, **info: Any) -> list[SuiteReport]:
        return [of_suite(name, models=(model,), metrics=ACCURACY, **info) for model in TWO]

    surely = {"ci_low": -0.05, "ci_high": -0.01}
    lower = {"info_primary_metric": "accuracy", "info_higher_is_better": False}
    found = changes_of(
        report(
            [*suites("a"), *suites("b"), *suites("c"), *suites("d", **lower)],
            comparisons=(
                compared({"accuracy": difference(4, 9)}, suite="a"),
                compared({"accuracy": difference(4, 9, **surely)}, suite="b"),
                compared({"accuracy": difference(4, 9, ci_low=None)}, suite="c"),
                compared({"accuracy": difference(4, 9, **surely)}, suite="d"),
            ),
        )
    )
    assert found == [[None, "−0.030 ="], [None, "−0.030 worse"], [None, "−0.030"], [None, "−0.030 better"]]


def test_a_baseline_comes_before_models_and_models_before_variants() -> None:
    variant = VariantComparison(
        suite="sums",
        first="sums@short",
        second="sums@polite",
        differences={"accuracy": difference(1, 2, difference=0.25)},
        model="org/two",
    )
    second = Comparison(
        suite="sums@polite", first="org/one", second="org/two", differences={"accuracy": difference(1, 2)}
    )
    suites = [variant_of("sums", name, model) for name in ("short", "polite") for model in TWO]
    gates = (against_baseline("passed", regression(difference=0.5), suite="sums@polite", model="org/two"),)
    base = report(suites, variants=(variant,))
    assert changes_of(base)[1] == [None, "+0.250 ="]
    assert changes_of(replace(base, comparisons=(second,)))[1] == [None, "−0.030 ="]
    assert changes_of(replace(base, comparisons=(second,), gates=gates))[1][1] == "+0.500 worse"
    alone = replace(base, suites=tuple(suites[1::2]), variants=(replace(variant, model=None),))
    (found,) = suite_matrix(alone, {"org/two": "two"}).suites
    assert said(found.row) == ["sums", "accuracy", "37/40", "0.500", "0.500 +0.250 ="]


def test_failed_gates_stand_in_their_cells() -> None:
    gates = (
        gate("passed", suite="sums"),
        gate("failed", "first", suite="sums", model="org/two"),
        gate("failed", "second", suite="sums", model="org/two"),
        gate("failed", suite=None),
    )
    suites = [of_suite("sums", models=(model,), metrics=ACCURACY) for model in TWO]
    found = matrix_of(suites, TWO, gates=gates)
    assert [one and one.name for one in found.suites[0].failed] == [None, "first"]
    assert [column.has_failed for column in found.columns] == [False, True]
    alone = matrix_of(suites[:1], gates=(gate("failed", "first", suite="sums"),))
    assert [one and one.name for one in alone.suites[0].failed] == ["first"]


def test_what_became_worse_is_said_in_words() -> None:
    assert [*changes_texts(matrix_of([of_suite("sums", metrics=ACCURACY)]))] == []
    gates = [against_baseline("failed", regression(), suite=f"s{place}") for place in range(7)]
    gates.append(against_baseline("passed", regression(p_adjusted=1.0), suite="same"))
    suites = [of_suite(str(one.suite), metrics=ACCURACY) for one in gates]
    assert [*changes_texts(matrix_of(suites, gates=gates))] == [
        "Against the baseline: 7 worse (s0, s1, s2, s3, s4, …), 0 better, 1 without a clear change (=)"
    ]
    two = [of_suite("sums", models=(model,), metrics=ACCURACY) for model in TWO]
    sure = compared({"accuracy": difference(9, 2, difference=0.1, ci_low=0.01, ci_high=0.2)})
    assert [*changes_texts(matrix_of(two, TWO, comparisons=(sure,)))] == ["two against one: 0 worse, 1 better (sums)"]


def test_without_suites() -> None:
    assert matrix_of([]) == Matrix([], [])
