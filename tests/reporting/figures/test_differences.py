"""Figures of paired differences: whose they are, and which side is better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_llmeval.reporting.figures.image_files import svg_text
from pytest_llmeval.reporting.report.report import Comparison, Report, VariantComparison
from tests.reporting.figures.drawn import (
    FIRST,
    SECOND,
    difference,
    drawn,
    lines_of,
    metric,
    regression,
    report_of_all,
    suite_on,
    texts_of,
)
from tests.reporting.made_reports import gate, report


@pytest.fixture(scope="module")
def whole() -> Report:
    return report_of_all()


def test_differences_of_models_and_from_a_baseline(whole: Report) -> None:
    models, baseline = drawn(whole, "differences")
    assert models.name == "differences-models-accuracy"
    assert models.title == "Difference of accuracy from one"
    assert [x for x, _ in lines_of(models, "interval")] == [[-0.2, 0.01]]
    assert [x for x, _ in lines_of(models, "line")] == [[0.0, 0.0]]
    assert baseline.title == "Difference of accuracy from the baseline"
    assert [x for x, _ in lines_of(baseline, "interval")] == [[-0.02, 0.12]]
    assert "+0.050 [-0.020, +0.120]" in texts_of(svg_text(baseline))
    assert {"← worse", "better →"} <= set(texts_of(svg_text(baseline)))


def test_differences_of_variants_have_a_figure_for_each_first_variant(whole: Report) -> None:
    polite = VariantComparison(
        suite="sums",
        first="sums@short",
        second="sums@polite",
        model=FIRST,
        metric="accuracy",
        differences={"accuracy": difference(-0.1, -0.2, 0.01)},
    )
    variants = (
        polite,
        replace(polite, model=SECOND, differences={"accuracy": difference(0.1, 0, 0.2)}),
        VariantComparison(
            suite="plain",
            first="plain",
            second="plain@hot",
            model=FIRST,
            metric="brier",
            differences={"brier": difference(0.3, 0.1, 0.4), "accuracy": difference(0.0, 0.0, 0.0)},
        ),
        VariantComparison(suite="odd", first="odd", second="odd@a", model=FIRST, differences={}),
    )
    made = replace(whole, comparisons=(), gates=(), variants=variants)
    accuracy, brier = drawn(made, "differences")
    assert (accuracy.name, accuracy.title) == ("differences-variants-accuracy", "Difference of accuracy from short")
    assert [x for x, _ in lines_of(accuracy, "interval")] == [[-0.2, 0.01], [0.0, 0.2]]
    assert {"sums@polite", "one", "two"} <= set(texts_of(svg_text(accuracy)))
    assert brier.title == "Decrease of brier from as written (lower is better)"
    assert "plain@hot" in texts_of(svg_text(brier))
    assert len(drawn(made, "differences", metrics=["accuracy"])) == 2


def test_differences_are_turned_where_lower_is_better(whole: Report) -> None:
    (one,) = whole.comparisons
    turned = replace(one, differences={"brier": difference(-0.1, -0.2, 0.01)})
    gates = (gate(kind="baseline", regression=regression("nll", 0.3, 0.1, 0.5, higher=False)),)
    models, baseline = drawn(replace(whole, comparisons=(turned,), gates=gates), "differences")
    assert models.title == "Decrease of brier from one (lower is better)"
    assert [x for x, _ in lines_of(models, "interval")] == [[-0.01, 0.2]]
    assert [x for x, _ in lines_of(models, "value")] == [[0.1]]
    assert [x for x, _ in lines_of(baseline, "interval")] == [[-0.5, -0.1]]
    assert "lower is better" in baseline.title


def test_differences_whose_better_side_is_unknown(whole: Report) -> None:
    (one,) = whole.comparisons
    unknown = replace(one, differences={"warmth": difference(-0.1, -0.2, 0.01)})
    (figure,) = drawn(replace(whole, comparisons=(unknown,), gates=()), "differences")
    assert "Which side is better is not known" in figure.description
    assert "← worse" not in texts_of(svg_text(figure))


def of_suites(better: dict[str, str | None]) -> Report:
    """Suites of two models, each with its better direction of the metric ``delay``; in all it falls by 0.1."""
    suites = []
    for name, direction in better.items():
        for model in (FIRST, SECOND):
            suite = suite_on(name, model, delay=metric(0.5, 0.4, 0.6))
            info = replace(suite.info, better={} if direction is None else {"delay": direction})
            suites.append(replace(suite, info=info))
    compared = {"delay": difference(-0.1, -0.2, 0.01)}
    comparisons = [Comparison(suite=name, first=FIRST, second=SECOND, differences=compared) for name in better]
    return report(suites, (), options={"model": [FIRST, SECOND]}, comparisons=tuple(comparisons))


def test_suites_with_opposite_directions_have_figures_of_their_own() -> None:
    made = of_suites({"points": "higher", "seconds": "lower", "more": "higher", "unknown": None})
    higher, lower, unknown = drawn(made, "differences")
    assert [figure.title for figure in (higher, lower)] == [
        "Difference of delay from one",
        "Decrease of delay from one (lower is better)",
    ]
    assert [x for x, _ in lines_of(higher, "interval")] == [[-0.2, 0.01]] * 2
    assert [x for x, _ in lines_of(lower, "interval")] == [[-0.01, 0.2]]
    assert "Which side is better is not known" in unknown.description
    assert len({figure.name for figure in (higher, lower, unknown)}) == 3


def test_reports_side_by_side_each_say_what_is_better() -> None:
    """Suites of one name, of other models."""
    one, other = of_suites({"a": "higher"}), of_suites({"a": "lower"})
    renamed = tuple(replace(suite, models=(f"{suite.models[0]} 2",)) for suite in other.suites)
    comparisons = tuple(replace(one, first=f"{FIRST} 2", second=f"{SECOND} 2") for one in other.comparisons)
    both = replace(one, suites=one.suites + renamed, comparisons=one.comparisons + comparisons)
    higher, lower = drawn(both, "differences")
    assert [x for x, _ in lines_of(higher, "value")] == [[-0.1]]
    assert [x for x, _ in lines_of(lower, "value")] == [[0.1]]


def test_gates_of_opposite_directions_have_figures_of_their_own(whole: Report) -> None:
    gates = tuple(
        gate(kind="baseline", suite=name, regression=regression("delay", 0.3, 0.1, 0.5, higher=higher))
        for name, higher in (("a", True), ("b", False), ("c", True))
    )
    higher, lower = drawn(replace(whole, comparisons=(), gates=gates), "differences")
    assert [x for x, _ in lines_of(higher, "interval")] == [[0.1, 0.5]] * 2
    assert [x for x, _ in lines_of(lower, "interval")] == [[-0.5, -0.1]]
    assert "(lower is better)" in lower.title
    assert "(lower is better)" not in higher.title


def test_long_names_that_differ_in_their_middle_have_rows_of_their_own() -> None:
    names = [f"{'a' * 30} {middle} {'b' * 30}" for middle in ("one", "two")]
    (figure,) = drawn(of_suites(dict.fromkeys(names)), "differences")
    heights = [y[0] for _, y in lines_of(figure, "value")]
    texts = [text for text in texts_of(svg_text(figure)) if text.startswith("aaa")]
    assert len(texts) == 2
    of_one_row = drawn(of_suites({names[0]: None}), "differences")[0].figure.get_figheight()
    assert figure.figure.get_figheight() > of_one_row
    assert len(set(heights)) == 2


def test_the_line_at_no_difference_is_always_on_the_axis(whole: Report) -> None:
    (one,) = whole.comparisons
    far = replace(one, differences={"accuracy": difference(0.5, 0.45, 0.55)})
    (figure,) = drawn(replace(whole, comparisons=(far,), gates=()), "differences")
    left, right = figure.figure.axes[0].get_xlim()
    assert left < 0 < right
