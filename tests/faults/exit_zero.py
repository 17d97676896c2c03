"""Can a session end with exit code 0 although a model got worse, or nothing was measured?

    python -m tests.faults.exit_zero [--count 400] [--seed 0] [--jobs 1] [--only 17]

A way is one session of pytest, or one run of the command ``llmeval``, in a small project of its own. Ways are composed
of what is wrong (a gate that fails, a comparison with a baseline, a model that raises, …) and of how it is hidden:
selections, options, hooks of a conftest.py, plugins, workers that die, models and scorers that lie, damaged reports.
All of them, some tens of thousands, are enumerated in ``POOLS``; a seed draws as many of each pool.

**What counts as a success of the attacker** is exit code 0 although

- a gate that was asked for is violated, or undecided in a way that docs/gates.md promises to fail;
- samples that were to run have no score (and ``--llm-allow-unscored`` does not allow as many), or nothing was measured
  although suites were named, unless options of the command line or of the ini file, or a conftest.py that announces
  it with ``pytest_deselected``, selected nothing and a conftest.py forgives pytest's exit code 5;
- a report that contradicts itself, or is none, is taken for one.

No success, and expected to pass, are sessions of which the documentation says that they pass: a way's ``passes`` is
that sentence, which ``tests/faults/test_exit_zero.py`` looks up. They are printed apart and do not count.

What a session cannot notice in its own process is in docs/gates.md ("What a session cannot notice"), with the remedy.
``unmeasured.OUT_OF_REACH`` has examples, for the test that executes the remedy.

What pytest-xdist does, with and without this plugin: a worker that stops while it collects is replaced, eight times
with ``-n2``. On a busy machine that takes minutes; the ways with such hooks give ``--max-worker-restart=1``.

Plugins that are not installed (pytest-rerunfailures, pytest-randomly, …: ``sessions.PLUGINS``) are left out; then other
ways are drawn in their place.

Prints a line for each way that ends with 0, hangs, or shows an error of its own making, and how to repeat it; then

    400 ways, 0 exit 0, 0 hangs, 0 unfair; 18 documented passes, 18 pass

The exit code is 1 where a figure that should be 0 is not.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TypeAlias

from tests.faults.damaged import reports as ways_with_reports
from tests.faults.sessions import POOLS as OF_SESSIONS
from tests.faults.unmeasured import documented_passes, suites
from tests.faults.ways import AGENTS, CONFTEST, Reports, Way, suite
from tests.forked import ForkServer
from tests.support import clean_environment

__all__ = ["POOLS", "Outcome", "Pools", "draw", "made_reports", "main", "problem", "run"]

Pools: TypeAlias = Mapping[str, Callable[[], Iterable[Way]]]
"""What makes ways, by name."""

POOLS: Pools = {**OF_SESSIONS, "suites": suites, "reports": ways_with_reports}

TIMEOUT_S = 300.0
_UNFAIR = ("SyntaxError", "IndentationError", "unrecognized arguments", "unknown hook", "PluginValidationError")
"""What a way's own mistake looks like, which would make it end with another code than 0."""

_LLMEVAL = "import sys; from pytest_llmeval.cli import main; sys.exit(main())"
"""Ends the process before it comes to pytest."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a way ended: ``exit_code`` is None where it was still running after ``TIMEOUT_S``."""

    exit_code: int | None
    output: str
    seconds: float


def problem(way: Way, outcome: Outcome) -> str | None:
    """What is wrong with how a way ended; None where it ended as it should."""
    if outcome.exit_code is None:
        return "hangs"
    if way.passes is not None:
        return None if outcome.exit_code == 0 else f"documented pass, exit {outcome.exit_code}"
    if outcome.exit_code == 0:
        return "exit 0"
    if any(sign in outcome.output for sign in _UNFAIR):
        return "unfair"
    return None


def draw(
    count: int, seed: int, pools: Sequence[str] | None = None, among: Pools = POOLS
) -> tuple[list[Way], list[Way]]:
    """``count`` ways, as many of each pool as there are, and documented passes: a list, and what was drawn on the way.

    The same for the same seed. What needs a plugin that is not installed is left out.
    """
    shuffled = []
    for name in among if pools is None else pools:
        found = [way for way in among[name]() if all(map(_is_installed, way.needs))]
        random.Random(f"{seed} {name}").shuffle(found)
        shuffled.append(found)
    ways: list[Way] = []
    passes = list(documented_passes()) if among is POOLS and pools is None else []
    if among is not POOLS:  # there are few of these in all
        passes = [way for found in shuffled for way in found if way.passes is not None]
        shuffled = [[way for way in found if way.passes is None] for found in shuffled]
    for way in itertools.chain.from_iterable(itertools.zip_longest(*shuffled)):
        if len(ways) == count:
            break
        if way is not None:
            (ways if way.passes is None else passes).append(way)
    return ways, passes


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _other_plugins(needs: Sequence[str]) -> Iterator[str]:
    """Options that switch off the installed plugins that a way does not need: their sessions should be the same
    wherever the campaign runs, and quick.
    """
    kept = {"pytest-llmeval-suites", "pytest-xdist", *needs}
    for one in importlib.metadata.entry_points(group="pytest11"):
        if one.dist is not None and one.dist.name not in kept:
            yield f"-p no:{one.name}"


def run(way: Way, server: ForkServer, reports: Reports, folder: Path) -> Outcome:
    """Run one way in ``folder``, which is made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in way.files.items():
        path = folder / name
        made = content(reports) if callable(content) else content
        if made is None:
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made if isinstance(made, bytes) else made.encode())
    environment = clean_environment() | {
        "PYTHONPATH": str(folder),
        "PYTEST_ADDOPTS": "",
        "TMPDIR": str(folder),
        **way.environment,
    }
    if way.command == "pytest":
        environment["PYTEST_ADDOPTS"] += " " + " ".join(_other_plugins(way.needs))
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = server.start_pytest(
            way.arguments,
            folder=folder,
            environment=environment,
            output=output.fileno(),
            before=_LLMEVAL if way.command == "llmeval" else "",
        )
        try:
            exit_code: int | None = process.wait(TIMEOUT_S)
        except TimeoutExpired:
            process.kill()
            exit_code = None
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    return Outcome(exit_code, text, time.monotonic() - start)


_MADE = {
    # report: the model, options, the suite
    "good": ("good", (), suite()),
    "bad": ("bad", (), suite()),
    "half": ("half", (), suite()),
    "other": ("good", (), suite("other")),
    "changed": ("good", (), suite(numbers=range(20, 32)).replace("id: s", "id: s0")),
    "gated": ("bad", (), suite(gates="accuracy >= 0.9")),
    "unscored": ("some_fail", (), suite()),
    "stopped": ("bad", ("--llm-strict", "--maxfail=6"), suite()),
    "shard1": ("good", ("--llm-shard=1/2",), suite(gates="accuracy >= 0.5")),
    "shard2": ("good", ("--llm-shard=2/2",), suite(gates="accuracy >= 0.5")),
    "nothing": ("good", ("-k", "nothing"), suite()),
}


def made_reports(server: ForkServer, folder: Path) -> dict[str, str]:
    """The reports of real sessions that ways use, and files of other forms that these write."""
    made: dict[str, str] = {}
    for name, (answers, options, text) in _MADE.items():
        others = ("csv", "md", "jsonl") if name == "good" else ()
        targets = [f"--llm-report=r.{form}" for form in ("json", *others)]
        keeps = "\ndef pytest_sessionfinish():\n    import shutil\n    shutil.copy('r.json.journal', 'kept')\n"
        way = Way(
            name=name,
            arguments=("-p", "no:xdist", f"--llm-model=python:agents:{answers}", *options, *targets, "sums.yaml"),
            files={"agents.py": AGENTS, "conftest.py": CONFTEST + keeps * bool(others), "sums.yaml": text},
        )
        outcome = run(way, server, {}, folder / name)
        path = folder / name / "r.json"
        if not path.exists():
            raise RuntimeError(f"no report {name}: {outcome.output}")
        made[name] = path.read_text(encoding="utf-8")
        made |= {form: path.with_suffix(f".{form}").read_text(encoding="utf-8") for form in others}
    made["journal"] = (folder / "good" / "kept").read_text(encoding="utf-8")
    merge = Way(
        name="partial",
        command="llmeval",
        arguments=("merge", "--partial", "shard1.json", "-o", "m.json"),
        files={"shard1.json": made["shard1"]},
    )
    run(merge, server, {}, folder / "partial")
    made["partial"] = (folder / "partial" / "m.json").read_text(encoding="utf-8")
    return made


def main(
    arguments: Sequence[str] | None = None,
    *,
    pools: Pools = POOLS,
    make: Callable[[ForkServer, Path], Reports] = made_reports,
    name: str = "exit_zero",
    count: int = 400,
) -> int:
    """Draw, run and count the ways of this campaign, or of another one that has its own ``pools``."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=count, help="how many ways")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--pool", action="append", choices=list(pools), help="only of this pool; may be repeated")
    parser.add_argument("--only", type=int, help="the way with this number, with all that it prints")
    chosen = parser.parse_args(arguments)
    ways, passes = draw(chosen.count, chosen.seed, chosen.pool, pools)
    if chosen.only is not None:
        ways, passes = [(ways + passes)[chosen.only]], []
    repeat = " ".join([f"python -m tests.faults.{name}", f"--count {chosen.count} --seed {chosen.seed}"])
    repeat += "".join(f" --pool '{pool}'" for pool in chosen.pool or ())
    server = ForkServer()
    found: Counter[str] = Counter()
    slowest = 0.0
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as text, ThreadPoolExecutor(chosen.jobs) as pool:
        folder = Path(text)
        needs_reports = any(callable(content) for way in ways + passes for content in way.files.values())
        reports = make(server, folder / "made") if needs_reports else {}
        places = [folder / str(number) for number in range(len(ways) + len(passes))]
        outcomes = pool.map(partial(_run, server, reports), ways + passes, places)
        for number, (way, outcome) in enumerate(zip(ways + passes, outcomes, strict=True)):
            slowest = max(slowest, outcome.seconds)
            wrong = problem(way, outcome)
            if wrong is not None:
                found[wrong.partition(",")[0]] += 1
                print(f"{wrong}: {way.name}\n    {repeat} --only {number}", flush=True)
            if chosen.only is not None:
                print(way.arguments, way.files.get("conftest.py"), outcome.output, outcome.exit_code, sep="\n")
    server.close()
    num_passes = len(passes) - found["documented pass"]
    print(
        f"{len(ways)} ways, {found['exit 0']} exit 0, {found['hangs']} hangs, {found['unfair']} unfair; "
        f"{len(passes)} documented passes, {num_passes} pass"
    )
    print(f"{time.monotonic() - start:.0f} s, the slowest {slowest:.1f} s")
    return int(bool(found))


def _run(server: ForkServer, reports: Reports, way: Way, folder: Path) -> Outcome:
    return run(way, server, reports, folder)


if __name__ == "__main__":
    sys.exit(main())
