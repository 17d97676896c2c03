"""Damages every kind of file that the package reads, and sees what sessions and commands make of it.

    python -m tests.faults.damaged_files                       # 3,000 mutants of seed 0; takes about 20 minutes
    python -m tests.faults.damaged_files --count 200 --format store
    python -m tests.faults.damaged_files --seed 0 --only 17 --show        # one of them again, with all that it printed

Each mutant is one file of a small project (``damaged_projects.py``) with changed bytes, lines or values
(``mutations.py``); replies of servers are changed on the wire. A real session of pytest, or the ``llmeval`` command,
reads it in a process of its own, forked and watched by ``confined.py``. Counted, each of which has to be 0:

- tracebacks: in what was printed, also in the report of an internal error, and objects that were never closed;
- odd exit: an exit code that is none of the documented ones, or a process that died;
- over 10 s and over 2 GB: the process with its children, by its processor time and by the clock (there as many times
  longer as more processes want to run than the machine has cores), and peak of resident memory;
- code run: a file that only code from a damaged file makes, programs that were started, and code run from files that
  are neither the package's, a library's nor the user's own;
- read outside: a file outside of the project that was opened, or whose content appears in what was printed or written,
  or a host that was called;
- raw controls: escape sequences for the terminal that came from a file and were printed as they are;
- silently wrong: a damaged report, store or server reply that changed a number, and nothing said so.

What users may do is no fault. A suite names its data (``path``, ``fewshot.path``, ``schema``) and a task its data and
``include`` by any path, also an absolute one or one with ``..`` (docs/data.md, docs/lm_eval.md), and so do options and
ini values; symbolic links are followed there. Files named so may be read, and messages on them quote a few characters.
Data, reports, journals, stores and replies name no files: what they reach is counted. A changed number in a suite, in
data, in a journal or in a file of replies is another number that a user might have written: nothing can tell.
A report whose numbers agree with each other is believed. The Python files of the project are the user's own code.
pytest reads its ini file before it loads a plugin, and shows a traceback where that is not UTF-8: such a file is left
out. The package waits between tries of a server as long as docs/servers.md says; here that takes no time.
"""

from __future__ import annotations

import argparse
import queue
import random
import shlex
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.faults.damaged_cases import damage, drawn_case
from tests.faults.damaged_formats import FORMATS, KEY, Case, Use, session
from tests.faults.damaged_judge import FIGURES, Outcome, faults_of
from tests.faults.damaged_place import Workplace
from tests.faults.damaged_server import DamagedServer
from tests.forked import ForkServer

__all__ = ["main"]


def run_case(number: int, seed: int, chosen: Sequence[str], place: Workplace) -> tuple[Case, Outcome, dict[str, str]]:
    """Draw, damage, run and judge one case."""
    case, draw = drawn_case(number, seed, chosen)
    if case.format != "server":
        clean = place.clean(case.use) if case.use.judge else None
        place.refresh()
        damage(case, draw, place)
        outcome = place.run(case)
        return case, outcome, faults_of(case, outcome, clean)
    suites = draw.choice((("pets.yaml",), ("sums.yaml",), ("phrases.yaml",)))
    server = DamagedServer(case.file, draw, place.payloads, draw.choice((0, 0, 1, 2, 3, 5, 8, 12, 20, 30)))

    def use_of(url: str) -> Use:
        model = f"--llm-model={url}?timeout=3&max_connections=1&api_key_env={KEY}&dialect={case.file}"
        return session(model if draw_dialect else model.rpartition("&")[0], *suites, judge="session")

    draw_dialect = draw.random() < 0.5
    clean = _clean_of_server(case.file, suites, place)
    place.refresh()
    with server:
        case.use = use_of(server.url)
        outcome = place.run(case)
    case.what, case.is_readable = "; ".join(server.what) or "nothing", server.is_readable
    return case, outcome, faults_of(case, outcome, clean)


_CLEAN_OF_SERVERS: dict[tuple[str, tuple[str, ...]], Mapping[str, Any] | None] = {}


def _clean_of_server(dialect: str, suites: tuple[str, ...], place: Workplace) -> Mapping[str, Any] | None:
    key = (dialect, suites)
    if key not in _CLEAN_OF_SERVERS:
        place.refresh()
        with DamagedServer(dialect, random.Random(0), place.payloads, sys.maxsize) as server:
            model = f"--llm-model={server.url}?timeout=3&max_connections=1&api_key_env={KEY}&dialect={dialect}"
            _CLEAN_OF_SERVERS[key] = place.run(
                Case(-1, "server", dialect, session(model, *suites, judge="session"))
            ).numbers
    return _CLEAN_OF_SERVERS[key]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 where a figure is not 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--count", type=int, default=3000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--only", type=int, nargs="+", help="only the mutants of these numbers")
    parser.add_argument("--format", action="append", choices=list(FORMATS), help="only of this format; may be repeated")
    parser.add_argument("--log", type=Path, help="a file to which each mutant's number, format and figures are added")
    parser.add_argument("--show", action="store_true", help="print what the sessions and commands printed")
    options = parser.parse_args(arguments)
    chosen = options.format or ()
    numbers = options.only or range(options.first, options.first + options.count)
    by_format: dict[str, Counter[str]] = {name: Counter() for name in chosen or FORMATS}
    started, num_broken = time.monotonic(), 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="damaged-"))).resolve()
        server = ForkServer()
        stack.callback(server.close)
        first = Workplace(folder / "0", server)
        places: queue.SimpleQueue[Workplace] = queue.SimpleQueue()
        for place in (first, *(Workplace(folder / str(job), server, first) for job in range(1, options.jobs))):
            places.put(place)

        def run(number: int) -> tuple[Case, Outcome, dict[str, str]]:
            place = places.get()
            try:
                return run_case(number, options.seed, chosen, place)
            finally:
                places.put(place)

        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        for done, future in enumerate(as_completed([pool.submit(run, number) for number in numbers]), 1):
            try:
                case, outcome, found = future.result()
            except Exception:  # of this script: the others go on
                traceback.print_exc()
                num_broken += 1
                continue
            if options.log is not None:
                with options.log.open("a", encoding="utf-8") as log:
                    log.write(f"{case.number} {case.format} {', '.join(found)}\n")
            by_format[case.format].update(["mutants", *found])
            if options.show:
                print(f"{case.use.kind} {shlex.join(case.use.arguments)}\n{case.what}\n{outcome.output[:20_000]}")
                print(f"exit {outcome.status}, {outcome.seconds:.1f} s, {outcome.peak_bytes >> 20} MB")
            for figure, seen in found.items():
                again = "".join(f" --format {name}" for name in chosen)
                print(f"{figure}: {case.format}, {case.file}, {case.use.kind} {shlex.join(case.use.arguments[-3:])}")
                print(f"    {case.what[:200]!r}\n    {seen[:400]}")
                print(
                    f"    python -m tests.faults.damaged_files --seed {options.seed}{again} --only {case.number} --show"
                )
            if done % 50 == 0:
                print(f"... {done} after {time.monotonic() - started:.0f} s", file=sys.stderr)
            sys.stdout.flush()
    counts = sum(by_format.values(), Counter())
    for name, own in by_format.items():
        if own["mutants"]:
            print(f"{name}: " + ", ".join([f"mutants {own['mutants']}", *(f"{one} {own[one]}" for one in FIGURES)]))
    print(f"mutants {len(numbers)}, " + ", ".join(f"{one} {counts[one]}" for one in FIGURES), end="")
    print(f" ({time.monotonic() - started:.0f} s)")
    return int(num_broken > 0 or any(counts[figure] for figure in FIGURES))


if __name__ == "__main__":
    sys.exit(main())
