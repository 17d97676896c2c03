"""Kills sessions at random points, runs the same command again, and counts what that costs (Linux).

    python -m tests.faults.kills                               # 200 kills: figures, and a line for each failed case
    python -m tests.faults.kills --count 20 --seed 3
    python -m tests.faults.kills --only 17 --keep              # one case again, and its folder stays

A case draws a model (Python function and objects, the demo model, a stub server), ``-n2`` or one process, a batch size,
who is killed (a worker, the controller, all processes together as Ctrl-C and a cancelled CI job do), the signal, and
the point: the n-th operation on a file (a store's file is begun, a report is renamed), the n-th sample that the model
is asked for, a size of journal or store, or a share of the time. The same command then has to give the report of an
undisturbed run; a store keeps replies throughout.

Figures that have to be 0 are those of ``kill_findings.FIGURES``; exit code 1 where one is not. Told and not counted are
log-likelihoods of a local model that differ by 1e-4 at most because a chunk was cut (docs/store.md), and what is
pytest's and Python's own: files that these leave when they are killed between writing and renaming one (byte code,
pytest's cache folder, a probe of the temporary folder), and the ``INTERNALERROR`` of pytest-xdist for a worker that
dies while it is started. A journal that is empty, since its session was killed when it had just made it, is not counted
as unreadable: ``llmeval show`` says that it is empty.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.faults.kill_findings import (
    FIGURES,
    OLDER_REPORT,
    Ended,
    Findings,
    asked_again,
    comparable,
    judge_killed,
    judge_process,
    judge_rerun,
    kept,
    left_files,
)
from tests.faults.kill_sessions import NUM_SAMPLES, Case, Session, Setting, Victim, store_size, strike, write_project
from tests.faults.planted import Watch
from tests.forked import ForkServer
from tests.servers.stub import StubServer

__all__ = ["Campaign", "drawn", "main"]

_MODELS = (
    *("function", "listed", "yielding", "likelihoods", "function", "listed", "yielding", "likelihoods"),
    *("server likelihoods", "server generated", "server likelihoods", "server generated"),
    *("demo likelihoods", "demo generated", "demo likelihoods"),
)
PLANTED = ""
"""For tests of this script: a fault, as the source that each session of a case runs in its ``conftest.py``."""
_LOADED = ("aiohttp", "filelock", "huggingface_hub._snapshot_download", "tqdm")
"""What sessions with a server take a second to load."""


def drawn(seed: int, number: int) -> Case:
    """Case ``number`` of ``seed``."""
    draw = random.Random(f"kills {seed} {number}")
    num_workers = draw.choice((0, 2))
    victims: tuple[Victim, ...] = ("worker", "controller", "group") if num_workers else ("controller",)
    return Case(
        setting=Setting(model=draw.choice(_MODELS), num_workers=num_workers, batch_size=draw.choice((1, 7, 32))),
        victim=draw.choice(victims),
        signal=draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)),
        point=draw.choice(("operation", "operation", "asked", "asked", "journal", "store", "time")),
        share=draw.random(),
        pick=draw.random(),
        has_older_report=draw.random() < 0.5,
    )


@dataclass(slots=True, kw_only=True)
class Undisturbed:
    """A run that nothing killed, and how much of each kind of point it has."""

    report: Any
    code: int
    sizes: dict[str, float]


@dataclass(slots=True)
class Campaign:
    """Runs cases below ``folder``, with processes forked from two servers, one of which has loaded torch."""

    folder: Path
    keeps: bool = False
    _servers: dict[bool, ForkServer] = field(default_factory=dict)
    _undisturbed: dict[Setting, Undisturbed] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    @contextlib.contextmanager
    def _model(self, case: Path, setting: Setting) -> Iterator[tuple[str, Callable[[str], None]]]:
        """The URL of the model's server ("" for other models), and what sets the point at which it waits."""
        if not setting.model.startswith("server"):
            yield "", lambda point: None
            return
        with StubServer("vllm", instant=True, delay_s=0.005, keep=False) as stub:
            answer = stub.wire.answer
            watch = Watch(case / "logs", "")

            def watched(method: str, path: str, headers: Any, body: Any) -> Any:
                watch.asked([body])
                return answer(method, path, headers, body)

            def set_point(point: str) -> None:
                nonlocal watch
                watch = Watch(case / "logs", point)

            stub.wire.answer = watched  # type: ignore[method-assign]
            yield stub.url, set_point

    def _start(
        self, case: Path, setting: Setting, model: tuple[str, Callable[[str], None]], point: str = ""
    ) -> Session:
        url, set_point = model
        set_point(point)
        needs_torch = setting.model.startswith("demo")
        with self._lock:
            if needs_torch not in self._servers:
                self._servers[needs_torch] = ForkServer(torch=needs_torch, modules=_LOADED)
        return Session(
            self._servers[needs_torch], case, setting, url, "" if url and point.startswith("asked") else point
        )

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.close()

    def undisturbed(self, setting: Setting) -> Undisturbed:
        """Run once for each model, with workers and without; the size of batches decides only a local model's last
        digits. Raises ``RuntimeError`` where that run itself fails.
        """
        if not setting.model.startswith("demo"):
            setting = replace(setting, batch_size=7)
        with self._lock:
            if setting not in self._undisturbed:
                place = self.folder / f"undisturbed-{len(self._undisturbed)}"
                write_project(place, setting)
                with self._model(place, setting) as model:
                    session = self._start(place, setting, model)
                    ended = session.end()
                if ended.code != 0 or ended.left:
                    raise RuntimeError(f"{setting}: exit code {ended.code}, left {ended.left}\n{ended.output}")
                report = session.project / "report.json"
                self._undisturbed[setting] = Undisturbed(
                    report=comparable(json.loads(report.read_text(encoding="utf-8"))),
                    code=ended.code,
                    sizes={
                        "time": ended.seconds,
                        "operation": len((place / "logs" / "operations").read_text().splitlines()),
                        "asked": NUM_SAMPLES,
                        "journal": 0.9 * report.stat().st_size,
                        "store": store_size(session.project),
                    },
                )
                shutil.rmtree(place)
            return self._undisturbed[setting]

    def run(self, number: int, case: Case) -> tuple[str, Findings]:
        """Kill and run again. The phase in which the signal came, and what is wrong."""
        undisturbed = self.undisturbed(case.setting)
        place = self.folder / f"case-{number}"
        share, phase, findings = case.share, None, Findings()
        while phase is None:
            shutil.rmtree(place, ignore_errors=True)
            write_project(place, case.setting, PLANTED)
            if case.has_older_report:
                place.joinpath("project", "report.json").write_text(OLDER_REPORT)
            with self._model(place, case.setting) as model:
                point = f"{case.point} {max(1, round(undisturbed.sizes[case.point] * share))}"
                is_inside = case.point in ("operation", "asked")
                session = self._start(place, case.setting, model, point if is_inside else "")
                phase = strike(session, case, undisturbed.sizes, share)
                killed = session.end()
                if phase is not None:
                    self._judge(
                        place, case, undisturbed, killed, lambda: self._start(place, case.setting, model), findings
                    )
            share *= 0.8
        if not (self.keeps or findings.counts):
            shutil.rmtree(place)
        return phase, findings

    def _judge(
        self,
        place: Path,
        case: Case,
        undisturbed: Undisturbed,
        killed: Ended,
        again: Callable[[], Session],
        findings: Findings,
    ) -> None:
        project, store = place / "project", place / "project" / ".llmeval"
        requests_per_sample = 3 if case.setting.has_choices else 1
        judge_process(killed, "the killed session", findings)
        recorded = judge_killed(project, undisturbed.report, killed, findings, case.setting.tolerance)
        finished = {f"s{number}" for number in kept(store, requests_per_sample)}
        unkept = sorted(recorded - finished)
        findings.add("finished and lost", f"recorded and not in the store: {unkept}", len(unkept))
        place.joinpath("logs", "output").rename(place / "logs" / "output-of-killed")
        journals = set(project.glob("*.journal"))
        rerun = again().end()
        judge_process(rerun, "the rerun", findings)
        if rerun.code != undisturbed.code:
            findings.add("dishonest exit codes", f"the rerun ended with {rerun.code}: {rerun.output[-600:]}")
        more = sorted(path.name for path in set(project.glob("*.journal")) - journals)
        findings.add("temporary files left", f"journals of the rerun: {more}", len(more))
        left, of_pytest = left_files(place)
        findings.add("temporary files left", str(left), len(left))
        findings.files_of_pytest += len(of_pytest)
        is_ignored = (store / ".gitignore").exists() and (store / ".gitignore").read_text() == "*\n"
        findings.add("stores that git sees", "no .gitignore", not is_ignored)
        twice = asked_again(place / "logs" / "asked", kept(store, requests_per_sample))
        findings.add("asked again", str(twice), len(twice))
        judge_rerun(project, recorded | finished, undisturbed.report, findings, case.setting.tolerance)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases, print what is wrong, and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--only", type=int, nargs="+", metavar="K", help="these cases alone")
    parser.add_argument("--keep", action="store_true", help="keep the folders of cases in which nothing is wrong too")
    parser.add_argument("--verbose", action="store_true", help="a line for every case")
    given = parser.parse_args(arguments)
    numbers = given.only or range(given.count)
    totals, phases, small, num_small, slowest = Counter[str](), Counter[str](), 0.0, 0, 0.0
    of_others = Counter[str]()
    folder = Path(tempfile.mkdtemp(prefix="llmeval-faults-"))
    campaign = Campaign(folder, given.keep)

    def run(number: int) -> tuple[int, Case, str, Findings, float]:
        started = time.monotonic()
        case = drawn(given.seed, number)
        return number, case, *campaign.run(number, case), time.monotonic() - started

    try:
        with ThreadPoolExecutor(given.jobs) as pool:
            for number, case, phase, findings, seconds in pool.map(run, numbers):
                totals += findings.counts
                phases[phase] += 1
                num_small += findings.greatest_difference > 0
                small, slowest = max(small, findings.greatest_difference), max(slowest, seconds)
                of_others += Counter(files=findings.files_of_pytest, errors=findings.errors_of_xdist)
                if findings.counts:
                    print(f"case {number} ({case}; {phase}), again: --seed {given.seed} --only {number}")
                    for text in findings.texts:
                        print(f"    {text}")
                    print(f"    files: {folder / f'case-{number}'}", flush=True)
                elif given.verbose:
                    print(f"case {number} ({case}; {phase}): {seconds:.1f} s", flush=True)
    finally:
        campaign.close()
        if not given.keep and not totals:
            shutil.rmtree(folder)
    print(f"kills {phases.total()}: " + ", ".join(f"{count} {phase}" for phase, count in phases.most_common()))
    print(", ".join(f"{figure} {totals[figure]}" for figure in FIGURES))
    print(f"log-likelihoods that differ in the last digits: {num_small} cases, by {small:.2g} at most")
    print(
        f"of pytest and Python: {of_others['files']} files left, {of_others['errors']} internal errors of pytest-xdist"
    )
    print(f"the slowest case took {slowest:.0f} s")
    return int(totals.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
