"""Every question's scores in Markdown, a table for each suite."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pytest_llmeval.reporting.report.groups import compared_models, group_of_record, group_of_suite
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.storage.disk_records import records_at
from pytest_llmeval.reporting.terminal.sample_options import option_texts
from pytest_llmeval.reporting.writers.markdown.tables import table
from pytest_llmeval.scoring.metrics.corpus import ingredients_among
from pytest_llmeval.scoring.metrics.definitions import definition, shown_order
from pytest_llmeval.text.escaping import printable, shortened
from pytest_llmeval.types import JSON

__all__ = ["Questions"]

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
