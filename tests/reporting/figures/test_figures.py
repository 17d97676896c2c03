"""What figures show: the report's numbers and no others, for every kind."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgba
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from pytest_llmeval.reporting.figures.catalogue import KINDS, FiguresUnavailable, figures_of
from pytest_llmeval.reporting.figures.image_files import svg_text
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import PerSample, Report
from pytest_llmeval.scoring.metrics.calibration import reliability
from tests.properties import examples
from tests.reporting.figures.drawn import (
    CONFIDENCES,
    FIRST,
    SECOND,
    confident,
    contrast,
    drawn,
    lines_of,
    metric,
    named,
    patches_of,
    report_of_all,
    suite_on,
    texts_of,
)
from tests.reporting.made_reports import report, suite_report, summary
from tests.reporting.reports import reports


@pytest.fixture(scope="module")
def whole() -> Report:
    return report_of_all()


class CountedRecords(Sequence[Record]):
    """Records that say how often they were read."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records, self.num_read = records, 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        self.num_read += 1
        return iter(self._records)

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("records are read in their order")


def test_every_kind_in_its_order(whole: Report) -> None:
    figures = drawn(whole)
    assert list(dict.fromkeys(figure.kind for figure in figures)) == list(KINDS)
    names = [figure.name for figure in figures]
    assert len(set(names)) == len(names)
    assert "forest-accuracy" in names
    assert "reliability-capitals" in names
    for figure in figures:
        assert figure.title
        assert figure.description.endswith(".")


def test_records_are_read_once_and_only_where_they_are_needed(whole: Report) -> None:
    records = CountedRecords(whole.records)
    made = replace(whole, records=records)
    drawn(made, *[kind for kind in KINDS if kind != "risk-coverage"])
    assert records.num_read == 0
    drawn(made, "forest", "risk-coverage")
    assert records.num_read == 1
    without = replace(made, suites=tuple(replace(suite, reliability=None) for suite in made.suites))
    assert not drawn(without, "risk-coverage")
    assert records.num_read == 1


def test_figures_are_drawn_when_they_are_asked_for(whole: Report) -> None:
    records = CountedRecords(whole.records)
    figures = figures_of(replace(whole, records=records))
    assert next(figures).kind == "forest"
    assert records.num_read == 0


def test_an_unknown_kind(whole: Report) -> None:
    with pytest.raises(ValueError, match="no kind of figures 'pie'; there are forest, "):
        figures_of(whole, ["pie"])


def test_without_matplotlib(whole: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(FiguresUnavailable, match=r"pip install 'pytest-llmeval-suites\[report\]'"):
        figures_of(whole)


def test_settings_of_the_user_stay_and_change_nothing(whole: Report) -> None:
    import matplotlib

    before = svg_text(drawn(whole, "forest")[0])
    with matplotlib.rc_context({"font.size": 30, "text.usetex": True, "svg.fonttype": "path"}):
        kept = dict(matplotlib.rcParams)
        assert svg_text(drawn(whole, "forest")[0]) == before
        assert dict(matplotlib.rcParams) == kept


def test_the_forest_has_the_reports_intervals(whole: Report) -> None:
    figure = named(drawn(whole, "forest"), "forest-accuracy")
    found = [suite.summary.metrics["accuracy"] for suite in whole.suites if "accuracy" in suite.summary.metrics]
    assert [x for x, _ in lines_of(figure, "interval")] == [[one.ci_low, one.ci_high] for one in found]
    assert [x for x, _ in lines_of(figure, "value")] == [[one.value] for one in found]
    assert "0.700 [0.550, 0.820]" in texts_of(svg_text(figure))
    assert "capitals (one) 0.700 [0.550, 0.820]; capitals (two) 0.600 [0.450, 0.720]" in figure.description


def test_models_differ_by_colour_and_marker(whole: Report) -> None:
    (axes,) = named(drawn(whole, "forest"), "forest-accuracy").figure.axes
    points = [line for line in axes.lines if line.get_gid() == "value"]
    assert len({line.get_color() for line in points}) == 2
    assert len({line.get_marker() for line in points}) == 2
    many = report([suite_on("a", f"m{place}", accuracy=metric(0.5, 0.4, 0.6)) for place in range(30)])
    (axes,) = drawn(many, "forest")[0].figure.axes
    points = [line for line in axes.lines if line.get_gid() == "value"]
    assert len({(line.get_color(), line.get_marker()) for line in points}) == 30


def test_no_interval_where_a_table_shows_none() -> None:
    suites = [
        suite_on("one", "m", accuracy=metric(1.0, 0.2, 1.0, n=1)),
        suite_on("none", "m", accuracy=metric(0.5, None, None, kind="mean")),
        suite_on("empty", "m", accuracy=replace(metric(0.5, None, None), value=None, n=0)),
    ]
    (figure,) = drawn(report(suites), "forest")
    assert not lines_of(figure, "interval")
    assert len(lines_of(figure, "value")) == 2


def test_skill_has_a_line_at_chance_and_metrics_are_chosen() -> None:
    made = report([suite_on("a", "m", accuracy=metric(0.7, 0.6, 0.8), skill=metric(0.4, 0.2, 0.6, kind="mean"))])
    (figure,) = drawn(made, "forest", metrics=["skill"])
    assert figure.name == "forest-skill"
    assert [x for x, _ in lines_of(figure, "line")] == [[0.0, 0.0]]
    assert "chance" in texts_of(svg_text(figure))
    assert [figure.name for figure in drawn(made, "forest")] == ["forest-accuracy"]
    assert not drawn(made, "forest", metrics=["f1"])


def test_the_suites_own_main_metric() -> None:
    suite = suite_on("a", "m", accuracy=metric(0.7, 0.6, 0.8), latency=metric(9.0, 8.0, 10.0, kind="mean"))
    suite = replace(suite, info=replace(suite.info, primary_metric="latency", higher_is_better=False))
    assert [figure.name for figure in drawn(report([suite]), "forest")] == ["forest-latency"]


def test_many_suites_are_cut_and_said() -> None:
    suites = [suite_on(f"suite {place}", "m", accuracy=metric(0.5, 0.4, 0.6)) for place in range(75)]
    (figure,) = drawn(report(suites), "forest")
    assert len(lines_of(figure, "value")) == 60
    assert figure.title == "accuracy by suite (the first 60 of 75)"
    (few,) = drawn(report(suites[:10]), "forest")
    assert figure.figure.get_figheight() > 4 * few.figure.get_figheight()


def test_reliability_has_the_reports_bins_and_ece(whole: Report) -> None:
    (figure,) = drawn(whole, "reliability")
    suites = [suite for suite in whole.suites if suite.reliability]
    bins = [one for suite in suites for one in suite.reliability or () if one.n]
    assert [height for _, _, _, height in patches_of(figure, "accuracy")] == [one.accuracy for one in bins]
    assert [height for _, _, _, height in patches_of(figure, "count")] == [one.n for one in bins]
    gaps = [abs((one.accuracy or 0) - (one.confidence or 0)) for one in bins]
    assert [height for _, _, _, height in patches_of(figure, "gap")] == pytest.approx(gaps)
    frames = [patch for axes in figure.figure.axes for patch in axes.patches if patch.get_gid() == "gap"]
    assert all(frame.get_linewidth() > 0 and frame.get_visible() for frame in frames)
    above = [one.accuracy for one in bins if (one.accuracy or 0) > (one.confidence or 0)]
    assert above
    assert [y for _, y in lines_of(figure, "top")] == [[accuracy] * 2 for accuracy in above]
    assert "ECE 0.110 [0.050, 0.300]" in figure.description
    assert any("ECE 0.110 [0.050, 0.300]" in text for text in texts_of(svg_text(figure)))


def test_gaps_look_as_the_key_says_on_bars_and_on_the_page(whole: Report) -> None:
    """Where the accuracy is above the confidence, the gap lies in a bar: nothing of that may shine through."""
    (figure,) = drawn(whole, "reliability")
    by_gid = {
        gid: {
            (to_rgba(patch.get_facecolor()), to_rgba(patch.get_edgecolor()), patch.get_linewidth())
            for axes in figure.figure.axes
            for patch in axes.patches
            if patch.get_gid() == gid
        }
        for gid in ("accuracy", "gap")
    }
    swatches = [one for one in figure.figure.get_children() if isinstance(one, Rectangle) and one.get_width() < 0.5]
    shown = [(to_rgba(one.get_facecolor()), to_rgba(one.get_edgecolor()), one.get_linewidth()) for one in swatches]
    assert [{one} for one in shown] == [by_gid["accuracy"], by_gid["gap"]]
    bar, (face, edge, width) = shown[0][0], shown[1]
    assert face[3] == edge[3] == 1.0
    assert width > 0
    assert face != edge
    assert contrast(to_hex(bar), to_hex(face)) >= 3


def test_risk_over_coverage_by_hand(whole: Report) -> None:
    (figure,) = drawn(whole, "risk-coverage")
    first, second = lines_of(figure, "curve")
    right = [accuracy for _, accuracy in CONFIDENCES]
    # the last two have the same confidence
    counts = [1, 2, 3, 4, 5, 6, 8]
    assert first[0] == [count / 8 for count in counts]
    assert first[1] == pytest.approx([1 - sum(right[:count]) / count for count in counts])
    assert len(second[0]) == 6
    assert "one: AURC " in figure.description
    assert "risk at 100% 0.500 [0.215, 0.785]" in figure.description


def test_risk_over_coverage_of_one_model_and_of_clusters() -> None:
    records = confident("a", "gpt2")
    suite = replace(suite_report("a"), reliability=reliability(records))
    unscored = replace(records[0], id="lost", status="unscored")
    (figure,) = drawn(report([suite], [*records, unscored, replace(records[0], id="no", values={})]), "risk-coverage")
    assert "n 8" in figure.description
    assert lines_of(figure, "interval")
    clustered = replace(suite, info=replace(suite.info, cluster="passage"))
    (figure,) = drawn(report([clustered], records), "risk-coverage")
    assert not lines_of(figure, "interval")


@pytest.mark.parametrize(
    ("confidences", "said"),
    [
        ([0.9] * 6 + [0.2] * 7, ["100%"]),  # 46% of the samples, then all of them
        ([0.9] * 6 + [0.5] * 2 + [0.2] * 5, ["62%", "100%"]),
        ([0.9, 0.8, 0.7, 0.6], ["50%", "100%"]),
        ([0.9] * 4, ["100%"]),
    ],
)
def test_risk_is_said_at_the_coverage_that_it_has(confidences: Sequence[float], said: Sequence[str]) -> None:
    records = confident("a", "gpt2", [(confidence, float(place % 2)) for place, confidence in enumerate(confidences)])
    suite = replace(suite_report("a"), reliability=reliability(records))
    (figure,) = drawn(report([suite], records), "risk-coverage")
    assert re.findall(r"risk at (\S+) ", figure.description) == said


def test_a_long_curve_is_thinned() -> None:
    records = confident("a", "gpt2", [(place / 5000, float(place % 3 > 0)) for place in range(1, 5001)])
    suite = replace(suite_report("a"), reliability=reliability(records))
    (figure,) = drawn(report([suite], records), "risk-coverage")
    ((coverages, _),) = lines_of(figure, "curve")
    assert 300 < len(coverages) <= 402
    assert coverages[-1] == 1.0
    assert len(svg_text(figure)) < 40_000


def test_pass_at_k(whole: Report) -> None:
    (figure,) = drawn(whole, "pass-at-k")
    heights = [y for _, y in lines_of(figure, "interval")]
    assert heights[:3] == [[0.2, 0.4], [0.6, 0.8], [0.02, 0.2]]
    assert "one, pass@k: k 1 0.300 [0.200, 0.400], k 4 0.700 [0.600, 0.800]" in figure.description
    markers = [line for line in figure.figure.axes[0].lines if line.get_marker() == "o"]
    drawn_at = [x for line in markers for x in np.asarray(line.get_xdata(), dtype=float)]
    assert drawn_at == pytest.approx([1.0, 4.0, 4.0], rel=0.06)
    only_one = report([suite_on("a", "m", pass_at_1=metric(0.3, 0.2, 0.4))])
    assert not drawn(only_one, "pass-at-k")


def test_a_number_of_replies_that_no_axis_has() -> None:
    names = ("pass@1", "pass@4", f"pass@{'9' * 400}", f"pass@{'9' * 5000}")
    suite = suite_on("a", "m")
    suite = replace(suite, summary=summary(dict.fromkeys(names, metric(0.5, 0.4, 0.6))))
    (figure,) = drawn(report([suite]), "pass-at-k")
    assert [x for x, _ in lines_of(figure, "interval")] == [[1.0, 1.0], [4.0, 4.0]]
    svg_text(figure)


def test_agreement_of_judges(whole: Report) -> None:
    (figure,) = drawn(whole, "agreement")
    assert [x for x, _ in lines_of(figure, "interval")] == [[-0.1, 0.8], [-0.1, 0.8], [0.6, 0.9], [0.6, 0.9]]
    assert "capitals judged: kappa with people" in texts_of(svg_text(figure))


def test_price_is_cost_tokens_and_seconds() -> None:
    """Of each what is known of two suites or more: of one alone there is nothing to compare."""
    known = {"n": 40, "num_prompt_tokens": 30.0, "num_tokens": 12.0, "seconds": 0.5}
    cheap = PerSample(**known, num_counted=40, cost=0.25, num_priced=40)  # type: ignore[arg-type]
    dear = replace(cheap, cost=0.5, seconds=0.75)
    free = replace(cheap, cost=None, num_priced=0)
    quick = replace(free, num_counted=0, seconds=1e-6)  # a function that calls nothing
    suites = [
        replace(suite_on(name, "m", accuracy=metric(0.7, 0.6, 0.8)), per_sample=used)
        for name, used in (("a", cheap), ("b", dear), ("c", free), ("d", quick), ("e", None))
    ]
    figures = {figure.title: figure for figure in drawn(report(suites), "price")}
    assert [*figures] == [f"accuracy and {unit} of a sample" for unit in ("cost", "tokens", "seconds")]
    prices = [[x[0] for x, _ in lines_of(figure, "value")] for figure in figures.values()]
    assert prices == [[0.25, 0.5], [42.0] * 3, [0.5, 0.75, 0.5]]
    assert all(y == [0.6, 0.8] for figure in figures.values() for _, y in lines_of(figure, "interval"))
    assert [figure.name for figure in figures.values()] == [
        f"price-accuracy-{unit}" for unit in ("cost", "tokens", "seconds")
    ]
    assert not drawn(report(suites[1:3]), "price")[2:]
    assert not drawn(report(suites[:1]), "price")


def test_numbers_of_points_that_lie_on_each_other_stand_together() -> None:
    known = {"n": 40, "num_prompt_tokens": 30.0, "seconds": 0.5, "num_counted": 40, "cost": None, "num_priced": 0}
    suites = [
        replace(
            suite_on(name, model, accuracy=metric(value, 0.4, 0.9)),
            per_sample=PerSample(**known, num_tokens=tokens),  # type: ignore[arg-type]
        )
        for model in ("m", "m2")
        for name, value, tokens in (("a", 0.7, 10.0), ("b", 0.5, 10.0), ("c", 0.701, 10.5), ("d", 0.7, 50.0))
    ]
    figure = next(figure for figure in drawn(report(suites), "price") if "tokens" in figure.title)
    labels = {one.get_text(): one.xy for one in figure.figure.axes[0].texts if isinstance(one, Annotation)}
    assert labels == {"1, 3": (40.5, 0.701), "2": (40.0, 0.5), "4": (80.0, 0.7)}
    assert figure.num_suites == 4


def test_an_axis_shows_how_large_a_difference_is() -> None:
    """From one end of what a metric can be to the other; of one without ends, orders of magnitude are logarithmic."""
    suites = [
        suite_on("a", "m", accuracy=metric(0.65, 0.64, 0.66)),
        suite_on("b", "m", accuracy=metric(0.66, None, None)),
    ]
    (figure,) = drawn(report(suites), "forest")
    assert figure.figure.axes[0].get_xlim() == (0.0, 1.0)
    values = [
        suite_on(name, "m", word_perplexity=metric(value, None, None)) for name, value in (("a", 9.0), ("b", 1e9))
    ]
    (figure,) = drawn(report(values), "forest")
    assert figure.figure.axes[0].get_xscale() == "log"


def test_names_are_safe_and_unique() -> None:
    names = ["Ünïcode/../x", "unicode x", "中文", "日本", "a" * 300, "a" * 299 + "b", "CON", ""]
    suites = [replace(suite_report(name), reliability=reliability(confident(name, "m"))) for name in names]
    found = [figure.name for figure in drawn(report(suites, []), "reliability")]
    assert len(set(found)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and len(name) <= 70 for name in found)


def test_of_nothing_there_is_no_figure() -> None:
    assert drawn(report([], [])) == []


def test_a_single_model_needs_no_key() -> None:
    figures = drawn(report([suite_on("a", "only-model", accuracy=metric(0.7, 0.6, 0.8))]), "forest", "price")
    assert all("only-model" not in svg_text(figure) for figure in figures)


def test_the_models_of_the_key(whole: Report) -> None:
    texts = texts_of(svg_text(drawn(whole, "forest")[0]))
    assert {FIRST.split("/")[1], SECOND.split("/")[1]} <= set(texts)


@settings(max_examples=examples(40))
@given(reports)
def test_any_report_is_drawn(made: Report) -> None:
    for figure in drawn(made):
        svg_text(figure)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e308), st.floats(0, 1e308))
@settings(max_examples=examples(40))
def test_any_number_is_drawn(value: float, below: float, above: float) -> None:
    found = metric(value, value - below, value + above, kind="mean")
    for figure in drawn(report([suite_on("a", "m", accuracy=found), suite_on("b", "m", accuracy=found)])):
        svg_text(figure)
