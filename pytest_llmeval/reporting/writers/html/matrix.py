"""Suites beside models or variants, as one table of a page: each cell a value, its interval, and its change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

from pytest_llmeval.reporting.report.report import Comparison, GateResult, Report, SuiteReport
from pytest_llmeval.reporting.report.summaries import leading_metric
from pytest_llmeval.reporting.tables.cells import signed
from pytest_llmeval.reporting.tables.comparisons import ChangeWord, as_comparison, word_of_difference, word_of_gate
from pytest_llmeval.reporting.tables.suites import (
    MetricRow,
    count_text,
    count_texts,
    ends_shown,
    heading_of,
    higher_is_better,
    mean_texts,
    metrics_shown,
    suite_row,
    value_text,
)
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.text.escaping import printable

__all__ = ["Cell", "Change", "Column", "Matrix", "MatrixRow", "MatrixSuite", "changes_texts", "suite_matrix"]

_MAX_VARIANTS = 6
"""The most variants that are columns; of more, each is a row."""
_MAX_NAMED = 5
_LARGEST = 1e100
"""Larger numbers are not drawn, since differences of them overflow."""


class Change(NamedTuple):
    """A difference from the value ``before`` of what a cell is compared with, which ``against`` names."""

    against: str
    before: float
    difference: float
    word: ChangeWord

    @property
    def text(self) -> str:
        """Return ``−0.200 worse``, or ``−0.010 =`` for a difference that cannot be told from chance."""
        return f"{signed(self.difference).replace('-', '−')} {self.word}".rstrip()


class Cell(NamedTuple):
    """A metric of a suite or a category: ``text`` is its value with its interval; ``n`` is said if it is not the row's.

    ``others`` are the further metrics of a category, in words: a row or a bar for each would make a large page slow.

    ``bar`` has places on the row's scale, in percent: the interval's ends, the value, and the value before. Each is
    None if it is not known.
    """

    text: str
    n: str
    bar: Sequence[float | None]
    change: Change | None
    others: str = ""


class MatrixRow(NamedTuple):
    """A metric of a suite, or one of its categories; no cell where the suite did not run."""

    name: str
    metric: str
    n: str
    cells: Sequence[Cell | None]
    is_category: bool = False


class MatrixSuite(NamedTuple):
    """A suite by its main metric. Its other metrics, its categories and notes are shown when it is opened.

    ``failed`` has for each column a gate that failed, if one did.
    """

    row: MatrixRow
    further: Sequence[MatrixRow]
    notes: Sequence[str]
    failed: Sequence[GateResult | None]


class Column(NamedTuple):
    """A model or a variant. ``against`` is what its changes are from, ``has_failed`` whether it has a failed gate."""

    title: str
    against: Sequence[str]
    has_failed: bool


class Matrix(NamedTuple):
    columns: Sequence[Column]
    suites: Sequence[MatrixSuite]


def suite_matrix(report: Report, names: Mapping[str, str]) -> Matrix:
    """Return a row for each suite and a column for each model.

    Variants of suites are the columns of a session of one model, if they are few.
    """
    models = {suite.models: ", ".join(names.get(model, model) for model in suite.models) for suite in report.suites}
    variants = {suite.info.variant: suite.info.variant or "as written" for suite in report.suites}
    is_by_variant = len(models) < 2 and 1 < len(variants) <= _MAX_VARIANTS
    columns: Mapping[Any, str] = variants if is_by_variant else models
    rows: dict[str, dict[Any, SuiteReport]] = {}
    for suite in report.suites:
        name, column = (suite.info.base, suite.info.variant) if is_by_variant else (suite.info.name, suite.models)
        rows.setdefault(name, {})[column] = suite
    findings = _Findings(report, names)
    titles = [*map(printable, columns.values())]
    suites = [_suite(name, [own.get(column) for column in columns], titles, findings) for name, own in rows.items()]
    shown = []
    for place, title in enumerate(titles):
        changes = [cell.change for suite in suites if (cell := suite.row.cells[place]) is not None and cell.change]
        against = [*dict.fromkeys(change.against for change in changes)]
        shown.append(Column(title, against, any(suite.failed[place] for suite in suites)))
    return Matrix(shown, suites)


def changes_texts(matrix: Matrix) -> Iterator[str]:
    """Say of each column how many suites became worse, and better, and which."""
    for place, column in enumerate(matrix.columns):
        for against in column.against:
            words: dict[ChangeWord, list[str]] = {}
            for suite in matrix.suites:
                cell = suite.row.cells[place]
                if cell is not None and cell.change is not None and cell.change.against == against:
                    words.setdefault(cell.change.word, []).append(suite.row.name)
            parts = [_counted_suites(word, words.get(word, ())) for word in ("worse", "better")]
            if same := words.get("="):
                parts.append(f"{len(same):,} without a clear change (=)")
            who = f"{column.title} against" if len(matrix.columns) > 1 else "Against"
            yield f"{who} {against}: {', '.join(parts)}"


def _counted_suites(word: str, suites: Sequence[str]) -> str:
    more = ["…"] if len(suites) > _MAX_NAMED else []
    which = f" ({', '.join([*suites[:_MAX_NAMED], *more])})" if suites else ""
    return f"{len(suites):,} {word}{which}"


_Key: TypeAlias = tuple[str | None, str | None]
"""A suite, and a model or None for the only one."""


class _Findings:
    """The changes and the failed gates of a report, by suite, beside the numbers of its suites."""

    def __init__(self, report: Report, names: Mapping[str, str]) -> None:
        self._failed = {(one.suite, one.model): one for one in reversed(report.gates) if one.outcome == "failed"}
        self._changes: dict[tuple[_Key, str], Change] = {}
        for gate in report.gates:
            if (tested := gate.regression) is not None:
                change = Change("the baseline", tested.baseline, tested.difference, word_of_gate(gate))
                self._changes.setdefault(((gate.suite, gate.model), tested.metric), change)
        suites = {suite.info.name: suite for suite in report.suites}
        pairs: list[tuple[_Key, str, Comparison]] = []
        pairs += [((one.suite, one.second), names.get(one.first, one.first), one) for one in report.comparisons]
        pairs += [((one.second, one.model), as_comparison(one, names).first, one) for one in report.variants]
        for key, against, compared in pairs:
            for metric, found in compared.differences.items():
                word = word_of_difference(found, higher_is_better(metric, suites.get(str(key[0]))))
                change = Change(printable(against), found.first, found.difference, word)
                self._changes.setdefault((key, metric), change)

    def change(self, suite: SuiteReport | None, metric: str) -> Change | None:
        """Return the change of a metric: from a baseline if there is one, else between models, else variants."""
        return next((found for key in _keys(suite) if (found := self._changes.get((key, metric))) is not None), None)

    def failed(self, suite: SuiteReport | None) -> GateResult | None:
        """Return the first gate of the suite that failed."""
        return next((found for key in _keys(suite) if (found := self._failed.get(key)) is not None), None)


def _keys(suite: SuiteReport | None) -> Sequence[_Key]:
    if suite is None:
        return ()
    return (suite.info.name, suite.models[0] if suite.models else None), (suite.info.name, None)


def _suite(
    name: str, members: Sequence[SuiteReport | None], columns: Sequence[str], findings: _Findings
) -> MatrixSuite:
    """Return a suite whose reports stand in the order of the columns; None where it did not run."""
    known = [suite for suite in members if suite is not None]
    info = known[0].info
    leading = leading_metric(info, [name for suite in known for name in suite.summary.metrics]) or ""
    metrics = dict.fromkeys([leading, *metrics_shown([suite_row(suite, {}) for suite in known])])
    several = [suite for suite in known if len(suite.categories) > 1]
    categories = dict.fromkeys(category for suite in several for category in suite.categories)
    notes = [info.description] if info.description else []
    for title, suite in zip(columns, members, strict=True):
        if suite is None:
            continue
        own = f"{title}: " if len(columns) > 1 else ""
        if counts := ", ".join(count_texts(suite)):
            notes.append(f"{own}{counts}")
        if suite in several and (means := ", ".join(mean_texts(suite.macro, parts="category"))):
            notes.append(f"{own}macro average over categories: {means}")
    changes = {metric: [findings.change(suite, metric) for suite in members] for metric in metrics}
    scales = {metric: _scale(metric, known, changes[metric]) for metric in metrics}
    wholes = [None if suite is None else suite_row(suite, {}) for suite in members]
    first, *further = [_row(heading_of(metric), metric, wholes, scales[metric], changes[metric]) for metric in metrics]
    for category in categories:
        parts = [_part(suite, category) for suite in members]
        row = _row(category, leading, parts, scales[leading], others=[*metrics][1:])
        further.append(row._replace(is_category=True))
    failed = [findings.failed(suite) for suite in members]
    return MatrixSuite(first._replace(name=printable(name)), further, [*map(printable, notes)], failed)


def _row(
    name: str,
    metric: str,
    rows: Sequence[MetricRow | None],
    scale: tuple[float, float],
    changes: Sequence[Change | None] = (),
    others: Sequence[str] = (),
) -> MatrixRow:
    counts = dict.fromkeys(count_text(row) for row in rows if row is not None)

    def cell(row: MetricRow, change: Change | None) -> Cell:
        found = row.summary.metrics.get(metric)
        ends = (None, None) if found is None else ends_shown(found)
        values = (ends[0], None if found is None else found.value, ends[1], None if change is None else change.before)
        bar = [None if value is None else _percent(value, *scale) for value in values]
        further = [(heading_of(name), row.summary.metrics[name]) for name in others if name in row.summary.metrics]
        words = ", ".join(f"{heading} {value_text(metric, row.summary)}" for heading, metric in further)
        n = f"n {count_text(row)}" if len(counts) > 1 else ""
        return Cell(value_text(found, row.summary), n, bar, change, printable(words))

    cells = [None if row is None else cell(row, change) for row, change in zip_longest(rows, changes)]
    return MatrixRow(printable(name), printable(heading_of(metric)), "" if len(counts) > 1 else "".join(counts), cells)


def _percent(value: float, low: float, high: float) -> float | None:
    return 100 * (value - low) / (high - low) if low < high and abs(value) < _LARGEST else None


def _part(suite: SuiteReport | None, category: str) -> MetricRow | None:
    summary = None if suite is None else suite.categories.get(category)
    return None if summary is None else MetricRow(category, summary)


def _scale(metric: str, suites: Sequence[SuiteReport], changes: Sequence[Change | None]) -> tuple[float, float]:
    """Return the ends of the scale of a metric's bars: its limits, or 0, and those of the values beyond them."""
    known = definition(metric)
    summaries = [one for suite in suites for one in (suite.summary, *suite.categories.values())]
    found = [summary.metrics[metric] for summary in summaries if metric in summary.metrics]
    values = [end for one in found for end in (one.value, *ends_shown(one)) if end is not None]
    values += [change.before for change in changes if change is not None]
    values = [value for value in values if abs(value) < _LARGEST]
    low, high = (end if math.isfinite(end) else 0.0 for end in (known.lowest, known.highest))
    return min([low, *values]), max([high, *values])
