"""The formats of reports, and the files that they are written to: all that ``--llm-report`` takes.

Options, help texts, commands and the reference derive from ``FORMATS``; the list in docs/reports.md is held to it by a
test.

Like ``plugin/options.py``, this module is imported by every pytest run that has the plugin installed.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, cast

from pytest_llmeval.errors import LLMEvalError, ReportError
from pytest_llmeval.text.names import short_names
from pytest_llmeval.text.redaction import describe, redact

if TYPE_CHECKING:
    from pytest_llmeval.reporting.report.report import Report

__all__ = [
    "ENTRY_POINTS",
    "FORMATS",
    "ReportFormat",
    "check_target",
    "export_formats",
    "final_path",
    "folder_suffix",
    "format_of",
    "is_folder",
    "parse_target",
    "suffixes",
    "write_report_file",
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
    imported when it is used. One of this package replaces the file by ``atomic_write`` or ``atomic_path`` itself.
    ``description`` follows the name in a help text. ``is_report`` formats are those that ``--llm-report`` writes to a
    file with ``suffix``, ``is_export`` ones those of ``llmeval export --to NAME``. ``is_for_folders`` marks the one
    that is written where ``--llm-report`` names a folder. ``is_text`` is text in UTF-8, which standard output can show,
    ``is_json`` is JSON too. ``package`` is the distribution that it comes from; ``others`` are those that offer a
    format of this name too, so that it cannot be used.
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


def _report_formats() -> Mapping[str, ReportFormat]:
    """Map suffixes to what ``--llm-report`` writes."""
    return {one.suffix: one for one in _all(tuple(sys.path)) if one.is_report}


def format_of(path: Path) -> ReportFormat | None:
    """Return the format whose suffix ends the file's name, the longest of several; None if there is none."""
    name = path.name.lower()
    fitting = [one for suffix, one in _report_formats().items() if name.endswith(suffix) and name != suffix]
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


_MAX_MODEL_BYTES = 100
"""The most bytes of the models' names in a file name: file systems take 255 for the whole of it."""


def parse_target(text: str) -> Path:
    """Return the path of a file with a suffix of ``_report_formats``, or of a folder.

    A folder exists, or has a slash at its end; one whose name has such a suffix needs the slash. Raise ``ValueError``,
    which says what is expected.
    """
    if not text.strip() or "\0" in text:
        raise ValueError("expected the name of a file or folder")
    path = Path(text)
    has_form, has_slash = format_of(path) is not None, text.endswith(("/", os.sep))
    if os.path.isdir(path):  # Path.is_dir raises for a name that is too long
        if has_form and not has_slash:
            raise ValueError(
                f"expected a file, and {path.name} is a folder; with / at its end, the report is put there"
            )
        return path
    if has_slash:
        if has_form:
            raise ValueError(
                f"expected a file or a folder: make the folder {path.name} first, as its name is one of a file"
            )
        return path
    if has_form:
        return path
    if path.suffix.lower() == ".xml":
        raise ValueError("expected another suffix: --junitxml=FILE.xml is pytest's own and writes the JUnit file")
    raise ValueError(
        f"expected a name that ends in {', '.join(_report_formats())}, or a folder; with / at its end, it is created"
    )


def check_target(path: Path) -> None:
    """Raise ``ReportError`` if a report could not be written there, to say so before a long run.

    Missing folders are made: that of a file, one that is the target itself, and those above them.
    """
    if not os.path.isdir(path) and (form := format_of(path)) is not None:
        from pytest_llmeval.reporting.storage.atomic_write import check_writable

        form.check()
        check_writable(path)
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ReportError(f"cannot write the report to the folder {path}: {error.strerror or error}") from None


def final_path(path: Path, report: Report) -> Path:
    """Return the file that is written.

    In a folder it is named after the model and the start in UTC, ``eval_report_gpt2_20261122_003015.md``, or
    ``eval_report_mcq_…`` if the scorer of every suite is ``letter``. A file that exists is not written over: the name
    gets a number.
    """
    return path if not is_folder(path) else next(file for file in _names(path, report) if not file.exists())


def _names(folder: Path, report: Report) -> Iterator[Path]:
    lettered = bool(report.suites) and all(suite.info.scorer == "letter" for suite in report.suites)
    models = _models_part([str(model["name"]) for model in report.models])
    parts = ["eval_report", *["mcq"] * lettered, *[models] * bool(models), _time_part(report.created)]
    stem, suffix = "_".join(parts), folder_suffix()
    yield folder / f"{stem}{suffix}"
    for number in count(2):
        yield folder / f"{stem}-{number}{suffix}"


def write_report_file(report: Report, path: Path) -> Path:
    """Write the report in the form that the suffix says, and return the file. Raise ``LLMEvalError``.

    The file holds all of the report, or what it held before. Its folder is made if there is none: after a long run it
    is too late to complain of one that has gone.
    """
    file = final_path(path, report)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file != path:
            file = _claimed(path, report)
    except OSError as error:
        raise ReportError(f"cannot write the report {file}: {error.strerror or error}") from None
    if (form := format_of(file)) is None:
        raise ReportError(f"cannot write the report {file}: its format is not installed any more")
    try:
        form.write(report, file)
    except BaseException:
        if file != path:
            with suppress(OSError):
                file.unlink()
        raise
    return file


def _claimed(folder: Path, report: Report) -> Path:
    """Return the first free name, with an empty file that keeps it from sessions that end now. Raise ``OSError``."""
    for file in _names(folder, report):
        with suppress(FileExistsError):
            file.touch(exist_ok=False)
            return file
    raise AssertionError("names do not end")


def is_folder(path: Path) -> bool:
    """Tell whether a target is a folder: it exists, or its name has none of the suffixes of ``_report_formats``."""
    return os.path.isdir(path) or format_of(path) is None


def _models_part(models: Sequence[str]) -> str:
    """Return ``gpt2``, ``gpt2_vs_llama`` or ``gpt2_vs_llama_and_3_more``; an empty text if there is no model."""
    names = [_safe(name) for name in short_names([redact(model) for model in models])]
    names = [name for name in names if name]
    for num_named in range(len(names), 0, -1):
        rest = len(names) - num_named
        text = "_vs_".join(names[:num_named]) + (f"_and_{rest}_more" if rest else "")
        if len(text.encode("utf-8")) <= _MAX_MODEL_BYTES or num_named == 1:
            return text.encode("utf-8")[:_MAX_MODEL_BYTES].decode("utf-8", "ignore")
    return ""


def _safe(name: str) -> str:
    """Return the name in letters and digits of any script, dots and dashes, which every shell and file system takes."""
    return re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", name)).strip("-._")


def _time_part(created: str) -> str:
    try:
        return datetime.fromisoformat(created).astimezone(UTC).strftime("%Y%m%d_%H%M%S")
    except ValueError:
        return _safe(created)[:30]
