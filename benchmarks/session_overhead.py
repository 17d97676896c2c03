"""What a session of ours costs beside a bare pytest session of as many items, with a model that takes no time.

    python benchmarks/session_overhead.py                  # prints JSON lines
    python benchmarks/session_overhead.py --runs 5 --shots 5
    python benchmarks/session_overhead.py --budget 2 --budget-n2 1.5   # exit 1 if a ratio of wall times is above it

Ours: a suite in MMLU's form (14,042 rows of JSONL, four options, 57 subjects as categories, lettered choice by
log-likelihood, 0-shot unless ``--shots`` says otherwise), answered by a model in a conftest.py, with the report
written. Bare: a module with one parametrised test of as many items that does nothing, without the plugin
(``-p no:llmeval_suites``). Each without pytest-xdist and with ``-n 2``. Times are those of whole processes, with their
workers; the two take turns, and medians are compared. Bytecode is there, as in all but the first run of a version,
also where PYTHONDONTWRITEBYTECODE is set. On a machine that does other work too, CPU time says more than wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NUM_ITEMS = 14_042
NUM_SUBJECTS = 57
WORDS = ("which", "form", "is", "said", "to", "hold", "when", "a", "body", "at", "rest", "meets", "another", "line")

SUITE = """\
suite: mmlu
dataset: {path: rows.jsonl}
prompt:
  template: |-
    {{ question }}
    A. {{ options[0] }}
    B. {{ options[1] }}
    C. {{ options[2] }}
    D. {{ options[3] }}
    Answer:
FEWSHOT
choices: [A, B, C, D]
target: answer
category: subject
score: choice
"""

CONFTEST = """\
import pytest
from pytest_llmeval.types import LoglikelihoodResponse


class Trivial:
    def loglikelihood(self, requests):
        return [
            LoglikelihoodResponse(loglikelihood=-float(ord(request.continuation[-1]) % 3 + 1), num_tokens=1)
            for request in requests
        ]


@pytest.fixture(scope="session")
def llm_model():
    return Trivial()
"""

BARE = """\
import pytest


@pytest.mark.parametrize("number", range(NUM_ITEMS))
def test_sample(number):
    pass
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one process and its workers."""

    wall_s: float
    cpu_s: float


def make_rows(num_items: int, seed: int) -> str:
    """Rows of JSONL in MMLU's form: a question of 40 words, four options of five, the index of the right one."""
    draw = random.Random(seed)
    rows = []
    for number in range(num_items):
        row = {
            "question": " ".join(draw.choices(WORDS, k=40)),
            "options": [" ".join(draw.choices(WORDS, k=5)) for _ in range(4)],
            "answer": draw.randrange(4),
            "subject": f"subject_{number * NUM_SUBJECTS // num_items}",
        }
        rows.append(json.dumps(row))
    return "\n".join(rows) + "\n"


def make_projects(folder: Path, num_items: int, shots: int) -> tuple[Path, Path]:
    """The folders of the two sides: ours and the bare one."""
    ours, bare = folder / "ours", folder / "bare"
    ours.mkdir()
    bare.mkdir()
    fewshot = f"  fewshot: {{count: {shots}, path: shots.jsonl, sampler: first_n}}\n" if shots else ""
    (ours / "mmlu.yaml").write_text(SUITE.replace("FEWSHOT\n", fewshot), encoding="utf-8")
    (ours / "rows.jsonl").write_text(make_rows(num_items, seed=0), encoding="utf-8")
    (ours / "shots.jsonl").write_text(make_rows(max(shots, 1), seed=1), encoding="utf-8")
    (ours / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (bare / "test_bare.py").write_text(BARE.replace("NUM_ITEMS", str(num_items)), encoding="utf-8")
    return ours, bare


def environment(bytecode: Path) -> dict[str, str]:
    """The variables of a measured process, which keeps its bytecode below ``bytecode``."""
    dropped = ("PYTEST_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "PYTHONPYCACHEPREFIX": str(bytecode)}


def run(folder: Path, arguments: Sequence[str]) -> Cost:
    """One run of pytest in ``folder``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder,
        env=environment(folder.parent.parent / "bytecode"),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    wall_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"pytest {' '.join(arguments)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return Cost(wall_s, (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime))


def measure(ours: Path, bare: Path, num_items: int, runs: int, workers: Sequence[str]) -> dict[str, object]:
    """Medians over ``runs`` pairs of runs, the two of a pair one after the other and in alternating order."""
    sides: dict[Path, list[Cost]] = {ours: [], bare: []}
    arguments = {
        ours: [*workers, "mmlu.yaml", "--llm-report=report.json"],
        bare: [*workers, "-p", "no:llmeval_suites", "test_bare.py"],
    }
    for number in range(runs):
        for side in (ours, bare) if number % 2 else (bare, ours):
            sides[side].append(run(side, arguments[side]))
    report = json.loads((ours / "report.json").read_text(encoding="ascii"))
    if len(report["records"]) != num_items or report["problems"]:
        raise SystemExit(f"{len(report['records'])} records of {num_items}, problems {report['problems']}")

    def summary(kind: str) -> dict[str, float]:
        mine, theirs = (statistics.median(getattr(cost, kind) for cost in sides[side]) for side in (ours, bare))
        return {"ours": round(mine, 2), "bare": round(theirs, 2), "ratio": round(mine / theirs, 2)}

    return {"runs": runs, "wall_s": summary("wall_s"), "cpu_s": summary("cpu_s")}


def main() -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="pairs of whole runs")
    parser.add_argument("--items", type=int, default=NUM_ITEMS)
    parser.add_argument("--shots", type=int, default=0, help="few-shot examples in every prompt, the same for all")
    parser.add_argument("--workers", type=int, choices=(0, 2), help="only without pytest-xdist (0), or only with it")
    parser.add_argument("--budget", type=float, help="exit 1 if the ratio of wall times in one process is above this")
    parser.add_argument("--budget-n2", type=float, help="the same for -n 2")
    arguments = parser.parse_args()
    if arguments.runs < 1 or arguments.items < 1 or arguments.shots < 0:
        parser.error("--runs and --items: expected a whole number above 0; --shots: 0 or more")

    exceeded = False
    with tempfile.TemporaryDirectory() as folder:
        for name in ("small", "whole"):
            (Path(folder) / name).mkdir()
        small = make_projects(Path(folder) / "small", NUM_SUBJECTS, shots=0)
        measure(*small, NUM_SUBJECTS, runs=1, workers=["-p", "no:xdist"])  # writes the bytecode
        ours, bare = make_projects(Path(folder) / "whole", arguments.items, arguments.shots)
        for num_workers, budget in ((0, arguments.budget), (2, arguments.budget_n2)):
            if arguments.workers not in (None, num_workers):
                continue
            workers = ["-n", str(num_workers)] if num_workers else ["-p", "no:xdist"]
            result = measure(ours, bare, arguments.items, arguments.runs, workers)
            kind = {"measured": "session", "items": arguments.items, "shots": arguments.shots, "workers": num_workers}
            print(json.dumps(kind | result), flush=True)
            wall = result["wall_s"]
            exceeded |= budget is not None and isinstance(wall, dict) and wall["ratio"] > budget
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
