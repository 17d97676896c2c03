"""The forms that a report is written in, each once. Options, help texts, commands and the reference derive from them.

Like ``plugin/options.py``, this module is imported by every pytest run that has the plugin installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, cast

from pytest_llmeval.errors import LLMEvalError, ReportError

if TYPE_CHECKING:
    from pytest_llmeval.reporting.report.report import Report

__all__ = [
    *("ENTRY_POINTS", "FORMATS", "ReportFormat", "export_formats", "folder_suffix", "format_of", "report_formats"),
    "suffixes",
]

ENTRY_POINTS = "pytest_llmeval.reports"
"""The group of entry points by which other packages add formats: ``txt = "their_package:write_text"``.

Not a hook of pytest: ``llmeval export`` has the formats too, and runs without pytest and its plugins.
"""

_OURS = "pytest-llmeval-suites"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFormat:
    """One form of a report.

    ``writer`` names the function that takes the report and the path of the file to write, as ``module:function``: it is
    imported when it is used. ``description`` follows the name in a help text. ``is_report`` formats are those
    that ``--llm-report`` writes to a file with ``suffix``, ``is_export`` ones those of ``llmeval export --to NAME``.
    ``is_for_folders`` marks the one that is written where ``--llm-report`` names a folder. ``is_text`` is text in
    UTF-8, which standard output can show, ``is_json`` is JSON too. ``package`` is the distribution that it comes from;
    ``others`` are those that offer a format of this name too, so that it cannot be used.
    """

    name: str
    writer: str
    description: str
    is_report: bool = True
    is_export: bool = True
    is_for_folders: bool = False
    is_text: bool = True
    is_json: bool = False
    package: str = _OURS
    others: tuple[str, ...] = ()

    @property
    def suffix(self) -> str:
        return f".{self.name}"

    def check(self) -> None:
        """Raise ``ReportError`` if it could not be written, to say so before a long run.

        That is so if another package's writer cannot be imported, or if two packages offer the format.
        """
        if self.others:
            raise ReportError(
                f"two packages offer the report format {self.suffix}: {self.package} and {self.others[0]}; "
                f"uninstall {self.others[0]}, or give its format another name"
            )
        if self.package != _OURS:
            self._foreign_writer()

    def write(self, report: Report, path: Path) -> None:
        """Write the report: the file holds all of it, or what it held before. Raises ``LLMEvalError``."""
        self.check()
        if self.package == _OURS:
            resolve_name(self.writer)(report, path)
            return
        from pytest_llmeval.reporting.storage.atomic_write import atomic_path

        write = self._foreign_writer()
        with atomic_path(path, suffix=self.suffix) as temporary:
            try:
                write(report, temporary)
            except (LLMEvalError, OSError, KeyboardInterrupt):
                raise
            except BaseException as error:  # sys.exit would end the session without its summary
                raise self._failed(f"cannot write the report {path}", error) from error
            if temporary.is_file() and not temporary.stat().st_size:
                raise ReportError(
                    f"cannot write the report {path}: {self.writer} of the package {self.package} wrote nothing"
                )

    def _foreign_writer(self) -> Callable[[Report, Path], None]:
        try:
            writer = resolve_name(self.writer)
            if not callable(writer):
                raise TypeError("it is not a function; write module:function in the entry point")
        except (Exception, SystemExit) as error:
            raise self._failed(f"there is no writer of reports {self.suffix}", error) from error
        return cast("Callable[[Report, Path], None]", writer)

    def _failed(self, what: str, error: BaseException) -> ReportError:
        from pytest_llmeval.text.redaction import describe

        return ReportError(f"{what}: {self.writer} of the package {self.package} failed: {describe(error)}")


FORMATS: tuple[ReportFormat, ...] = (
    ReportFormat(
        name="json",
        writer="pytest_llmeval.reporting.storage.report_file:write_report",
        description="the whole report",
        is_export=False,
    ),
    ReportFormat(
        name="md",
        writer="pytest_llmeval.reporting.writers.markdown:write_markdown",
        description="the report to read",
        is_for_folders=True,
    ),
    ReportFormat(
        name="html",
        writer="pytest_llmeval.reporting.writers.html.page:write_html",
        description="one page to look at, with every sample",
    ),
    ReportFormat(
        name="csv",
        writer="pytest_llmeval.reporting.writers.exports:write_csv",
        description="a row for each sample",
    ),
    ReportFormat(
        name="jsonl",
        writer="pytest_llmeval.reporting.storage.report_file:write_jsonl",
        description="a record of JSON on each line",
        is_json=True,
    ),
    ReportFormat(
        name="parquet",
        writer="pytest_llmeval.reporting.writers.exports:write_parquet",
        description="a row for each sample",
        is_report=False,
        is_text=False,
    ),
    ReportFormat(
        name="questions",
        writer="pytest_llmeval.reporting.writers.exports:write_questions",
        description="JSON, {benchmark, metrics: {accuracy, credit, correct, total, unscored}, questions: [{qid, "
        "question, gold, pred, correct}]}, of several suites a list of these",
        is_report=False,
        is_json=True,
    ),
)
"""The formats of this package, in the order in which they are listed."""


def suffixes() -> str:
    """Return the suffixes of our own formats for a help text: ``.json, .md, .html, .csv or .jsonl``."""
    *most, last = (one.suffix for one in FORMATS if one.is_report)
    return f"{', '.join(most)} or {last}"


def folder_suffix() -> str:
    """Return the suffix of a report whose file is not named."""
    return next(one.suffix for one in FORMATS if one.is_for_folders)


def report_formats() -> Mapping[str, ReportFormat]:
    """Map suffixes to what ``--llm-report`` writes."""
    return {one.suffix: one for one in _all(tuple(sys.path)) if one.is_report}


def format_of(path: Path) -> ReportFormat | None:
    """Return the format whose suffix ends the file's name, the longest of several; None if there is none."""
    name = path.name.lower()
    fitting = [one for suffix, one in report_formats().items() if name.endswith(suffix) and name != suffix]
    return max(fitting, key=lambda one: len(one.suffix), default=None)


def export_formats() -> Mapping[str, ReportFormat]:
    """Map names to what ``llmeval export`` writes."""
    return {one.name: one for one in _all(tuple(sys.path)) if one.is_export}


@cache
def _all(search_path: tuple[str, ...]) -> tuple[ReportFormat, ...]:
    """Return our formats, and those of the packages that are installed in these folders."""
    found = {one.name: one for one in FORMATS}
    for one in _installed():
        other = found.setdefault(one.name, one)
        if other is not one:
            found[one.name] = replace(other, others=(*other.others, one.package))
    return tuple(found.values())


def _installed() -> Iterator[ReportFormat]:
    from importlib.metadata import entry_points  # takes 10 ms, which not every session has to pay

    for point in entry_points(group=ENTRY_POINTS):
        package = "an unknown package" if point.dist is None else point.dist.name
        yield ReportFormat(
            name=point.name.lower(),
            writer=point.value.partition("[")[0].strip(),  # without extras
            description=f"of the package {package}",
            package=package,
        )
