"""Tells GitHub Actions of a session: the job summary, and annotations at the gates that failed.

Sources: docs.github.com, "Workflow commands for GitHub Actions"; escapes as in actions/toolkit,
packages/core/src/command.ts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.tables.comparisons import gate_name
from pytest_llmeval.reporting.tables.suites import short_model_names, suite_name
from pytest_llmeval.reporting.writers.markdown import markdown_summary
from pytest_llmeval.text.escaping import printable, shortened

__all__ = ["MAX_CHARACTERS", "MAX_SUMMARY_BYTES", "annotation_lines", "append_job_summary"]

MAX_CHARACTERS = 65_536
"""The most characters of a comment on GitHub. Nobody reads a longer job summary either."""

MAX_SUMMARY_BYTES = 1024 * 1024
"""The most bytes that a step may write to its summary in all; GitHub shows nothing of a longer one."""

_MAX_ANNOTATIONS = 10
"""The most errors that GitHub shows of one step."""

_MAX_MESSAGE = 2000
_CUT = "\n… cut here: GitHub shows 1 MiB of a step's summary.\n"


def _is_github(environ: Mapping[str, str]) -> bool:
    """Tell whether this process is a step of GitHub Actions."""
    return environ.get("GITHUB_ACTIONS") == "true"


def append_job_summary(report: Report, environ: Mapping[str, str]) -> str | None:
    """Append the Markdown summary to the job's, in GitHub Actions; elsewhere do nothing.

    Return what went wrong, in one line: the run is not to fail for it.
    """
    name = environ.get("GITHUB_STEP_SUMMARY")
    if not _is_github(environ) or not name:
        return None
    try:
        with Path(name).open("ab") as file:
            text = _cut("\n" + markdown_summary(report, limit=MAX_CHARACTERS), MAX_SUMMARY_BYTES - file.tell())
            file.write(text)
    except OSError as error:
        return f"cannot append to the job summary {printable(name)}: {error.strerror or error}"
    return None


def annotation_lines(report: Report, environ: Mapping[str, str], *, root: Path) -> Iterator[str]:
    """Yield commands for gates that failed and for samples without a score, in GitHub Actions; elsewhere nothing.

    Each is a line to print as it is. ``root`` is what the paths of suites are relative to. Beyond what GitHub shows of
    one step, the last one counts the rest.
    """
    if not _is_github(environ):
        return
    names = short_model_names(report)
    commands = []
    for result in report.gates:
        if result.outcome == "failed":
            properties = {**_place(result.path, result.line, environ, root), "title": f"gate {result.name}"}
            message = "\n".join((f"{gate_name(result, names)}: {result.reason}", *result.notes))
            commands.append(_command(properties, message))
    for suite in report.suites:
        if num := suite.summary.num_unscored:
            title = f"{num} sample{'' if num == 1 else 's'} of {suite_name(suite, names)} could not be scored"
            place = _place(suite.info.path, None, environ, root)
            commands.append(_command({**place, "title": title}, "The reasons are in the job's log and in the report."))
    if len(commands) > _MAX_ANNOTATIONS:
        rest = len(commands) - _MAX_ANNOTATIONS + 1
        commands[_MAX_ANNOTATIONS - 1 :] = [
            _command(
                {"title": f"{rest} more"}, f"{rest} further gates failed or suites have unscored samples: see the log."
            )
        ]
    yield from commands


def _place(path: str | None, line: int | None, environ: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return the place of a gate or suite, as seen from the folder that GitHub checked out."""
    if path is None:
        return {}
    file = os.path.abspath(root / path.partition("::")[0])
    workspace = environ.get("GITHUB_WORKSPACE")
    start = os.path.abspath(workspace) if workspace else os.path.abspath(root)
    try:
        shown = os.path.relpath(os.path.realpath(file), os.path.realpath(start))
    except ValueError:  # another drive
        shown = file
    return {"file": shown.replace(os.sep, "/"), **({} if line is None else {"line": str(line)})}


def _command(properties: Mapping[str, str], message: str) -> str:
    escaped = {name: _data(value).replace(":", "%3A").replace(",", "%2C") for name, value in properties.items()}
    parts = ",".join(f"{name}={value}" for name, value in escaped.items())
    return f"::error {parts}::{_data(shortened(message, limit=_MAX_MESSAGE))}"


def _data(text: str) -> str:
    """Return the text of a command, with GitHub's escapes for line breaks and ours for other controls."""
    return printable(text, keep="\n").replace("%", "%25").replace("\n", "%0A")


def _cut(text: str, num_bytes: int) -> bytes:
    """Return as many whole lines as there is room for, in UTF-8."""
    data = text.encode("utf-8")
    if len(data) <= num_bytes:
        return data
    kept = data[: max(num_bytes - len(_CUT.encode("utf-8")), 0)]
    whole = kept[: kept.rfind(b"\n") + 1]
    return whole + _CUT.encode("utf-8") if whole else b""
