"""Every question's scores in Markdown, a table for each suite, from one pass over the records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from pytest_llmeval.reporting.report.groups import compared_models, group_of_record, group_of_suite
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.storage.spool import Spool
from pytest_llmeval.reporting.terminal.options_shown import option_texts
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


class Questions:
    """The questions' rows by suite, once they have been added."""

    def __init__(self, report: Report, spool: Spool[int]) -> None:
        self._spool = spool
        self._compared = compared_models(report)
        self._places = {group_of_suite(suite, self._compared): place for place, suite in enumerate(report.suites)}
        self._names: dict[int, dict[str, None]] = {}
        self._with_options: set[int] = set()

    def add(self, record: Record) -> None:
        """Add a question to the table of its suite on its model; one of a suite that the report lacks is left out."""
        place = self._places.get(group_of_record(record, self._compared))
        if place is None:
            return
        self._names.setdefault(place, {}).update(dict.fromkeys(record.values))
        cells = [record.id, record.category or "", record.status, _answer(record), _expected(record.target)]
        options = "; ".join(option_texts(record, limit=_MAX_OPTION))
        if options:
            self._with_options.add(place)
        shown = [shortened(printable(cell), limit=_MAX_TEXT) for cell in cells]
        self._spool.add(place, [*shown, shortened(options, limit=_MAX_OPTIONS), dict(record.values)])

    def lines(self, place: int) -> Iterator[str]:
        """The table of the suite at this place; nothing where it has no questions."""
        if place not in self._names:
            return
        names = _columns(self._names[place])
        texts = ["id", "category", "status", "answer", "expected", "options"]
        if place not in self._with_options:
            texts.pop()
        headers = [*texts, *names]
        align = ["left"] * len(texts) + ["right"] * len(names)
        rows = (
            [*cells[: len(texts)], *(_value(values.get(name)) for name in names)]
            for *cells, values in self._spool.rows(place)
        )
        yield from table(headers, rows, align)


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
