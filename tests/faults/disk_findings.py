"""What is wrong with a disk after a session that could not write to it: the judging half of ``tests.faults.disks``."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.report.verify import report_problem
from pytest_llmeval.reporting.storage.report_file import read_report
from tests.faults.disk_cases import DISK, Case
from tests.faults.disk_project import NUM_SAMPLES

__all__ = ["FIGURES", "Ended", "content_of", "impossible_times", "judge", "left_over"]

FIGURES: Mapping[str, str] = {
    "dishonest": "without one line and an honest exit code",
    "traceback": "tracebacks",
    "older report": "older reports not whole",
    "hang": "hangs",
    "temporary file": "temporary files left",
    "damaged journal": "damaged journals",
    "damaged store": "damaged stores",
    "lost replies": "replies lost or wrongly reused",
    "times": "impossible times",
}
"""By the word that a problem begins with. Each should be 0."""
_SAID = "cannot|could not|no more replies|--llm-store .*: |--llm-report.*: "
"""What a line has that says why something is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a session left: its exit code (None: it hung), its output, and of each report what its file held before."""

    exit_code: int | None
    output: str
    before: Mapping[Path, bytes | None]


def judge(case: Case, ended: Ended, disk: Path) -> list[str]:
    """What is wrong with what a session left on the disk, a text for each thing."""
    if ended.exit_code is None:
        return ["hang"]
    problems = []
    output = ended.output
    if "Traceback (most recent call last)" in output or "INTERNALERROR" in output:
        problems.append(f"traceback: {output[-600:]}")
    said = [line for line in output.splitlines() if re.search(_SAID, line)]
    are_written = True
    for path, before in ended.before.items():
        written, problem = _is_written(path, before, case)
        are_written &= written
        if problem is not None:
            problems.append(problem)
        if not written and not any(_names(line, path) for line in said):
            problems.append(f"dishonest: {path.name} is not written, and no line says so: {output[-600:]}")
    if not are_written and ended.exit_code not in (1, 4):
        problems.append(f"dishonest: exit code {ended.exit_code}, and not all was written: {output[-600:]}")
    if are_written and ended.exit_code != 0 and not said:
        problems.append(f"dishonest: exit code {ended.exit_code}, and no line says why: {output[-600:]}")
    if any(len(line) > 600 for line in said) and not case.detail.startswith("too long"):
        problems.append(f"dishonest: not one short line: {max(said, key=len)[:600]}")
    return [*problems, *left_over(disk, is_whole=ended.exit_code == 0)]


def _names(line: str, path: Path) -> bool:
    """Whether a line of an error names the path, or the folder that a report is to go to."""
    return any(name in line for name in {path.name, f"{DISK}/{path.name}"}) and ": " in line


def _is_written(path: Path, before: bytes | None, case: Case) -> tuple[bool, str | None]:
    """Whether a new report is there, whole; and what is wrong with what is there."""
    if case.detail.startswith("too long"):
        return False, None
    if case.detail == "/dev/stdout":  # a pipe, or here the file of the session's output, which the report replaces
        return True, None
    if path.is_dir() or path.suffix == "":  # a report of a name of its own in the folder
        files = sorted(path.glob("*.md"))
        num_older = int(case.older and case.fault not in ("path", "folder removed meanwhile"))
        part = next((file.name for file in files if not _is_whole(file)), None)
        return len(files) > num_older, None if part is None else f"older report: a part of one is left in {part}"
    if path.exists() and not path.is_file():  # a device, a pipe or a socket, which hold nothing
        return case.detail == "/dev/null", None
    now = content_of(path)
    if now is None or now == before:
        lost = now is None and before is not None and case.fault != "folder removed meanwhile"
        return False, "older report: it is gone" if lost else None
    return (True, None) if _is_whole(path) else (False, f"older report: a part of a report is there: {now[:80]!r}")


def _is_whole(path: Path) -> bool:
    """Whether a file is a report of all samples, as its suffix says, or of the five of an older session."""
    try:
        match path.suffix:
            case ".json":
                report = read_report(path)
                texts = [record.output for record in report.records]
                return len(texts) in (NUM_SAMPLES, 5) and report_problem(report, path.name) is None
            case ".jsonl":
                return len([json.loads(line) for line in path.read_text().splitlines()]) in (NUM_SAMPLES, 5)
            case ".csv":
                with path.open(newline="") as file:
                    return len(list(csv.DictReader(file))) in (NUM_SAMPLES, 5)
            case _:
                text = path.read_text()
                return text.startswith("#") and text.endswith("\n") and "sums" in text
    except (LLMEvalError, OSError, ValueError):
        return False


def left_over(disk: Path, *, is_whole: bool) -> Iterator[str]:
    """Temporary files, and journals that nobody needs or can read."""
    for path in sorted(disk.rglob("*")):
        if path.name.startswith(".llmeval-") or path.suffix == ".tmp":
            yield f"temporary file: {path.name}"
        if path.suffix == ".journal":
            if is_whole:
                yield f"temporary file: {path.name}, of a session that wrote its report"
            with suppress(OSError):
                if path.stat().st_size == 0:
                    yield f"temporary file: {path.name} is empty"
                    continue
            try:
                read_report(path)
            except LLMEvalError as error:
                yield f"damaged journal: {error}"


def content_of(path: Path) -> bytes | None:
    """What lies there; None for nothing that can be read."""
    with suppress(OSError):  # too long a name
        return path.read_bytes() if path.is_file() else None
    return None


def impossible_times(output: str, path: Path) -> Iterator[str]:
    """Numbers of seconds that cannot be."""
    if (found := re.search(r"(?<![\w-])-\d+(\.\d+)? ?(s|ms|min|h|d)\b|\b\d{6,}(\.\d+)? ?s\b", output)) is not None:
        yield f"times: the output says {found[0]!r}"
    with suppress(OSError, ValueError):
        report = json.loads(path.read_text())
        seconds = [report["seconds"], *(record["seconds"] for record in report["records"] if record["seconds"])]
        if not all(0 <= value < 1_000 for value in seconds):
            yield f"times: the report has {seconds} seconds"
