"""One figure of a report with the words around it, and what of the report it shows."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_llmeval.reporting.figures.style import Key, finite, label
from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.reporting.terminal.metric_tables import metrics_shown, with_interval
from pytest_llmeval.reporting.terminal.suite_texts import short_model_names, suite_row
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.summary import Metric, why_no_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "MAX_ROWS",
    "FigureNames",
    "PlannedFigure",
    "ReportFigure",
    "Shown",
    "direction",
    "ends_of",
    "first_rows",
    "metric_text",
]


_MAX_NAME = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigure:
    """A drawn figure. ``kind`` is one of ``KINDS``.

    ``name`` is unique in its report, of ``a-z``, ``0-9`` and ``-``, and safe as the name of a file. ``title`` is what a
    reader sees above the figure, which has none of its own: a page's caption, or written above it in a file.
    ``description`` says in one or two sentences what it shows, with the main numbers: the alternative text. Both are
    plain text: what writes them into a page escapes them. ``num_suites`` are compared by price in it.
    """

    kind: str
    name: str
    title: str
    description: str
    figure: Figure
    num_suites: int = 1


@dataclass(frozen=True, slots=True)
class PlannedFigure:
    """A figure that can be chosen by its name before it is drawn; ``drawer`` takes the name."""

    name: str
    drawer: Callable[[str], ReportFigure]

    def draw(self) -> ReportFigure:
        return self.drawer(self.name)


class FigureNames:
    """Gives every figure of a report a name of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, *parts: str) -> str:
        """``reliability-capitals``; with a number where that is taken."""
        name = "-".join(filter(None, map(_slug, parts)))[:_MAX_NAME].strip("-")
        number, candidate = 1, name
        while candidate in self._taken:
            number += 1
            candidate = f"{name}-{number}"
        self._taken.add(candidate)
        return candidate


def _slug(text: str) -> str:
    """Letters without their accents and digits; what stands between them is a dash."""
    text = text.replace("@", " at ").replace("^", " hat ")
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-")


MAX_ROWS = 60
"""Of a figure."""


@dataclass(slots=True)
class Shown:
    """A report, and what its figures have in common. ``metrics`` are those that were asked for, if any."""

    report: Report
    metrics: Collection[str] = ()
    names: FigureNames = field(default_factory=FigureNames)
    short: dict[str, str] = field(init=False)
    series: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.short = short_model_names(self.report)
        self.series = {}
        for suite in self.report.suites:
            self.series.setdefault(self.model_of(suite), len(self.series))

    def model_of(self, suite: SuiteReport) -> str:
        """What the model, or the mixture of models, that answered the suite is called."""
        return ", ".join(self.short.get(model, model) for model in suite.models)

    def series_of(self, model: str | None) -> int:
        """The place of one model of the report among the series; 0 where it is not known."""
        return self.series.get(self.short.get(model or "", model or ""), 0)

    def key_of(self, models: Collection[str]) -> Key:
        """The key of a figure with these models; none of a single one in a report of a single one."""
        found = [name for name in self.series if name in models]
        return [(label(name), self.series[name], "") for name in found] if len(self.series) > 1 else []

    def by_name(self) -> Iterator[tuple[str, list[SuiteReport]]]:
        """The suites, each with its reports on all models."""
        found: dict[str, list[SuiteReport]] = {}
        for suite in self.report.suites:
            found.setdefault(suite.info.name, []).append(suite)
        yield from found.items()

    def metrics_of(self, suite: SuiteReport) -> list[str]:
        """Those that were asked for and that the suite has; else the main one: the suite's own choice, or what a table
        shows first.
        """
        found = suite.summary.metrics
        if self.metrics:
            return [name for name in self.metrics if name in found and found[name].kind != "count"]
        own = suite.info.primary_metric
        names = [own] if own is not None and own in found else metrics_shown([suite_row(suite, self.short)])
        return names[:1]

    def by_metric(self) -> dict[str, dict[str, list[SuiteReport]]]:
        """The suites by metric and name, of those that have a value of it."""
        found: dict[str, dict[str, list[SuiteReport]]] = {}
        for suite in self.report.suites:
            for metric in self.metrics_of(suite):
                if finite(suite.summary.metrics[metric].value) is not None:
                    found.setdefault(metric, {}).setdefault(suite.info.name, []).append(suite)
        return found


def ends_of(metric: Metric) -> tuple[float | None, float | None]:
    """The interval as the report has it; (None, None) where a table shows none."""
    ends = (finite(metric.ci_low), finite(metric.ci_high))
    return ends if None not in ends and why_no_interval(metric) is None else (None, None)


def metric_text(metric: Metric) -> str:
    """``0.944 [0.866, 0.978]``"""
    value = finite(metric.value)
    return "no value" if value is None else with_interval(value, *ends_of(metric))


def direction(metric: str, suite: SuiteReport | None) -> bool | None:
    """Whether a higher value of the suite's metric is better; None where that is not known."""
    if suite is None:
        return definition(metric).higher_is_better
    if metric == suite.info.primary_metric and suite.info.higher_is_better is not None:
        return suite.info.higher_is_better
    return definition(metric, suite.info.better).higher_is_better


def first_rows(rows: Sequence[tuple[str, int]]) -> tuple[int, str]:
    """How many of the rows, each with its number of lines, a figure has; and what to say of the others."""
    lines = 0
    for place, (_, count) in enumerate(rows):
        lines += count
        if lines > MAX_ROWS and place:
            return place, f"the first {place} of {len(rows)}"
    return len(rows), ""
