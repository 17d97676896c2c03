"""A report as lines of plain text: what a session prints at its end, and what ``llmeval show`` and ``gate`` print."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Averages, Comparison, GateResult, Report, SuiteReport, Summary
from pytest_llmeval.reporting.tables.cells import Table, Tone, Toned, with_interval
from pytest_llmeval.reporting.tables.comparisons import (
    MAX_FAILED,
    MAX_FLIPPED,
    OUTCOMES,
    comparison_notes,
    comparison_tables,
    flipped_heading,
    flipped_table,
    gate_counts,
    gate_flips,
    gate_name,
    has_improved,
    shown_diff,
    variant_tables,
)
from pytest_llmeval.reporting.tables.samples import cut_field, sample_fields, sample_heading
from pytest_llmeval.reporting.tables.session import (
    budget_texts,
    engine_texts,
    incomplete_texts,
    latency_texts,
    model_texts,
    no_answer_texts,
    per_sample_table,
    server_texts,
    speed_texts,
    store_texts,
    unjudged_texts,
)
from pytest_llmeval.reporting.tables.suites import (
    USUAL,
    MetricRow,
    Section,
    averages_of,
    category_section,
    count_texts,
    distribution_table,
    grouped,
    metric_table,
    metrics_shown,
    short_model_names,
    suite_name,
    suite_row,
    unlike_texts,
    usual_metrics,
)
from pytest_llmeval.reporting.writers.text_layout import (
    columns_of,
    fits,
    joined_lines,
    room_for_names,
    table_lines,
    total_width,
    widths_of,
    wrapped_lines,
)
from pytest_llmeval.text.escaping import printable, shortened, without_commands
from pytest_llmeval.types import JSON

__all__ = [
    "MAX_DETAILED",
    "bounded_lines",
    "category_lines",
    "common_layout",
    "comparison_lines",
    "distribution_lines",
    "gate_flip_lines",
    "gate_lines",
    "latency_lines",
    "main_numbers",
    "printed_lines",
    "sample_lines",
    "session_lines",
    "suite_lines",
    "summary_heading",
    "summary_lines",
]

_MAX_UNSCORED, _MAX_ALIKE = 20, 5
"""The most samples without a score that are shown, and the most of one reason."""
_MAX_SUITES = 3
"""The most suites that a single line tells of."""
MAX_DETAILED = 4
"""The most suites that a session shows in detail without being asked."""
_MAX_ODD = 5
"""The most suites that a short summary names for an oddity."""
_ODD: Mapping[str, Callable[[SuiteReport], int]] = {
    "no answer": lambda suite: suite.summary.num_no_answer,
    "cut at max_tokens": lambda suite: suite.summary.num_truncated,
    "not measurable": lambda suite: max(
        (sum(one.values()) for one in suite.summary.not_measurable.values()), default=0
    ),
    "skipped": lambda suite: suite.num_skipped,
}
_WHERE_MORE_IS = (
    "more: -v (categories, further metrics, speed, all gates), or --llm-report report.html (a page with every sample)"
)
_MAX_CATEGORIES = 50
_MAX_OTHERS = 10
"""The most gates that are listed although a reader need not act on them."""
_END_LINES, _MAX_LINE = 5, 500
"""The lines of a long text that are shown from its start, and from its end; and the most characters of each."""


def summary_heading(report: Report) -> str:
    """Return ``LLM evaluation: gpt2``."""
    models = printable("; ".join(model_texts(report.models)))  # none if tests recorded scores without a model
    return f"LLM evaluation: {models}" if models else "LLM evaluation"


def session_lines(report: Report, *, width: int, is_short: bool = False) -> Iterator[str]:
    """Yield what a session prints below the heading: the summary, and before it that its numbers have intervals."""
    if any(metric.ci_low is not None for suite in report.suites for metric in suite.summary.metrics.values()):
        yield "each number with its 95% interval"
    yield from summary_lines(report, width=width, is_short=is_short)


def summary_lines(report: Report, *, width: int, is_short: bool = False) -> Iterator[str]:
    """Yield what a user reads at the end: suites, categories, what could not be scored, tokens and speed, gates.

    A table wider than ``width`` columns becomes a list. Every value is shown with the 95% interval of its metric.
    ``is_short``: leave out categories, further metrics and counts of single suites, speed, and gates that passed.
    """
    names = short_model_names(report)
    rows = [suite_row(suite, names) for suite in report.suites]
    sections = [category_section(suite, names) for suite in report.suites if len(suite.categories) > 1]
    sections = [] if is_short else sections
    layout = common_layout(rows, sections, width=width)
    yield from suite_lines(rows, width=width, layout=layout, is_short=is_short)
    for averages in report.averages:
        yield from _average_lines(averages, names, width, is_short=is_short)
    yield from _odd_lines(report.suites, names, width) if is_short else _count_lines(report.suites, names, width)
    for text in (*no_answer_texts(report, names), *unjudged_texts(report, names)):
        yield from textwrap.wrap(
            text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False, tabsize=1
        )
    if report.comparisons:
        yield ""
        yield from comparison_lines(report.comparisons, names, width=width)
    if report.variants:
        yield ""
        yield from _matrix_lines(partial(variant_tables, report.variants, names), width)
    for note in comparison_notes(report, names):
        yield from wrapped_lines(note, width=width)
    if (took := per_sample_table(report, names)).rows:
        yield from ("", "a sample took, in the mean:", *table_lines(took, width=width))
    if sections:
        yield ""
        yield from category_lines(sections, width=width, layout=layout)
    yield from _unscored_lines(report)
    for problem in report.problems:
        yield f"problem: {printable(problem)}"
    yield from map(printable, incomplete_texts(report))
    timing = [] if is_short else [*speed_texts(report), *latency_lines(report.suites, names, width=width)]
    if timing:
        yield from ("", *timing)
    for text in (*budget_texts(report), *store_texts(report)):
        yield from wrapped_lines(printable(text), width=width)
    for models in () if report.is_brief else (report.models, report.judges):
        yield from server_texts(models)
    # That a suite was computed plain after all, as the audit asked for, is said nowhere else.
    told = [suite for suite in report.suites if not is_short or (suite.engine and suite.engine.engine == "plain")]
    yield from engine_texts(told, names)
    if report.gates:
        yield from () if is_short else ("",)
        yield from gate_lines(report.gates, names, width=width, is_short=is_short)
    if is_short:
        yield from wrapped_lines(_WHERE_MORE_IS, width=width)


def _count_lines(suites: Sequence[SuiteReport], names: Mapping[str, str], width: int) -> Iterator[str]:
    for suite in suites:
        if counts := [printable(text) for text in count_texts(suite)]:
            yield from joined_lines(f"{printable(suite_name(suite, names))}:", counts, width=width)


def _odd_lines(suites: Sequence[SuiteReport], names: Mapping[str, str], width: int) -> Iterator[str]:
    """Yield the suites in which something is out of the ordinary: ``no answer: gsm8k 1; skipped: boolq 2``."""
    parts = []
    for what, count in _ODD.items():
        found = [(suite_name(suite, names), count(suite)) for suite in suites]
        items = [f"{printable(name)} {number:,}" for name, number in found if number]
        if len(items) > _MAX_ODD:
            items[_MAX_ODD:] = [f"and {len(items) - _MAX_ODD} suites more"]
        if items:
            parts.append(f"{what}: {', '.join(items)}")
    if parts:
        yield from wrapped_lines("; ".join(parts), width=width)


def printed_lines(line: str, *, width: int, wraps: bool) -> list[str]:
    """Return the line as it is printed: no command to GitHub Actions, and wrapped if its reader would break words."""
    safe = without_commands(line)
    if not wraps or columns_of(safe) <= width:
        return [safe]
    return wrapped_lines(safe, width=width, indent=" " * (len(safe) - len(safe.lstrip()) + 2))


def main_numbers(report: Report) -> str:
    """Return one line with each suite's first metric, or their mean if there are more than a few suites.

    ``LLM evaluation: sums accuracy 0.500 [0.150, 0.850], n 4; gates: 1 failed``
    """
    names = short_model_names(report)
    parts = []
    for suite in report.suites:
        row = suite_row(suite, names)
        for metric in metrics_shown([row])[:1]:
            found = suite.summary.metrics[metric]
            value = "-" if found.value is None else with_interval(found.value, found.ci_low, found.ci_high)
            parts.append(f"{row.name} {metric} {value}, n {found.n:,}")
    if len(parts) > _MAX_SUITES:
        num_samples = sum(suite.summary.num_scored for suite in report.suites)
        means = [
            f"macro average {texts[0]}" + (f" of {names.get(averages.model, averages.model)}" if averages.model else "")
            for averages in report.averages
            for kind, texts in averages_of(averages)
            if kind == "macro"
        ]
        parts = [f"{len(report.suites):,} suites, {num_samples:,} samples", *means[:_MAX_SUITES]]
    num_unscored = sum(suite.summary.num_unscored for suite in report.suites)
    parts += [f"{num_unscored:,} could not be scored"] if num_unscored else []
    parts += [f"problem: {problem}" for problem in report.problems[:1]]
    parts += [gate_counts(report.gates)] if report.gates else []
    return printable(f"LLM evaluation: {'; '.join(parts)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout that the tables of a summary share, so that their columns stand below each other.

    ``is_short``: intervals are written ``.605–.781``. ``widths`` are those of the columns, by their headers; that of
    the names under ``""``.
    """

    is_short: bool
    widths: Mapping[str, int]


def common_layout(suites: Sequence[MetricRow], sections: Sequence[Section], *, width: int) -> Layout:
    """Return the layout of ``suite_lines`` and ``category_lines``: with intervals in full if ``width`` allows it."""
    rows = [[row for row in suites if usual_metrics([row])]]
    rows += [_below(section) for section in sections if usual_metrics(section.rows)]
    for is_short in (False, True):
        widths: dict[str, int] = {}
        for members in rows:
            table = metric_table("", members, usual_metrics(members), is_short=is_short)
            for header, own in zip(table.headers, widths_of(table), strict=True):
                widths[header] = max(widths.get(header, 0), own)
        if total_width([*widths.values()]) <= width:
            return Layout(is_short=is_short, widths=widths)
    if room := room_for_names([*widths.values()], width):
        return Layout(is_short=True, widths=widths | {"": room})
    return Layout(is_short=True, widths={})


def suite_lines(
    rows: Sequence[MetricRow], *, width: int, layout: Layout | None = None, is_short: bool = False
) -> Iterator[str]:
    """Yield suites with their metrics: one table for the usual ones, further tables for suites with the same others.

    If the first table has no room for the suites' other metrics, they follow it, suite by suite. ``is_short``: not
    those, and a line in place of each further table.
    """
    layout = layout or common_layout(rows, (), width=width)
    for place, group in enumerate(grouped(rows)):
        names, usual = metrics_shown(group), usual_metrics(group)
        if is_short and place > 0:
            for row in group:
                yield _first_values(row, names, width)
            continue
        yield from [""] * (place > 0)
        shown = names if not usual or fits(metric_table("suite", group, names), width) else usual
        yield from _metric_lines("suite", group, shown, layout, width)
        others = names[len(usual) :] if len(shown) < len(names) and not is_short else ()
        for row in group:
            yield from _other_lines(row, others, width)


def category_lines(sections: Sequence[Section], *, width: int, layout: Layout | None = None) -> Iterator[str]:
    """Yield the categories of the suites, those with the same metrics in one table.

    It has all metrics if there is room for them, else those that come first.
    """
    layout = layout or common_layout((), sections, width=width)
    by_metrics: dict[tuple[str, ...], list[Section]] = {}
    for section in sections:
        found = metrics_shown(section.rows)
        by_metrics.setdefault(() if any(name in USUAL for name in found) else tuple(found), []).append(section)
    for place, group in enumerate(by_metrics.values()):
        yield from [""] * (place > 0)
        heading, rows = "by category", _section_rows(group)
        counted = [row for row in rows if isinstance(row, MetricRow)]
        names, kept = metrics_shown(counted), usual_metrics(counted)
        if fits(metric_table(heading, rows, names), width):
            kept = names
        elif not kept:
            tables = (metric_table(heading, rows, names[: end + 1], is_short=True) for end in range(len(names)))
            kept = [name for name, table in zip(names, tables, strict=True) if fits(table, width)] or names[:1]
        yield from _metric_lines(heading, rows, kept, layout, width)
        if len(kept) < len(names):
            yield "(other metrics by category: in the report)"


def _section_rows(sections: Sequence[Section]) -> list[MetricRow | str]:
    """Return the rows of the suites, each suite's below its name."""
    found: list[MetricRow | str] = []
    for section in sections:
        found += [Toned(printable(section.suite), "strong"), *_below(section)]
        if len(section.rows) > _MAX_CATEGORIES:
            found.append(f"  … and {len(section.rows) - _MAX_CATEGORIES} more categories, all in the report")
    return found


def _below(section: Section) -> list[MetricRow]:
    """Return the first categories of a suite, and the mean over all of them."""
    rows = [row._replace(name=f"  {row.name}") for row in section.rows[:_MAX_CATEGORIES]]
    macro = {name: metric for name, metric in section.macro.items() if metric.value is not None}
    if macro:
        most = max(metric.n for metric in macro.values())
        mean = Summary(num_expected=most, num_scored=most, num_unscored=0, num_no_answer=0, metrics=macro)
        rows.append(MetricRow(f"  mean of {most}", mean, is_mean=True))
    return rows


def _metric_lines(
    heading: str, rows: Sequence[MetricRow | str], names: Sequence[str], layout: Layout, width: int
) -> Iterator[str]:
    table = metric_table(heading, rows, names)
    widths: Mapping[str, int] = {}
    if layout.widths and any(name in USUAL for name in names):
        widths = {**layout.widths, heading: layout.widths[""]}
    if not fits(table, width) or (layout.is_short and widths):
        table = metric_table(heading, rows, names, is_short=True)
    yield from table_lines(table, width=width, widths=widths)


def _other_lines(row: MetricRow, names: Sequence[str], width: int) -> Iterator[str]:
    table = metric_table("", [row], names)
    ((name, _, *values),) = table.rows
    items = [f"{metric} {value}" for metric, value in zip(table.headers[2:], values, strict=True) if value]
    if items:
        yield from joined_lines(f"{name}:", items, width=width)


def _first_values(row: MetricRow, names: Sequence[str], width: int) -> str:
    """Return as many metrics of a suite as one line holds, at least one."""
    table = metric_table("", [row], names)
    items = [f"{header} {value}" for header, value in zip(table.headers[1:], table.rows[0][1:], strict=True) if value]
    line, *others = joined_lines(f"{table.rows[0][0]}:", items, width=width - len(" …"))
    return f"{line} …" if others else line


def _average_lines(averages: Averages, names: Mapping[str, str], width: int, *, is_short: bool) -> Iterator[str]:
    """Yield the means over the suites of one model, only the macro averages if ``is_short``."""
    of_model = f" of {names.get(averages.model, averages.model)}" if averages.model and len(names) > 1 else ""
    for kind, means in averages_of(averages):
        if is_short and kind != "macro":
            continue
        start = f"{kind} average over suites{printable(of_model)}:"
        yield from joined_lines(start, [printable(text) for text in means], width=width)
    for text in unlike_texts(averages):
        yield from wrapped_lines(printable(text), width=width)


def comparison_lines(comparisons: Sequence[Comparison], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """Yield the tables of models beside the first one, with short intervals if there is little room."""
    yield from _matrix_lines(partial(comparison_tables, comparisons, names), width)


def _matrix_lines(tables: Callable[..., Iterator[tuple[Table, str]]], width: int) -> Iterator[str]:
    for place, ((table, meaning), (short_table, _)) in enumerate(zip(tables(), tables(is_short=True), strict=True)):
        yield from [""] * (place > 0)
        yield from joined_lines(
            f"against {table.headers[3]}, over the samples that both scored:", [meaning], width=width
        )
        yield from table_lines(table if fits(table, width) else short_table, width=width)


def latency_lines(suites: Sequence[SuiteReport], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """Yield the latency of the session's samples."""
    for start, items in latency_texts(suites, names):
        yield from joined_lines(start, items, width=width)


def distribution_lines(suites: Sequence[SuiteReport], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """Yield how the values of samples are spread, or nothing if all values are zeros and ones."""
    if (table := distribution_table(suites, names)).rows:
        yield from table_lines(table, width=width)


def _unscored_lines(report: Report) -> Iterator[str]:
    shown: list[str] = []
    counts: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for record in report.records:
        if record.status == "unscored":
            reason = record.reason or "no reason given"
            counts[reason if reason in counts or len(counts) < _MAX_UNSCORED else ""] += 1
            if len(shown) < _MAX_UNSCORED and counts[reason] <= _MAX_ALIKE:
                shown.append(f"  {printable(record.nodeid)}: {printable(reason)}")
            else:
                left_out[reason if counts[reason] > _MAX_ALIKE else ""] += 1
    if not counts:
        return
    yield ""
    yield f"could not be scored: {counts.total()}"
    yield from shown
    for reason, number in left_out.items():
        yield f"  … and {number:,} more" + (f": {printable(reason)}" if reason else "")


def gate_lines(
    results: Sequence[GateResult], names: Mapping[str, str], *, width: int, is_short: bool = False
) -> Iterator[str]:
    """Yield the counts of gates, then each that failed, that was compared with a baseline, or that is one of few.

    Gates that were skipped for one reason share a line. ``is_short``: of those that passed, only the ones whose metric
    has improved are listed.
    """
    if not results:
        return
    yield gate_counts(results)
    for outcome in OUTCOMES:
        baseline = [result for result in results if result.outcome == outcome and result.kind == "baseline"]
        threshold = [result for result in results if result.outcome == outcome and result.kind == "threshold"]
        match outcome:
            case "failed":
                yield from _gates_listed([*baseline, *threshold], names, MAX_FAILED, width)
            case "skipped":
                yield from _gates_skipped([*baseline, *threshold], names, width)
            case "passed" if is_short:
                yield from _gates_listed([*filter(has_improved, baseline)], names, MAX_FAILED, width)
            case "passed":
                yield from _gates_listed(baseline, names, MAX_FAILED, width)
                if len(threshold) <= _MAX_OTHERS:
                    yield from _gates_listed(threshold, names, _MAX_OTHERS, width)


def _gates_listed(results: Sequence[GateResult], names: Mapping[str, str], limit: int, width: int) -> Iterator[str]:
    for result in results[:limit]:
        tone: Tone | None = "bad" if result.outcome == "failed" else "good" if has_improved(result) else None
        text = f"{result.outcome}: {gate_name(result, names)}: {result.reason}"
        lines = wrapped_lines(printable(text), width=width)
        if result.notes:
            lines += wrapped_lines(f"  {printable('; '.join(result.notes))}", width=width, indent="    ")
        yield from (Toned(line, tone) for line in lines)
        yield from (f"    {without_commands(line)}" for line in shown_diff(result))
    if len(results) > limit:
        yield f"… and {len(results) - limit} more that {results[0].outcome}, all in the report"


def _gates_skipped(results: Sequence[GateResult], names: Mapping[str, str], width: int) -> Iterator[str]:
    """Yield one line for each reason: a session of one suite can skip as many gates as its baseline has suites."""
    by_reason: dict[str, list[str]] = {}
    for result in results:
        by_reason.setdefault(result.reason, []).append(gate_name(result, names))
    for reason, gates in [*by_reason.items()][:_MAX_OTHERS]:
        shown = "; ".join(gates[:_MAX_OTHERS])
        if len(gates) > _MAX_OTHERS:
            shown += f"; and {len(gates) - _MAX_OTHERS} more"
        yield from wrapped_lines(printable(f"skipped: {shown}: {reason}"), width=width)
    if len(by_reason) > _MAX_OTHERS:
        yield f"… and {len(by_reason) - _MAX_OTHERS} more reasons, all in the report"


def gate_flip_lines(results: Sequence[GateResult], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """Yield the samples that changed most in each metric that was compared with a baseline, of the first metrics."""
    found = [*gate_flips(results, names)]
    for one in found[:MAX_FLIPPED]:
        yield from ("", *wrapped_lines(flipped_heading(one), width=width))
        yield from table_lines(flipped_table(one), width=width)
    if len(found) > MAX_FLIPPED:
        yield from ("", f"… and {len(found) - MAX_FLIPPED:,} more metrics with samples that changed: --format json")


def sample_lines(record: Record, *, whole: bool, prompt: bool, head: str | None = None) -> Iterator[str]:
    """Yield the sample's texts, uncut if ``whole``. ``head`` replaces the first line, which names the sample."""
    yield printable(sample_heading(record) if head is None else head)
    for name, text in sample_fields(record, prompt=prompt, whole=whole):
        keeps = whole or name.startswith("problem")
        lines = printable(text, keep="\n").split("\n") if keeps else [printable(cut_field(name, text))]
        yield from _field_lines(name, lines)


def bounded_lines(record: Record) -> Iterator[str]:
    """Yield the sample's prompt (its question if no prompt is kept), its reply and what was expected.

    A text of many lines is shown by its first and last few.
    """
    is_kept = record.prompt is not None and not _is_hash(record.prompt)
    shown = "prompt" if is_kept else "question"
    for name, text in sample_fields(record, prompt=is_kept, whole=False):
        if name == "scores" or (name in ("prompt", "question") and name != shown):
            continue
        if name in ("prompt", "question", "reasoning", "output") or name.startswith("problem"):
            lines = printable(text, keep="\n").split("\n")
            if len(lines) > 2 * _END_LINES + 1:
                left_out = f"… {len(lines) - 2 * _END_LINES:,} lines …"
                lines = [*lines[:_END_LINES], left_out, *lines[-_END_LINES:]]
            lines = [shortened(line, limit=_MAX_LINE) for line in lines]
        else:
            lines = [printable(cut_field(name, text))]
        yield from _field_lines(name, lines)


def _field_lines(name: str, lines: Sequence[str]) -> Iterator[str]:
    first, *others = lines
    yield f"  {printable(name)}: {first}".rstrip()
    yield from (f"    {line}".rstrip() for line in others)


def _is_hash(prompt: JSON) -> bool:
    """Tell whether this is what ``--llm-report-prompts hash`` keeps of a prompt."""
    return isinstance(prompt, str) and re.fullmatch(r"sha256:[0-9a-f]{64}", prompt) is not None
