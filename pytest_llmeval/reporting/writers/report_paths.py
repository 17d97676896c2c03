"""The paths of reports: what ``--llm-report`` takes, a file of some form or a folder."""

from __future__ import annotations

import os
import re
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.storage.atomic_write import check_writable
from pytest_llmeval.reporting.writers.formats import folder_suffix, format_of, report_formats
from pytest_llmeval.text.names import short_names
from pytest_llmeval.text.redaction import redact

__all__ = ["check_target", "final_path", "is_folder", "parse_target", "write_report_file"]

_MAX_MODEL_BYTES = 100
"""The most bytes of the models' names in a file name: file systems take 255 for the whole of it."""


def parse_target(text: str) -> Path:
    """Return the path of a file with a suffix of ``report_formats``, or of a folder.

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
        f"expected a name that ends in {', '.join(report_formats())}, or a folder; with / at its end, it is created"
    )


def check_target(path: Path) -> None:
    """Raise ``ReportError`` if a report could not be written there, to say so before a long run.

    Missing folders are made: that of a file, one that is the target itself, and those above them.
    """
    if not os.path.isdir(path) and (form := format_of(path)) is not None:
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
    """Tell whether a target is a folder: it exists, or its name has none of the suffixes of ``report_formats``."""
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
