"""``-vv``: below each sample's line its prompt and its reply, each with a bounded number of lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.writers.text_report import bounded_lines
from pytest_llmeval.text.escaping import without_commands

__all__ = ["shows_texts", "write_texts"]

_MAX_RECORDS = 10
"""Samples of one hand-written test."""


def shows_texts(config: pytest.Config) -> bool:
    """Tell whether pytest's own reporter lists tests with -vv; what another one (pytest-sugar) draws, we know nothing
    of.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return type(reporter) is pytest.TerminalReporter and config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES) > 1


def write_texts(config: pytest.Config, records: Sequence[Record]) -> None:
    """Write them below what pytest has written about their test."""
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
