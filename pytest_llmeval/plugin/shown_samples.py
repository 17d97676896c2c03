"""Samples where a user of pytest looks for them: in the terminal, the JUnit file and pytest-html's page.

For pytest a wrong answer is a test that passed: all that is shown of it is shown here. With ``-vv`` the terminal shows
prompt and reply below each sample's line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pytest

from pytest_llmeval.plugin.settings import Settings
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Group
from pytest_llmeval.reporting.tables.samples import as_text
from pytest_llmeval.reporting.terminal import Terminal
from pytest_llmeval.reporting.writers.text_report import bounded_lines, sample_lines
from pytest_llmeval.scoring.turns import first_wrong_turn
from pytest_llmeval.text.escaping import printable, shortened, without_commands

__all__ = [
    "WrongAnswers",
    "mark_html_row",
    "shows_texts",
    "write_texts",
]


_WHOLE = 5
"""The number of wrong answers of each suite that -vv shows in full."""
_LINES = 20
"""The number of wrong answers of each suite that -rA and -rp list."""
_EXAMPLES = 3
"""The number of suites of which the first wrong answer is shown without an option, beside a short summary."""
_MAX_DESCRIBED = 10
"""The number of samples of one hand-written test that the JUnit file and pytest-html show."""
_MAX_TEXT = 100
_SECTION = "Captured stdout: wrong answer"
"""The title of the section; it begins as pytest's JUnit file wants it for ``system-out``."""


class WrongAnswers:
    """Keeps the first wrong answers of each suite with their texts, and tells other reporters of all wrong answers.

    :param order: returns node ids in the order of the report; with pytest-xdist samples arrive in another order.
    """

    def __init__(self, config: pytest.Config, settings: Settings, order: Callable[[], Iterable[str]]) -> None:
        self._num_whole = _WHOLE if config.get_verbosity() > 1 else 0
        lists_passed = bool({"A", "p"} & set(getattr(config.option, "reportchars", "")))
        self._num_kept = self._num_whole or (_LINES if lists_passed else 0)
        if settings.strict:
            self._num_whole = self._num_kept = 0  # pytest shows them as failures
        if settings.show_wrong is not None:
            self._num_whole = self._num_kept = settings.show_wrong
        self._keeps_examples = not self._num_kept and not settings.strict and settings.show_wrong is None
        self._order = order
        self._places: Mapping[str, int] | None = None
        self._kept: dict[Group, dict[str, Record]] = {}
        self._has_readers = _has_readers(config)
        self._additions: dict[str, tuple[list[tuple[str, object]], list[tuple[str, str]]]] = {}

    def annotate(self, report: pytest.TestReport, records: Sequence[Record]) -> None:
        """Say on a test's reports that its answer is wrong: as user properties, and as a section with the texts.

        Other plugins read the properties of a test's last report, and the sections of any of its reports.
        """
        if not self._has_readers:
            return
        status = report.__dict__.get("llm_status")
        if status is not None:
            odd = [record for record in records if record.status == status][:_MAX_DESCRIBED]
            is_one = len(records) == 1
            properties: list[tuple[str, object]] = [("llm_status", status)]
            properties += [(f"llm_{status}", _described(record, with_id=not is_one)) for record in odd]
            sections = [(_SECTION, "\n".join(line for record in odd for line in _block(record)))]
            self._additions[report.nodeid] = properties, sections if report.passed and status == "wrong" else []
        if report.nodeid in self._additions:
            properties, sections = self._additions[report.nodeid]
            report.user_properties.extend(properties)
            report.sections.extend(sections)
            if report.when == "teardown":
                del self._additions[report.nodeid]

    def keep(self, group: Group, record: Record) -> None:
        """Keep the record if it may be among the first wrong answers of its group.

        If a test runs again, its samples get new records, which may be right: the last record counts.
        """
        if not self._num_kept and not self._keeps_examples:
            return
        kept = self._kept.setdefault(group, {})
        kept.pop(record.id, None)
        if self._keeps_examples:
            if record.status == "wrong" and not kept:
                kept[record.id] = record
            return
        if record.status == "wrong":
            kept[record.id] = record
            if len(kept) >= 2 * self._num_kept:
                self._kept[group] = {first.id: first for first in self._first(kept.values())}

    def _first(self, records: Iterable[Record]) -> list[Record]:
        if self._places is None:
            self._places = {nodeid: place for place, nodeid in enumerate(self._order())}
        places, last = self._places, len(self._places)
        in_order = sorted(records, key=lambda one: (places.get(one.nodeid, last), one.nodeid, one.id))
        return in_order[: self._num_kept]

    def write(self, terminal: Terminal, wrong: Iterable[Group], *, has_examples: bool = False) -> None:
        """Write the section of wrong answers; ``wrong`` has the group of each wrong answer of the session.

        ``has_examples``: show a few if no option says how many.
        """
        counts = Counter(wrong)
        if self._keeps_examples and has_examples:
            self._write_examples(terminal, counts)
        if not self._num_kept or not counts:
            return
        terminal.write_sep("=", "WRONG ANSWERS")
        for group, number in counts.items():
            kept = self._first(self._kept.get(group, {}).values())
            for record in kept:
                if self._num_whole:
                    head, *lines = _block(record)
                    terminal.write_line(head, yellow=True)
                    for line in lines:
                        terminal.write_line(line)
                else:
                    _write_line(terminal, record)
            if number > len(kept):
                suite, model = group
                of = suite if model is None else f"{suite} ({model})"
                more = without_commands(f"… and {number - len(kept):,} more of {printable(of)}")
                terminal.write_line(f"{more}: --llm-show-wrong N shows N of each suite")

    def _write_examples(self, terminal: Terminal, counts: Counter[Group]) -> None:
        """Write the first wrong answer of each of the first suites that have one, and where the others are."""
        records = [record for group in counts for record in self._kept.get(group, {}).values()][:_EXAMPLES]
        if records:
            terminal.write_sep("=", "WRONG ANSWERS")
            for record in records:
                _write_line(terminal, record)
            if (number := counts.total() - len(records)) > 0:
                text = f"… and {number:,} more: --llm-show-wrong N shows N of each suite, --lf runs them again"
                terminal.write_line(text)


def _write_line(terminal: Terminal, record: Record) -> None:
    terminal.write("WRONG", yellow=True)
    terminal.write_line(f" {without_commands(printable(record.nodeid))} - {_described(record)}")


def mark_html_row(report: pytest.TestReport, cells: list[str]) -> None:
    """Let a row of pytest-html's table say ``Wrong``.

    The page sorts and filters by the first cell's text and knows only pytest's outcomes: it never shows a row with
    another text. So that text stays, in a hidden cell.
    """
    status = getattr(report, "llm_status", None)
    if status in ("wrong", "unscored") and cells and cells[0] == '<td class="col-result">Passed</td>':
        shown = f'<td class="col-result" style="color: orange">{status.capitalize()}</td>'
        cells[0] = f'<td hidden class="pytest-col-result">Passed</td>{shown}'


def _has_readers(config: pytest.Config) -> bool:
    """Tell whether there is a JUnit file or a page of pytest-html that tells of tests that passed."""
    if getattr(config.option, "htmlpath", None):
        return True
    return bool(getattr(config.option, "xmlpath", None)) and bool(config.getini("junit_log_passing_tests"))


def _block(record: Record) -> Iterator[str]:
    """Yield a bounded number of lines, one for each text of the sample. ``llmeval show`` has its numbers."""
    where = record.nodeid if record.nodeid.endswith(f"::{record.id}") else f"{record.nodeid}, sample {record.id}"
    for line in sample_lines(record, whole=False, prompt=False, head=printable(f"{where}: {record.status}")):
        if not line.startswith("  scores: "):
            yield without_commands(line)


def _described(record: Record, *, with_id: bool = False) -> str:
    """Return one line: ``expected 'Oslo', found 'Bergen'``."""
    if record.status == "unscored":
        text = record.reason or "could not be scored"
    else:
        target, answer, has_none, where = record.target, record.answer, record.no_answer, ""
        if (turn := first_wrong_turn(record.details)) is not None:
            target = turn.target if isinstance(turn.target, str) else [*turn.target]
            answer, has_none = turn.answer, turn.no_answer
            where = f"turn {turn.number} of {turn.count}: "
        expected = "" if target in (None, []) else f"expected {_quoted(as_text(target))}, "
        found = _quoted(answer) if answer is not None else "no answer" if has_none else "another text"
        of = f" in {_quoted(record.output)}" if has_none and not where and record.output is not None else ""
        text = f"{where}{expected}found {found}{of}"
    return without_commands(f"{printable(record.id)}: {text}" if with_id else text)


def _quoted(text: str) -> str:
    return printable(repr(shortened(text, limit=_MAX_TEXT)))


_MAX_RECORDS = 10
"""The number of samples of one hand-written test that -vv shows."""


def shows_texts(config: pytest.Config) -> bool:
    """Tell whether pytest's own reporter lists tests with -vv; how another one (pytest-sugar) draws, we do not know."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return type(reporter) is pytest.TerminalReporter and config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES) > 1


def write_texts(config: pytest.Config, records: Sequence[Record]) -> None:
    """Write the texts of records below the line that pytest has written about their test."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    assert terminal is not None
    for line in _lines(records):
        terminal.write_line(without_commands(line))


def _lines(records: Sequence[Record]) -> Iterator[str]:
    for record in records[:_MAX_RECORDS]:
        if len(records) > 1:
            yield f"  sample {record.id}:"
        yield from bounded_lines(record)
    if len(records) > _MAX_RECORDS:
        yield f"  … and {len(records) - _MAX_RECORDS:,} more samples of this test"
