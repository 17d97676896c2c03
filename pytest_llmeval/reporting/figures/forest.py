"""Draws forest plots: the metrics of suites, and how far judges can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from pytest_llmeval.reporting.figures.interval_rows import Mark, MarkRow, interval_rows
from pytest_llmeval.reporting.figures.report_figure import PlannedFigure, ReportFigure
from pytest_llmeval.reporting.figures.shown import Shown, ends_of, first_rows, metric_text
from pytest_llmeval.reporting.figures.style import drawing, finite, label, listed
from pytest_llmeval.reporting.report.report import SuiteReport
from pytest_llmeval.scoring.metrics.definitions import definition, split_name

__all__ = ["agreement_figures", "forest_figures"]

_OF_AGREEMENT = {
    "judge.agreement": "agreement with people",
    "judge.kappa": "kappa with people",
    "judge.sensitivity": "sensitivity",
    "judge.specificity": "specificity",
    "judge.alpha": "alpha of the judges",
    "order_consistency": "same verdict in both orders",
    "order_kappa": "kappa of the orders",
}
"""The names of metrics of agreement in a figure; see ``metrics/judged.py``."""


def forest_figures(shown: Shown) -> Iterator[PlannedFigure]:
    """Draw for each metric the suites, with the report's intervals. Skill has a line at chance."""
    for metric, suites in shown.by_metric().items():
        rows = [(label(name), [(suite, metric) for suite in members]) for name, members in suites.items()]
        found = definition(metric)
        title, described = f"{label(metric)} by suite", f"{label(metric)} of each suite with its 95% interval"
        drawer = partial(
            _figure,
            shown,
            rows,
            kind="forest",
            texts=(title, described, label(metric)),
            chance=(0.0, "chance") if split_name(metric)[1] == "skill" else None,
            bounds=(found.lowest, found.highest),
        )
        yield PlannedFigure(shown.names.new("forest", metric), drawer)


def agreement_figures(shown: Shown) -> Iterator[PlannedFigure]:
    """Draw for each judged suite how far its judges agree with people and with each other."""
    rows = [
        (f"{label(name, limit=24)}: {text}", [(suite, metric) for suite in members if _has(suite, metric)])
        for name, members in shown.by_name()
        for metric, text in _metrics_of_agreement(members).items()
    ]
    if rows := [row for row in rows if row[1]]:
        title = "How far judges agree"
        described = (
            "Agreement of judges with people and each other, with 95% intervals; kappa and alpha are 0 by chance"
        )
        texts = (title, described, "1 is perfect; of kappa and alpha, 0 is chance")
        drawer = partial(_figure, shown, rows, kind="agreement", texts=texts, chance=(0.0, ""), bounds=(-1.0, 1.0))
        yield PlannedFigure(shown.names.new("agreement"), drawer)


def _metrics_of_agreement(suites: Sequence[SuiteReport]) -> dict[str, str]:
    """Return the metrics of agreement that the suites have, also of each of several judges."""
    found = {}
    for name in dict.fromkeys(name for suite in suites for name in suite.summary.metrics):
        for base, text in _OF_AGREEMENT.items():
            if name == base:
                found[name] = text
            elif name.endswith(f".{base}"):  # a metric of one of several scorers
                found[name] = f"{label(name.removesuffix(f'.{base}'), limit=16)} {text}"
    return found


def _has(suite: SuiteReport, metric: str) -> bool:
    found = suite.summary.metrics.get(metric)
    return found is not None and finite(found.value) is not None


def _figure(
    shown: Shown,
    rows: Sequence[tuple[str, Sequence[tuple[SuiteReport, str]]]],
    name: str,
    *,
    kind: str,
    texts: tuple[str, str, str],
    chance: tuple[float, str] | None,
    bounds: tuple[float, float],
) -> ReportFigure:
    """Return a figure with a row for each label, and a mark for each of its suites and metrics.

    ``texts`` are title, description and axis.
    """
    count, left_out = first_rows([(text, len(members)) for text, members in rows])
    title, described, what = texts
    models = {shown.model_of(suite) for _, members in rows for suite, _ in members}
    marked = [
        MarkRow(label=text, marks=[_mark(shown, suite, metric) for suite, metric in members])
        for text, members in rows[:count]
    ]
    with drawing():
        figure = interval_rows(
            marked,
            what=what,
            key=shown.key_of(models),
            line_at=None if chance is None else chance[0],
            line_text="" if chance is None else chance[1],
            bounds=bounds,
            is_whole=kind == "forest",
        )
    several = len(shown.series) > 1
    numbers = [
        f"{text}{f' ({label(shown.model_of(suite))})' if several else ''} {metric_text(suite.summary.metrics[metric])}"
        for text, members in rows[:count]
        for suite, metric in members
    ]
    more = f" ({left_out})" if left_out else ""
    return ReportFigure(
        kind=kind,
        name=name,
        title=f"{title}{more}",
        description=f"{described}{more}: {listed(numbers)}.",
        figure=figure,
    )


def _mark(shown: Shown, suite: SuiteReport, metric: str) -> Mark:
    found = suite.summary.metrics[metric]
    low, high = ends_of(found)
    series = shown.series[shown.model_of(suite)]
    return Mark(series=series, value=found.value or 0.0, low=low, high=high, text=metric_text(found))
