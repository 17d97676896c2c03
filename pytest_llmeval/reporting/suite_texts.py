"""What is said of one suite in a few words: its name, its counts, its means over categories, its speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_llmeval.models.names import short_names
from pytest_llmeval.reporting.metric_tables import HEADINGS, USUAL, with_interval
from pytest_llmeval.reporting.report import Report, SuiteReport
from pytest_llmeval.scoring.metrics import Metric

__all__ = ["count_texts", "mean_texts", "named", "short_model_names", "suite_name"]


def short_model_names(report: Report) -> dict[str, str]:
    """What each model of the session is called where there is little room."""
    models = tuple(dict.fromkeys(model for suite in report.suites for model in suite.models))
    return dict(zip(models, short_names(models), strict=True))


def suite_name(suite: SuiteReport, names: Mapping[str, str]) -> str:
    """The suite's name, with its model where the session had several; ``names`` are those of ``short_model_names``."""
    return named(suite.info.name, ", ".join(names.get(model, model) for model in suite.models), names)


def named(suite: str, model: str | None, names: Mapping[str, str]) -> str:
    """A suite with its model, where the session had several."""
    return f"{suite} ({names.get(model, model)})" if model and len(names) > 1 else suite


def count_texts(suite: SuiteReport) -> Iterator[str]:
    """Counts that belong to the scorer, and what is out of the ordinary: ``no answer 3``."""
    summary = suite.summary
    counts = {
        name.replace("_", " "): int(metric.value)
        for name, metric in summary.metrics.items()
        if metric.kind == "count" and metric.value is not None
    }
    if summary.num_no_answer:
        counts.setdefault("no answer", summary.num_no_answer)
    if summary.num_unscored:
        counts["unscored"] = summary.num_unscored
    if suite.num_skipped:
        counts["skipped"] = suite.num_skipped
    if "yes predicted" not in counts:  # one of the counts of yes_no; elsewhere worth a word only if there are any
        counts = {name: count for name, count in counts.items() if count or not name.endswith("no answer")}
    clusters = {(metric.n, metric.num_clusters) for metric in summary.metrics.values() if metric.num_clusters}
    if clusters:
        yield "n {} in {} clusters".format(*max(clusters))
    yield from (f"{name} {count}" for name, count in counts.items())


def mean_texts(metrics: Mapping[str, Metric]) -> Iterator[str]:
    """Means over categories or suites, of the metrics that a table shows first, else of the first there is.

    ``n`` of such a mean is a number of categories or suites; it is told where it is less than the largest.
    """
    found = {name: metric.value for name, metric in metrics.items() if metric.value is not None}
    shown = [name for name in USUAL if name in found] or list(found)[:1]
    largest = max((metrics[name].n for name in shown), default=0)
    for name in shown:
        metric = metrics[name]
        n = "" if metric.n == largest else f" (n {metric.n})"
        yield f"{HEADINGS.get(name, name)} {with_interval(found[name], metric.ci_low, metric.ci_high)}{n}"
