"""Writes the report in Markdown as GitHub reads it, whole or shortened, with its figures in a folder beside it."""

from __future__ import annotations

import logging
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.figures.catalogue import FiguresUnavailable, figures_of
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import (
    GateResult,
    Report,
    SuiteReport,
    compared_models,
    group_of_record,
    group_of_suite,
)
from pytest_llmeval.reporting.report.served_models import fingerprint_texts
from pytest_llmeval.reporting.storage.atomic_write import atomic_write
from pytest_llmeval.reporting.storage.disk_records import records_at
from pytest_llmeval.reporting.tables.cells import Table
from pytest_llmeval.reporting.tables.comparisons import (
    MAX_FLIPPED,
    Flipped,
    compared_flips,
    comparison_notes,
    comparison_tables,
    diff_heading,
    flipped_heading,
    flipped_table,
    gate_counts,
    gate_flips,
    gate_table,
    ordered_gates,
    shown_diff,
    variant_flips,
    variant_tables,
)
from pytest_llmeval.reporting.tables.samples import cut_field, option_texts, sample_fields, sample_heading
from pytest_llmeval.reporting.tables.session import (
    budget_texts,
    incomplete_texts,
    latency_table,
    model_texts,
    per_sample_table,
    store_texts,
)
from pytest_llmeval.reporting.tables.suites import (
    average_texts,
    category_section,
    count_texts,
    distribution_table,
    grouped,
    mean_texts,
    metric_table,
    metrics_shown,
    short_model_names,
    suite_name,
    suite_row,
)
from pytest_llmeval.scoring.metrics.corpus import ingredients_among
from pytest_llmeval.scoring.metrics.definitions import definition, shown_order
from pytest_llmeval.text.escaping import markdown_text, printable, shortened
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.types import JSON

__all__ = [
    "DETAILS",
    "FAILURES",
    "HEAD",
    "NUMBERS",
    "OTHERS",
    "MarkdownPart",
    "markdown_distribution",
    "markdown_summary",
    "markdown_table",
    "sample_markdown",
    "whole",
    "within",
    "write_markdown",
]


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]], align: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table as GitHub reads it, an empty one before and after it; every cell is escaped."""
    yield ""
    yield _row(headers)
    yield f"| {' | '.join('---:' if side == 'right' else '---' for side in align)} |"
    yield from map(_row, rows)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"


HEAD, FAILURES, NUMBERS, OTHERS, DETAILS = range(5)
"""Importance of a unit, the most important first."""


@dataclass(frozen=True, slots=True)
class MarkdownPart:
    """Units that follow each other, each with its importance; ``head`` are the lines before the first.

    ``what`` and ``many`` name one and several units that were left out; units without a name are not counted.
    """

    head: Sequence[str]
    units: Iterable[tuple[int, Iterable[str]]]
    what: str = ""
    many: str = ""

    @classmethod
    def of(cls, lines: Iterable[str], urgency: int) -> MarkdownPart:
        """Return a part of lines that are kept or left out together."""
        return cls((), [(urgency, lines)])

    @classmethod
    def table(
        cls,
        table: Table,
        urgency: int | Sequence[int],
        what: str,
        *,
        heading: str | None = None,
    ) -> MarkdownPart:
        """Return a table whose rows are units, with one ``urgency`` for all or one for each row."""
        before, head, rule, *lines, after = markdown_table(table.headers, table.rows, table.align)
        each = [urgency] * len(lines) if isinstance(urgency, int) else urgency
        units = [(one, [line]) for one, line in zip(each, lines, strict=True)]
        if units:
            units[-1][1].append(after)
        return cls([*([] if heading is None else [heading]), before, head, rule], units, what)


def whole(parts: Iterable[MarkdownPart]) -> Iterator[str]:
    """Yield the lines of all parts, with no two empty ones in a row."""
    return _single_spaced(line for part in parts for line in _lines(part.head, (lines for _, lines in part.units)))


def _lines(head: Sequence[str], units: Iterable[Iterable[str]]) -> Iterator[str]:
    for place, lines in enumerate(units):
        if not place:
            yield from head
        yield from lines


def within(parts: Iterable[MarkdownPart], limit: int) -> Iterator[str]:
    """Yield the most important lines that fit into ``limit`` characters, and count the others in their places."""
    found = [_KeptUnits(part) for part in parts]
    names = {kept.part.what: kept for kept in found if kept.part.what}  # the last of each name counts for all
    closing = f"Left out to stay within {limit:,} characters, which is what GitHub takes of a comment."
    room = limit - sum(_size(_counted(name, kept.part.many, 10**9)) for name, kept in names.items())
    room -= _size([closing])
    for urgency in range(DETAILS + 1):
        for kept in found:
            room = kept.take(urgency, room)
    left_out = Counter[str]()
    for kept in found:
        left_out[kept.part.what] += kept.num_left_out
    lines: list[str] = []
    for kept in found:
        lines += _lines(kept.part.head, kept.lines)
        name = kept.part.what
        if name and names[name] is kept and left_out[name]:
            lines += _counted(name, kept.part.many, left_out[name])
    if +left_out:
        lines.append(closing)
    return _single_spaced(iter(lines))


class _KeptUnits:
    """The units that are kept of a part, from its beginning."""

    def __init__(self, part: MarkdownPart) -> None:
        self.part = part
        self._units = [(urgency, list(lines)) for urgency, lines in part.units]
        self._is_full = False
        self.lines: list[list[str]] = []

    @property
    def num_left_out(self) -> int:
        return len(self._units) - len(self.lines)

    def take(self, urgency: int, room: int) -> int:
        """Keep the next units that are as important as ``urgency`` while there is room. Return the room left."""
        while not self._is_full and self.num_left_out and self._units[len(self.lines)][0] <= urgency:
            lines = self._units[len(self.lines)][1]
            size = _size(lines) + (0 if self.lines else _size(self.part.head))
            if size + 1 > room:  # one for the empty line that ends a table
                self._is_full = True
            else:
                room -= size
                self.lines.append(lines)
        return room


def _counted(name: str, many: str, number: int) -> list[str]:
    return ["", f"… and {number:,} more {name if number == 1 else many or f'{name}s'}", ""]


def _size(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _single_spaced(lines: Iterable[str]) -> Iterator[str]:
    was_empty = False
    for line in lines:
        if line or not was_empty:
            yield line
        was_empty = not line


_MARK = "pytest-llmeval: of the Markdown report beside this folder, and removed with its figure"
"""Marks the files that are ours to remove: ``llmeval plot`` writes others, perhaps into the same folder."""
_HEAD_BYTES = 512

_log = logging.getLogger(__name__)


def _figures_folder(path: Path) -> Path:
    """Return ``out_figures`` beside ``out.md``."""
    return path.with_name(f"{path.stem}_figures")


def _figure_lines(report: Report, path: Path) -> list[str]:
    """Write the figures of the report at ``path``, and return the lines that show them.

    There are none if matplotlib is not installed, if the report has no figures, or if it is not written to a file that
    ends in ``.md``. Files of an earlier run are removed. The lines say what went wrong: the report is worth more than
    its figures.
    """
    if path.suffix.lower() != ".md" or (path.exists() and not path.is_file()):
        return []
    folder = _figures_folder(path)
    try:
        lines, names = _written(report, folder)
        _remove_others(folder, names)
    except FiguresUnavailable:
        return []
    except Exception as error:
        if not isinstance(error, LLMEvalError | OSError):  # a full disk needs no traceback
            _log.warning("the figures of %s could not be drawn", path, exc_info=True)
        return ["## Figures", "", markdown_text(f"The figures could not be drawn: {describe(error)}"), ""]
    return ["## Figures", "", *lines] if lines else []


def _written(report: Report, folder: Path) -> tuple[list[str], set[str]]:
    """Write the figures, and return their lines and the names of their files."""
    from pytest_llmeval.reporting.figures.image_files import ON_ANY_PAGE, write_figure

    lines: list[str] = []
    names: set[str] = set()
    figures = figures_of(report)
    for figure in figures:
        file = f"{figure.name}.svg"
        try:
            write_figure(figure, folder / file, palette=ON_ANY_PAGE, comment=_MARK)
        except LLMEvalError:
            raise
        except Exception as error:
            figures.note_failure(figure.name, error)
            continue
        names.add(file)
        lines += [f"![{markdown_text(figure.title)}]({quote(folder.name)}/{file})", ""]
    if figures.num_left_out:
        lines += [f"… and {figures.num_left_out} more: `llmeval plot REPORT -o FOLDER/` draws all of them", ""]
    if figures.failed:
        lines += [markdown_text(f"Some figures could not be drawn: {'; '.join(figures.failed)}"), ""]
    return lines, names


def _remove_others(folder: Path, names: set[str]) -> None:
    """Remove what an earlier report has left there, and nothing that somebody else has put there."""
    for file in _ours(folder):
        if file.name not in names:
            file.unlink()
    with suppress(OSError):  # not empty, or not there
        folder.rmdir()


def _ours(folder: Path) -> Iterator[Path]:
    """Yield the files with our mark."""
    for file in sorted(folder.glob("*.svg")):
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as opened:
                head = opened.read(_HEAD_BYTES)
            if _MARK.encode("ascii") in head:
                yield file


_MAX_UNSCORED = 1000
_MAX_UNSCORED_IN_SUMMARY = 20


def write_markdown(report: Report, path: Path) -> None:
    """Write the report in UTF-8: what ``markdown_summary`` has, every question, and figures in a folder beside it.

    Raises ``ReportError``.
    """
    questions, unscored = _Questions(report), _UnscoredSamples(_MAX_UNSCORED)
    for record in report.records:
        unscored.add(record)
        questions.add(record)
    figures = _figure_lines(report, path)
    with atomic_write(path, encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in whole(_parts(report, unscored, questions, figures)))


def markdown_summary(report: Report, *, limit: int | None = None) -> str:
    """Return models, gates, problems, what could not be scored, and suites with their categories; not every question.

    ``limit`` is the number of characters that there may be: what failed is kept first, and what is left out is counted.
    """
    unscored = _UnscoredSamples(_MAX_UNSCORED_IN_SUMMARY)
    for record in report.records:
        unscored.add(record)
    parts = _parts(report, unscored, None)
    return "".join(f"{line}\n" for line in (whole(parts) if limit is None else within(parts, limit)))


class _UnscoredSamples:
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
    report: Report, unscored: _UnscoredSamples, questions: _Questions | None, figures: Sequence[str] = ()
) -> Iterator[MarkdownPart]:
    names = short_model_names(report)
    yield MarkdownPart.of(_head(report), HEAD)
    if report.gates:
        yield from _gates(report.gates, names)
    yield from _problems(report, unscored)
    yield MarkdownPart.of(["## Suites"], HEAD)
    for group in grouped([suite_row(suite, names) for suite in report.suites]):
        yield MarkdownPart.table(metric_table("suite", group, metrics_shown(group)), NUMBERS, "suite")
    yield MarkdownPart.of([*(f"- {markdown_text(text)}" for text in average_texts(report, names)), ""], NUMBERS)
    tables = comparison_tables(report.comparisons, names, has_p=True), variant_tables(report.variants, names)
    for table, meaning in chain(*tables):
        heading = f"Against {markdown_text(table.headers[3])}, over the samples that both scored: {meaning}"
        yield MarkdownPart.table(table, NUMBERS, "comparison", heading=heading)
    if notes := [f"- {markdown_text(note)}" for note in comparison_notes(report, names)]:
        yield MarkdownPart.of([*notes, ""], NUMBERS)
    yield MarkdownPart.table(per_sample_table(report, names), NUMBERS, "row", heading="A sample took, in the mean:")
    yield MarkdownPart.of(figures, DETAILS)
    of_variants = variant_flips(report.variants, names)
    yield from _flipped([*gate_flips(report.gates, names), *compared_flips(report.comparisons, names), *of_variants])
    sections = (
        _suite(suite, names, None if questions is None else questions.lines(place))
        for place, suite in enumerate(report.suites)
    )
    yield MarkdownPart(
        (), ((DETAILS, lines) for lines in sections), "suite by its categories", "suites by their categories"
    )
    if questions is not None:
        yield MarkdownPart.table(latency_table(report.suites, names), DETAILS, "row", heading="## Time")
        yield MarkdownPart.of(markdown_distribution(report), DETAILS)


def _head(report: Report) -> Iterator[str]:
    models = markdown_text("; ".join(model_texts(report.models)))
    yield f"# LLM evaluation: {models}" if models else "# LLM evaluation"
    yield ""
    yield f"Started {markdown_text(report.created)}, {report.seconds:,.1f} s, exit code {report.exit_code}"
    yield ""
    if report.origin is not None and (texts := report.origin.texts()):
        yield markdown_text(f"From {', '.join(texts)}.")
        yield ""
    served = fingerprint_texts([*report.models, *report.judges])
    for text in (*incomplete_texts(report), *budget_texts(report), *store_texts(report), *served):
        yield markdown_text(f"{text[0].upper()}{text[1:]}.")
        yield ""


def markdown_distribution(report: Report) -> Iterator[str]:
    """Yield how samples' values are spread, or nothing if all metrics are of zeros and ones."""
    table = distribution_table(report.suites, short_model_names(report))
    if table.rows:
        yield "## Distribution of metrics over samples"
        yield from markdown_table(table.headers, table.rows, table.align)


def sample_markdown(record: Record, *, whole: bool, prompt: bool) -> Iterator[str]:
    """Yield the sample as lines of Markdown, its texts in fenced blocks that they cannot close."""
    yield f"### {markdown_text(sample_heading(record))}"
    for name, text in sample_fields(record, prompt=prompt, whole=whole):
        shown = printable(text if whole else cut_field(name, text), keep="\n")
        yield from ("", f"**{markdown_text(name)}**", "", *_fenced(shown))
    yield ""


def _flipped(found: Sequence[Flipped]) -> Iterator[MarkdownPart]:
    if not found:
        return
    sections = (_flipped_lines(one) for one in found[:MAX_FLIPPED])
    yield MarkdownPart(("## Samples that changed most",), ((DETAILS, lines) for lines in sections), "metric")
    if len(found) > MAX_FLIPPED:
        yield MarkdownPart.of([f"… and {len(found) - MAX_FLIPPED:,} more, all in the JSON report", ""], DETAILS)


def _flipped_lines(one: Flipped) -> Iterator[str]:
    table = flipped_table(one)
    yield ""
    yield markdown_text(flipped_heading(one))
    yield from markdown_table(table.headers, table.rows, table.align)


def _fenced(text: str, language: str = "") -> tuple[str, str, str]:
    """Return the text as a fenced block that it cannot close."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return fence + language, text, fence


def _gates(results: tuple[GateResult, ...], names: Mapping[str, str]) -> Iterator[MarkdownPart]:
    yield MarkdownPart.of(["## Gates", "", gate_counts(results)], HEAD)
    ordered = ordered_gates(results)
    urgency = [FAILURES if result.outcome == "failed" else OTHERS for result in ordered]
    yield MarkdownPart.table(gate_table(ordered, names), urgency, "gate")
    for result, where in zip(ordered, urgency, strict=True):
        if result.prompt_diff:
            heading = markdown_text(diff_heading(result, names))
            yield MarkdownPart.of([heading, "", *_fenced("\n".join(shown_diff(result)), "diff"), ""], where)


def _problems(report: Report, unscored: _UnscoredSamples) -> Iterator[MarkdownPart]:
    if report.problems:
        lines = ([f"- problem: {markdown_text(problem)}"] for problem in report.problems)
        yield MarkdownPart(("## Problems", ""), ((FAILURES, line) for line in lines), "problem")
    if unscored.num_samples:
        heading = f"## Could not be scored: {unscored.num_samples:,}"
        table = Table(headers=("sample", "reason"), rows=unscored.rows, align=["left", "left"])
        yield MarkdownPart.table(table, FAILURES, "sample", heading=heading)
        if unscored.num_samples > len(unscored.rows):
            more = unscored.num_samples - len(unscored.rows)
            yield MarkdownPart.of([f"… and {more:,} more, all in the JSON report", ""], FAILURES)


def _suite(suite: SuiteReport, names: Mapping[str, str], questions: Iterator[str] | None) -> Iterator[str]:
    """Yield the suite's counts, its categories, and every question if they are asked for."""
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
        rows = category_section(suite, names).rows
        table = metric_table("category", rows, metrics_shown(rows))
        yield from markdown_table(table.headers, table.rows, table.align)
        if means := ", ".join(mean_texts(suite.macro, parts="category")):
            yield f"Macro average over categories: {markdown_text(means)}"
            yield ""
    yield from questions or ()


_MAX_TEXT = 300
"""Characters of an answer in a cell; all of it is in the other reports."""
_MAX_OPTION = 60
_MAX_OPTIONS = 1000


@dataclass(slots=True)
class _QuestionTable:
    """The places of a suite's questions among the records, and the columns of their table."""

    places: array[int] = field(default_factory=lambda: array("Q"))
    names: dict[str, None] = field(default_factory=dict)
    has_options: bool = False


class _Questions:
    """The questions of each suite, once all records have been added in their order."""

    def __init__(self, report: Report) -> None:
        self._records = report.records
        self._compared = compared_models(report)
        self._suites = {group_of_suite(suite, self._compared): place for place, suite in enumerate(report.suites)}
        self._tables: dict[int, _QuestionTable] = {}
        self._num_added = 0

    def add(self, record: Record) -> None:
        """Add a question to the table of its suite on its model; one of a suite that the report lacks is left out."""
        suite = self._suites.get(group_of_record(record, self._compared))
        if suite is not None:
            own = self._tables.setdefault(suite, _QuestionTable())
            own.places.append(self._num_added)
            own.names.update(dict.fromkeys(record.values))
            own.has_options = own.has_options or bool(option_texts(record, limit=_MAX_OPTION))
        self._num_added += 1

    def lines(self, suite: int) -> Iterator[str]:
        """Yield the table of the suite at this place, or nothing if it has no questions."""
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
        yield from markdown_table([*headers, *names], rows, align)


def _texts(record: Record) -> list[str]:
    cells = [record.id, record.category or "", record.status, _answer(record), _expected(record.target)]
    options = "; ".join(option_texts(record, limit=_MAX_OPTION))
    return [*(shortened(printable(cell), limit=_MAX_TEXT) for cell in cells), shortened(options, limit=_MAX_OPTIONS)]


def _columns(names: Iterable[str]) -> list[str]:
    """Return the values that the summary shows; all if they only make up others, as those of a perplexity do."""
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
    """Return a value with four digits: a sample's own number has no more that mean something."""
    return "" if value is None or math.isnan(value) else f"{value:.4g}"
