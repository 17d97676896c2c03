"""Do hostile replies break a scorer, or what is made of its scores? 2,000 pairs of a scorer and a reply, by a seed.

    python -m tests.faults.hostile_replies [--count 2000] [--seed 0] [--jobs 1] [--only K]

Case K of a seed is always the same: one of the judges of ``judges.py`` (all scorers, filters, epochs, Python scorers),
and a reply, or log-likelihoods, of ``replies.py``: megabytes of one character, JSON 100,000 levels deep, bombs of
LaTeX, surrogates, what the scorer's own patterns have much to search in, commands for terminals, and so on. A judge's
cases are the samples of one session of pytest, in a forked process of bounded address space, with a healthy sample
behind each hostile one, ``-rA``, a report in each format, and every second judge with ``--llm-strict``.

Of each pair there has to be: a record with a status and, where it is unscored, a reason; numbers within the bounds of
their metric; no exception but the package's own; at most 10 s of processor time (of the session and of the processes
that it starts; other work on the machine does not count) and 1 GB at the peak of all of them; a healthy neighbour with
the score that it has before all others; and no right answer, unless the reply holds the right one too. Of each session:
an honest exit code, an output and Markdown and CSV reports without a character that a terminal acts on or a line that a
CI system takes for a command, and a report that can be read, with all of its records. Time limits of the package
itself (``score.math.timeout_s``) are outcomes like others: wrong or unscored, with the reason.

Then come some whole sessions with a reply of each kind: from a file of replies, with ``-n2``, and with a store.

Prints a line for each case in which something else is found, and the figures; the exit code is 1 where one is not 0.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.report.verify import report_problem
from pytest_llmeval.reporting.storage.report_file import read_report
from pytest_llmeval.scoring.metrics.definitions import METRICS
from tests.faults.hostile_session import PROGRESS, case_random
from tests.faults.hostile_whole import whole_sessions
from tests.faults.judges import Judge, judges
from tests.faults.replies import MARKER, draw_kind
from tests.forked import ForkServer
from tests.support import REPOSITORY

__all__ = ["Case", "Figures", "cases_of", "judge_pair", "judge_session", "main"]

_MAX_S = 10.0
_MAX_BYTES = 10**9
_HANGS_AFTER_S = 900.0
"""Of time on the wall, of which a busy machine gives a session a part."""
_MAX_END_S = 30.0
"""Processor time of the end of a session, which judges nothing: it counts, and writes megabytes of forty samples."""
# C0 and C1 but for the newline and tab, bidirectional marks, separators of lines, lone surrogates.
_FOR_TERMINALS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FOR_CI = re.compile(rf"^\s*::[a-z-]+.*::.*{MARKER}|^\s*::set-output name={MARKER}|##\[[a-z]+\]{MARKER}", re.MULTILINE)
_ANY = replace(METRICS["accuracy"], lowest=-sys.float_info.max, highest=sys.float_info.max)
_STATUSES = ("correct", "wrong", "scored", "unscored")
_CHILD = """
import os, sys
sys.path.insert(0, sys.argv[1])
os.chdir(sys.argv[2])
from tests.support import clean_environment
environment = clean_environment()
os.environ.clear()
os.environ.update(environment)
from tests.faults.hostile_session import main
main(sys.argv[3:])
"""
_CONFTEST = "from tests.faults.hostile_session import llm_model, pytest_llmeval_scorers\n"


@dataclass(frozen=True, slots=True)
class Case:
    """Case ``number`` of a seed, judged by the judge of that place; ``kind`` of reply, and whether it may be right."""

    number: int
    judge: int
    kind: str
    may_be_right: bool


@dataclass(slots=True)
class Figures:
    """What was found, by figure."""

    pairs: int = 0
    sessions: int = 0
    found: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    largest: int = 0
    statuses: Counter[str] = field(default_factory=Counter)

    def add(self, where: str, problems: Sequence[tuple[str, str]], repeat: str) -> None:
        """Problems, each with its figure, and the command that shows them again."""
        for figure, problem in problems:
            self.found[figure] += 1
            line = f"{where}: {figure}: {problem}    [{repeat}]"
            self.lines.append(line)
            print(line, flush=True)


FIGURES = (
    *("over 10 s", "over 1 GB", "crashes", "no outcome", "other samples changed", "right where it should not be"),
    *("out of bounds", "escapes in output", "commands in output", "damaged reports", "dishonest exits"),
)
"""Each should be 0."""


def cases_of(seed: int, count: int) -> list[Case]:
    """The first ``count`` cases of a seed: judges take turns."""
    all_judges = judges()
    found = []
    for number in range(count):
        place = number % len(all_judges)
        judge = all_judges[place]
        kind = "log-likelihoods"
        if judge.by_reply:
            rng = case_random(seed, number)
            rng.random()
            kind = draw_kind(rng, judge)
        found.append(Case(number, place, kind, may_be_right=not judge.by_reply or kind == "around right"))
    return found


def judge_pair(
    case: Case,
    judge: Judge,
    records: Mapping[str, Mapping[str, Any]],
    ends: Mapping[str, Mapping[str, Any]],
) -> list[tuple[str, str]]:
    """What is wrong with one pair: a figure and a text for each thing.

    ``records`` are those of the report by id, ``ends`` what the watch wrote at the end of each item.
    """
    problems = []
    record, end = records.get(f"h{case.number}"), ends.get(f"h{case.number}")
    if record is None or end is None:
        return [("no outcome", "no record" if record is None else "the item did not end")]
    if end["processor_s"] > _MAX_S:
        problems.append(("over 10 s", f"{end['processor_s']:.1f} s of processor time"))
    if end["peak"] > _MAX_BYTES:
        problems.append(("over 1 GB", f"{end['peak'] / 1e9:.2f} GB"))
    if end["escaped"] is not None:
        problems.append(("crashes", end["escaped"]))
    status = record["status"]
    if status not in _STATUSES or (status == "unscored") != bool(record["reason"]):
        problems.append(("no outcome", f"status {status!r}, reason {record['reason']!r}"))
    if status != "unscored":
        for name, value in record["values"].items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                problems.append(("out of bounds", f"{name} is {value!r}"))
        if status == "correct" and not case.may_be_right:
            problems.append(("right where it should not be", f"answer {str(record['answer'])[:80]!r}"))
    problems += _of_neighbour(case, judge, records)
    return problems


def _of_neighbour(case: Case, judge: Judge, records: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    first, healthy = records.get("first"), records.get(f"ok{case.number}")
    for name, record in (("the first sample", first), ("its neighbour", healthy)):
        if record is None or (judge.tells_right and record["status"] != "correct"):
            yield "other samples changed", f"{name}: {'no record' if record is None else record['status']}"
            return
    assert first is not None
    assert healthy is not None
    for key in ("status", "values", "answer", "reason", "no_answer"):
        if first[key] != healthy[key]:
            yield (
                "other samples changed",
                f"its neighbour has {key} {str(healthy[key])[:80]}, expected {str(first[key])[:80]}",
            )


def judge_session(folder: Path, exit_code: int, output: str, num_records: int) -> list[tuple[str, str]]:
    """What is wrong with what a session printed and wrote."""
    problems = []
    if exit_code not in (0, 1) or "INTERNALERROR" in output:
        problems.append(("dishonest exits", f"exit code {exit_code}: {output[-300:]!r}"))
    texts = {"the terminal": output}
    for name in ("out.md", "out.csv", "out.xml"):
        try:
            texts[name] = folder.joinpath(name).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            problems.append(("damaged reports", f"{name}: {error.strerror}"))
    for name, text in texts.items():
        if (found := _FOR_TERMINALS.search(text.replace("\r\n", "\n"))) is not None:
            around = text[max(0, found.start() - 40) : found.end() + 20]
            problems.append(("escapes in output", f"{name}: {around!r}"))
        if name == "the terminal" and (found := _FOR_CI.search(text)) is not None:
            problems.append(("commands in output", f"{name}: {found[0]!r}"))
    problems += _damages(folder, num_records)
    return problems


def _damages(folder: Path, num_records: int) -> Iterator[tuple[str, str]]:
    try:
        report = read_report(folder / "out.json")
        problem_found = report_problem(report, "out.json")
        if problem_found is not None:
            yield "damaged reports", problem_found
        if len(report.records) != num_records:
            yield "damaged reports", f"out.json has {len(report.records)} records, expected {num_records}"
        for suite in report.suites:
            for name, metric in suite.summary.metrics.items():
                known, value = METRICS.get(name, _ANY), metric.value
                if value is not None and not known.lowest <= value <= known.highest:
                    yield "out of bounds", f"the metric {name} is {value}"
        with folder.joinpath("out.jsonl").open(encoding="ascii") as file:
            if sum(1 for line in file if isinstance(json.loads(line), dict)) != num_records:
                yield "damaged reports", "out.jsonl lacks records"
        csv.field_size_limit(1 << 30)
        with folder.joinpath("out.csv").open(encoding="utf-8", newline="") as file:
            if sum(1 for _ in csv.DictReader(file)) != num_records:
                yield "damaged reports", "out.csv lacks rows"
        ET.parse(folder / "out.xml")
    except (LLMEvalError, OSError, ValueError, ET.ParseError) as error:
        yield "damaged reports", f"{type(error).__name__}: {error}"[:300]


def run_session(server: ForkServer, folder: Path, cases: Sequence[Case], seed: int) -> tuple[int, str]:
    """Judge cases of one judge in one session: its exit code, negative where it was ended, and its output."""
    judge = judges()[cases[0].judge]
    samples = [{"id": "first", "question": "a healthy one", **judge.sample}]
    for case in cases:
        samples.append({"id": f"h{case.number}", "question": f"hostile case {case.number} .", **judge.sample})
        samples.append({"id": f"ok{case.number}", "question": "a healthy one", **judge.sample})
    folder.joinpath("suite.yaml").write_text(
        yaml.safe_dump({"suite": "hostile", **judge.suite, "samples": samples}, sort_keys=False, allow_unicode=True)
    )
    folder.joinpath("conftest.py").write_text(_CONFTEST)
    folder.joinpath("plan.json").write_text(json.dumps({"judge": cases[0].judge, "seed": seed}))
    reports = [f"--llm-report=out.{name}" for name in ("json", "md", "csv", "jsonl")]
    strict = ["--llm-strict", "-v"] if cases[0].judge % 2 else []
    arguments = ["suite.yaml", "-rA", "--color=no", "-p", "no:xdist", "-p", "no:cacheprovider", "--llm-batch-size=1"]
    with open(os.devnull, "rb") as nothing, folder.joinpath("output").open("wb") as output:
        process = server.start(
            _CHILD,
            [str(REPOSITORY), str(folder), *arguments, *reports, "--junitxml=out.xml", *strict],
            stdin=nothing.fileno(),
            stdout=output.fileno(),
            stderr=output.fileno(),
        )
        progress, seen, since = folder / PROGRESS, -1, time.monotonic()
        while True:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(0.2)
                break
            size = progress.stat().st_size if progress.exists() else 0
            if size != seen:
                seen, since = size, time.monotonic()
            elif time.monotonic() - since > _HANGS_AFTER_S:
                process.kill()
                code = process.wait()
                break
    return code, folder.joinpath("output").read_text(encoding="utf-8", errors="surrogateescape")


def run_cases(server: ForkServer, cases: Sequence[Case], seed: int, figures: Figures) -> None:
    """Judge the cases of one judge. Where one ends the session, which is a crash, the others are judged again."""
    judge = judges()[cases[0].judge]
    left = list(cases)
    while left:
        with tempfile.TemporaryDirectory(prefix="hostile-") as name:
            folder = Path(name)
            code, output = run_session(server, folder, left, seed)
            watched = _watched(folder)
            ends = {line["end"]: line for line in watched if "end" in line}
            begun = next((line["begin"] for line in reversed(watched) if "begin" in line), "the start")
            repeat = f"python -m tests.faults.hostile_replies --seed {seed} --only"
            if code < 0 or "the end" not in ends:
                lost = next((case for case in left if begun == f"h{case.number}"), None)
                what = f"the session ended with {code} in {begun}: {output[-300:]!r}"
                kind = "over 10 s" if code == -signal.SIGKILL else "crashes"
                shown = f"{judge.name} ({cases[0].judge})" if lost is None else _shown(lost, judge)
                figures.add(shown, [(kind, what)], f"{repeat} {left[0].number if lost is None else lost.number}")
                if lost is None:
                    figures.pairs += len(left)
                    return
                figures.pairs += 1
                left.remove(lost)
                continue
            records = {}
            with suppress(OSError, ValueError):
                records = {one["id"]: one for one in json.loads(folder.joinpath("out.json").read_text())["records"]}
            for case in left:
                figures.add(_shown(case, judge), judge_pair(case, judge, records, ends), f"{repeat} {case.number}")
                end, record = ends.get(f"h{case.number}"), records.get(f"h{case.number}")
                figures.pairs += 1
                if end is not None and record is not None:
                    figures.slowest_s = max(figures.slowest_s, end["processor_s"])
                    figures.largest = max(figures.largest, end["peak"])
                    figures.statuses[record["status"]] += 1
            problems = judge_session(folder, code, output, 1 + 2 * len(left))
            if ends["the end"]["processor_s"] > _MAX_END_S:
                problems.append(("over 10 s", f"the end of the session took {ends['the end']['processor_s']:.1f} s"))
            if ends["the end"]["peak"] > _MAX_BYTES:
                problems.append(("over 1 GB", f"the end of the session took {ends['the end']['peak'] / 1e9:.2f} GB"))
            numbers = ",".join(str(case.number) for case in left)
            figures.add(f"session of {judge.name} ({cases[0].judge})", problems, f"{repeat} {numbers}")
            return


def _watched(folder: Path) -> list[dict[str, Any]]:
    with suppress(OSError):
        return [json.loads(line) for line in folder.joinpath(PROGRESS).read_text().splitlines() if line.endswith("}")]
    return []


def _shown(case: Case, judge: Judge) -> str:
    return f"case {case.number}: {judge.name} ({case.judge}), {case.kind}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 where a figure that should be 0 is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", help="numbers of cases, with commas between: run these alone")
    given = parser.parse_args(arguments)
    only = None if given.only is None else [int(number) for number in given.only.split(",")]
    cases = cases_of(given.seed, given.count if only is None else max(only) + 1)
    groups: dict[int, list[Case]] = {}
    for case in cases:
        if only is None or case.number in only:
            groups.setdefault(case.judge, []).append(case)
    figures = Figures()
    server = ForkServer()
    try:
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(lambda group: run_cases(server, group, given.seed, figures), groups.values()))
        for shown, problems in whole_sessions(server, given.seed, judge_session) if only is None else ():
            figures.sessions += 1
            figures.add(shown, problems, f"python -m tests.faults.hostile_replies --seed {given.seed} --count 0")
    finally:
        server.close()
    found = ", ".join(f"{name} {figures.found[name]}" for name in FIGURES)
    print(f"pairs {figures.pairs}, whole sessions {figures.sessions}, {found}")
    statuses = ", ".join(f"{name} {count}" for name, count in sorted(figures.statuses.items()))
    print(f"outcomes: {statuses}; slowest {figures.slowest_s:.1f} s, largest {figures.largest / 1e9:.2f} GB")
    return int(figures.found.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
