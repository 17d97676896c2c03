"""Sessions that are to be killed: their folders, their processes, and the points at which a signal comes (Linux)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tests.faults.kill_findings import OLDER_REPORT, Ended
from tests.fork_server import ForkedProcess
from tests.forked import ForkServer
from tests.support import clean_environment

__all__ = ["NUM_SAMPLES", "Case", "Session", "Setting", "Sizes", "Victim", "store_size", "strike", "write_project"]

NUM_SAMPLES = 40
_LIMIT_S = 300.0
"""A session takes a second or two, on a busy machine twenty; one that takes so long hangs."""
_PATIENCE_S = 60.0
"""A worker whose controller was killed ends within 15 s: execnet waits so long for the test that runs."""

Victim = Literal["worker", "controller", "group"]
Sizes = dict[str, float]
"""How much of each kind of point an undisturbed run has: operations, samples, bytes, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is run."""

    model: str
    num_workers: int
    batch_size: int

    @property
    def tolerance(self) -> float:
        """By how much numbers may differ from those of an undisturbed run: not at all, or, where other requests share a
        batch, as those of the tree may from those of plain scoring.
        """
        return 1e-4 if self.model == "demo likelihoods" else 0.0

    @property
    def has_choices(self) -> bool:
        return self.model.endswith("likelihoods")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kill. ``share`` says where the point lies: of the undisturbed run's operations, samples, bytes or seconds."""

    setting: Setting
    victim: Victim
    signal: signal.Signals
    point: Literal["operation", "asked", "journal", "store", "time"]
    share: float
    pick: float
    has_older_report: bool

    def __str__(self) -> str:
        workers = f"-n{self.setting.num_workers}" if self.setting.num_workers else "one process"
        where = f"{self.share:.3f} of {self.point}"
        return (
            f"{self.setting.model}, {workers}, batches of {self.setting.batch_size}: {self.signal.name} to the "
            f"{self.victim} at {where}"
        )


def write_project(case: Path, setting: Setting, planted: str = "") -> None:
    """The folders of one case, with a suite of ``NUM_SAMPLES`` samples, of which a third is answered wrongly.

    ``planted`` is added to the ``conftest.py``.
    """
    project = case / "project"
    for folder in (project, case / "tmp", case / "logs"):
        folder.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("planted.py"), project)
    watch = "planted.watch_local_models()\n" if setting.model.startswith("demo") else ""
    project.joinpath("conftest.py").write_text(f"import planted\n{watch}{planted}")
    samples: list[dict[str, Any]] = [
        {"id": f"s{n}", "question": f"<{n}> What comes after {n}?", "target": str(n + 1)} for n in range(NUM_SAMPLES)
    ]
    suite: dict[str, Any] = {"suite": "after", "samples": samples, "score": "exact", "generate": {"max_tokens": 4}}
    if setting.has_choices:
        choices = ["one", "two or so", "three"]
        samples = [{**one, "choices": choices, "target": place % 3} for place, one in enumerate(samples)]
        suite = {"suite": "after", "samples": samples, "score": "choice"}
    suite["prompt"] = {"template": "Question: {{ question }}\nAnswer:"}
    project.joinpath("suite.yaml").write_text(yaml.safe_dump(suite, sort_keys=False), encoding="utf-8")


class Session:
    """A session of pytest in a case's folder, in forked processes. ``point`` is where it is to wait, if anywhere."""

    def __init__(self, server: ForkServer, case: Path, setting: Setting, url: str, point: str = "") -> None:
        self.project = case / "project"
        self.logs = case / "logs"
        for name in ("reached", "go_on", "operations"):
            (self.logs / name).unlink(missing_ok=True)
        environment = clean_environment() | {
            "HOME": str(case),
            "TMPDIR": str(case / "tmp"),
            "KILLS_LOGS": str(self.logs),
            "KILLS_POINT": point,
            "PYTEST_ADDOPTS": "-p no:hypothesispytest -p no:anyio",
        }
        model = {"function": "python:planted:function", "yielding": "python:planted:Yielding"}.get(
            setting.model, "demo" if setting.model.startswith("demo") else "python:planted:Listed"
        )
        arguments = [
            *(["-n", str(setting.num_workers)] if setting.num_workers else ["-p", "no:xdist"]),
            f"--llm-model={url or model}",
            f"--llm-batch-size={setting.batch_size}",
            *("--llm-store=.llmeval", "--llm-store-max-age=7d"),
            *("--llm-report=report.json", "--llm-report=report.csv", "suite.yaml"),
        ]
        self._output = case / "logs" / "output"
        with self._output.open("wb") as output:
            self.process: ForkedProcess = server.start_pytest(
                arguments, folder=self.project, environment=environment, output=output.fileno(), before="import planted"
            )
        self._started = time.monotonic()  # the server may have been loading until now

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def is_running(self) -> bool:
        """Whether its first process lives; waits a millisecond for its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.001)
        return self.process.returncode is None

    def processes(self) -> dict[int, str]:
        """All of its processes, by number, with their command lines: those whose folder is the session's."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not (entry.name.isdecimal() and Path(os.readlink(entry / "cwd")).is_relative_to(self.project)):
                    continue
                if (entry / "stat").read_text().rpartition(") ")[2][0] != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def workers(self) -> list[int]:
        """Of pytest-xdist, that live."""
        return sorted(
            number
            for number, command in self.processes().items()
            if number != self.process.pid and "bounded_worker" not in command
        )

    def is_at(self, name: str) -> bool:
        return (self.logs / name).exists()

    def go_on(self) -> None:
        """Let the process that waits at the point go on."""
        (self.logs / "go_on").touch()

    def end(self) -> Ended:
        """Wait for the end of the session, and then of all its processes; end what does not end by itself."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(max(1.0, _LIMIT_S - self.seconds))
        seconds = self.seconds
        deadline = time.monotonic() + (_PATIENCE_S if code is not None else 0.0)
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.005)
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self.process.wait(_LIMIT_S)
        output = self._output.read_text(encoding="utf-8", errors="replace")
        return Ended(code=code, seconds=seconds, left=list(left.values()), output=output)


def phase_of(session: Session, num_samples: int = NUM_SAMPLES) -> str:
    """Where a session is, as its files show it."""
    if any(session.project.glob(".llmeval-*")):
        return "while a report is written"
    journal = session.project / "report.json.journal"
    if not journal.exists():
        report = session.project / "report.json"
        is_done = report.exists() and report.read_text() != OLDER_REPORT
        return "after the report" if is_done else "before the first record"
    num_records = journal.read_bytes().count(b'{"record"')
    if num_records >= num_samples:
        return "all recorded"
    return "before the first record" if num_records == 0 else "mid-run"


def strike(session: Session, case: Case, sizes: Sizes, share: float) -> str | None:
    """Wait for the point and send the signal: the phase that it came in, None where the session ended first."""
    size = sizes[case.point] * share

    def is_there() -> bool:
        match case.point:
            case "time":
                return session.seconds >= size
            case "operation" | "asked":
                return session.is_at("reached")
            case "journal":
                journal = session.project / "report.json.journal"
                return journal.exists() and journal.stat().st_size >= size
            case "store":
                return store_size(session.project) >= size

    while not is_there():
        if not session.is_running():
            return None
    phase = phase_of(session)
    if not (chosen := victims(session, case)):
        return None
    for number in chosen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, case.signal)
    session.go_on()
    return phase


def victims(session: Session, case: Case) -> list[int]:
    """The processes that are to get the signal; a worker is waited for where there is none yet."""
    if case.victim == "controller":
        return [session.process.pid]
    if case.victim == "group":
        return [session.process.pid, *(number for number in session.processes() if number != session.process.pid)]
    while not (workers := session.workers()):
        session.go_on()
        if not session.is_running():
            return []
    return [workers[int(case.pick * len(workers))]]


def store_size(project: Path) -> int:
    return sum(path.stat().st_size for path in project.joinpath(".llmeval").glob("replies-*.jsonl"))
