"""What is wrong with a session that was killed and run again: the judging half of ``tests.faults.kills``."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_llmeval.cli import main as llmeval
from pytest_llmeval.errors import ReportError
from pytest_llmeval.inference.store import data_files, lines_of
from pytest_llmeval.inference.stored_lines import decode_line
from pytest_llmeval.reporting.storage.report_file import read_report
from tests.plugin.test_store import without_times

__all__ = [
    "FIGURES",
    "OLDER_REPORT",
    "Ended",
    "Findings",
    "asked_again",
    "comparable",
    "differences",
    "judge_killed",
    "judge_process",
    "judge_rerun",
    "kept",
    "left_files",
]

FIGURES = (
    *("finished and lost", "asked again", "hangs", "processes left", "temporary files left", "unreadable journals"),
    *("wrong numbers", "dishonest exit codes", "other reports", "damaged reports", "internal errors"),
    "stores that git sees",
)
"""What has to be 0."""

OLDER_REPORT = '{"older": "report"}\n'
"""What lies in the report's place before some sessions."""

_NUMBER = re.compile(r"<(\d+)>")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_OWN = re.compile(
    r"asked|\.llmeval/(\.gitignore|replies-[0-9a-f]{16}\.jsonl)?|report\.json(\.\d+)?\.journal|report\.(json|csv)"
    r"|suite\.yaml|conftest\.py|planted\.py|\.pytest_cache/.*|__pycache__/([^/]*\.pyc)?"
)
_PASSED_THROUGH = re.compile(r"^.*/pytest_llmeval/.*\n.*> +(?:return \()?yield\b.*\n(?:.*> +\^+\n)?", re.MULTILINE)
"""A hook of ours around another's that failed."""
_OF_PYTEST = re.compile(r"__pycache__/[^/]*\.pyc\.\d+|pytest-cache-files-[^/]*/.*")
"""pytest writes these before it renames them, and leaves them where it is killed in between. It keeps the folders of
its last three sessions in the temporary folder."""
_OF_PYTHON = re.compile(r"[a-z0-9_]{8}")
"""``tempfile`` writes one in the temporary folder, to see whether it can; killed meanwhile, it leaves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a session ended. ``code`` is None where it had to be ended by us; ``left`` names processes that it left."""

    code: int | None
    seconds: float
    left: Sequence[str]
    output: str


@dataclass(slots=True)
class Findings:
    """Of one case: how often each of ``FIGURES`` was seen, with words for each, and what is only told."""

    counts: Counter[str] = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)
    greatest_difference: float = 0.0
    files_of_pytest: int = 0
    errors_of_xdist: int = 0

    def add(self, figure: str, text: str, count: int = 1) -> None:
        """One more finding; nothing where ``count`` is 0."""
        if count:
            self.counts[figure] += count
            self.texts.append(f"{figure}: {text}")


def comparable(report: Mapping[str, Any]) -> Any:
    """What of a report does not depend on when and where it was made, on what was in the store, and on batches."""
    text = _ADDRESS.sub("HOST", json.dumps(without_times(dict(report))))
    found = json.loads(text)
    del found["options"]["batch_size"]
    for model in found["models"]:
        model.pop("use", None)
    return found


def differences(expected: Any, found: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two documents differ, with both values."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in expected.keys() | found.keys():
            yield from differences(expected.get(key), found.get(key), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")
    elif expected != found or type(expected) is not type(found):
        yield path, expected, found


def _distance(expected: Any, found: Any) -> float:
    """Of two numbers; infinite for anything else."""
    return abs(expected - found) if isinstance(expected, float) and isinstance(found, float) else float("inf")


def kept(folder: Path, requests_per_sample: int) -> dict[int, float]:
    """The samples whose replies are all in the store, and since when (Unix, s). Lines that are not whole are passed
    over, as the store does.
    """
    times: dict[int, dict[str, float]] = {}
    for path in data_files(folder) if folder.exists() else ():
        with path.open("rb") as file:
            for _, line in lines_of(file):
                with contextlib.suppress(ValueError):
                    reply = decode_line(line)
                    for number in _NUMBER.findall(reply.request.text):
                        known = times.setdefault(int(number), {})
                        known[reply.request.key] = min(reply.time, known.get(reply.request.key, reply.time))
    return {number: max(own.values()) for number, own in times.items() if len(own) >= requests_per_sample}


def asked_again(log: Path, finished: Mapping[int, float]) -> list[int]:
    """The samples that were asked when their replies were in the store already."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [
        int(number)
        for time, *numbers in lines
        for number in numbers
        if float(time) > finished.get(int(number), float("inf"))
    ]


def _readable(journal: Path) -> tuple[str | None, list[dict[str, Any]]]:
    """Why ``llmeval show`` cannot read a journal (None if it can), and the records that it holds."""
    if not journal.stat().st_size:  # its session was killed when it had just been made
        return None, []
    output = io.StringIO()
    code: object
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = llmeval(["show", str(journal)])
        except SystemExit as stop:
            code = stop.code
    if code:
        return f"exit code {code}: {output.getvalue().strip()[-300:]}", []
    try:
        report = read_report(journal)
    except ReportError as error:
        return str(error), []
    return None, [{"id": one.id, "status": one.status, "values": dict(one.values)} for one in report.records]


def left_files(case: Path) -> tuple[list[str], list[str]]:
    """In a session's folder and in its temporary folder: files of ours that should be gone, and those of pytest and
    Python.
    """
    project, temporary = case / "project", case / "tmp"
    names = [
        f"{path.relative_to(project)}{'/' if path.is_dir() and not any(path.iterdir()) else ''}"
        for path in sorted(project.rglob("*"))
        if not path.is_dir() or not any(path.iterdir())
    ]
    foreign = [name for name in names if _OF_PYTEST.fullmatch(name)]
    ours = [name for name in names if not _OWN.fullmatch(name) and name not in foreign]
    in_temporary = [path.name for path in sorted(temporary.iterdir()) if not path.name.startswith("pytest-of-")]
    of_python = [name for name in in_temporary if _OF_PYTHON.fullmatch(name)]
    ours += [f"tmp/{name}" for name in in_temporary if name not in of_python]
    return ours, foreign + [f"tmp/{name}" for name in of_python]


def judge_process(ended: Ended, name: str, findings: Findings) -> None:
    """Whether a session came to its end with all its processes."""
    findings.add("hangs", f"{name} did not end: {ended.output[-600:]}", ended.code is None)
    findings.add("processes left", f"{name}: {ended.left}", len(ended.left))
    traceback = "".join(line for line in ended.output.splitlines(keepends=True) if line.startswith("INTERNALERROR>"))
    traceback = _PASSED_THROUGH.sub("", traceback)
    if "pytest_llmeval" in traceback or (traceback and "xdist" not in traceback):
        findings.add("internal errors", f"{name}: {traceback}")
    elif traceback:
        findings.errors_of_xdist += 1


def judge_killed(
    project: Path, expected: Mapping[str, Any], killed: Ended, findings: Findings, tolerance: float = 0.0
) -> set[str]:
    """Judge the files that the killed session left, by the report of an undisturbed run; the samples that they show as
    finished. Numbers may differ by ``tolerance``.
    """
    found = list[dict[str, Any]]()
    for journal in sorted(project.glob("*.journal")):
        problem, records = _readable(journal)
        findings.add("unreadable journals", f"{journal.name}: {problem}", problem is not None)
        found += records
    path, document = project / "report.json", None
    if path.exists() and (text := path.read_text(encoding="utf-8")) != OLDER_REPORT:
        try:
            document = json.loads(text)
            found += document["records"]
        except (ValueError, KeyError) as error:
            findings.add("damaged reports", f"report.json after the kill: {error!r}")
    if killed.code == 0:
        wrong = ["no report"] if document is None else _large_differences(expected, comparable(document), tolerance)
        findings.add("dishonest exit codes", f"the killed session ended with 0: {wrong[:3]}", bool(wrong))
    records_expected = {record["id"]: record for record in expected["records"]}
    done = [record for record in found if record["status"] != "unscored"]
    for record in done:
        right = records_expected[record["id"]]
        one, other = ({key: of[key] for key in ("status", "values")} for of in (right, record))
        wrong = _large_differences(one, other, tolerance)
        findings.add("wrong numbers", f"{record['id']}: {wrong[:3]}", bool(wrong))
    return {record["id"] for record in done}


def judge_rerun(
    project: Path, finished: set[str], expected: Mapping[str, Any], findings: Findings, tolerance: float = 0.0
) -> None:
    """Whether the rerun's report is that of the undisturbed run, with all samples that had been ``finished``. Numbers
    may differ by ``tolerance``.
    """
    try:
        report = comparable(json.loads((project / "report.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        findings.add("damaged reports", f"report.json of the rerun: {error!r}")
        return
    scored = {record["id"] for record in report["records"] if record["status"] != "unscored"}
    findings.add("finished and lost", str(sorted(finished - scored)), len(finished - scored))
    by = [_distance(one, other) for _, one, other in differences(expected, report)]
    findings.greatest_difference = max((small for small in by if small <= tolerance), default=0.0)
    wrong = _large_differences(expected, report, tolerance)
    findings.add("other reports", f"{len(wrong)} differences, such as {wrong[:3]}", bool(wrong))


def _large_differences(expected: Any, found: Any, tolerance: float) -> list[Any]:
    return [where for where in differences(expected, found) if _distance(*where[1:]) > tolerance]
