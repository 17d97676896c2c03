"""The numbers of suites and of their categories, and sentences on one suite: its counts, its means over categories."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from pytest_llmeval.reporting.report.report import Averages, Report, SuiteReport, Summary
from pytest_llmeval.reporting.tables.cells import Table, number, with_interval
from pytest_llmeval.scoring.metrics.definitions import NOT_MEASURABLE, WILDCARD, definition, named_metrics
from pytest_llmeval.scoring.metrics.judged import RATED_METRICS
from pytest_llmeval.scoring.metrics.summary import Metric, why_no_interval
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.text.names import short_names
from pytest_llmeval.text.wording import counted, time_text

__all__ = [
    "USUAL",
    "MetricRow",
    "Section",
    "average_texts",
    "averages_of",
    "category_section",
    "count_text",
    "count_texts",
    "distribution_table",
    "ends_shown",
    "grouped",
    "heading_of",
    "higher_is_better",
    "mean_texts",
    "metric_table",
    "metrics_shown",
    "named",
    "reasons_text",
    "short_model_names",
    "suite_name",
    "suite_row",
    "unlike_texts",
    "usual_metrics",
    "value_text",
    "why_no_value",
]

USUAL = ("accuracy", "skill", "brier")
"""Metrics that most suites have: suites with one of these share a table."""

_HEADINGS: Mapping[str, str] = MappingProxyType({"brier": "Brier"})
"""Metrics that are shown under another name than their own."""

_MAX_REASONS = 3
"""The most reasons for not being measurable that are shown of one metric; the report has all."""
_MAX_SUITES = 3
"""The most suites that are named for defining a metric alike."""
_MAX_NAMED = 3
"""The most metrics that are each named if they share their reasons."""


class MetricRow(NamedTuple):
    """The name of a suite or category, and its numbers.

    ``num_samples`` is how many samples the suite has, if that is known: fewer that were run are said to be a part.
    ``is_mean``: these are means over the rows above, whose n does not count samples. ``asked_for`` are metrics that the
    suite names: they are shown even if they are of minor interest.
    """

    name: str
    summary: Summary
    num_samples: int | None = None
    is_mean: bool = False
    asked_for: Collection[str] = ()


class Section(NamedTuple):
    """The categories of one suite, and its metrics' means over them, every category counting equally."""

    suite: str
    rows: Sequence[MetricRow]
    macro: Mapping[str, Metric] = MappingProxyType({})


def short_model_names(report: Report) -> dict[str, str]:
    """Map each model of the session to its name for places with little room."""
    return dict(zip(report.model_names, short_names(report.model_names), strict=True))


def named(suite: str, model: str | None, names: Mapping[str, str]) -> str:
    """Return a suite's name, with its model if the session had several; ``names`` are ``short_model_names``."""
    return f"{suite} ({names.get(model, model)})" if model and len(names) > 1 else suite


def suite_name(suite: SuiteReport, names: Mapping[str, str]) -> str:
    """Return the name of a report's suite as ``named`` does."""
    return named(suite.info.name, ", ".join(names.get(model, model) for model in suite.models), names)


def suite_row(suite: SuiteReport, names: Mapping[str, str]) -> MetricRow:
    """Return the row of a suite."""
    num_samples = suite.info.num_samples if suite.is_selection else None
    return MetricRow(suite_name(suite, names), suite.summary, num_samples, asked_for=_asked_for(suite))


def category_section(suite: SuiteReport, names: Mapping[str, str]) -> Section:
    """Return the categories of a suite."""
    rows = [MetricRow(name, summary, asked_for=_asked_for(suite)) for name, summary in suite.categories.items()]
    return Section(suite_name(suite, names), rows, suite.macro)


def _asked_for(suite: SuiteReport) -> tuple[str, ...]:
    """Return the metrics that the settings of the suite's scorer name."""
    return named_metrics(suite.info.scorer, suite.info.settings)


def grouped(rows: Sequence[MetricRow]) -> Iterator[list[MetricRow]]:
    """Yield the suites that share a table, those with the usual metrics first."""
    groups: dict[tuple[str, ...], list[MetricRow]] = {}
    for row in rows:
        names = metrics_shown([row])
        key = () if not names or any(name in USUAL for name in names) else tuple(names)
        groups.setdefault(key, []).append(row)
    if () in groups:
        yield groups.pop(())
    yield from groups.values()


def metrics_shown(rows: Iterable[MetricRow]) -> list[str]:
    """Return the metrics that tables show, the usual ones first; those of minor interest stay in the report."""
    found = dict.fromkeys(
        name
        for row in rows
        for name, metric in row.summary.metrics.items()
        if metric.kind != "count" and (definition(name).in_terminal or _is_among(name, row.asked_for))
    )
    usual = [name for name in USUAL if name in found]
    return [*usual, *(name for name in found if name not in usual)]


def usual_metrics(rows: Sequence[MetricRow]) -> list[str]:
    """Return the usual metrics among those that tables show of these rows."""
    return [name for name in metrics_shown(rows) if name in USUAL]


def _is_among(name: str, asked_for: Collection[str]) -> bool:
    """Tell whether a metric is asked for: ``precision@5`` is if ``precision@5`` or ``precision`` is named."""
    return name in asked_for or name.partition("@")[0] in asked_for


def metric_table(
    heading: str, rows: Sequence[MetricRow | str], names: Sequence[str], *, is_short: bool = False
) -> Table:
    """Return the table of these metrics. A row that is text alone, ``printable``, becomes a row of one cell."""
    return Table(
        headers=[printable(heading), "n", *(printable(heading_of(name)) for name in names)],
        rows=[
            [row]
            if isinstance(row, str)
            else [
                printable(row.name),
                count_text(row),
                *(value_text(row.summary.metrics.get(metric), row.summary, is_short=is_short) for metric in names),
            ]
            for row in rows
        ],
        align=["left", "right", *("value" for _ in names)],
        keys=2,
    )


def count_text(row: MetricRow) -> str:
    """Return ``27``, ``27 of 40`` if the suite has more samples, ``25/27`` if not all that ran could be scored."""
    summary, num_samples = row.summary, row.num_samples
    if row.is_mean:
        return ""
    count = str(summary.num_scored)
    if summary.num_scored != summary.num_expected:
        count += f"/{summary.num_expected}"
    return f"{count} of {num_samples}" if num_samples is not None and summary.num_expected < num_samples else count


def heading_of(metric: str) -> str:
    """Return the name under which a metric is shown."""
    return _HEADINGS.get(metric, metric)


def value_text(metric: Metric | None, summary: Summary, *, is_short: bool = False) -> str:
    """Return ``0.944 [0.866, 0.978]``, with the metric's n if it is another than that of the summary."""
    if metric is None or metric.value is None:
        return ""
    n = "" if metric.n == summary.num_scored else f" (n {metric.n})"
    return f"{with_interval(metric.value, *ends_shown(metric), is_short=is_short)}{n}"


def ends_shown(metric: Metric) -> tuple[float | None, float | None]:
    """Return the interval that tables show: that of one sample says nothing."""
    return (None, None) if metric.n == 1 else (metric.ci_low, metric.ci_high)


def higher_is_better(metric: str, suite: SuiteReport | None) -> bool | None:
    """Tell whether a higher value of the suite's metric is better; None if that is unknown."""
    if suite is None:
        return definition(metric).higher_is_better
    if metric == suite.info.primary_metric and suite.info.higher_is_better is not None:
        return suite.info.higher_is_better
    return definition(metric, suite.info.better).higher_is_better


_QUANTILES = ("mean", "sd", "min", "p50", "p95", "max")


def distribution_table(suites: Sequence[SuiteReport], names: Mapping[str, str]) -> Table:
    """Return a row for each metric whose values are more than zeros and ones: how they are spread over samples."""
    rows = []
    for suite in suites:
        for name, found in suite.distributions.items():
            metric = suite.summary.metrics.get(name)
            if metric is not None and metric.kind == "mean":
                numbers = [getattr(found, key) for key in _QUANTILES]
                texts = ["" if value is None else number(value) for value in numbers]
                rows.append([printable(suite_name(suite, names)), printable(name), f"{found.n:,}", *texts])
    headers = ["suite", "metric", "n", *_QUANTILES]
    return Table(headers=headers, rows=rows, align=["left", "left", *("right" for _ in headers[2:])], keys=2)


def count_texts(suite: SuiteReport) -> Iterator[str]:
    """Yield the counts that belong to the suite's scorer, and what is out of the ordinary: ``no answer 3``."""
    summary = suite.summary
    counts = {
        name.replace("_", " "): int(metric.value)
        for name, metric in summary.metrics.items()
        if metric.kind == "count" and metric.value is not None
    }
    if summary.num_no_answer:
        counts.setdefault("no answer", summary.num_no_answer)
    if summary.num_truncated:
        counts["cut at max_tokens"] = summary.num_truncated
    if summary.num_unscored:
        counts["unscored"] = summary.num_unscored
    if suite.num_skipped:
        counts["skipped"] = suite.num_skipped
    is_rare = re.compile(r"(?:.*\.)?(?:ties|failed .*)")
    counts = {name: count for name, count in counts.items() if count or not is_rare.fullmatch(name)}
    if "yes predicted" not in counts:  # one of the counts of yes_no; elsewhere worth a word only if there are any
        counts = {name: count for name, count in counts.items() if count or not name.endswith("no answer")}
    clusters = {(metric.n, metric.num_clusters) for metric in summary.metrics.values() if metric.num_clusters}
    if clusters:
        yield "n {} in {} clusters".format(*max(clusters))
    yield from (f"{name} {count}" for name, count in counts.items())
    yield from _not_measurable(summary.not_measurable)
    counts_as = suite.info.settings.get(NOT_MEASURABLE)
    if isinstance(counts_as, Mapping) and counts_as:
        numbers = (f"{name} counts as {value:g}" for name, value in counts_as.items() if isinstance(value, int | float))
        yield "where not measurable " + ", ".join(numbers)
    if suite.num_judge_requests:
        yield _judged_text(suite)
    if suite.info.interval is not None:
        yield f"intervals by {suite.info.interval}"
    for name, metric in summary.metrics.items() if summary.num_scored else ():
        if metric.value is None and (why := why_no_value(name, summary.metrics)) is not None:
            yield f"no {name} ({why})"
    missing: dict[str, list[str]] = {}
    for name in metrics_shown([MetricRow("", summary)]):
        if (why := why_no_interval(summary.metrics[name])) is not None:
            missing.setdefault(why, []).append(name)
    for why, names in missing.items():
        yield f"no interval for {', '.join(names)} ({why})"


def _not_measurable(not_measurable: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield how often metrics had no meaning, in one text for many metrics that share their reasons."""
    shared: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for name, reasons in not_measurable.items():
        shared.setdefault(tuple(reasons.items()), []).append(name)
    for counts, names in shared.items():
        reasons = dict(counts)
        text = f"not measurable {sum(reasons.values())} ({reasons_text(reasons)})"
        if len(names) > _MAX_NAMED:
            yield f"{len(names)} metrics {text}"
            continue
        for name in names:
            # all metrics, of the suite or of one of several scorers
            yield f"{name.removesuffix(WILDCARD).removesuffix('.')} {text}".lstrip()


def _judged_text(suite: SuiteReport) -> str:
    """Say who judged a suite's replies, and what that took."""
    count, tokens = suite.num_judge_requests, suite.num_judge_tokens
    used = [counted(count, "request"), *([f"{tokens:,} tokens"] if tokens else [])]
    return f"judged by {'; '.join(suite.info.judged_by)}: {', '.join(used)}, {time_text(suite.judge_seconds)}"


def why_no_value(metric: str, metrics: Mapping[str, Metric]) -> str | None:
    """Say why a metric of trust in a judge has no value; None for other metrics, and if nothing says why."""
    found = metrics.get(metric)
    rated = metrics.get("judge.agreement")
    is_corrected = metric == "corrected_accuracy"
    of_class = {"judge.sensitivity": "right", "judge.specificity": "wrong"}.get(metric)
    if of_class is not None and rated is not None and rated.n:
        return f"people called no reply {of_class}"
    if (metric in RATED_METRICS and (found is None or found.n == 0)) or (is_corrected and rated and rated.n == 0):
        return "people rated none of these replies"
    if metric in ("judge.kappa", "judge.alpha", "order_kappa"):
        return "all ratings are the same"
    if metric != "corrected_accuracy":
        return None
    shares = [metrics[name].value if name in metrics else None for name in ("judge.sensitivity", "judge.specificity")]
    for value, kind in zip(shares, ("right", "wrong"), strict=True):
        if value is None:
            return f"people called no reply {kind}"
    sensitivity, specificity = shares
    if sensitivity is not None and specificity is not None and sensitivity + specificity <= 1 + 1e-9:
        return f"sensitivity {number(sensitivity)} and specificity {number(specificity)} of the judge say nothing"
    return None


def reasons_text(reasons: Mapping[str, int]) -> str:
    """Return the most frequent reasons, each with its number if there are several."""
    found = sorted(reasons.items(), key=lambda reason: -reason[1])
    shown = [f"{reason} {number}" if len(found) > 1 else reason for reason, number in found[:_MAX_REASONS]]
    return "; ".join([*shown, *(["…"] if len(found) > _MAX_REASONS else [])])


def averages_of(averages: Averages) -> Iterator[tuple[str, list[str]]]:
    """Yield the kind of each average over suites, ``macro`` or ``micro``, with the means of that kind."""
    for kind, metrics, parts in (("macro", averages.macro, "suite"), ("micro", averages.micro, None)):
        if means := [*mean_texts(metrics, parts=parts)]:
            yield kind, means


def average_texts(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the averages over suites, or why there are none. Not yet ``printable``."""
    for averages in report.averages:
        for kind, means in averages_of(averages):
            yield f"{kind} average over {named('suites', averages.model, names)}: {', '.join(means)}"
        yield from unlike_texts(averages)


def unlike_texts(averages: Averages) -> Iterator[str]:
    """Say why metrics have no mean over suites that would be shown if they had one.

    Metrics of the same definitions in the same suites share a text, and suites of one definition its mention.
    """
    if any(name in averages.macro for name in USUAL):
        return
    by_forms: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, forms in averages.unlike.items():
        if definition(name).in_terminal:
            by_forms.setdefault(tuple(forms.items()), []).append(name)
    for pairs, metrics in by_forms.items():
        suites: dict[str, list[str]] = {}
        for suite, form in pairs:
            suites.setdefault(form or "no settings", []).append(suite)
        listed = "; ".join(f"{form} in {_first(own)}" for form, own in suites.items())
        yield f"no average over suites for {', '.join(metrics)}: {listed}"


def _first(suites: Sequence[str]) -> str:
    more = f" and {len(suites) - _MAX_SUITES} more" if len(suites) > _MAX_SUITES else ""
    return f"{', '.join(suites[:_MAX_SUITES])}{more}"


def mean_texts(metrics: Mapping[str, Metric], *, parts: str | None = None) -> Iterator[str]:
    """Yield means over categories or suites: of the usual metrics, or of the first one if there is no usual metric.

    ``n`` of such a mean is a number of categories or suites; it is shown if it is less than the largest. ``parts`` is
    what each counts equally, such as ``suite``; None if each sample does. A mean without an interval says why.
    """
    found = {name: metric.value for name, metric in metrics.items() if metric.value is not None}
    shown = [name for name in USUAL if name in found] or list(found)[:1]
    largest = max((metrics[name].n for name in shown), default=0)
    for name in shown:
        metric = metrics[name]
        n = "" if metric.n == largest else f" (n {metric.n})"
        if parts is None:
            why = why_no_interval(metric)
        else:
            why = (metric.no_interval or f"not every {parts} has one") if metric.ci_low is None else None
        if why is not None:
            n += f" (no interval: {why})"
            metric = replace(metric, ci_low=None, ci_high=None)
        yield f"{heading_of(name)} {with_interval(found[name], metric.ci_low, metric.ci_high)}{n}"
