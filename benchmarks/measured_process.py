"""Runs a command and says how long it took and how much memory it held at its peak."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KIB_PER_UNIT", "CommandFailed", "Measured", "environment", "run_measured"]

KIB_PER_UNIT = 1 / 1024 if sys.platform == "darwin" else 1  # of ru_maxrss: bytes there, KiB elsewhere


class CommandFailed(Exception):
    """A measured command that ended with another exit status than 0. The message has the end of what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One process with its children: wall time, largest resident set, and what it printed; its own processor time."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    output: str


def environment(folder: Path, *, num_threads: int) -> dict[str, str]:
    """The variables of a measured process: ``num_threads`` threads, no network, caches in ``folder``."""
    dropped = ("PYTEST_", "HF_", "LMEVAL_", "OMP_", "MKL_", "TRANSFORMERS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {
        "OMP_NUM_THREADS": str(num_threads),
        "MKL_NUM_THREADS": str(num_threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HOME": str(folder / "hf_home"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "PYTHONHASHSEED": "0",
        "COLUMNS": "120",
    }


def run_measured(command: Sequence[str], *, folder: Path, variables: Mapping[str, str], log: Path) -> Measured:
    """Run ``command`` in ``folder`` to its end, its output in ``log``. Raises ``CommandFailed``."""
    with log.open("wb") as file:
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=dict(variables), stdout=file, stderr=subprocess.STDOUT)
        try:
            # wait4 and not getrusage(RUSAGE_CHILDREN), whose peak is that of the largest child so far
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    output = log.read_bytes().decode(errors="replace")  # with the carriage returns of progress bars
    if process.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}: exit status {process.returncode}\n{output[-3000:]}")
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Measured(
        seconds=seconds, cpu_seconds=cpu_seconds, peak_mib=usage.ru_maxrss * KIB_PER_UNIT / 1024, output=output
    )
