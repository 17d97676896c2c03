"""What a report of many samples costs: time and memory of a journal, of the report's writing, and of its reading.

    python -m benchmarks.report_size                         # 10,000 and 100,000 records, JSON lines
    python -m benchmarks.report_size --records 1000 --budget-mib 400

Records have prompts of about 2 kB and replies of 500 characters, in ten suites with categories. A process of its own
for each number of records takes them in as a session does (journal, and what numbers are made of in memory), and one
more reads the report and the journal and walks over all records. Times of steps are of the CPU, those of whole
processes (``take_in_s``, ``read_back_s``) of the clock. ``kept_mib`` and ``read_mib`` are what a process holds more
at its peak than before. ``--budget-mib`` and ``--budget-s``: exit 1 if a process took more.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.measured_process import environment, run_measured
from pytest_llmeval.reporting.report.records import Record, SuiteInfo, without_texts
from pytest_llmeval.reporting.report.report import Report, definitions_of, describe_environment
from pytest_llmeval.reporting.report.summaries import average_suites, grouped, summarize_suite
from pytest_llmeval.reporting.storage.journal import Journal, journal_path
from pytest_llmeval.reporting.storage.report_file import read_report, write_report

NUM_SUITES = 10
METRICS = ("accuracy", "skill", "brier")
REPOSITORY = Path(__file__).resolve().parents[1]
KIB_PER_UNIT = 1 / 1024 if sys.platform == "darwin" else 1


def records(count: int) -> Iterator[Record]:
    """A session's records, as they would arrive."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghij", k=7)) for _ in range(1000)]
    for number in range(count):
        right = draw.random() < 0.6
        suite = f"suite_{number % NUM_SUITES}"
        yield Record(
            suite=suite,
            id=f"q{number}",
            nodeid=f"{suite}.yaml::q{number}",
            status="correct" if right else "wrong",
            model="some/model",
            category=f"subject_{number % 57}",
            question=" ".join(draw.choices(words, k=30)),
            prompt=" ".join(draw.choices(words, k=250)),
            choices=("one", "two", "three", "four"),
            target="two",
            output=" ".join(draw.choices(words, k=62)),
            answer="two" if right else "three",
            values={"accuracy": float(right), "skill": 1.0 if right else -1 / 3, "brier": draw.random() / 2},
            chance=0.25,
            details={"loglikelihoods": [-1.5, -2.5, -3.5, -4.5], "probabilities": [0.6, 0.2, 0.1, 0.1]},
            num_prompt_tokens=500,
            num_tokens=4,
            seconds=0.01 + draw.random() / 100,
            fingerprint=f"{number:064x}",
        )


def peak_mib() -> float:
    """The largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB_PER_UNIT / 1024


def take_in(count: int, path: Path) -> dict[str, float]:
    """A session's part: journal, numbers, report. The journal stays, for the other process."""
    before = peak_mib()
    started = time.process_time()
    journal = Journal(journal_path(path), {"created": "2026-01-01T00:00:00+00:00", "environment": {}, "options": {}})
    infos = [SuiteInfo(name=f"suite_{number}", metrics=METRICS) for number in range(NUM_SUITES)]
    for info in infos:
        journal.add_fact("suite", info)
    spent_in_journal = 0.0
    kept, places = [], []
    for record in records(count):
        begun = time.process_time()
        places.append(journal.add(record))
        kept.append(without_texts(record))
        spent_in_journal += time.process_time() - begun
    taken = time.process_time()
    groups = grouped(kept, ())
    suites = tuple(
        summarize_suite(info, groups[info.name, None], num_expected=len(groups[info.name, None]), num_skipped=0)
        for info in infos
        if (info.name, None) in groups
    )
    report = Report(
        created="2026-01-01T00:00:00+00:00",
        seconds=taken - started,
        environment=describe_environment(),
        models=({"name": "some/model"},),
        options={},
        exit_code=0,
        definitions=definitions_of(suites),
        suites=suites,
        averages=average_suites(suites, kept),
        records=kept,
    )
    summarized = time.process_time()
    write_report(replace(report, records=journal.records(places)), path)
    written = time.process_time()
    journal.close(discard=False)
    return {
        "journal_s": spent_in_journal,
        "summarize_s": summarized - taken,
        "write_s": written - summarized,
        "kept_mib": peak_mib() - before,
    }


def read_back(count: int, path: Path) -> dict[str, float]:
    """Open the report and walk over its records, then the journal."""
    before = peak_mib()
    started = time.process_time()
    report = read_report(path)
    opened = time.process_time()
    found = sum(record.prompt is not None for record in report.records)
    walked = time.process_time()
    held = peak_mib() - before
    killed = read_report(path.with_name(f"{path.name}.journal"))
    recovered = time.process_time()
    if (found, len(report.records), len(killed.records)) != (count, count, count):
        raise SystemExit(f"{found}, {len(report.records)} and {len(killed.records)} records of {count}")
    if [suite.summary for suite in report.suites] != [suite.summary for suite in killed.suites]:
        raise SystemExit("the report and the journal give different numbers")
    return {
        "open_s": opened - started,
        "walk_s": walked - opened,
        "read_mib": held,
        "journal_read_s": recovered - walked,
    }


def measure(count: int) -> dict[str, float]:
    """Both processes for ``count`` records."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.json"
        found: dict[str, float] = {"records": count}
        for step in ("take_in", "read_back"):
            done = run_measured(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.report_size",
                    "--step",
                    step,
                    "--records",
                    str(count),
                    "--path",
                    str(path),
                ],
                folder=REPOSITORY,
                variables=environment(Path(folder), num_threads=1),
                log=Path(folder) / f"{step}.log",
            )
            found |= json.loads(done.output.splitlines()[-1])
            found[f"{step}_s"], found[f"{step}_peak_mib"] = done.seconds, done.peak_mib
        found["report_mib"] = path.stat().st_size / 2**20
    return {name: round(value, 2) for name, value in found.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--budget-mib", type=float)
    parser.add_argument("--budget-s", type=float)
    parser.add_argument("--step", choices=("take_in", "read_back"), help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.step is not None:
        run_step = take_in if given.step == "take_in" else read_back
        print(json.dumps(run_step(given.records[0], given.path)))
        return 0
    exceeded = False
    for count in given.records:
        found = measure(count)
        print(json.dumps({"measured": "report", **found}), flush=True)
        for step in ("take_in", "read_back"):
            exceeded |= given.budget_mib is not None and found[f"{step}_peak_mib"] > given.budget_mib
            exceeded |= given.budget_s is not None and found[f"{step}_s"] > given.budget_s
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
