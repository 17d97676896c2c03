"""Metrics over what a sample takes: numbers that can be read, in units that can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from pytest_llmeval.reporting.figures.image_files import svg_text
from pytest_llmeval.reporting.figures.price import Box, places_beside
from pytest_llmeval.reporting.figures.report_figure import ReportFigure
from pytest_llmeval.reporting.figures.style import drawing
from pytest_llmeval.reporting.report.report import PerSample, Report
from tests.properties import examples
from tests.reporting.figures.drawn import drawn, lines_of, metric, named, suite_on, texts_of
from tests.reporting.made_reports import report


def of_prices(prices: Sequence[tuple[str, str, float, float]]) -> Report:
    """Suites with their models, accuracies and seconds; tokens are the seconds times 1000."""
    used = PerSample(n=40, num_prompt_tokens=0.0, num_tokens=1.0, seconds=0.5, num_counted=40)
    return report(
        [
            replace(
                suite_on(name, model, accuracy=metric(value, max(0.0, value - 0.1), min(1.0, value + 0.1))),
                per_sample=replace(used, num_tokens=1000 * seconds, seconds=seconds),
            )
            for name, model, value, seconds in prices
        ]
    )


def boxes_of(figure: ReportFigure) -> tuple[list[Bbox], list[Bbox]]:
    """Those of the numbers and of the points, in inches."""
    (axes,) = figure.figure.axes
    with drawing():
        renderer = FigureCanvasAgg(figure.figure).get_renderer()  # type: ignore[no-untyped-call]
        texts = [one.get_window_extent(renderer) for one in axes.texts if isinstance(one, Annotation)]
    dpi = figure.figure.dpi
    found = [Bbox(one.get_points() / dpi) for one in texts]
    at = [axes.transData.transform((x[0], y[0])) / dpi for x, y in lines_of(figure, "value")]
    return found, [Bbox.from_bounds(x - 0.042, y - 0.042, 0.084, 0.084) for x, y in at]


def overlaps(one: Bbox, other: Bbox) -> bool:
    """By more than the edges of letters."""
    both = Bbox.intersection(one, other)
    return both is not None and both.width > 0.01 and both.height > 0.02


CROWDED = (
    *[("a", "m", 0.94, 0.0275), ("b", "m", 0.94, 0.0275), ("c", "m", 0.78, 0.0371), ("d", "m", 0.73, 0.057)],
    *[("e", "m", 0.87, 0.0228), ("f", "m", 0.71, 0.048), ("g", "m", 0.91, 0.0623), ("h", "m", 0.65, 0.0341)],
    *[("i", "m", 0.66, 0.0364), ("j", "m", 0.62, 0.0364), ("k", "m", 0.62, 0.0364), ("l", "m", 0.74, 0.1315)],
    *[("a", "w", 0.97, 0.0275), ("b", "w", 0.97, 0.0275), ("c", "w", 0.7, 0.0371), ("d", "w", 0.61, 0.057)],
    *[("e", "w", 0.85, 0.0228), ("f", "w", 0.507, 0.048), ("g", "w", 0.78, 0.0623), ("h", "w", 0.42, 0.0341)],
    *[("i", "w", 0.516, 0.0364), ("j", "w", 0.5, 0.0368), ("k", "w", 0.5, 0.0368), ("l", "w", 0.64, 0.1315)],
)


def test_numbers_stand_on_no_number_and_no_point() -> None:
    """Of a session of two models: "9, 10, 11" stood on "6"."""
    figure = named(drawn(of_prices(CROWDED), "price"), "price-accuracy-tokens")
    texts, points = boxes_of(figure)
    assert len(texts) > 15
    assert not [(one, other) for one, other in combinations(texts, 2) if overlaps(one, other)]
    assert not [(text, point) for text in texts for point in points if overlaps(text, point)]


def test_a_number_stays_inside() -> None:
    """Left of a point beside the axis are the ticks."""
    marks = [(0.0, 1.0), (0.1, 1.08), (0.1, 0.92), (0.1, 1.0)]
    ((right, _),) = places_beside([(0.0, 1.0)], [0.2], marks=marks, inside=Box(-1, 0, 9, 9))
    assert right < -0.2
    ((right, _),) = places_beside([(0.0, 1.0)], [0.2], marks=marks, inside=Box(0, 0, 9, 9))
    assert right > 0


positions = st.lists(st.tuples(st.floats(0, 4), st.floats(0, 3)), min_size=1, max_size=12, unique=True)


@settings(max_examples=examples(100))
@given(positions, st.floats(0.05, 0.4))
def test_places(points: list[tuple[float, float]], width: float) -> None:
    """Right and up where there is room; elsewhere where less is covered."""
    widths = [width] * len(points)
    found = places_beside(points, widths, marks=points, inside=Box(-9, -9, 9, 9))
    usual = places_beside(points[:1], widths[:1], marks=points[:1], inside=Box(-9, -9, 9, 9))[0]
    assert usual[0] > 0 < usual[1]
    for (x, y), place in zip(points, found, strict=True):
        near = [other for other in points if abs(other[0] - x) < 1.0 and abs(other[1] - y) < 0.6]
        assert place == usual or len(near) > 1
    assert places_beside(points, widths, marks=points, inside=Box(-9, -9, 9, 9)) == found


@pytest.mark.parametrize(
    ("seconds", "unit", "shown"),
    [
        ((1e-5, 4e-5), "milliseconds", [0.01, 0.04]),
        ((0.002, 0.09), "milliseconds", [2.0, 90.0]),
        ((0.002, 0.1), "seconds", [0.002, 0.1]),
        ((0.5, 20.0), "seconds", [0.5, 20.0]),
    ],
)
def test_short_times_are_milliseconds(seconds: Sequence[float], unit: str, shown: Sequence[float]) -> None:
    made = of_prices([(f"s{place}", "m", 0.5, one) for place, one in enumerate(seconds)])
    figure = named(drawn(made, "price"), "price-accuracy-seconds")
    assert figure.title == f"accuracy and {unit} of a sample"
    assert [x[0] for x, _ in lines_of(figure, "value")] == pytest.approx(shown)
    texts = texts_of(svg_text(figure))
    assert f"{unit} of a sample" in texts
    assert f"over {unit} of a sample" in figure.description
    assert f"at {shown[0]:g}" in figure.description
    assert not [text for text in texts if "e" in text and any(map(str.isdigit, text))]


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ((5e-7, 1.5e-6), ["0.0000016"]),
        ((1.25e-6, 1.4e-6), ["0.0000012"]),
        ((1.25e-6, 1.8e-6), []),
        ((1.25e-6, 2e-6), ["0.000002"]),
        ((4e-12, 8e-12), ["2e-12", "8e-12"]),
        ((4e5, 1.2e6), ["1200000"]),
        ((4e7, 1.2e8), ["1.2e+08"]),
        ((0.001, 1.0), ["0.001", "0.01", "0.1", "1"]),
    ],
)
def test_ticks_of_an_axis_have_one_form(costs: tuple[float, float], expected: list[str]) -> None:
    made = of_prices([(f"s{place}", "m", 0.5, 0.5) for place in (1, 4)])
    suites = [
        replace(suite, per_sample=replace(suite.per_sample, cost=cost, num_priced=40))  # type: ignore[type-var]
        for suite, cost in zip(made.suites, costs, strict=True)
    ]
    figure = named(drawn(replace(made, suites=tuple(suites)), "price"), "price-accuracy-cost")
    axis = figure.figure.axes[0].xaxis
    low, high = axis.get_view_interval()
    ticks = [(tick, label.get_text()) for tick, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)]
    shown = {text: tick for tick, text in ticks if low <= tick <= high}
    assert shown.keys() >= {*expected}
    assert all(float(text) == pytest.approx(tick, rel=1e-6, abs=0) for text, tick in shown.items())
    assert len({"e" in text for text, tick in shown.items() if tick}) == 1


def test_ticks_are_written_out() -> None:
    made = of_prices([(f"s{place}", "m", 0.5, 0.5) for place in (1, 4)])
    suites = [
        replace(suite, per_sample=replace(suite.per_sample, cost=place * 1e-5, num_priced=40))  # type: ignore[type-var]
        for suite, place in zip(made.suites, (1, 4), strict=True)
    ]
    texts = texts_of(svg_text(named(drawn(replace(made, suites=tuple(suites)), "price"), "price-accuracy-cost")))
    assert "0.00001" in texts
    assert not [text for text in texts if "1e" in text]
