"""Kill sessions that have started a server, at random points, and look for processes that outlive them (Linux).

``python -m tests.faults.launched_kills`` makes 50 kills; ``--seed`` chooses others, ``--number`` how many. A session
asks the fake server of ``tests/servers/fake_server.py``, which starts a process that leaves its group, and now and then
ignores SIGTERM. The session gets SIGKILL, SIGTERM or SIGINT between its beginning and its end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.servers.fake_server import executable, starts
from tests.support import REPOSITORY, clean_environment

__all__ = ["Kill", "kill_sessions", "processes_with"]

_MARK = "FAKE_SERVER_LOG"
_PATIENCE_S = 10.0
_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_FAULTS = ("grandchild", "grandchild,slow:1", "grandchild,ignores-sigterm", "dies-once-after:30")


class Kill:
    """One kill. ``left`` are the processes that outlived the session, by their command lines."""

    def __init__(self, folder: Path, random_: random.Random) -> None:
        self.number = random_.choice(_SIGNALS)
        self.faults = random_.choice(_FAULTS)
        self.num_workers = random_.choice((0, 0, 2))
        self.after_s = random_.uniform(0.3, 9.0)
        self._folder = folder
        self.left: list[str] = []
        self.num_starts = 0

    def __str__(self) -> str:
        workers = f"-n{self.num_workers}" if self.num_workers else "one process"
        return f"{self.number.name} after {self.after_s:.2f} s, {workers}, {self.faults}: {self.num_starts} started"

    def run(self) -> None:
        """Start a session, kill it, and wait until nothing of it lives, or the patience ends."""
        log = self._folder / "starts.log"
        environment = clean_environment() | {_MARK: str(log), "FAKE_SERVER": self.faults, "HOME": str(self._folder)}
        environment |= {"TMPDIR": str(self._folder)}
        model = ["--llm-model=vllm:./ckpt", f"--llm-model-arg=launch.command={executable(self._folder)}"]
        workers = [f"-n{self.num_workers}"] if self.num_workers else ["-p", "no:xdist"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "suite.yaml", *model, *workers]
        session = subprocess.Popen(
            command, cwd=self._folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            session.wait(self.after_s)
        session.send_signal(self.number)
        if self.number != signal.SIGKILL:  # what comes after it is the session's own end
            with contextlib.suppress(subprocess.TimeoutExpired):
                session.wait(60.0)
        session.kill()
        session.wait()
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until and (found := list(processes_with(_MARK, str(log)))):
            time.sleep(0.1)
        self.left = [command for _, command in found]
        for pid, _ in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.num_starts = len(starts(log))


def processes_with(variable: str, value: str) -> Iterator[tuple[int, str]]:
    """Yield the processes, but this one, that have this in their environment and are no zombies."""
    mark = f"{variable}={value}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                place = Path("/proc", name)
                is_dead = place.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z"
                if not is_dead and mark in place.joinpath("environ").read_bytes().split(b"\0"):
                    yield int(name), place.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]


def kill_sessions(folder: Path, number: int, seed: int) -> Iterator[Kill]:
    """Yield so many kills, each in a folder of its own below ``folder``."""
    random_ = random.Random(seed)
    samples = [{"id": f"s{n}", "question": f"What is {n} + 1?", "target": str(n + 1)} for n in range(400)]
    suite = {"suite": "sums", "samples": samples, "prompt": {"template": "{{ question }}"}, "score": "exact"}
    for one in range(number):
        place = folder / f"{one}"
        (place / "ckpt").mkdir(parents=True)
        (place / "ckpt/config.json").write_text("{}")
        (place / "ckpt/model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        (place / "suite.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))
        kill = Kill(place, random_)
        kill.run()
        yield kill


def main() -> None:
    """Print each kill, and what was left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.chdir(REPOSITORY)
    with tempfile.TemporaryDirectory() as folder:
        kills = []
        for kill in kill_sessions(Path(folder), options.number, options.seed):
            kills.append(kill)
            print(kill, *(f"\n  LEFT: {left}" for left in kill.left), flush=True)
    num_left = sum(bool(kill.left) for kill in kills)
    print(
        f"{len(kills)} kills, {sum(bool(kill.num_starts) for kill in kills)} with a server; left something: {num_left}"
    )
    sys.exit(bool(num_left))


if __name__ == "__main__":
    main()
