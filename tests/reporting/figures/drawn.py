"""Reports with something for every kind of figure, and what a figure shows."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np

from pytest_llmeval.reporting.figures.catalogue import figures_of
from pytest_llmeval.reporting.figures.report_figure import ReportFigure
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Comparison, PerSample, Regression, Report, SuiteReport
from pytest_llmeval.scoring.metrics.calibration import reliability
from pytest_llmeval.scoring.metrics.summary import Metric
from pytest_llmeval.scoring.model_differences import Difference
from tests.reporting.made_reports import gate, record, report, suite_report, summary

FIRST, SECOND = "org/one", "org/two"


def metric(value: float, low: float | None, high: float | None, *, n: int = 40, kind: Any = "proportion") -> Metric:
    return Metric(value=value, n=n, kind=kind, ci_low=low, ci_high=high)


def difference(value: float, low: float | None, high: float | None) -> Difference:
    return Difference(
        n=40, kind="proportion", first=0.5, second=0.5 + value, difference=value, ci_low=low, ci_high=high
    )


def regression(name: str, value: float, low: float | None, high: float | None, *, higher: bool = True) -> Regression:
    return Regression(
        mode="significant",
        metric=name,
        higher_is_better=higher,
        n=40,
        baseline=0.5,
        current=0.5 + value,
        difference=value,
        ci_low=low,
        ci_high=high,
        drop=-value if higher else value,
        margin=0.0,
        method="mcnemar",
        p_value=0.5,
        p_adjusted=0.5,
        p_improved=0.5,
        p_improved_adjusted=0.5,
        family=1,
        alpha=0.05,
    )


CONFIDENCES = ((0.95, 1.0), (0.9, 1.0), (0.8, 0.0), (0.7, 1.0), (0.6, 0.0), (0.55, 1.0), (0.3, 0.0), (0.3, 0.0))


def confident(suite: str, model: str | None, pairs: Sequence[tuple[float, float]] = CONFIDENCES) -> list[Record]:
    return [
        record(
            f"q{place}",
            suite=suite,
            model=model,
            status="correct" if accuracy else "wrong",
            values={"confidence": confidence, "accuracy": accuracy},
        )
        for place, (confidence, accuracy) in enumerate(pairs)
    ]


def suite_on(name: str, model: str, **metrics: Metric) -> SuiteReport:
    """A suite with these metrics, whose names have ``_at_`` for ``@`` and so on."""
    signs = {"_at_": "@", "_hat_": "^", "_dot_": "."}
    named = {}
    for key, value in metrics.items():
        for written, sign in signs.items():
            key = key.replace(written, sign)
        named[key] = value
    used = PerSample(n=40, num_prompt_tokens=30.0, num_tokens=12.0, seconds=0.5, num_counted=40)
    return replace(suite_report(name, models=(model,)), summary=summary(named, 40), per_sample=used)


def report_of_all(name: str = "capitals", first: str = FIRST, second: str = SECOND) -> Report:
    """Two models, and a figure of every kind."""
    suites, records = [], []
    for place, model in enumerate((first, second)):
        own = confident(name, model, CONFIDENCES[place:])
        records += own
        suites.append(
            replace(
                suite_on(
                    name,
                    model,
                    accuracy=metric(0.7 - place / 10, 0.55 - place / 10, 0.82 - place / 10),
                    ece=metric(0.11, 0.05, 0.3, kind="corpus"),
                ),
                reliability=reliability(own),
            )
        )
        suites.append(
            suite_on(
                f"{name} replies",
                model,
                pass_at_1=metric(0.3, 0.2, 0.4),
                pass_at_4=metric(0.7, 0.6, 0.8),
                pass_hat_4=metric(0.1, 0.02, 0.2),
            )
        )
        suites.append(
            suite_on(
                f"{name} judged",
                model,
                rubric=metric(0.6, 0.5, 0.7),
                judge_dot_kappa=metric(0.4, -0.1, 0.8, kind="corpus"),
                judge_dot_agreement=metric(0.8, 0.6, 0.9),
            )
        )
    return report(
        suites,
        records,
        models=({"name": first}, {"name": second}),
        options={"model": [first, second]},
        comparisons=(
            Comparison(suite=name, first=first, second=second, differences={"accuracy": difference(-0.1, -0.2, 0.01)}),
        ),
        gates=(gate(kind="baseline", suite=name, model=first, regression=regression("accuracy", 0.05, -0.02, 0.12)),),
    )


def drawn(made: Report, *kinds: str, metrics: Sequence[str] = ()) -> list[ReportFigure]:
    return list(figures_of(made, kinds, metrics=metrics) if kinds else figures_of(made, metrics=metrics))


def named(figures: Sequence[ReportFigure], name: str) -> ReportFigure:
    (found,) = [figure for figure in figures if figure.name == name]
    return found


def lines_of(figure: ReportFigure, gid: str) -> list[tuple[list[float], list[float]]]:
    """The x and y values of the lines that are marked so."""
    return [
        (np.asarray(line.get_xdata(), dtype=float).tolist(), np.asarray(line.get_ydata(), dtype=float).tolist())
        for axes in figure.figure.axes
        for line in axes.lines
        if line.get_gid() == gid
    ]


def patches_of(figure: ReportFigure, gid: str) -> list[tuple[float, float, float, float]]:
    """Left, bottom, width and height of the rectangles that are marked so."""
    return [
        (patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height())  # type: ignore[attr-defined]
        for axes in figure.figure.axes
        for patch in axes.patches
        if patch.get_gid() == gid
    ]


def texts_of(svg: str) -> list[str]:
    """All texts of an SVG, as a reader sees them."""
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]


def contrast(one: str, other: str) -> float:
    """Of two colours, after WCAG 2.2."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def pdf_pages(pdf: bytes) -> list[str]:
    """The texts of each page, of Latin letters, each in a line. Those that make a ligature are left out."""
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, flags=re.DOTALL):
        commands = zlib.decompressobj().decompress(stream)
        texts = [b"".join(_SHOWN.findall(text)) for text in re.findall(rb"\nBT\n(.*?)\nET\n", commands, re.DOTALL)]
        if texts:
            joined = re.sub(rb"\\([()\\])", rb"\1", b"\n".join(texts))
            found.append(joined.replace(b"\0", b"").decode("latin-1"))  # a letter has one byte or two
    return found


_SHOWN = re.compile(rb"\(((?:\\.|[^()\\])*)\)", re.DOTALL)
