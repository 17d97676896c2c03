"""What is said of one suite in a few words: its name, its counts, its means over categories, its speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_llmeval.reporting.report.report import Averages, Report, SuiteReport
from pytest_llmeval.reporting.terminal.metric_tables import HEADINGS, USUAL, Row, Section, metrics_shown, with_interval
from pytest_llmeval.reporting.terminal.tables import number
from pytest_llmeval.scoring.metrics.definitions import WILDCARD, definition
from pytest_llmeval.scoring.metrics.judged import OF_RATED
from pytest_llmeval.scoring.metrics.metric_forms import NOT_MEASURABLE, named_metrics
from pytest_llmeval.scoring.metrics.summary import Metric, why_no_interval
from pytest_llmeval.text.model_names import short_names
from pytest_llmeval.text.quantities import time_text

__all__ = [
    "category_section",
    "count_texts",
    "mean_texts",
    "named",
    "reasons_text",
    "selection_text",
    "short_model_names",
    "suite_name",
    "suite_row",
    "unlike_texts",
    "why_no_value",
]


_MAX_REASONS = 3
"""Of a metric's not being measurable; the report has all."""
_MAX_SUITES = 3
"""Of one definition of a metric."""
_MAX_NAMED = 3
"""Metrics of one reason that each have a mention."""


def short_model_names(report: Report) -> dict[str, str]:
    """What each model of the session is called where there is little room."""
    return dict(zip(report.model_names, short_names(report.model_names), strict=True))


def suite_name(suite: SuiteReport, names: Mapping[str, str]) -> str:
    """The suite's name, with its model where the session had several; ``names`` are those of ``short_model_names``."""
    return named(suite.info.name, ", ".join(names.get(model, model) for model in suite.models), names)


def suite_row(suite: SuiteReport, names: Mapping[str, str]) -> Row:
    num_samples = suite.info.num_samples if suite.is_selection else None
    return Row(suite_name(suite, names), suite.summary, num_samples, asked_for=_asked_for(suite))


def selection_text(report: Report) -> str | None:
    """Return what was left out of the session, and by what; None where nothing was."""
    by = ", ".join(report.selected.by)
    return f"a selection ({by}): these numbers cover only what was selected" if by else None


def category_section(suite: SuiteReport, names: Mapping[str, str]) -> Section:
    rows = [Row(name, summary, asked_for=_asked_for(suite)) for name, summary in suite.categories.items()]
    return Section(suite_name(suite, names), rows, suite.macro)


def _asked_for(suite: SuiteReport) -> tuple[str, ...]:
    """Metrics that the settings of the suite's scorer name."""
    return named_metrics(suite.info.scorer, suite.info.settings)


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
    if summary.num_truncated:
        counts["cut at max_tokens"] = summary.num_truncated
    if summary.num_unscored:
        counts["unscored"] = summary.num_unscored
    if suite.num_skipped:
        counts["skipped"] = suite.num_skipped
    counts = {name: count for name, count in counts.items() if count or not name.endswith("ties")}
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
        yield judged_text(suite)
    if suite.info.interval is not None:
        yield f"intervals by {suite.info.interval}"
    for name, metric in summary.metrics.items() if summary.num_scored else ():
        if metric.value is None and (why := why_no_value(name, summary.metrics)) is not None:
            yield f"no {name} ({why})"
    missing: dict[str, list[str]] = {}
    for name in metrics_shown([Row("", summary)]):
        if (why := why_no_interval(summary.metrics[name])) is not None:
            missing.setdefault(why, []).append(name)
    for why, names in missing.items():
        yield f"no interval for {', '.join(names)} ({why})"


def _not_measurable(not_measurable: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """How often metrics had no meaning; many that share their reasons are named once, and not each for itself."""
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


def judged_text(suite: SuiteReport) -> str:
    """Who judged a suite's replies, and what that took."""
    count, tokens = suite.num_judge_requests, suite.num_judge_tokens
    used = [f"{count:,} request{'' if count == 1 else 's'}", *([f"{tokens:,} tokens"] if tokens else [])]
    return f"judged by {'; '.join(suite.info.judged_by)}: {', '.join(used)}, {time_text(suite.judge_seconds)}"


def why_no_value(metric: str, metrics: Mapping[str, Metric]) -> str | None:
    """Why a metric of trust in a judge has no value; None for another metric, and where nothing says so."""
    found = metrics.get(metric)
    rated = metrics.get("judge.agreement")
    is_corrected = metric == "corrected_accuracy"
    of_class = {"judge.sensitivity": "right", "judge.specificity": "wrong"}.get(metric)
    if of_class is not None and rated is not None and rated.n:
        return f"people called no reply {of_class}"
    if (metric in OF_RATED and (found is None or found.n == 0)) or (is_corrected and rated and rated.n == 0):
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
    """The most frequent ones, each with its number where there are several."""
    found = sorted(reasons.items(), key=lambda reason: -reason[1])
    shown = [f"{reason} {number}" if len(found) > 1 else reason for reason, number in found[:_MAX_REASONS]]
    return "; ".join([*shown, *(["…"] if len(found) > _MAX_REASONS else [])])


def unlike_texts(averages: Averages) -> Iterator[str]:
    """Why metrics have no mean over suites, of those that a mean would be shown of.

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
    """Means over categories or suites, of the metrics that a table shows first, else of the first there is.

    ``n`` of such a mean is a number of categories or suites; it is shown where it is less than the largest. ``parts``
    is what each counts equally, such as ``suite``; None where each sample does. A mean without an interval says why.
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
        yield f"{HEADINGS.get(name, name)} {with_interval(found[name], metric.ci_low, metric.ci_high)}{n}"
