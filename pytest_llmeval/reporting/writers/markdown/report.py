"""Reports for people, in Markdown as GitHub and most others read it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_llmeval.reporting.report.gate_results import GateResult
from pytest_llmeval.reporting.report.groups import compared_models, group_of_record, group_of_suite
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.reporting.report.served import fingerprint_texts
from pytest_llmeval.reporting.storage.atomic_write import atomic_write
from pytest_llmeval.reporting.storage.disk_records import records_at
from pytest_llmeval.reporting.tables.comparisons import (
    MAX_MOVED,
    OUTCOMES,
    Moved,
    compared_movers,
    comparison_cells,
    count_line,
    distribution_cells,
    gate_movers,
    movers_cells,
    movers_heading,
)
from pytest_llmeval.reporting.tables.samples import option_texts
from pytest_llmeval.reporting.tables.session import latency_cells, per_sample_cells, store_texts
from pytest_llmeval.reporting.tables.suites import (
    Row,
    category_section,
    count_texts,
    grouped,
    mean_texts,
    metric_cells,
    metrics_shown,
    named,
    selection_text,
    short_model_names,
    suite_name,
    suite_row,
    unlike_texts,
)
from pytest_llmeval.reporting.terminal.summary import model_texts
from pytest_llmeval.reporting.writers.markdown.figures import figure_lines
from pytest_llmeval.reporting.writers.markdown.parts import (
    DETAILS,
    FAILURES,
    HEAD,
    NUMBERS,
    OTHERS,
    Part,
    table,
    whole,
    within,
)
from pytest_llmeval.scoring.metrics.corpus import ingredients_among
from pytest_llmeval.scoring.metrics.definitions import definition, shown_order
from pytest_llmeval.text.escaping import markdown_text, printable, shortened
from pytest_llmeval.types import JSON

__all__ = ["Questions", "markdown_distribution", "markdown_summary", "write_markdown"]


_MAX_UNSCORED = 1000
_MAX_UNSCORED_IN_SUMMARY = 20


def write_markdown(report: Report, path: Path) -> None:
    """Write the report in UTF-8: what ``markdown_summary`` has, every question, and figures in a folder beside it.

    Raises ``ReportError``.
    """
    questions, unscored = Questions(report), _Unscored(_MAX_UNSCORED)
    for record in report.records:
        unscored.add(record)
        questions.add(record)
    figures = figure_lines(report, path)
    with atomic_write(path, encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in whole(_parts(report, unscored, questions, figures)))


def markdown_summary(report: Report, *, limit: int | None = None) -> str:
    """The models, gates, problems, what could not be scored, and suites with their categories; not every question.

    ``limit`` is the number of characters that there may be: what failed is kept first, and what is left out counted.
    """
    unscored = _Unscored(_MAX_UNSCORED_IN_SUMMARY)
    for record in report.records:
        unscored.add(record)
    parts = _parts(report, unscored, None)
    return "".join(f"{line}\n" for line in (whole(parts) if limit is None else within(parts, limit)))


class _Unscored:
    """The first samples that could not be scored, and how many there are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.num_samples = 0
        self.rows: list[tuple[str, str]] = []

    def add(self, record: Record) -> None:
        if record.status == "unscored":
            self.num_samples += 1
            if len(self.rows) < self._limit:
                self.rows.append((record.nodeid, record.reason or "no reason given"))


def _parts(
    report: Report, unscored: _Unscored, questions: Questions | None, figures: Sequence[str] = ()
) -> Iterator[Part]:
    names = short_model_names(report)
    yield Part.of(_head(report), HEAD)
    if report.gates:
        yield from _gates(report.gates, names)
    yield from _problems(report, unscored)
    yield Part.of(["## Suites"], HEAD)
    for group in grouped([suite_row(suite, names) for suite in report.suites]):
        yield Part.table(*_metrics("suite", group), NUMBERS, "suite")
    yield Part.of(_averages(report, names), NUMBERS)
    for headers, rows, meaning in comparison_cells(report.comparisons, names, has_p=True):
        heading = f"Against {markdown_text(headers[3])}, over the samples that both scored: {meaning}"
        align = ["left", "left", "right", *("left" for _ in headers[3:])]
        yield Part.table(headers, rows, align, NUMBERS, "comparison", heading=heading)
    headers, rows = per_sample_cells(report, names)
    align = ["left", *("right" for _ in headers[1:])]
    yield Part.table(headers, rows, align, NUMBERS, "row", heading="A sample took, in the mean:")
    yield Part.of(figures, DETAILS)
    yield from _movers([*gate_movers(report.gates, names), *compared_movers(report.comparisons, names)])
    sections = (
        _suite(suite, names, None if questions is None else questions.lines(place))
        for place, suite in enumerate(report.suites)
    )
    yield Part((), ((DETAILS, lines) for lines in sections), "suite by its categories", "suites by their categories")
    if questions is not None:
        headers, rows = latency_cells(report.suites, names)
        align = ["left", *("right" for _ in headers[1:])]
        yield Part.table(headers, rows, align, DETAILS, "row", heading="## Time")
        yield Part.of(markdown_distribution(report), DETAILS)


def _head(report: Report) -> Iterator[str]:
    models = markdown_text("; ".join(model_texts(report.models)))
    yield f"# LLM evaluation: {models}" if models else "# LLM evaluation"
    yield ""
    yield f"Started {markdown_text(report.created)}, {report.seconds:,.1f} s, exit code {report.exit_code}"
    yield ""
    if (selection := selection_text(report)) is not None:
        yield f"{markdown_text(f'{selection[0].upper()}{selection[1:]}')}."
        yield ""
    if report.stopped:
        yield f"Stopped early ({markdown_text(report.stopped)}): these numbers cover only what had run."
        yield ""
    for text in (*store_texts(report), *fingerprint_texts([*report.models, *report.judges])):
        yield markdown_text(f"{text[0].upper()}{text[1:]}.")
        yield ""


def markdown_distribution(report: Report) -> Iterator[str]:
    """How samples' values are spread: nothing where all metrics are of zeros and ones."""
    headers, rows = distribution_cells(report.suites, short_model_names(report))
    if rows:
        yield "## Distribution of metrics over samples"
        yield from table(headers, rows, ["left", "left", *("right" for _ in headers[2:])])


def _movers(found: Sequence[Moved]) -> Iterator[Part]:
    if not found:
        return
    sections = (_moved(one) for one in found[:MAX_MOVED])
    yield Part(("## Samples that changed most",), ((DETAILS, lines) for lines in sections), "metric of these")
    if len(found) > MAX_MOVED:
        yield Part.of([f"… and {len(found) - MAX_MOVED:,} more, all in the JSON report", ""], DETAILS)


def _moved(one: Moved) -> Iterator[str]:
    headers, rows = movers_cells(one.movers)
    yield ""
    yield markdown_text(movers_heading(one))
    yield from table(headers, rows, ["left", "left", "right", "right", "right"])


def _gates(results: tuple[GateResult, ...], names: Mapping[str, str]) -> Iterator[Part]:
    yield Part.of(["## Gates", "", count_line(results)], HEAD)
    ordered = sorted(results, key=lambda result: (OUTCOMES.index(result.outcome), result.kind))
    rows = (
        (
            result.outcome,
            "" if result.suite is None else named(result.suite, result.model, names),
            result.name,
            "; ".join((result.reason, *result.notes)),
        )
        for result in ordered
    )
    urgency = [FAILURES if result.outcome == "failed" else OTHERS for result in ordered]
    yield Part.table(("outcome", "suite", "gate", "what was found"), rows, ["left"] * 4, urgency, "gate")


def _metrics(heading: str, rows: Sequence[Row]) -> tuple[list[str], list[list[str]], list[str]]:
    return metric_cells(heading, rows, metrics_shown(rows))


def _averages(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    for averages in report.averages:
        over = named("suites", averages.model, names)
        for kind, metrics, parts in (("macro", averages.macro, "suite"), ("micro", averages.micro, None)):
            if means := ", ".join(mean_texts(metrics, parts=parts)):
                yield f"- {kind} average over {markdown_text(over)}: {markdown_text(means)}"
        for text in unlike_texts(averages):
            yield f"- {markdown_text(text)}"
    yield ""


def _problems(report: Report, unscored: _Unscored) -> Iterator[Part]:
    if report.problems:
        lines = ([f"- problem: {markdown_text(problem)}"] for problem in report.problems)
        yield Part(("## Problems", ""), ((FAILURES, line) for line in lines), "problem")
    if unscored.num_samples:
        heading = f"## Could not be scored: {unscored.num_samples:,}"
        yield Part.table(("sample", "reason"), unscored.rows, ["left", "left"], FAILURES, "sample", heading=heading)
        if unscored.num_samples > len(unscored.rows):
            more = unscored.num_samples - len(unscored.rows)
            yield Part.of([f"… and {more:,} more, all in the JSON report", ""], FAILURES)


def _suite(suite: SuiteReport, names: Mapping[str, str], questions: Iterator[str] | None) -> Iterator[str]:
    """The suite's counts, its categories, and every question where they are asked for."""
    counts = ", ".join(count_texts(suite))
    if questions is None and len(suite.categories) < 2 and not counts:
        return
    yield f"## Suite {markdown_text(suite_name(suite, names))}"
    yield ""
    if suite.info.description:
        yield f"Description: {markdown_text(suite.info.description)}"
        yield ""
    if counts:
        yield f"Counts: {markdown_text(counts)}"
        yield ""
    if len(suite.categories) > 1:
        yield from table(*_metrics("category", category_section(suite, names).rows))
        if means := ", ".join(mean_texts(suite.macro, parts="category")):
            yield f"Macro average over categories: {markdown_text(means)}"
            yield ""
    yield from questions or ()


_MAX_TEXT = 300
"""Characters of an answer in a cell; all of it is in the other reports."""
_MAX_OPTION = 60
_MAX_OPTIONS = 1000


@dataclass(slots=True)
class _Table:
    """Where the questions of a suite stand among the records, and what columns their table has."""

    places: array[int] = field(default_factory=lambda: array("Q"))
    names: dict[str, None] = field(default_factory=dict)
    has_options: bool = False


class Questions:
    """The questions of each suite, once all records have been added in their order."""

    def __init__(self, report: Report) -> None:
        self._records = report.records
        self._compared = compared_models(report)
        self._suites = {group_of_suite(suite, self._compared): place for place, suite in enumerate(report.suites)}
        self._tables: dict[int, _Table] = {}
        self._num_added = 0

    def add(self, record: Record) -> None:
        """Add a question to the table of its suite on its model; one of a suite that the report lacks is left out."""
        suite = self._suites.get(group_of_record(record, self._compared))
        if suite is not None:
            own = self._tables.setdefault(suite, _Table())
            own.places.append(self._num_added)
            own.names.update(dict.fromkeys(record.values))
            own.has_options = own.has_options or bool(option_texts(record, limit=_MAX_OPTION))
        self._num_added += 1

    def lines(self, suite: int) -> Iterator[str]:
        """The table of the suite at this place; nothing where it has no questions."""
        if (found := self._tables.get(suite)) is None:
            return
        names = _columns(found.names)
        headers = ["id", "category", "status", "answer", "expected", *["options"] * found.has_options]
        align = ["left"] * len(headers) + ["right"] * len(names)
        records = records_at(self._records, found.places)
        rows = (
            [*_texts(record)[: len(headers)], *(_value(record.values.get(name)) for name in names)]
            for record in records
        )
        yield from table([*headers, *names], rows, align)


def _texts(record: Record) -> list[str]:
    cells = [record.id, record.category or "", record.status, _answer(record), _expected(record.target)]
    options = "; ".join(option_texts(record, limit=_MAX_OPTION))
    return [*(shortened(printable(cell), limit=_MAX_TEXT) for cell in cells), shortened(options, limit=_MAX_OPTIONS)]


def _columns(names: Iterable[str]) -> list[str]:
    """The values that the summary tells of; of a suite whose values only make up others (a perplexity), all of them."""
    found = sorted(names, key=shown_order)
    ingredients = ingredients_among(found)
    metrics = {name: definition(name) for name in found if name not in ingredients}
    return [name for name, metric in metrics.items() if metric.in_terminal and metric.kind != "count"] or found


def _answer(record: Record) -> str:
    if record.status == "unscored":
        return f"could not be scored: {record.reason or 'no reason given'}"
    return "no answer" if record.answer is None and record.no_answer else record.answer or ""


def _expected(target: JSON) -> str:
    if isinstance(target, list | tuple):
        return " | ".join(map(str, target))
    return "" if target is None else str(target)


def _value(value: float | None) -> str:
    """Four digits: a sample's own number has no more that mean something."""
    return "" if value is None or math.isnan(value) else f"{value:.4g}"
