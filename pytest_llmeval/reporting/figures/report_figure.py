"""The figures of a report without their drawings: names, words, and the metrics, suites and models they show.

Nothing here needs matplotlib.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.reporting.tables.cells import with_interval
from pytest_llmeval.reporting.tables.suites import metrics_shown, short_model_names, suite_row
from pytest_llmeval.scoring.metrics.summary import Metric, why_no_interval
from pytest_llmeval.text.escaping import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "MAX_ROWS",
    "Key",
    "LineStyle",
    "PlannedFigure",
    "ReportFigure",
    "Shown",
    "Swatch",
    "ends_of",
    "finite",
    "first_rows",
    "label",
    "listed",
    "metric_text",
]


LineStyle: TypeAlias = Literal["", "-", ":"]
Swatch: TypeAlias = Literal["bar", "frame"]
"""The mark of a series of areas in a key: a filled area, or one drawn by ``frame_of``."""
Key: TypeAlias = Sequence[tuple[str, int, LineStyle | Swatch]]
"""The key at a figure's top: texts, their series, and the styles of their lines or areas."""

_MAX_NAME = 60
_MAX_LABEL = 40
_LARGEST = 1e100
"""Larger numbers are not drawn, since sums of them overflow."""
_NOT_XML = re.compile("[\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigure:
    """A drawn figure. ``kind`` is one of ``KINDS``.

    ``name`` is unique in its report, made of ``a-z``, ``0-9`` and ``-``, and safe as a file's name. ``title`` stands
    above the figure in a file, and in the caption of a page. ``description`` is the alternative text: it says in one or
    two sentences what the figure shows, with the main numbers. Both are plain text, which a page has to escape.
    ``num_suites`` are compared by price. ``suite`` is the only one that a figure is about.
    """

    kind: str
    name: str
    title: str
    description: str
    figure: Figure
    num_suites: int = 1
    suite: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedFigure:
    """A figure that can be chosen by its name before it is drawn; ``drawer`` takes the name."""

    name: str
    drawer: Callable[[str], ReportFigure]

    def draw(self) -> ReportFigure:
        return self.drawer(self.name)


class FigureNames:
    """A source of unique names for the figures of a report."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, *parts: str) -> str:
        """Return a name such as ``reliability-capitals``, with a number if that is taken."""
        name = "-".join(filter(None, map(_slug, parts)))[:_MAX_NAME].strip("-")
        number, candidate = 1, name
        while candidate in self._taken:
            number += 1
            candidate = f"{name}-{number}"
        self._taken.add(candidate)
        return candidate


def _slug(text: str) -> str:
    """Return letters without accents, and digits; everything between them becomes a dash."""
    text = text.replace("@", " at ").replace("^", " hat ")
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-")


MAX_ROWS = 60
"""The most rows of a figure."""


@dataclass(slots=True)
class Shown:
    """A report that is drawn; ``metrics`` are the ones that were asked for, if any."""

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
        """Return the name of the model, or of the models, that answered the suite."""
        return ", ".join(self.short.get(model, model) for model in suite.models)

    def series_of(self, model: str | None) -> int:
        """Return the series of a model of the report; 0 if it is not known."""
        return self.series.get(self.short.get(model or "", model or ""), 0)

    def key_of(self, models: Collection[str]) -> Key:
        """Return the key of a figure with these models; none if figure and report have a single model."""
        found = [name for name in self.series if name in models]
        return [(label(name), self.series[name], "") for name in found] if len(self.series) > 1 else []

    def by_name(self) -> Iterator[tuple[str, list[SuiteReport]]]:
        """Return the suites by name, each with its reports on all models."""
        found: dict[str, list[SuiteReport]] = {}
        for suite in self.report.suites:
            found.setdefault(suite.info.name, []).append(suite)
        yield from found.items()

    def metrics_of(self, suite: SuiteReport) -> list[str]:
        """Return the metrics that were asked for and that the suite has, else its main one.

        The main metric is the suite's own choice, or the one that a table shows first.
        """
        found = suite.summary.metrics
        if self.metrics:
            return [name for name in self.metrics if name in found and found[name].kind != "count"]
        own = suite.info.primary_metric
        names = [own] if own is not None and own in found else metrics_shown([suite_row(suite, self.short)])
        return names[:1]

    def by_metric(self) -> dict[str, dict[str, list[SuiteReport]]]:
        """Return the suites that have a value of a metric, by metric and name."""
        found: dict[str, dict[str, list[SuiteReport]]] = {}
        for suite in self.report.suites:
            for metric in self.metrics_of(suite):
                if finite(suite.summary.metrics[metric].value) is not None:
                    found.setdefault(metric, {}).setdefault(suite.info.name, []).append(suite)
        return found


def ends_of(metric: Metric) -> tuple[float | None, float | None]:
    """Return the report's interval, or (None, None) if tables show none."""
    ends = (finite(metric.ci_low), finite(metric.ci_high))
    return ends if None not in ends and why_no_interval(metric) is None else (None, None)


def metric_text(metric: Metric) -> str:
    """Return a text such as ``0.944 [0.866, 0.978]``."""
    value = finite(metric.value)
    return "no value" if value is None else with_interval(value, *ends_of(metric))


def first_rows(rows: Sequence[tuple[str, int]]) -> tuple[int, str]:
    """Return how many of the rows, each with its number of lines, fit a figure, and a note on the others."""
    lines = 0
    for place, (_, count) in enumerate(rows):
        lines += count
        if lines > MAX_ROWS and place:
            return place, f"the first {place} of {len(rows)}"
    return len(rows), ""


def label(text: str, *, limit: int = _MAX_LABEL) -> str:
    """Return a user's text in one line without control characters, and without the middle if it is long."""
    shown = _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", printable(text))
    if len(shown) <= limit:
        return shown or "(no name)"
    end = limit // 3
    return f"{shown[: limit - end - 1]}…{shown[-end:]}"


def listed(texts: Sequence[str], *, most: int = 6) -> str:
    """Return the first of the texts, for a description."""
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return f"{'; '.join(texts[:most])}{more}"


def finite(value: float | None) -> float | None:
    """Return the value, or None if it cannot be drawn."""
    return value if value is not None and abs(value) <= _LARGEST else None
