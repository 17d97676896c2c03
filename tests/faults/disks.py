"""Do reports and stores survive disks that fail, odd paths, a second session, and clocks that jump?

    python -m tests.faults.disks [--count N] [--seed 0] [--jobs 1] [--only K]

A case is a session of eight sums in a forked process (or a command of ``llmeval``), without workers and with ``-n2``,
with and without an older report (or store) at the path; ``--count`` takes so many of the cases, drawn by the seed:

- a disk that is full, from the start, with room for some pages of 4 KiB, or from the middle of the session on: every
  format, the journal, the store, ``llmeval export``, ``merge``, ``store compact`` and ``clear``;
- a disk or folder that cannot be written to, a report that cannot be replaced, a folder that goes away meanwhile;
- a path that is a link to a device, to a file, to nothing, to itself; a pipe, a socket, a folder, too long a name;
- two sessions that write one report, or into one store;
- a clock that is set back or forward, in the middle of a session or between two.

A case is good where there is no traceback, and no hang; where all that was asked for was written the exit code is 0,
and else not, with a line that says what cannot be written, its path, and why; the report at the path is the older one
byte for byte, or a whole new one; a journal that is left can be read; and no temporary file is left.

A disk of a given size and a read-only one are mounted, and folders made immutable, which takes root on Linux: cases
that cannot be made here are counted as such. Of a full disk under ``--junitxml`` pytest itself says what it says.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.report.recount import misfit
from pytest_llmeval.reporting.storage.read import read_report
from tests.faults.disk_project import NUM_SAMPLES, make_project
from tests.fork_server import ForkedProcess, fork
from tests.forked import ForkServer
from tests.support import clean_environment

__all__ = ["Case", "Ended", "all_cases", "judge", "main"]

_HANGS_AFTER_S = 300.0
_PAGE = 4096
_DISK = "disk"
_SAID = "cannot|could not|no more replies|--llm-store .*: |--llm-report.*: "
"""What a line has that says why something is not there."""
_FORMATS = ("json", "md", "csv", "jsonl")
_ROOMS = (0, 1, 3, 6, 8, 10, 12, 14, 18, 24)
"""Pages that a full disk has left: a journal of the session takes ten, a report as many."""
_CHILD = """
import os, sys
os.chdir(sys.argv[1])
kind, sys.argv[:2] = sys.argv[2], sys.argv[:1]
del sys.argv[1]
if kind == "llmeval":
    from pytest_llmeval.cli import main
    sys.exit(main(sys.argv[1:]))
import runpy
runpy.run_module("pytest", run_name="__main__", alter_sys=True)
"""


class ImpossibleError(Exception):
    """This machine or user cannot make the case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is wrong with the disk or clock (``fault``, ``detail``), what is written, and how it is run."""

    fault: str
    detail: str = ""
    reports: tuple[str, ...] = ("json",)
    has_store: bool = False
    workers: bool = False
    older: bool = False

    def __str__(self) -> str:
        what = ", ".join((*self.reports, *["store"] * self.has_store))
        how = f"{'-n2' if self.workers else 'one process'}, {'over an older one' if self.older else 'new'}"
        return f"{self.fault} {self.detail} ({what}; {how})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a session left: its exit code (None: it hung), its output, and of each report what its file held before."""

    exit_code: int | None
    output: str
    before: Mapping[Path, bytes | None]


def all_cases() -> list[Case]:
    """Every case, in the order of their faults."""
    return [
        _with(case, workers=workers, older=older)
        for case in _cases()
        for workers, older in itertools.product((False, True), (False, True))
        if not (case.fault == "command" and workers)
    ]


def _with(case: Case, *, workers: bool, older: bool) -> Case:
    return Case(**{**{name: getattr(case, name) for name in Case.__slots__}, "workers": workers, "older": older})


def _cases() -> Iterator[Case]:
    forms = itertools.cycle([*((form,) for form in _FORMATS), ("folder",), ("json", "md", "csv")])
    for room in _ROOMS:
        for _ in range(3):
            yield Case(fault="full", detail=str(room), reports=next(forms))
    for form in (*_FORMATS, "folder"):
        yield Case(fault="filled meanwhile", reports=(form,), has_store=form == "json")
    for room in (0, 1, 5, 9):
        yield Case(fault="full store", detail=str(room), reports=(), has_store=True)
    for fault in ("mounted read-only", "immutable folder", "immutable meanwhile", "folder removed meanwhile"):
        for _ in range(2):
            yield Case(fault=fault, reports=next(forms))
    yield Case(fault="immutable report")
    yield Case(fault="immutable report", reports=("md",))
    for fault in ("mounted read-only", "immutable folder", "immutable meanwhile", "folder removed meanwhile"):
        yield Case(fault=fault, reports=(), has_store=True)
    for name in _PATHS:
        yield Case(fault="path", detail=name, reports=(next(forms)[0],))
        yield Case(fault="path", detail=name)
    for name in ("/dev/null", "a link to nothing", "a link to itself", "a pipe", "a file", "too long a name"):
        yield Case(fault="store path", detail=name, reports=(), has_store=True)
    for form in ("json", "md", "folder"):
        yield Case(fault="two sessions", reports=(form,))
    yield Case(fault="two sessions", has_store=True)
    for clock in ("0,-18000", "0,94608000", "94608000,-94608000", "-18000,0", "94608000,0", "-1790000000,0"):
        yield Case(fault="clock", detail=clock, has_store=True)
    for command, room in itertools.product(("md", "csv", "jsonl", "parquet", "questions", "merge"), (0, 3)):
        yield Case(fault="command", detail=f"{command} {room}")
    for command, room in itertools.product(("compact", "clear"), (0, 3)):
        yield Case(fault="command", detail=f"{command} {room}", reports=(), has_store=True)


_PATHS: Mapping[str, Callable[[Path], object]] = {
    "/dev/null": lambda path: path.symlink_to("/dev/null"),
    "/dev/full": lambda path: path.symlink_to("/dev/full"),
    "/dev/stdout": lambda path: path.symlink_to("/dev/stdout"),
    "a pipe": os.mkfifo,
    "a socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "a folder": Path.mkdir,
    "a link to a file": lambda path: _link_to_file(path, "real"),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link into a file": lambda path: _link_to_file(path, "real/x"),
    "too long a name": lambda path: None,
    "too long a path": lambda path: None,
    "a file for a folder": lambda path: path.parent.joinpath("file").write_text("file"),
}
"""What lies at the path, in the place of a plain file or of nothing."""


def report_paths(case: Case) -> list[Path]:
    """The files of the reports that are asked for, or their folder, from the project's folder."""
    folder = Path(_DISK)
    if case.detail == "too long a name":
        return [folder / ("n" * 300 + f".{case.reports[0]}")]
    if case.detail == "too long a path":
        return [folder / ("/".join(["d" * 200] * 30) + f"/out.{case.reports[0]}")]
    if case.detail == "a file for a folder":
        return [folder / "file" / f"out.{case.reports[0]}"]
    return [folder / "reports" if form == "folder" else folder / f"out.{form}" for form in case.reports]


# One case


@dataclass(slots=True)
class Bench:
    """Where a case is run: a project in a folder of its own."""

    server: ForkServer
    folder: Path
    mounted: list[Path] = field(default_factory=list)
    immutable: list[Path] = field(default_factory=list)

    @property
    def disk(self) -> Path:
        return self.folder / _DISK

    def start(self, kind: str, arguments: Sequence[str], output: Path, **environment: str) -> ForkedProcess:
        """``pytest`` or ``llmeval`` with these arguments, in the project's folder."""
        with open(os.devnull, "rb") as nothing, output.open("wb") as file:
            return fork(
                self.server._requests,
                _CHILD,
                [str(self.folder), kind, *arguments],
                (nothing.fileno(), file.fileno(), file.fileno()),
                environment={**clean_environment(), **environment},
                forks_workers=True,
            )

    def run(self, kind: str, arguments: Sequence[str], **environment: str) -> tuple[int | None, str]:
        """Its exit code, None where it hung, and its output."""
        return self.ended(self.start(kind, arguments, self.folder / "output", **environment), self.folder / "output")

    def ended(self, process: ForkedProcess, output: Path) -> tuple[int | None, str]:
        """The same of one that was started."""
        code: int | None = None
        try:
            code = process.wait(_HANGS_AFTER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return code, output.read_text(encoding="utf-8", errors="replace")

    def mount(self, *options: str, num_bytes: int = 1 << 20) -> None:
        """A disk of its own for what is written."""
        _sh(
            "mount",
            "-t",
            "tmpfs",
            "-o",
            ",".join((f"size={num_bytes}", "mode=0700", *options)),
            "tmpfs",
            str(self.disk),
        )
        self.mounted.append(self.disk)

    def leave(self, num_pages: int) -> None:
        """Fill the disk but for some pages."""
        with (self.disk / "ballast").open("wb", buffering=0) as file:
            with suppress(OSError):
                while file.write(bytes(_PAGE)) == _PAGE:
                    pass
            file.truncate(max(0, file.tell() // _PAGE - num_pages) * _PAGE)

    def freeze(self, path: Path) -> None:
        """Let nobody write to a file, or make or remove one in a folder."""
        _sh("chattr", "+i", str(path))
        self.immutable.append(path)

    def clean(self) -> None:
        """Take back what outlives the folder."""
        for path in (*self.immutable, self.disk):
            subprocess.run(["chattr", "-f", "-i", str(path)], check=False, capture_output=True)
        for path in self.mounted:
            subprocess.run(["umount", str(path)], check=False, capture_output=True)


def _sh(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ImpossibleError(f"{command[0]}: {error}") from None


def session_arguments(case: Case) -> list[str]:
    """Of pytest, for a case that is a session."""
    workers = ["-n2"] if case.workers else ["-p", "no:xdist"]
    reports = [f"--llm-report={path}{'/' if path.suffix == '' else ''}" for path in report_paths(case)]
    store = [f"--llm-store={_DISK}/store"] if case.has_store else []
    model = ["--llm-model=python:replier:Replier", "--llm-batch-size=1", "-p", "no:cacheprovider"]
    return ["sums.yaml", *model, *workers, *reports, *store]


def run_case(server: ForkServer, case: Case) -> list[str]:
    """What is wrong with it. Raises ``ImpossibleError`` where it cannot be made here."""
    with tempfile.TemporaryDirectory(prefix="disks-") as name:
        bench = Bench(server, Path(name))
        make_project(bench.folder)
        bench.disk.mkdir()
        try:
            match case.fault:
                case "two sessions":
                    return _two_sessions(bench, case)
                case "clock":
                    return _clock(bench, case)
                case "command":
                    return _command(bench, case)
                case _:
                    return _session(bench, case)
        finally:
            bench.clean()


def _session(bench: Bench, case: Case) -> list[str]:
    if case.fault in ("full", "filled meanwhile", "full store", "mounted read-only"):
        bench.mount()
    if case.older:
        _make_older(bench, case)
    _spoil(bench, case)
    paths = [bench.folder / path for path in report_paths(case)]
    before = {path: _content(path) for path in paths}
    code, output = bench.run("pytest", session_arguments(case))
    if case.fault == "mounted read-only":
        subprocess.run(["mount", "-o", "remount,rw", str(bench.disk)], check=True, capture_output=True)
    return judge(case, Ended(exit_code=code, output=output, before=before), bench.disk)


def _make_older(bench: Bench, case: Case) -> None:
    """Reports and a store of an earlier session, of which the reports are then told apart from new ones."""
    if case.fault in ("path", "store path"):
        return
    bench.run("pytest", [*session_arguments(_with(case, workers=False, older=True)), "--llm-limit=5"])


def _spoil(bench: Bench, case: Case) -> None:
    paths = [bench.folder / path for path in report_paths(case)]
    act = bench.folder / "act"
    match case.fault:
        case "full" | "full store":
            bench.leave(int(case.detail))
        case "filled meanwhile":
            act.write_text(f"cat /dev/zero > {_DISK}/ballast")
        case "mounted read-only":
            _sh("mount", "-o", "remount,ro", str(bench.disk))
        case "immutable folder":
            bench.freeze(bench.disk)
        case "immutable meanwhile":
            _sh("chattr", "+i", str(bench.disk))
            _sh("chattr", "-i", str(bench.disk))
            act.write_text(f"chattr +i {_DISK}")
        case "folder removed meanwhile":
            act.write_text(f"rm -rf {_DISK}")
        case "immutable report":
            for path in paths:
                path.touch()
                bench.freeze(path)
        case "path":
            _PATHS[case.detail](bench.disk / f"out.{'json' if case.reports[0] == 'folder' else case.reports[0]}")
        case "store path":
            makes: dict[str, Callable[[Path], object]] = {**_PATHS, "a file": lambda path: path.write_text("file")}
            makes[case.detail](bench.disk / "store")


def _link_to_file(path: Path, target: str) -> None:
    path.parent.joinpath("real").write_text("real")
    path.symlink_to(target)


def _content(path: Path) -> bytes | None:
    """What lies there; None for nothing that can be read."""
    with suppress(OSError):  # too long a name
        return path.read_bytes() if path.is_file() else None
    return None


# Judging


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
    return [*problems, *_left_over(disk, is_whole=ended.exit_code == 0)]


def _names(line: str, path: Path) -> bool:
    """Whether a line of an error names the path, or the folder that a report is to go to."""
    return any(name in line for name in {path.name, f"{_DISK}/{path.name}"}) and ": " in line


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
    now = _content(path)
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
                return len(texts) in (NUM_SAMPLES, 5) and misfit(report, path.name) is None
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


def _left_over(disk: Path, *, is_whole: bool) -> Iterator[str]:
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


# Cases of their own kind


def _two_sessions(bench: Bench, case: Case) -> list[str]:
    if case.older:
        _make_older(bench, case)
    paths = [bench.folder / path for path in report_paths(case)]
    before = {path: _content(path) for path in paths}
    outputs = [bench.folder / f"output-{number}" for number in range(2)]
    started = [bench.start("pytest", session_arguments(case), path, SESSION=path.name) for path in outputs]
    problems: list[str] = []
    for process, path in zip(started, outputs, strict=True):
        code, output = bench.ended(process, path)
        problems += judge(case, Ended(exit_code=code, output=output, before=before), bench.disk) if code else []
        if code != 0:
            problems.append(f"dishonest: one of two sessions ended with {code}: {output[-600:]}")
    problems += judge(case, Ended(exit_code=0, output="", before=before), bench.disk)
    if case.reports == ("folder",) and len(list(paths[0].glob("*.md"))) != 2 + case.older:
        problems.append(f"older report: {len(list(paths[0].glob('*.md')))} files of {2 + case.older} sessions")
    return problems + (_of_store(bench, case) if case.has_store else [])


def _of_store(bench: Bench, case: Case) -> list[str]:
    """A store that is whole, and answers the same session again."""
    problems = []
    code, output = bench.run("llmeval", ["store", "verify", f"{_DISK}/store"])
    if code != 0:
        problems.append(f"damaged store: exit code {code}: {output[-300:]}")
    asked = bench.folder / "asked"
    asked.unlink()
    code, output = bench.run("pytest", session_arguments(case))
    if code != 0 or asked.exists():
        again = len(asked.read_text().splitlines()) if asked.exists() else 0
        problems.append(f"lost replies: exit code {code}, {again} samples were asked again")
    return problems


def _clock(bench: Bench, case: Case) -> list[str]:
    """A session under a clock, the same again under a right one, and twice more with a lifetime."""
    problems = []
    if case.older:
        _make_older(bench, case)
    path = bench.folder / report_paths(case)[0]
    asked = bench.folder / "asked"
    asked.unlink(missing_ok=True)
    for clock in (case.detail, "0,0"):
        before = {path: _content(path)}
        code, output = bench.run("pytest", [*session_arguments(case), "--junitxml=junit.xml"], CLOCK=clock)
        problems += judge(case, Ended(exit_code=code, output=output, before=before), bench.disk)
        problems += _times(output, path)
        num_asked = len(asked.read_text().splitlines()) if asked.exists() else 0
        asked.unlink(missing_ok=True)
        most = 0 if clock == "0,0" else NUM_SAMPLES
        if num_asked > most:
            problems.append(f"lost replies: {num_asked} samples were asked again")
    start = float(case.detail.split(",")[0])
    ages = {"1h": abs(start) > 3600} if case.detail.endswith(",0") else {}
    for age, is_old in ages.items():
        if case.older:
            break
        code, output = bench.run("pytest", [*session_arguments(case), f"--llm-store-max-age={age}"])
        if asked.exists() != is_old:
            problems.append(f"lost replies: a reply dated {start:g} s off was {'re' if is_old else 'not '}used")
        problems += _times(output, path)
    for arguments in (["store", "show", f"{_DISK}/store"], ["store", "verify", f"{_DISK}/store"]):
        code, output = bench.run("llmeval", arguments)
        if code != 0 or re.search(r"(?<![\w-])-\d", output) or "Traceback" in output:
            problems.append(f"times: {arguments[1]} ended with {code}: {output[-300:]}")
    return problems


def _times(output: str, path: Path) -> Iterator[str]:
    """Numbers of seconds that cannot be."""
    if (found := re.search(r"(?<![\w-])-\d+(\.\d+)? ?(s|ms|min|h|d)\b|\b\d{6,}(\.\d+)? ?s\b", output)) is not None:
        yield f"times: the output says {found[0]!r}"
    with suppress(OSError, ValueError):
        report = json.loads(path.read_text())
        seconds = [report["seconds"], *(record["seconds"] for record in report["records"] if record["seconds"])]
        if not all(0 <= value < 1_000 for value in seconds):
            yield f"times: the report has {seconds} seconds"


def _command(bench: Bench, case: Case) -> list[str]:
    """``llmeval`` that writes to a disk with little room."""
    name, room = case.detail.split()
    bench.mount()
    for refresh in ([], ["--llm-store-refresh"] if case.has_store else []):
        bench.run("pytest", [*session_arguments(Case(fault="", has_store=case.has_store)), *refresh])
    bench.disk.joinpath("out.json").rename(bench.disk / "saved.json")
    store = bench.disk / "store"
    if case.has_store:
        return _of_upkeep(bench, name, int(room), store)
    out = bench.disk / f"new.{'json' if name in ('questions', 'merge') else name}"
    if case.older:
        out.write_text("older")
    before = {out: _content(out)}
    bench.leave(int(room))
    arguments = (
        ["merge", f"{_DISK}/saved.json", "-o", f"{_DISK}/{out.name}"]
        if name == "merge"
        else ["export", f"{_DISK}/saved.json", "--to", name, "-o", f"{_DISK}/{out.name}"]
    )
    code, output = bench.run("llmeval", arguments)
    now = _content(out)
    problems = ["hang"] if code is None else []
    if "Traceback" in output or (code != 0 and (len(output.splitlines()) != 1 or out.name not in output)):
        problems.append(f"dishonest: exit code {code}: {output[-600:]}")
    if (now == before[out]) == (code == 0):
        problems.append(f"dishonest: exit code {code}, and the file is {'as it was' if now == before[out] else 'new'}")
    return [*problems, *_left_over(bench.disk, is_whole=True)]


def _of_upkeep(bench: Bench, name: str, room: int, store: Path) -> list[str]:
    """``compact`` and ``clear`` of a part, after which all replies have to be there, or those that were not cleared."""
    bench.leave(room)
    part = ["--max-size=20KB"] if name == "clear" else []
    code, output = bench.run("llmeval", ["store", name, *part, f"{_DISK}/store"])
    problems = ["hang"] if code is None else []
    if "Traceback" in output or (code != 0 and (len(output.splitlines()) > 2 or "store" not in output)):
        problems.append(f"dishonest: exit code {code}: {output[-600:]}")
    code, output = bench.run("llmeval", ["store", "verify", f"{_DISK}/store"])
    if code != 0:
        problems.append(f"damaged store: {output[-300:]}")
    if name == "compact":
        asked = bench.folder / "asked"
        asked.unlink()
        bench.disk.joinpath("ballast").unlink()
        bench.run("pytest", session_arguments(Case(fault="", has_store=True)))
        if asked.exists():
            problems.append("lost replies: compact lost some")
    return [*problems, *_left_over(bench.disk, is_whole=True)]


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 where a figure that should be 0 is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, help="so many of the cases; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of a case: run this alone")
    given = parser.parse_args(arguments)
    cases = list(enumerate(all_cases()))
    if given.only is not None:
        cases = [cases[given.only]]
    elif given.count is not None:
        cases = random.Random(given.seed).sample(cases, min(given.count, len(cases)))
    found: Counter[str] = Counter()
    server = ForkServer()

    def run(numbered: tuple[int, Case]) -> None:
        number, case = numbered
        try:
            problems = run_case(server, case)
        except ImpossibleError as error:
            found["impossible"] += 1
            print(f"case {number}: {case}: cannot be made here: {error}")
            return
        found["cases"] += 1
        for problem in problems:
            found[problem.partition(":")[0]] += 1
            print(f"case {number}: {case}: {problem}    [python -m tests.faults.disks --only {number}]", flush=True)

    try:
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(run, cases))
    finally:
        server.close()
    figures = ", ".join(f"{text} {found[name]}" for name, text in FIGURES.items())
    print(f"cases {found['cases']}, {figures}; cannot be made here {found['impossible']}")
    return int(any(found[name] for name in FIGURES))


if __name__ == "__main__":
    sys.exit(main())
