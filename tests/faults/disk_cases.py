"""The cases of ``tests.faults.disks``: what is wrong with a disk or a clock, and the session that meets it."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["DISK", "PATHS", "Case", "all_cases", "link_to_file", "report_paths", "session_arguments"]

DISK = "disk"
"""The folder, or mounted disk, that a session writes to, from its project's folder."""
_FORMATS = ("json", "md", "csv", "jsonl")
_ROOMS = (0, 1, 3, 6, 8, 10, 12, 14, 18, 24)
"""Pages that a full disk has left: a journal of the session takes ten, a report as many."""
_LONG_NAME = "n" * 300


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


def all_cases() -> list[Case]:
    """Every case, in the order of their faults."""
    return [
        replace(case, workers=workers, older=older)
        for case in _cases()
        for workers, older in itertools.product((False, True), (False, True))
        if not (case.fault == "command" and workers)
    ]


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
    for name in PATHS:
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


PATHS: Mapping[str, Callable[[Path], object]] = {
    "/dev/null": lambda path: path.symlink_to("/dev/null"),
    "/dev/full": lambda path: path.symlink_to("/dev/full"),
    "/dev/stdout": lambda path: path.symlink_to("/dev/stdout"),
    "a pipe": os.mkfifo,
    "a socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "a folder": Path.mkdir,
    "a link to a file": lambda path: link_to_file(path, "real"),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link into a file": lambda path: link_to_file(path, "real/x"),
    "too long a name": lambda path: None,
    "too long a path": lambda path: None,
    "a file for a folder": lambda path: path.parent.joinpath("file").write_text("file"),
}
"""What lies at the path, in the place of a plain file or of nothing."""


def report_paths(case: Case) -> list[Path]:
    """The files of the reports that are asked for, or their folder, from the project's folder."""
    folder = Path(DISK)
    if not case.reports:
        return []
    if case.detail == "too long a name":
        return [folder / (_LONG_NAME + f".{case.reports[0]}")]
    if case.detail == "too long a path":
        return [folder / ("/".join(["d" * 200] * 30) + f"/out.{case.reports[0]}")]
    if case.detail == "a file for a folder":
        return [folder / "file" / f"out.{case.reports[0]}"]
    return [folder / "reports" if form == "folder" else folder / f"out.{form}" for form in case.reports]


def link_to_file(path: Path, target: str) -> None:
    """A link beside a file ``real``."""
    path.parent.joinpath("real").write_text("real")
    path.symlink_to(target)


def session_arguments(case: Case) -> list[str]:
    """Of pytest, for a case that is a session: the suite, the options."""
    workers = ["-n2"] if case.workers else ["-p", "no:xdist"]
    reports = [f"--llm-report={path}{'/' if path.suffix == '' else ''}" for path in report_paths(case)]
    name = _LONG_NAME if case.fault == "store path" and case.detail == "too long a name" else "store"
    store = [f"--llm-store={DISK}/{name}"] if case.has_store else []
    model = ["--llm-model=python:replier:Replier", "--llm-batch-size=1", "-p", "no:cacheprovider"]
    return ["sums.yaml", *model, *workers, *reports, *store]
