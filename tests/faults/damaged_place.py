"""The folder in which the campaign of damaged files runs its cases."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest_llmeval
from tests.faults.damaged_formats import KEY, PLAIN, STEADY, Case, Use
from tests.faults.damaged_judge import MOST_S, Outcome, numbers_for
from tests.faults.damaged_projects import BOMBS, MODULES, write_bombs, write_outside, write_project
from tests.faults.mutations import Payloads
from tests.forked import ForkServer
from tests.support import REPOSITORY

__all__ = ["Workplace"]


class Workplace:
    """The folder in which cases run, one after another: ``case`` is the project of the current one."""

    def __init__(self, folder: Path, server: ForkServer, like: Workplace | None = None) -> None:
        """``like`` is another one, whose files are copied."""
        folder.mkdir()
        self.folder, self.server = folder, server
        self.case, self.outside, self.base = folder / "case", folder / "outside", folder / "base"
        self.bombs: Path = folder / "bombs" if like is None else like.bombs
        self.canary = folder / "ran"
        self.payloads = Payloads(canary=str(self.canary), secret=str(self.outside / "secret.txt"))
        self._clean: dict[Use, Mapping[str, Any] | None] = {}
        write_outside(self.outside, self.canary)
        if like is not None:
            shutil.copytree(like.base, self.base)
            return
        write_bombs(self.bombs)
        write_project(self.base)
        self._make_results()

    def _make_results(self) -> None:
        """Reports, shards, a journal and a store, by sessions on the undamaged project."""
        suites = ("pets.yaml", "sums.yaml", "texts.yaml")
        runs: tuple[tuple[str, ...], ...] = (
            ("--llm-report=report.json", "--llm-store=store", *suites),
            ("--llm-report=other.json", "--llm-set=sums: generate.max_tokens=7", *suites),
            ("--llm-report=part1.json", "--llm-shard=1/2", *suites),
            ("--llm-report=part2.json", "--llm-shard=2/2", *suites),
            ("--llm-report=killed.json", *suites[::-1]),
        )
        for number, arguments in enumerate(runs):
            self.refresh()
            if number == 4:
                (self.case / "kill").write_text("What is 2 + 2?")
            outcome = self.run(Case(-1, "", "", Use("pytest", (*PLAIN, STEADY, *arguments))))
            expected = (None,) if number == 4 else (0, 1)
            if outcome.status not in expected:
                raise RuntimeError(f"the undamaged project does not work: {arguments}\n{outcome.output}")
            for made in ("report.json", "other.json", "part1.json", "part2.json"):
                if (self.case / made).exists():
                    shutil.copy(self.case / made, self.base / made)
        (journal,) = self.case.glob("killed*journal*")
        shutil.copy(journal, self.base / "killed.journal")
        self.refresh()
        self.run(Case(-1, "", "", Use("pytest", (*PLAIN, STEADY, *suites, "--llm-store=store"))))
        shutil.copytree(self.case / "store", self.base / "store")

    def refresh(self) -> None:
        """The undamaged project, in the place of what the case before has left."""
        if not self.case.exists():
            self.case.mkdir()
            (self.case / "link.jsonl").symlink_to(self.outside / "rows.jsonl")
            (self.case / "loop.jsonl").symlink_to("loop.jsonl")
            os.mkfifo(self.case / "pipe.jsonl")
            for bomb in BOMBS:
                (self.case / bomb).symlink_to(self.bombs / bomb)
        own = _states(self.base)
        for name, state in sorted(_states(self.case).items(), reverse=True):
            path = self.case / name
            is_ours = path.parent == self.case and (path.is_fifo() or path.is_symlink())
            if is_ours or (name in own and state == own[name]):
                continue
            if state is None and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        left = _states(self.case)
        for name, state in sorted(own.items()):
            if name not in left and state is None:
                (self.case / name).mkdir(mode=0o700)
            elif name not in left:
                shutil.copy2(self.base / name, self.case / name)
        self.canary.unlink(missing_ok=True)

    def run(self, case: Case) -> Outcome:
        """Run a case whose files are in place."""
        result, printed = self.folder / "result.json", self.folder / "printed.txt"
        result.unlink(missing_ok=True)
        roots = [
            self.case,
            self.bombs,
            REPOSITORY,
            Path(pytest_llmeval.__file__).parent,  # of another checkout, if it is installed from there
            Path(tempfile.gettempdir()) / "pytest-of-",
            sys.prefix,
            sys.base_prefix,
        ]
        spec = {
            "kind": case.use.kind,
            "arguments": list(case.use.arguments),
            "result": str(result),
            "own": str(self.case),
            "environment": {
                **self.server.environment,
                **case.environment,
                "TMPDIR": str(self.case),
                KEY: "sk-0123456789abcdef",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            "roots": [str(root) + os.sep for root in (*roots, *_library_folders())],
            "modules": MODULES,
        }
        before = set(self.case.rglob("*"))
        limit_s = MOST_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        started = time.monotonic()
        with printed.open("wb") as output, open(os.devnull, "rb") as nothing:
            process = self.server.start(
                _CONFINED,
                [json.dumps(spec)],
                stdin=nothing.fileno(),
                stdout=output.fileno(),
                stderr=output.fileno(),
            )
            try:
                process.wait(limit_s + 5)
            except subprocess.TimeoutExpired:
                pass
            finally:
                seconds = time.monotonic() - started
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        found: dict[str, Any] = {"status": None, "processor_s": 0.0, "peak_bytes": 0, "reached": [], "ran": []}
        with suppress(OSError, ValueError):
            found.update(json.loads(result.read_text("utf-8")))
        text = printed.read_bytes()[:20_000_000].decode("utf-8", "replace")
        return Outcome(
            **found,
            output=text,
            written=self._written(before),
            seconds=seconds,
            limit_s=limit_s,
            has_canary=self.canary.exists(),
            numbers=numbers_for(case.use.judge, self.case, text) if case.use.judge else None,
        )

    def _written(self, before: set[Path]) -> str:
        made = [path for path in self.case.rglob("*") if path not in before and not path.is_symlink()]
        small = [path for path in made if path.is_file() and path.stat().st_size < 50_000_000]
        return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in small)

    def clean(self, use: Use) -> Mapping[str, Any] | None:
        """The numbers of this use on the undamaged project."""
        if use not in self._clean:
            self.refresh()
            self._clean[use] = self.run(Case(-1, "", "", use)).numbers
        return self._clean[use]


def _states(folder: Path) -> dict[str, tuple[int, int] | None]:
    """The parts of a folder: size and time of files, None for folders."""
    found: dict[str, tuple[int, int] | None] = {}
    for above, folders, files in os.walk(folder):
        prefix = os.path.relpath(above, folder)
        for name in files:
            status = os.lstat(os.path.join(above, name))
            found[os.path.normpath(os.path.join(prefix, name))] = (status.st_size, status.st_mtime_ns)
        found |= {os.path.normpath(os.path.join(prefix, name)): None for name in folders}
    return found


def _library_folders() -> list[str]:
    return sorted({os.path.realpath(path) for path in sys.path if path and "site-packages" in path})


_CONFINED = Path(__file__).with_name("confined.py").read_text(encoding="utf-8")
