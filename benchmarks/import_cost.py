"""What loading the plugin costs in somebody's pytest run that has no suite.

    python benchmarks/import_cost.py             # prints JSON lines
    python benchmarks/import_cost.py --runs 40 --budget-ms 20   # exit 1 if the warm cost is above the budget

The package is laid out as a wheel would install it (a copy of its modules with the metadata of the entry point), since
pytest rewrites the assertions of an installed plugin. Two kinds of measurement, each warm (with the bytecode of an
earlier run) and cold (no bytecode of ours, and none written: ``PYTHONDONTWRITEBYTECODE=1``):

- ``process``: whole runs of ``pytest -q`` in a project with one empty test, in turns with the plugin and with
  ``-p no:llmeval_suites``; medians of wall time and CPU time, and the median of the pairs' differences;
- ``importtime``: ``-X importtime``, the time spent importing the package and what it alone pulls in, and those modules.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "pytest_llmeval"
ENTRY_POINT = "llmeval_suites"
ROOT = Path(__file__).resolve().parents[1] / PACKAGE

# Python times the import statement and not importlib.import_module, by which entry points are loaded.
BY_STATEMENT = ("-p", "import_cost_probe")
PROBE = f"import {PACKAGE}.plugin\n"

METADATA = "Metadata-Version: 2.1\nName: pytest-llmeval-suites\nVersion: 0\n"
ENTRY_POINTS = f"[pytest11]\n{ENTRY_POINT} = {PACKAGE}.plugin\n"

IMPORT_LINE = re.compile(r"import time:\s*(?P<self>\d+) \|\s*(?P<total>\d+) \| (?P<indent> *)(?P<name>\S+)$")


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one process."""

    wall_s: float
    cpu_s: float


def install(site: Path) -> None:
    """Lay the package out under ``site`` as a wheel would: modules without bytecode, metadata with the entry point."""
    shutil.copytree(ROOT, site / PACKAGE, ignore=lambda _, names: [name for name in names if not _is_source(name)])
    metadata = site / "pytest_llmeval_suites-0.dist-info"
    metadata.mkdir()
    modules = [str(path.relative_to(site)) for path in (site / PACKAGE).rglob("*.py")]
    (site / "import_cost_probe.py").write_text(PROBE, encoding="utf-8")
    (metadata / "METADATA").write_text(METADATA, encoding="utf-8")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (metadata / "RECORD").write_text("".join(f"{name},,\n" for name in modules), encoding="utf-8")


def _is_source(name: str) -> bool:
    return name.endswith(".py") or ("." not in name and name != "__pycache__")


def environment(site: Path, *, cold: bool) -> dict[str, str]:
    """The variables of a measured process: ``site`` comes before what is installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_"))}
    kept |= {"PYTHONPATH": str(site), "PYTHONHASHSEED": "0"}
    return kept | ({"PYTHONDONTWRITEBYTECODE": "1"} if cold else {})


def run(project: Path, site: Path, *arguments: str, cold: bool, python: Sequence[str] = ()) -> tuple[Cost, str]:
    """One run of pytest in ``project``: what it cost, and what it wrote to standard error."""
    command = [sys.executable, *python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=project,
        env=environment(site, cold=cold),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    wall_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    cpu_s = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    return Cost(wall_s, cpu_s), done.stderr


def measure_processes(project: Path, site: Path, *, runs: int, cold: bool) -> dict[str, object]:
    """Medians over ``runs`` pairs of runs, the two of a pair one after the other and in alternating order."""
    sides: dict[bool, list[Cost]] = {True: [], False: []}
    for number in range(runs + 1):
        for with_plugin in (True, False) if number % 2 else (False, True):
            arguments = [] if with_plugin else ["-p", f"no:{ENTRY_POINT}"]
            cost, _ = run(project, site, *arguments, cold=cold)
            if number:  # the first pair writes bytecode and fills the disk cache
                sides[with_plugin].append(cost)

    def summary(kind: str) -> dict[str, float]:
        with_ms, without_ms = ([1e3 * getattr(cost, kind) for cost in sides[side]] for side in (True, False))
        differences = [a - b for a, b in zip(with_ms, without_ms, strict=True)]
        return {
            "with": round(statistics.median(with_ms), 2),
            "without": round(statistics.median(without_ms), 2),
            "difference": round(statistics.median(differences), 2),
            "difference_of_minima": round(min(with_ms) - min(without_ms), 2),
        }

    return {
        "bytecode": "cold" if cold else "warm",
        "runs": runs,
        "wall_ms": summary("wall_s"),
        "cpu_ms": summary("cpu_s"),
    }


def read_import_times(log: str) -> tuple[int, list[str]]:
    """From a log: microseconds in the outermost imports of the package, and the modules imported inside them.

    The log lists a module after the modules that it imports, each two spaces deeper than its importer.
    """
    lines = [match for line in log.splitlines() if (match := IMPORT_LINE.match(line))]
    total_us, modules, inside = 0, [], -1
    for match in reversed(lines):  # importers first
        depth = len(match["indent"])
        if inside >= 0 and depth > inside:
            modules.append(match["name"])
            continue
        inside = depth if match["name"].split(".")[0] == PACKAGE else -1
        if inside >= 0:
            total_us += int(match["total"])
            modules.append(match["name"])
    return total_us, sorted(modules)


def measure_imports(project: Path, site: Path, *, runs: int, cold: bool) -> dict[str, object]:
    """Median and minimum of ``runs`` logs."""
    run(project, site, *BY_STATEMENT, cold=cold)
    logs = [run(project, site, *BY_STATEMENT, cold=cold, python=["-X", "importtime"])[1] for _ in range(runs)]
    times, modules = zip(*map(read_import_times, logs), strict=True)
    return {
        "bytecode": "cold" if cold else "warm",
        "runs": runs,
        "import_ms": round(statistics.median(times) / 1e3, 2),
        "import_ms_min": round(min(times) / 1e3, 2),  # on a busy machine, the nearer to the truth
        "modules": modules[-1],
    }


def main() -> int:
    """Measure, print, and compare with the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="pairs of whole runs; a quarter of it for -X importtime")
    parser.add_argument(
        "--budget-ms", type=float, help="exit 1 if the warm difference of the least CPU times is above this"
    )
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs: expected a whole number above 0")

    warm_ms = 0.0
    for cold in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            site, project = Path(folder) / "site", Path(folder) / "project"
            install(site)
            project.mkdir()
            (project / "test_one.py").write_text("def test_one(): pass\n", encoding="utf-8")
            imports = measure_imports(project, site, runs=max(1, arguments.runs // 4), cold=cold)
            print(json.dumps({"measured": "importtime"} | imports), flush=True)
            processes = measure_processes(project, site, runs=arguments.runs, cold=cold)
            print(json.dumps({"measured": "process"} | processes), flush=True)
            if not cold:
                warm_ms = json.loads(json.dumps(processes))["cpu_ms"]["difference_of_minima"]
    return int(arguments.budget_ms is not None and warm_ms > arguments.budget_ms)


if __name__ == "__main__":
    sys.exit(main())
