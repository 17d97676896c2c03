"""What collecting a suite costs: time beside bare pytest items, and memory for many more of them.

    python -m benchmarks.collection                      # prints JSON lines
    python -m benchmarks.collection --runs 5 --items 14042 --shots 5 --many 100000
    python -m benchmarks.collection --budget 2 --budget-bytes 5000   # exit 1 above one of them

``time``: ``pytest --collect-only -q`` on a suite in MMLU's form (14,042 rows of JSONL, four options, five few-shot
examples in each prompt) beside a module with one parametrised test of as many items, without the plugin. All of a suite
is checked at collection, so each prompt is rendered. The two take turns, and medians are compared; on a machine that
does other work too, CPU time says more than wall time.

``memory``: the largest resident set of the same run with ``--few`` and with ``--many`` rows, and the bytes by which one
more sample makes it larger. A row of that data is 360 bytes of JSON, and pytest's own part of an item about 2 kB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.session_overhead import NUM_ITEMS, environment, make_projects

_BYTES_PER_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
_COLLECT = ("--collect-only", "-q", "-p", "no:xdist")


@dataclass(frozen=True, slots=True)
class Cost:
    """One process: seconds, and bytes of its largest resident set."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def collect(folder: Path, arguments: Sequence[str], num_items: int) -> Cost:
    """One run of ``pytest --collect-only`` in ``folder``, which has to find ``num_items``."""
    output = folder / "output.txt"
    started = time.perf_counter()
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *_COLLECT, *arguments],
            cwd=folder,
            env=environment(folder.parent / "bytecode"),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        # wait4 and not getrusage(RUSAGE_CHILDREN), whose peak is that of the largest child so far
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - started
    said = output.read_text(encoding="utf-8", errors="replace")
    if process.returncode != 0 or f"{num_items} tests collected" not in said:
        raise SystemExit(f"pytest {' '.join(arguments)} did not collect {num_items} items:\n{said[-3000:]}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _BYTES_PER_UNIT)


def measure_time(num_items: int, shots: int, runs: int) -> dict[str, dict[str, float]]:
    """Medians of wall and CPU seconds over ``runs`` pairs of runs, in alternating order, and their ratios."""
    with tempfile.TemporaryDirectory() as name:
        ours, bare = make_projects(Path(name), num_items, shots)
        sides: dict[Path, list[Cost]] = {ours: [], bare: []}
        arguments = {ours: ["mmlu.yaml"], bare: ["-p", "no:llmeval_suites", "test_bare.py"]}
        for side in (ours, bare):  # bytecode is written
            collect(side, arguments[side], num_items)
        for number in range(runs):
            for side in (ours, bare) if number % 2 else (bare, ours):
                sides[side].append(collect(side, arguments[side], num_items))
    found: dict[str, dict[str, float]] = {}
    for kind in ("wall_s", "cpu_s"):
        mine, theirs = (statistics.median(getattr(cost, kind) for cost in sides[side]) for side in (ours, bare))
        found[kind] = {"ours": round(mine, 2), "bare": round(theirs, 2), "ratio": round(mine / theirs, 2)}
    return found


def measure_memory(few: int, many: int, shots: int) -> dict[str, float]:
    """MiB at the peak with ``few`` and with ``many`` rows, and the bytes for each row between."""
    peaks = []
    for num_items in (few, many):
        with tempfile.TemporaryDirectory() as name:
            ours, _ = make_projects(Path(name), num_items, shots)
            peaks.append(collect(ours, ["mmlu.yaml"], num_items).peak_bytes)
    return {
        "peak_mib_of_few": round(peaks[0] / 2**20, 1),
        "peak_mib_of_many": round(peaks[1] / 2**20, 1),
        "bytes_per_sample": round((peaks[1] - peaks[0]) / (many - few)),
    }


def main() -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="pairs of whole runs")
    parser.add_argument("--items", type=int, default=NUM_ITEMS)
    parser.add_argument("--shots", type=int, default=5, help="few-shot examples in every prompt, the same for all")
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument(
        "--many", type=int, default=100_000, help="rows of the run whose memory is compared with --few's"
    )
    parser.add_argument("--budget", type=float, help="exit 1 if the ratio of CPU times is above this")
    parser.add_argument("--budget-bytes", type=float, help="exit 1 if one more sample takes more memory than this")
    arguments = parser.parse_args()
    if arguments.runs < 1 or arguments.items < 1 or arguments.shots < 0 or not 0 < arguments.few < arguments.many:
        parser.error("--runs, --items and --few: expected above 0; --shots: 0 or more; --many: more than --few")

    shape = {"shots": arguments.shots}
    seconds = measure_time(arguments.items, arguments.shots, arguments.runs)
    print(json.dumps({"measured": "time", "items": arguments.items, **shape, "runs": arguments.runs} | seconds))
    memory = measure_memory(arguments.few, arguments.many, arguments.shots)
    print(json.dumps({"measured": "memory", "few": arguments.few, "many": arguments.many, **shape} | memory))
    too_slow = arguments.budget is not None and seconds["cpu_s"]["ratio"] > arguments.budget
    too_large = arguments.budget_bytes is not None and memory["bytes_per_sample"] > arguments.budget_bytes
    return int(too_slow or too_large)


if __name__ == "__main__":
    sys.exit(main())
