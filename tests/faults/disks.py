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
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.faults.disk_cases import DISK, PATHS, Case, all_cases, report_paths, session_arguments
from tests.faults.disk_findings import FIGURES, Ended, content_of, impossible_times, judge, left_over
from tests.faults.disk_project import NUM_SAMPLES, make_project
from tests.fork_server import ForkedProcess, fork
from tests.forked import ForkServer
from tests.support import clean_environment

__all__ = ["main", "run_case"]

_HANGS_AFTER_S = 300.0
_PAGE = 4096
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
        return self.folder / DISK

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
    before = {path: content_of(path) for path in paths}
    code, output = bench.run("pytest", session_arguments(case))
    if case.fault == "mounted read-only":
        subprocess.run(["mount", "-o", "remount,rw", str(bench.disk)], check=True, capture_output=True)
    return judge(case, Ended(exit_code=code, output=output, before=before), bench.disk)


def _make_older(bench: Bench, case: Case) -> None:
    """Reports and a store of an earlier session, of which the reports are then told apart from new ones."""
    if case.fault in ("path", "store path"):
        return
    bench.run("pytest", [*session_arguments(replace(case, workers=False, older=True)), "--llm-limit=5"])


def _spoil(bench: Bench, case: Case) -> None:
    paths = [bench.folder / path for path in report_paths(case)]
    act = bench.folder / "act"
    match case.fault:
        case "full" | "full store":
            bench.leave(int(case.detail))
        case "filled meanwhile":
            act.write_text(f"cat /dev/zero > {DISK}/ballast")
        case "mounted read-only":
            _sh("mount", "-o", "remount,ro", str(bench.disk))
        case "immutable folder":
            bench.freeze(bench.disk)
        case "immutable meanwhile":
            _sh("chattr", "+i", str(bench.disk))
            _sh("chattr", "-i", str(bench.disk))
            act.write_text(f"chattr +i {DISK}")
        case "folder removed meanwhile":
            act.write_text(f"rm -rf {DISK}")
        case "immutable report":
            for path in paths:
                path.touch()
                bench.freeze(path)
        case "path":
            PATHS[case.detail](bench.disk / f"out.{'json' if case.reports[0] == 'folder' else case.reports[0]}")
        case "store path":
            makes: dict[str, Callable[[Path], object]] = {**PATHS, "a file": lambda path: path.write_text("file")}
            makes[case.detail](bench.disk / "store")


# Cases of their own kind


def _two_sessions(bench: Bench, case: Case) -> list[str]:
    if case.older:
        _make_older(bench, case)
    paths = [bench.folder / path for path in report_paths(case)]
    before = {path: content_of(path) for path in paths}
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
    code, output = bench.run("llmeval", ["store", "verify", f"{DISK}/store"])
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
        before = {path: content_of(path)}
        code, output = bench.run("pytest", [*session_arguments(case), "--junitxml=junit.xml"], CLOCK=clock)
        problems += judge(case, Ended(exit_code=code, output=output, before=before), bench.disk)
        problems += impossible_times(output, path)
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
        problems += impossible_times(output, path)
    for arguments in (["store", "show", f"{DISK}/store"], ["store", "verify", f"{DISK}/store"]):
        code, output = bench.run("llmeval", arguments)
        if code != 0 or re.search(r"(?<![\w-])-\d", output) or "Traceback" in output:
            problems.append(f"times: {arguments[1]} ended with {code}: {output[-300:]}")
    return problems


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
    before = {out: content_of(out)}
    bench.leave(int(room))
    arguments = (
        ["merge", f"{DISK}/saved.json", "-o", f"{DISK}/{out.name}"]
        if name == "merge"
        else ["export", f"{DISK}/saved.json", "--to", name, "-o", f"{DISK}/{out.name}"]
    )
    code, output = bench.run("llmeval", arguments)
    now = content_of(out)
    problems = ["hang"] if code is None else []
    if "Traceback" in output or (code != 0 and (len(output.splitlines()) != 1 or out.name not in output)):
        problems.append(f"dishonest: exit code {code}: {output[-600:]}")
    if (now == before[out]) == (code == 0):
        problems.append(f"dishonest: exit code {code}, and the file is {'as it was' if now == before[out] else 'new'}")
    return [*problems, *left_over(bench.disk, is_whole=True)]


def _of_upkeep(bench: Bench, name: str, room: int, store: Path) -> list[str]:
    """``compact`` and ``clear`` of a part, after which all replies have to be there, or those that were not cleared."""
    bench.leave(room)
    part = ["--max-size=20KB"] if name == "clear" else []
    code, output = bench.run("llmeval", ["store", name, *part, f"{DISK}/store"])
    problems = ["hang"] if code is None else []
    if "Traceback" in output or (code != 0 and (len(output.splitlines()) > 2 or "store" not in output)):
        problems.append(f"dishonest: exit code {code}: {output[-600:]}")
    code, output = bench.run("llmeval", ["store", "verify", f"{DISK}/store"])
    if code != 0:
        problems.append(f"damaged store: {output[-300:]}")
    if name == "compact":
        asked = bench.folder / "asked"
        asked.unlink()
        bench.disk.joinpath("ballast").unlink()
        bench.run("pytest", session_arguments(Case(fault="", has_store=True)))
        if asked.exists():
            problems.append("lost replies: compact lost some")
    return [*problems, *left_over(bench.disk, is_whole=True)]


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
