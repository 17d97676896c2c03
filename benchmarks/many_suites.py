"""What a session over thousands of suite files costs, beside a bare pytest session over as many test files.

    python -m benchmarks.many_suites                       # from the repository; prints JSON lines
    python -m benchmarks.many_suites --files 100 1000 --samples 4
    python -m benchmarks.many_suites --budget-ms 20 --budget-growth 1.5   # exit 1 above one of them

Ours: ``--files`` suites in MMLU's form, each a YAML file with ``--samples`` rows in a JSONL file of its own, answered
by a model in a conftest.py that takes no time, with the report written. Bare: as many modules with one parametrised
test of as many items that does nothing, without the plugin. For each number of files the two take turns, and medians
are printed: seconds of wall and of CPU, MiB of the largest resident set, and their ratios.

``ms_per_file`` is the CPU time of a file with its samples between the smallest number of files and this one, so that
neither start-up nor the last lines of a session are in it; of both sides, and what ours has more. ``growth`` is ours of
the last step over ours of the first: 1 where a file costs as much among many as among few. On a machine that does
other work too, CPU time says more than wall time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measured_process import Measured, run_measured
from benchmarks.session_overhead import CONFTEST, SUITE, environment, make_rows

FILES = (100, 1_000, 10_000)
_KINDS = ("seconds", "cpu_seconds", "peak_mib")

BARE = """\
import pytest


@pytest.mark.parametrize("number", range(NUM_ITEMS))
def test_sample(number):
    pass
"""


def make_projects(folder: Path, num_files: int, num_samples: int) -> tuple[Path, Path]:
    """The folders of the two sides: ours and the bare one."""
    ours, bare = folder / "ours", folder / "bare"
    for side in (ours, bare):
        side.mkdir(parents=True)
        (side / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # else one of a folder above would rule
    (ours / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    rows = make_rows(num_files * num_samples, seed=0).splitlines(keepends=True)
    suite = SUITE.replace("FEWSHOT\n", "")
    for number in range(num_files):
        name = f"part_{number:05}"
        own = rows[number * num_samples : (number + 1) * num_samples]
        (ours / f"{name}.jsonl").write_text("".join(own), encoding="utf-8")
        text = suite.replace("suite: mmlu", f"suite: {name}").replace("rows.jsonl", f"{name}.jsonl")
        (ours / f"{name}.yaml").write_text(text, encoding="utf-8")
        (bare / f"test_{name}.py").write_text(BARE.replace("NUM_ITEMS", str(num_samples)), encoding="utf-8")
    return ours, bare


def compare(folder: Path, num_files: int, num_samples: int, runs: int) -> dict[str, list[Measured]]:
    """``runs`` pairs of whole sessions in ``folder``, in alternating order; bytecode is kept beside it."""
    ours, bare = make_projects(folder, num_files, num_samples)
    variables = environment(folder.parent / "bytecode")
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    commands = {
        "ours": ([*pytest, ".", "--llm-report=report.json"], ours),
        "bare": ([*pytest, "-p", "no:llmeval_suites", "."], bare),
    }
    taken: dict[str, list[Measured]] = {side: [] for side in commands}
    for number in range(runs):
        for side in commands if number % 2 else reversed(commands):
            command, where = commands[side]
            taken[side].append(run_measured(command, folder=where, variables=variables, log=folder / f"{side}.txt"))
    report = json.loads((ours / "report.json").read_text(encoding="ascii"))
    found, expected = (len(report["suites"]), len(report["records"])), (num_files, num_files * num_samples)
    if found != expected or report["problems"]:
        raise SystemExit(f"{found} suites and records of {expected}, problems {report['problems']}")
    return taken


def medians(taken: dict[str, list[Measured]]) -> dict[str, dict[str, float]]:
    """Of each kind: ours, the bare one's, and their ratio."""
    found: dict[str, dict[str, float]] = {}
    for kind in _KINDS:
        ours, bare = (statistics.median(getattr(one, kind) for one in taken[side]) for side in ("ours", "bare"))
        found[kind] = {"ours": round(ours, 2), "bare": round(bare, 2), "ratio": round(ours / bare, 2)}
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=list(FILES), metavar="N", help="suites, from few up")
    parser.add_argument("--samples", type=int, default=10, help="of each suite")
    parser.add_argument("--runs", type=int, default=1, help="pairs of whole runs of each size")
    parser.add_argument("--budget-ms", type=float, help="exit 1 if a file of ours takes as much more CPU time")
    parser.add_argument("--budget-growth", type=float, help="exit 1 if the growth is above this")
    arguments = parser.parse_args(given)
    sizes: list[int] = arguments.files
    if min(*sizes, arguments.samples, arguments.runs) < 1 or sizes != sorted({*sizes}):
        parser.error("--files: expected whole numbers above 0, each larger than the one before; others: above 0")
    exceeded = False
    costs: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compare(folder / "first", 2, arguments.samples, 1)  # writes the bytecode
        smallest: dict[str, dict[str, float]] | None = None
        before: tuple[int, float] | None = None
        for num_files in sizes:
            found = medians(compare(folder / str(num_files), num_files, arguments.samples, arguments.runs))
            line: dict[str, object] = {"measured": "many_suites", "files": num_files, "samples": arguments.samples}
            cpu = found["cpu_seconds"]
            if smallest is not None and before is not None:
                own = {
                    side: 1000 * (cpu[side] - smallest["cpu_seconds"][side]) / (num_files - sizes[0])
                    for side in ("ours", "bare")
                }
                more = own["ours"] - own["bare"]
                line["ms_per_file"] = {**{side: round(ms, 2) for side, ms in own.items()}, "more": round(more, 2)}
                exceeded |= arguments.budget_ms is not None and more > arguments.budget_ms
                costs.append((cpu["ours"] - before[1]) / (num_files - before[0]))
                if len(costs) > 1:
                    line["growth"] = round(costs[-1] / costs[0], 2)
                    exceeded |= arguments.budget_growth is not None and costs[-1] > arguments.budget_growth * costs[0]
            smallest, before = smallest or found, (num_files, cpu["ours"])
            print(json.dumps(line | {"runs": arguments.runs} | found), flush=True)
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
