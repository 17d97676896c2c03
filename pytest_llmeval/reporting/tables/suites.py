"""The numbers of suites and of categories as a terminal shows them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from pytest_llmeval.reporting.report.report import Averages, Report, SuiteReport, Summary
from pytest_llmeval.reporting.writers.text_layout import (
    Coloured,
    Table,
    joined_lines,
    number,
    room_for_names,
    short_number,
    table_lines,
    total_width,
)
from pytest_llmeval.scoring.metrics.definitions import WILDCARD, definition
from pytest_llmeval.scoring.metrics.judged import OF_RATED
from pytest_llmeval.scoring.metrics.metric_forms import NOT_MEASURABLE, named_metrics
from pytest_llmeval.scoring.metrics.summary import Metric, why_no_interval
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.text.model_names import short_names
from pytest_llmeval.text.quantities import time_text

__all__ = [
    "HEADINGS",
    "USUAL",
    "Layout",
    "Row",
    "Section",
    "category_lines",
    "category_section",
    "common_layout",
    "count_texts",
    "grouped",
    "mean_texts",
    "metric_cells",
    "metrics_shown",
    "named",
    "reasons_text",
    "selection_text",
    "short_model_names",
    "suite_lines",
    "suite_name",
    "suite_row",
    "unlike_texts",
    "why_no_value",
    "with_interval",
]


class Row(NamedTuple):
    """The name of a suite or category, and its numbers.

    ``num_samples`` is how many samples the suite has, where that is known: of fewer it is said. ``is_mean``: these are
    means over the rows above, whose n does not count samples. ``asked_for`` are metrics that the suite names: these are
    shown, though they be of minor interest.
    """

    name: str
    summary: Summary
    num_samples: int | None = None
    is_mean: bool = False
    asked_for: Collection[str] = ()


class Section(NamedTuple):
    """The categories of one suite, and its metrics' means over them, every category counting equally."""

    suite: str
    rows: Sequence[Row]
    macro: Mapping[str, Metric] = MappingProxyType({})


USUAL = ("accuracy", "skill", "brier")
"""Metrics that most suites have: suites with one of these share a table."""

HEADINGS: Mapping[str, str] = MappingProxyType({"brier": "Brier"})
"""Metrics that are shown under another name than their own."""

_MAX_CATEGORIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the tables of a summary have in common, so that their columns stand below each other.

    ``is_short``: intervals are written ``.605–.781``. ``widths`` are those of the columns, by their headers; that of
    the names under ``""``.
    """

    is_short: bool
    widths: Mapping[str, int]


def common_layout(suites: Sequence[Row], sections: Sequence[Section], *, width: int) -> Layout:
    """The layout of ``suite_lines`` and ``category_lines``: intervals in full where ``width`` columns hold them."""
    rows = [[row for row in suites if _usual([row])]]
    rows += [_below(section) for section in sections if _usual(section.rows)]
    for is_short in (False, True):
        widths: dict[str, int] = {}
        for members in rows:
            table = _table("", members, _usual(members), is_short=is_short)
            for header, own in zip(table.headers, table.widths, strict=True):
                widths[header] = max(widths.get(header, 0), own)
        if total_width([*widths.values()]) <= width:
            return Layout(is_short=is_short, widths=widths)
    if room := room_for_names([*widths.values()], width):
        return Layout(is_short=True, widths=widths | {"": room})
    return Layout(is_short=True, widths={})


def suite_lines(rows: Sequence[Row], *, width: int, layout: Layout | None = None) -> Iterator[str]:
    """Suites with their metrics: one table for those with accuracy, skill or Brier score, further ones for suites with
    the same other metrics.

    Where the first table has no room for the suites' other metrics, they follow it, suite by suite.
    """
    layout = layout or common_layout(rows, (), width=width)
    for place, group in enumerate(grouped(rows)):
        yield from [""] * (place > 0)
        names, usual = metrics_shown(group), _usual(group)
        shown = names if not usual or _table("suite", group, names, is_short=False).fits(width) else usual
        yield from _lines("suite", group, shown, layout, width)
        for row in group:
            yield from _others(row, names[len(usual) :] if len(shown) < len(names) else (), width)


def category_lines(sections: Sequence[Section], *, width: int, layout: Layout | None = None) -> Iterator[str]:
    """The categories of the suites, those with the same metrics in one table.

    All metrics where there is room for them, else those that come first.
    """
    layout = layout or common_layout((), sections, width=width)
    by_metrics: dict[tuple[str, ...], list[Section]] = {}
    for section in sections:
        found = metrics_shown(section.rows)
        by_metrics.setdefault(() if any(name in USUAL for name in found) else tuple(found), []).append(section)
    for place, group in enumerate(by_metrics.values()):
        yield from [""] * (place > 0)
        heading, rows = "by category", _sections(group)
        counted = [row for row in rows if isinstance(row, Row)]
        names, kept = metrics_shown(counted), _usual(counted)
        if _table(heading, rows, names, is_short=False).fits(width):
            kept = names
        elif not kept:
            fits = (_table(heading, rows, names[: end + 1], is_short=True).fits(width) for end in range(len(names)))
            kept = [name for name, has_room in zip(names, fits, strict=True) if has_room] or names[:1]
        yield from _lines(heading, rows, kept, layout, width)
        if len(kept) < len(names):
            yield "(other metrics by category: in the report)"


def _sections(sections: Sequence[Section]) -> list[Row | str]:
    """The rows of the suites, each suite's below its name."""
    found: list[Row | str] = []
    for section in sections:
        found += [Coloured(printable(section.suite), "bold"), *_below(section)]
        if len(section.rows) > _MAX_CATEGORIES:
            found.append(f"  … and {len(section.rows) - _MAX_CATEGORIES} more categories, all in the report")
    return found


def _below(section: Section) -> list[Row]:
    """The first categories of a suite, and the mean over all of them."""
    rows = [row._replace(name=f"  {row.name}") for row in section.rows[:_MAX_CATEGORIES]]
    macro = {name: metric for name, metric in section.macro.items() if metric.value is not None}
    if macro:
        most = max(metric.n for metric in macro.values())
        mean = Summary(num_expected=most, num_scored=most, num_unscored=0, num_no_answer=0, metrics=macro)
        rows.append(Row(f"  mean of {most}", mean, is_mean=True))
    return rows


def grouped(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The suites that share a table, those with the usual metrics first."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        names = metrics_shown([row])
        key = () if not names or any(name in USUAL for name in names) else tuple(names)
        groups.setdefault(key, []).append(row)
    if () in groups:
        yield groups.pop(())
    yield from groups.values()


def metrics_shown(rows: Iterable[Row]) -> list[str]:
    """Metrics with an interval, the usual ones first; what is of minor interest stays in the report."""
    found = dict.fromkeys(
        name
        for row in rows
        for name, metric in row.summary.metrics.items()
        if metric.kind != "count" and (definition(name).in_terminal or _is_among(name, row.asked_for))
    )
    usual = [name for name in USUAL if name in found]
    return [*usual, *(name for name in found if name not in usual)]


def _is_among(name: str, asked_for: Collection[str]) -> bool:
    """``precision@5`` is, where it is there or ``precision`` is."""
    return name in asked_for or name.partition("@")[0] in asked_for


def _usual(rows: Sequence[Row]) -> list[str]:
    return [name for name in metrics_shown(rows) if name in USUAL]


def _lines(heading: str, rows: Sequence[Row | str], names: Sequence[str], layout: Layout, width: int) -> Iterator[str]:
    full = _table(heading, rows, names, is_short=False)
    widths: Mapping[str, int] = {}
    if layout.widths and any(name in USUAL for name in names):
        widths = {**layout.widths, heading: layout.widths[""]}
    is_short = not full.fits(width) or (layout.is_short and bool(widths))
    table = _table(heading, rows, names, is_short=True) if is_short else full
    yield from table_lines(table, width=width, widths=widths)


def _table(heading: str, rows: Sequence[Row | str], names: Sequence[str], *, is_short: bool) -> Table:
    headers, cells, align = metric_cells(heading, rows, names, is_short=is_short)
    return Table(headers=headers, rows=cells, align=align, keys=2)


def metric_cells(
    heading: str, rows: Sequence[Row | str], names: Sequence[str], *, is_short: bool = False
) -> tuple[list[str], list[list[str]], list[str]]:
    """Headers, rows and alignment of a table, its texts made ``printable``.

    A row that is text alone is one cell, and ``printable``.
    """
    headers = [printable(heading), "n", *(printable(HEADINGS.get(name, name)) for name in names)]
    cells = [
        [row]
        if isinstance(row, str)
        else [
            printable(row.name),
            _count(row),
            *(_value(row.summary.metrics.get(metric), row.summary, is_short) for metric in names),
        ]
        for row in rows
    ]
    return headers, cells, ["left", "right", *("left" for _ in names)]


def _others(row: Row, names: Sequence[str], width: int) -> Iterator[str]:
    found = {metric: _value(row.summary.metrics.get(metric), row.summary, False) for metric in names}
    items = [f"{printable(metric)} {value}" for metric, value in found.items() if value]
    if items:
        yield from joined_lines(f"{printable(row.name)}:", items, width=width)


def _count(row: Row) -> str:
    """``27``, of a suite with more samples ``27 of 40``; ``25/27`` where not all that were to run could be scored."""
    summary, num_samples = row.summary, row.num_samples
    if row.is_mean:
        return ""
    count = str(summary.num_scored)
    if summary.num_scored != summary.num_expected:
        count += f"/{summary.num_expected}"
    return f"{count} of {num_samples}" if num_samples is not None and summary.num_expected < num_samples else count


def _value(metric: Metric | None, summary: Summary, is_short: bool) -> str:
    if metric is None or metric.value is None:
        return ""
    n = "" if metric.n == summary.num_scored else f" (n {metric.n})"
    ends = (None, None) if metric.n == 1 else (metric.ci_low, metric.ci_high)  # one sample's says nothing
    return f"{with_interval(metric.value, *ends, is_short=is_short)}{n}"


def with_interval(value: float, ci_low: float | None, ci_high: float | None, *, is_short: bool = False) -> str:
    """``0.700 [0.605, 0.781]``, or short ``0.700 .605–.781``; the value alone where it has no interval."""
    if ci_low is None or ci_high is None:
        return number(value)
    if is_short:
        return f"{number(value)} {short_number(ci_low)}–{short_number(ci_high)}"
    return f"{number(value)} [{number(ci_low)}, {number(ci_high)}]"


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
