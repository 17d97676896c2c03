"""Writes the end of a session to pytest's terminal, in colours."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.tables.cells import Tone, Toned
from pytest_llmeval.reporting.writers.text_layout import screen_width
from pytest_llmeval.reporting.writers.text_report import main_numbers, printed_lines, session_lines, summary_heading
from pytest_llmeval.text.escaping import printable, without_commands

__all__ = ["Terminal", "as_terminal", "write_main_numbers", "write_paths", "write_summary"]

_URGENT = ("problem:", "could not be scored:", "stopped early", "store: replies could")
"""Beginnings of lines that a reader has to act on."""

_MARKUP: Mapping[Tone, str] = MappingProxyType({"good": "green", "bad": "red", "strong": "bold"})
"""The markup of pytest's terminal writer for each tone."""


class Terminal(Protocol):
    """The part of pytest's terminal reporter that a summary is written to."""

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None: ...

    def write_line(self, line: str, **markup: bool) -> None: ...

    def write(self, content: str, **markup: bool) -> None: ...


class _Output:
    """Standard output, without colours."""

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None:
        self.write_line(f"{sep * 3} {title} {sep * 3}" if title else sep * 80)

    def write_line(self, line: str, **markup: bool) -> None:
        self.write(f"{line}\n")

    def write(self, content: str, **markup: bool) -> None:
        sys.stdout.write(content)


def as_terminal(reporter: Any) -> Terminal:
    """Return ``reporter``, or standard output if a plugin has put another kind of object in its place."""
    names = ("write_sep", "write_line", "write", "currentfspath")
    return reporter if all(hasattr(reporter, name) for name in names) else _Output()


def write_summary(terminal: Terminal, report: Report, paths: Sequence[Path]) -> None:
    """Write the summary, and the files that the report was written to. No line of it is a command to GitHub Actions."""
    width = screen_width()
    terminal.write_sep("=", summary_heading(report))
    is_urgent = False
    for line in session_lines(report, width=width):
        is_urgent = line.startswith(_URGENT) or (is_urgent and line.startswith(" "))
        _write(terminal, line, width, {"red": True} if is_urgent else {})
    write_paths(terminal, paths)


def write_main_numbers(terminal: Terminal, report: Report) -> None:
    """Write one line, for sessions without a summary."""
    _write(terminal, main_numbers(report), screen_width(), {})


def write_paths(terminal: Terminal, paths: Sequence[Path]) -> None:
    """Write where the report is; the page comes last, where a reader's eye and a terminal's link are."""
    for path in sorted(paths, key=lambda path: path.suffix.lower() == ".html"):
        _write(terminal, f"report: {printable(str(path))}", screen_width(), {})


def _write(terminal: Terminal, line: str, width: int, markup: Mapping[str, bool]) -> None:
    """Write a line in its colours. A terminal breaks a line that is too long inside a word; a log does not break it."""
    safe = without_commands(line)
    spans = line.spans if isinstance(line, Toned) else ()
    if spans and safe == line:
        written = 0
        for start, end, tone in spans:
            terminal.write(line[written:start])
            terminal.write(line[start:end], **{_MARKUP[tone]: True})
            written = end
        terminal.write_line(line[written:])
    elif spans:
        terminal.write_line(safe, **{_MARKUP[spans[0][2]]: True})
    else:
        for part in printed_lines(line, width=width, wraps=getattr(terminal, "isatty", False)):
            terminal.write_line(part, **markup)
