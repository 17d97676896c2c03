"""Damages every kind of file that the package reads, and sees what sessions and commands make of it.

    python -m tests.faults.damaged_files                       # 3,000 mutants of seed 0; takes about 20 minutes
    python -m tests.faults.damaged_files --count 200 --format store
    python -m tests.faults.damaged_files --seed 0 --only 17 --show        # one of them again, with all that it printed

Each mutant is one file of a small project (``damaged_projects.py``) with changed bytes, lines or values
(``mutations.py``); replies of servers are changed on the wire. A real session of pytest, or the ``llmeval`` command,
reads it in a process of its own, forked and watched by ``confined.py``. Counted, each of which has to be 0:

- tracebacks: in what was printed, also in the report of an internal error, and objects that were never closed;
- odd exit: an exit code that is none of the documented ones, or a process that died;
- over 10 s and over 2 GB: the process with its children, processor time (or a minute in all, as on a machine that does
  other work too waiting says little) and peak of resident memory;
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
import json
import math
import os
import queue
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import mutations
from tests.faults.damaged_projects import BOMBS, MODULES, TOKEN, write_bombs, write_outside, write_project
from tests.faults.damaged_server import DIALECTS, DamagedServer
from tests.faults.mutations import Payloads
from tests.forked import ForkServer
from tests.support import REPOSITORY

__all__ = ["FIGURES", "Case", "Outcome", "faults_of", "main"]

MOST_S = 10.0
MOST_BYTES = 2 << 30
GIVEN_UP_S = 60.0
_KEY = "KEY_OF_STUB"

FIGURES = (
    "tracebacks",
    "odd exit",
    "over 10 s",
    "over 2 GB",
    "code run",
    "read outside",
    "raw controls",
    "silently wrong",
)

_UNUSED = ("cacheprovider", "doctest", "unittest", "pastebin", "stepwise", "legacypath", "setupplan", "setuponly")
_PLAIN = (
    "-p",
    "llmeval_suites",
    *(part for name in _UNUSED for part in ("-p", f"no:{name}")),
    "--color=no",
    "--assert=plain",
)
_MODEL = "--llm-model=python:model.py:Steady"
_SESSION = (*_PLAIN, "--llm-report=out.json")


@dataclass(frozen=True, slots=True)
class Use:
    """What reads the file: ``pytest`` or ``llmeval``, with ``{file}`` in its arguments. ``judge`` compares numbers."""

    kind: str
    arguments: tuple[str, ...]
    judge: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file: how many of 1,000 mutants are of it, the files of the project, how each is used and changed."""

    share: int
    files: tuple[str, ...]
    uses: Callable[[str], Sequence[Use]]
    kind: str


def _session(*arguments: str, judge: str = "") -> Use:
    return Use("pytest", (*_SESSION, *arguments), judge)


def _command(*arguments: str, judge: str = "") -> Use:
    return Use("llmeval", arguments, judge)


_GATES = ("--gate=pets: accuracy >= 0.1", "--gate=sums: accuracy >= 0.2", "--gate=brier <= 0.5", "--format=json")


def _uses_of_report(file: str) -> list[Use]:
    other = "other.json" if file == "report.json" else "report.json"
    uses = [
        *(_command("show", file, f"--format={form}") for form in ("text", "markdown", "json")),
        *(_command("show", file, "--samples=all", f"--format={form}") for form in ("text", "markdown", "json")),
        _command("show", file, "--id=q1", "--prompts"),
        *[_command("compare", other, file, "--format=json", judge="gates")] * 2,
        *[_command("compare", file, other, "--format=json", judge="gates")] * 2,
        *[_command("gate", file, *_GATES, judge="gates")] * 3,
        *[_command("gate", other, f"--baseline={file}", "--format=json", judge="gates")] * 2,
        *(_command("export", file, f"--to={form}", "-o", f"exported.{form}") for form in ("md", "csv", "jsonl")),
        *(_command("export", file, f"--to={form}", "-o", f"exported.{form}") for form in ("parquet", "questions")),
        *[_session(_MODEL, f"--llm-baseline={file}", "pets.yaml", "sums.yaml", judge="baseline")] * 3,
        _session(f"--llm-model=replay:{file}", "pets.yaml", "sums.yaml"),
    ]
    return uses


def _uses_of_shard(file: str) -> list[Use]:
    return [_command("merge", "part1.json", "part2.json", "-o", "merged.json", judge="merged")]


def _uses_of_store(file: str) -> list[Use]:
    return [
        *[_session(_MODEL, "pets.yaml", "sums.yaml", "texts.yaml", "--llm-store=store", judge="session")] * 5,
        _session(_MODEL, "pets.yaml", "sums.yaml", "--llm-store=store", "--llm-store-refresh", judge="session"),
        *(_command("store", action, "store") for action in ("show", "verify", "compact")),
        _command("store", "clear", "store", "--model=python:model.py:Steady"),
        _command("store", "clear", "store", "--older-than=1d"),
    ]


def _uses_of_replay(file: str) -> list[Use]:
    suite = {"replies.jsonl": "sums.yaml", "logged.jsonl": "caps.yaml"}.get(file, "pets.yaml")
    return [
        _session(f"--llm-model=replay:{file}", suite),
        _session(f"--llm-model=replay:{file}?partial=true", suite),
        _session(f"--llm-model=replay:{file}?id=name&response=x", suite),
    ]


def _uses_of_journal(file: str) -> list[Use]:
    return [
        *(use for use in _uses_of_report(file) if "export" not in use.arguments and not use.judge),
        *(Use(use.kind, use.arguments) for use in _uses_of_report(file) if use.judge),
        _session(f"--llm-model=replay:{file}?partial=true", "pets.yaml", "sums.yaml"),
    ]


def _uses_of_suite(file: str) -> list[Use]:
    suite = {"schema.json": "shapes.yaml", "examples.jsonl": "sums.yaml"}.get(file, file)
    return [
        *[_session(_MODEL, suite)] * 4,
        _session(_MODEL, "--llm-show-prompts", suite),
        _session(_MODEL, "."),
        _session("--llm-model=random", suite),
    ]


def _uses_of_task(file: str) -> list[Use]:
    return [
        *[_session(_MODEL, file if file.endswith(".yaml") else "little.yaml")] * 2,
        _session(_MODEL, "--llm-lm-eval", "."),
        _session(_MODEL, "--llm-trust-task-code", file if file.endswith(".yaml") else "little.yaml"),
        _command("convert", file if file.endswith(".yaml") else "little.yaml"),
    ]


_DATA = {
    "rows.jsonl": "jsonl",
    "rows.jsonl.gz": "gz",
    "rows.jsonl.zst": "zst",
    "rows.json": "json",
    "nested.json": "nested",
    "rows.csv": "csv",
    "rows.tsv": "tsv",
    "rows.yaml": "rows",
    "rows.parquet": "parquet",
    "problems/s1.json": "folder",
}


def _uses_of_data(file: str) -> list[Use]:
    uses = [_session(_MODEL, f"data_{_DATA[file]}.yaml")]
    return [*uses, _session(_MODEL, "sums.yaml")] if file == "rows.jsonl" else uses


_SUITES = (
    "pets.yaml",
    "sums.yaml",
    "sums.yaml",
    "shapes.yaml",
    "own_shapes.yaml",
    "phrases.yaml",
    "words.yaml",
    "texts.yaml",
)

FORMATS: Mapping[str, Format] = {
    "suite": Format(180, (*_SUITES, *_SUITES, "schema.json", "examples.jsonl"), _uses_of_suite, "yaml"),
    "data": Format(170, tuple(_DATA), _uses_of_data, "data"),
    "report": Format(170, ("report.json", "other.json"), _uses_of_report, "json"),
    "shard": Format(30, ("part1.json", "part2.json"), _uses_of_shard, "json"),
    "journal": Format(80, ("killed.journal",), _uses_of_journal, "json lines"),
    "store": Format(120, ("store",), _uses_of_store, "store"),
    "replay": Format(80, ("replies.jsonl", "scores.json", "scores.csv", "logged.jsonl"), _uses_of_replay, "data"),
    "task": Format(70, ("little.yaml", "written.yaml", "group.yaml", "task.jsonl"), _uses_of_task, "yaml"),
    "server": Format(70, DIALECTS, lambda _: (), "server"),
    "settings": Format(30, ("pytest.ini", "environment"), lambda _: [_session("pets.yaml")], "settings"),
}

_SETTINGS = (
    *("llm_model", "llm_report", "llm_store", "llm_baseline", "llm_gate", "llm_set", "llm_suite", "llm_model_arg"),
    *(
        "llm_limit",
        "llm_shard",
        "llm_max_drop",
        "llm_alpha",
        "llm_store_max_age",
        "llm_batch_size",
        "llm_report_prompts",
    ),
)
_SETTING_VALUES = (
    *(
        "replay:{secret}",
        "replay:../outside/rows.jsonl",
        "python:../outside/utils.py:run",
        "python:os:system",
        "random?seed=x",
    ),
    *(
        "random?seed=" + "9" * 5000,
        "http://127.0.0.1:9/v1",
        "http://[::1",
        "ollama:",
        "openai:x",
        "python:model.py:Steady?x=\ud800",
    ),
    *(
        "pets.yaml",
        "store",
        "report.json",
        "killed.journal",
        "model.py",
        "out.nope",
        "a: b",
        "pets: accuracy >= 0",
        "1/0",
        "2/1",
    ),
    *(
        "pets: accuracy >= " + "9" * 5000,
        "*: prompt.template={{ 10**10**10 }}",
        "pets: score={json: {schema: {secret}}}",
    ),
    *(
        "pets: prompt.template={% include '{secret}' %}",
        "lm_eval:../../x",
        "lm_eval:" + "x" * 5000,
        "[" * 5000,
        "accuracy=nan",
    ),
    *("!!python/object/apply:os.system ['touch {canary}']", "pets: samples=!!python/object/apply:os.system [x]"),
)


@dataclass(slots=True)
class Case:
    """One mutant: what it is of, what it changes, and what reads it."""

    number: int
    format: str
    file: str
    use: Use
    what: str = ""
    named: str = ""
    """Text of the mutant that names files, of which some may be read."""
    is_readable: bool = False
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it. ``numbers`` are those that the use's judge compares; None where there are none."""

    status: int | None
    output: str
    written: str
    seconds: float
    processor_s: float
    peak_bytes: int
    reached: Sequence[str] = ()
    ran: Sequence[str] = ()
    has_canary: bool = False
    numbers: Mapping[str, Any] | None = None


_LIBRARY_LINE = r"^\S*\.py:\d+: (?:in |(?:\w+\.)*\w*(?:Error|Exception|Warning|Interrupt)\b)"
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\)|INTERNALERROR|Exception ignored in|PytestUnraisable|PytestUnhandled"
    r"|Fatal Python error|never awaited|" + _LIBRARY_LINE,
    re.M,
)
_ERROR = re.compile(r"\w(Error|Exception)\b")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NAMED_PATH = re.compile(
    r"\b(path|include|data_files|data_dir|schema|test|train|validation|split|llm_\w+|PYTEST_LLM\w*)\b[\"']?\s*[:=]"
    r"|^\s*- ",
    re.M,
)
_EXITS = {"pytest": (0, 1, 2, 4, 5), "llmeval": (0, 1, 2)}


def faults_of(case: Case, outcome: Outcome, clean: Mapping[str, Any] | None) -> dict[str, str]:
    """The figures that a case counts for, each with what was seen; ``clean`` are the numbers of the undamaged file."""
    found: dict[str, str] = {}
    if match := _TRACEBACK.search(outcome.output):
        lines = outcome.output[match.start() :].splitlines()
        found["tracebacks"] = " | ".join([lines[0], *(line for line in lines if _ERROR.search(line))][:4])
    if outcome.status not in _EXITS[case.use.kind]:
        found["odd exit"] = f"exit status {outcome.status}"
    if outcome.processor_s > MOST_S or outcome.seconds > GIVEN_UP_S:
        found["over 10 s"] = f"{outcome.processor_s:.1f} s of the processor, {outcome.seconds:.1f} s in all"
    if outcome.peak_bytes > MOST_BYTES:
        found["over 2 GB"] = f"{outcome.peak_bytes / 2**30:.1f} GB"
    if outcome.has_canary or outcome.ran:
        found["code run"] = "; ".join(outcome.ran) or "the canary is there"
    if not _names_files(case):
        if outcome.reached:
            found["read outside"] = ", ".join(sorted(set(outcome.reached))[:3])
        elif TOKEN in outcome.output or TOKEN in outcome.written:
            found["read outside"] = "its content is shown"
    if match := _CONTROLS.search(outcome.output):
        around = outcome.output[max(0, match.start() - 60) : match.end() + 20]
        found["raw controls"] = repr(around)
    if case.use.judge and (wrong := silently_wrong(case, outcome, clean)):
        found["silently wrong"] = wrong
    return found


def _names_files(case: Case) -> bool:
    """Whether a user may have asked for a file elsewhere: by a path in a suite, a task, an option or an ini value."""
    if case.format not in ("suite", "task", "settings"):
        return False
    outside = re.compile(r"outside|/etc/|/dev/|/proc/|\.\.|~|\$HOME|http|\*\*|\"/\"|: /")
    return any(
        _NAMED_PATH.search(line) and outside.search(line) and "{%" not in line and "{{" not in line
        for line in (*case.named.splitlines(), *re.split(r"[,{}]", case.named))
    )


def silently_wrong(case: Case, outcome: Outcome, clean: Mapping[str, Any] | None) -> str:
    """What number is another one although nothing was said; empty where all is well."""
    if outcome.numbers is None or clean is None or case.is_readable:
        return ""
    if (
        outcome.status == 0
        and case.use.judge in ("gates", "baseline")
        and (lost := clean.keys() - outcome.numbers.keys())
    ):
        return f"exit 0 without {sorted(lost)[:2]}"
    for name, value in outcome.numbers.items():
        before = clean.get(name)
        if before is not None and value is not None and not _is_same(value, before):
            return f"{name}: {value} for {before}"
    return ""


def _is_same(one: Any, other: Any) -> bool:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9) if numbers else bool(one == other)


def _numbers_of_gates(gates: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for gate in gates or ():
        name = f"{gate['suite']} {gate['name']}"
        found[name] = None  # there is one
        for key in ("value", "threshold"):
            found[f"{name} {key}"] = gate.get(key)
        for key, value in (gate.get("regression") or {}).items():
            if key in ("n", "baseline", "current", "difference", "num_worse", "num_better", "p_value"):
                found[f"{name} {key}"] = value
    return found


def numbers_for(judge: str, folder: Path, output: str) -> dict[str, Any] | None:
    """What is compared with the undamaged file's: gates, samples or metrics, by suite."""
    try:
        if judge == "gates":
            start = output.find("{")
            return _numbers_of_gates(json.loads(output[start:])["gates"]) if start >= 0 else None
        report = json.loads((folder / ("merged.json" if judge == "merged" else "out.json")).read_bytes())
    except (ValueError, OSError, KeyError, TypeError):
        return None
    if judge == "baseline":
        return _numbers_of_gates([gate for gate in report["gates"] if gate["kind"] == "baseline"])
    if judge == "merged":
        metrics = ((suite["name"], suite["metrics"]) for suite in report["suites"])
        return {f"{suite} {name}": one["value"] for suite, own in metrics for name, one in own.items()}
    found = {}
    for record in report["records"]:
        name = f"{record['suite']} {record['id']}"
        if record["status"] != "unscored":
            found |= {f"{name} status": record["status"], f"{name} output": record["output"]}
            found |= {f"{name} {key}": value for key, value in record["values"].items()}
    return found


class Workplace:
    """The folder in which cases run, one after another: ``case`` is the project of the current one."""

    def __init__(self, folder: Path, server: ForkServer, like: Workplace | None = None) -> None:
        """``like`` is another one, whose files are copied."""
        folder.mkdir()
        self.folder, self.server = folder, server
        self.case, self.outside, self.base = folder / "case", folder / "outside", folder / "base"
        self.bombs = folder / "bombs" if like is None else like.bombs
        self.canary = folder / "ran"
        self.payloads = Payloads(canary=str(self.canary), secret=str(self.outside / "secret.txt"))
        self._clean: dict[Use, Mapping[str, Any] | None] = {}
        write_outside(self.outside, self.canary)
        if like is not None:
            shutil.copytree(like.base, self.base)
            return
        write_bombs(self.bombs)
        write_project(self.base)
        self._make_results()

    def _make_results(self) -> None:
        """Reports, shards, a journal and a store, by sessions on the undamaged project."""
        suites = ("pets.yaml", "sums.yaml", "texts.yaml")
        runs: tuple[tuple[str, ...], ...] = (
            ("--llm-report=report.json", "--llm-store=store", *suites),
            ("--llm-report=other.json", "--llm-set=sums: generate.max_tokens=7", *suites),
            ("--llm-report=part1.json", "--llm-shard=1/2", *suites),
            ("--llm-report=part2.json", "--llm-shard=2/2", *suites),
            ("--llm-report=killed.json", *suites[::-1]),
        )
        for number, arguments in enumerate(runs):
            self.refresh()
            if number == 4:
                (self.case / "kill").write_text("What is 2 + 2?")
            outcome = self.run(Case(-1, "", "", Use("pytest", (*_PLAIN, _MODEL, *arguments))))
            expected = (None,) if number == 4 else (0, 1)
            if outcome.status not in expected:
                raise RuntimeError(f"the undamaged project does not work: {arguments}\n{outcome.output}")
            for made in ("report.json", "other.json", "part1.json", "part2.json"):
                if (self.case / made).exists():
                    shutil.copy(self.case / made, self.base / made)
        (journal,) = self.case.glob("killed*journal*")
        shutil.copy(journal, self.base / "killed.journal")
        self.refresh()
        self.run(Case(-1, "", "", Use("pytest", (*_PLAIN, _MODEL, *suites, "--llm-store=store"))))
        shutil.copytree(self.case / "store", self.base / "store")

    def refresh(self) -> None:
        """The undamaged project, in the place of what the case before has left."""
        if not self.case.exists():
            self.case.mkdir()
            (self.case / "link.jsonl").symlink_to(self.outside / "rows.jsonl")
            (self.case / "loop.jsonl").symlink_to("loop.jsonl")
            os.mkfifo(self.case / "pipe.jsonl")
            for bomb in BOMBS:
                (self.case / bomb).symlink_to(self.bombs / bomb)
        own = _states(self.base)
        for name, state in sorted(_states(self.case).items(), reverse=True):
            path = self.case / name
            if (
                (name in own and state == own[name])
                or path.is_fifo()
                or (path.is_symlink() and path.parent == self.case)
            ):
                continue
            shutil.rmtree(path) if state is None and not path.is_symlink() else path.unlink()
        left = _states(self.case)
        for name, state in sorted(own.items()):
            if name not in left and state is None:
                (self.case / name).mkdir(mode=0o700)
            elif name not in left:
                shutil.copy2(self.base / name, self.case / name)
        self.canary.unlink(missing_ok=True)

    def run(self, case: Case) -> Outcome:
        """Run a case whose files are in place."""
        result, printed = self.folder / "result.json", self.folder / "printed.txt"
        result.unlink(missing_ok=True)
        roots = [
            self.case,
            self.bombs,
            REPOSITORY,
            Path(tempfile.gettempdir()) / "pytest-of-",
            sys.prefix,
            sys.base_prefix,
        ]
        spec = {
            "kind": case.use.kind,
            "arguments": list(case.use.arguments),
            "result": str(result),
            "own": str(self.case),
            "environment": {
                **self.server.environment,
                **case.environment,
                "TMPDIR": str(self.case),
                _KEY: "sk-0123456789abcdef",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            "roots": [str(root) + os.sep for root in (*roots, *_library_folders())],
            "modules": MODULES,
        }
        before = set(self.case.rglob("*"))
        started = time.monotonic()
        with printed.open("wb") as output, open(os.devnull, "rb") as nothing:
            process = self.server.start(
                _CONFINED,
                [json.dumps(spec)],
                stdin=nothing.fileno(),
                stdout=output.fileno(),
                stderr=output.fileno(),
            )
            try:
                process.wait(GIVEN_UP_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                seconds = time.monotonic() - started
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        found: dict[str, Any] = {"status": None, "processor_s": 0.0, "peak_bytes": 0, "reached": [], "ran": []}
        with suppress(OSError, ValueError):
            found.update(json.loads(result.read_text("utf-8")))
        text = printed.read_bytes()[:20_000_000].decode("utf-8", "replace")
        return Outcome(
            **found,
            output=text,
            written=self._written(before),
            seconds=seconds,
            has_canary=self.canary.exists(),
            numbers=numbers_for(case.use.judge, self.case, text) if case.use.judge else None,
        )

    def _written(self, before: set[Path]) -> str:
        made = [path for path in self.case.rglob("*") if path not in before and not path.is_symlink()]
        small = [path for path in made if path.is_file() and path.stat().st_size < 50_000_000]
        return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in small)

    def clean(self, use: Use) -> Mapping[str, Any] | None:
        """The numbers of this use on the undamaged project."""
        if use not in self._clean:
            self.refresh()
            self._clean[use] = self.run(Case(-1, "", "", use)).numbers
        return self._clean[use]


def _states(folder: Path) -> dict[str, tuple[int, int] | None]:
    """The parts of a folder: size and time of files, None for folders."""
    found: dict[str, tuple[int, int] | None] = {}
    for above, folders, files in os.walk(folder):
        prefix = os.path.relpath(above, folder)
        for name in files:
            status = os.lstat(os.path.join(above, name))
            found[os.path.normpath(os.path.join(prefix, name))] = (status.st_size, status.st_mtime_ns)
        found |= {os.path.normpath(os.path.join(prefix, name)): None for name in folders}
    return found


def _library_folders() -> list[str]:
    return sorted({os.path.realpath(path) for path in sys.path if path and "site-packages" in path})


_CONFINED = Path(__file__).with_name("confined.py").read_text(encoding="utf-8")


def drawn_case(number: int, seed: int, chosen: Sequence[str] = ()) -> tuple[Case, random.Random]:
    """The case of a number: always the same for a seed. ``chosen``: only of these formats."""
    draw = random.Random(f"{seed} {number} {','.join(chosen)}")
    names = list(chosen or FORMATS)
    (name,) = draw.choices(names, [FORMATS[one].share for one in names])
    file = draw.choice(FORMATS[name].files)
    uses = FORMATS[name].uses(file)
    return Case(number, name, file, draw.choice(uses) if uses else _session(judge="session")), draw


def damage(case: Case, draw: random.Random, place: Workplace) -> None:
    """Change the file in the place's project, and note how."""
    payloads = place.payloads
    kind = FORMATS[case.format].kind
    if kind == "settings":
        _damage_settings(case, draw, place)
        return
    if kind == "store":
        _damage_store(case, draw, place)
        return
    path = place.case / case.file
    if kind == "data" and draw.random() < 0.04 and case.format == "data":
        fitting = [bomb for bomb in BOMBS if bomb.split(".", 1)[1] == case.file.split(".", 1)[1]] or list(BOMBS[2:5])
        bomb = draw.choice(fitting)
        suite = place.case / f"data_{_DATA[case.file]}.yaml"
        suite.write_text(suite.read_text().replace(f"path: {case.file}", f"path: {bomb}"))
        case.what = f"the bomb {bomb}"
        return
    data = path.read_bytes()
    data, case.what = _damaged(data, path.suffix, draw, payloads, case.format)
    path.write_bytes(data)
    case.named = data[:2_000_000].decode("utf-8", "replace")


def _damaged(data: bytes, suffix: str, draw: random.Random, payloads: Payloads, format_: str) -> tuple[bytes, str]:
    def hostile(at: tuple[Any, ...]) -> Any:
        if format_ == "suite" and draw.random() < 0.3:
            return draw.choice(payloads.schemas)
        if draw.random() < 0.1:
            return draw.choice((*payloads.templates, *payloads.paths, *payloads.regexes))
        return draw.choice(payloads.scalars)

    chance = draw.random()
    if chance < 0.2:
        return mutations.damaged_bytes(data, draw)
    if chance < 0.32:
        texts = payloads.yaml if suffix in (".yaml", ".yml") else ()
        return mutations.damaged_lines(data, draw, [f"x: {text}" for text in texts])
    match suffix:
        case ".yaml" | ".yml" if format_ in ("suite", "task") or draw.random() < 0.5:
            special: list[Any] = [*payloads.templates, *payloads.paths, *payloads.regexes]
            special += payloads.schemas if format_ == "suite" else ()
            special += draw.sample([one for one in payloads.scalars if _is_plain(one)], 30)
            return mutations.damaged_yaml(data, draw, payloads, special)
        case ".json":
            return mutations.damaged_json(data, draw, hostile)
        case ".jsonl" | ".journal":
            return mutations.damaged_json_lines(data, draw, hostile)
        case ".csv" | ".tsv":
            return _damaged_table(data, draw, payloads)
        case _:
            return mutations.damaged_bytes(data, draw)


def _is_plain(value: Any) -> bool:
    return not (isinstance(value, float) and not math.isfinite(value))


def _damaged_table(data: bytes, draw: random.Random, payloads: Payloads) -> tuple[bytes, str]:
    cells = re.split(rb"([,\t\n])", data)
    place = draw.randrange(len(cells))
    new = draw.choice((*payloads.scalars, '"', '""', '"a', 'a"b', '"a\nb"', ",", "\t", ",".join("x" * 5000)))
    text = new if isinstance(new, str) else json.dumps(new)
    cells[place] = text.encode("utf-8", "surrogatepass")
    return b"".join(cells), f"cell {place} becomes {text[:60]!r}"


def _damage_store(case: Case, draw: random.Random, place: Workplace) -> None:
    """A store file: bytes as all files, or a whole line with other values under a right checksum (``resealed``)."""
    folder = place.case / "store"
    (path,) = folder.glob("replies-*.jsonl")
    data = path.read_bytes()
    chance = draw.random()
    if chance < 0.1:
        how = draw.choice(("link", "folder", "pipe", "empty", "many", "twice"))
        case.what = f"the store: {how}"
        strange = folder / "replies-0123456789abcdef.jsonl"
        if how == "link":
            strange.symlink_to(place.outside / "secret.txt")
        elif how == "folder":
            strange.mkdir()
        elif how == "pipe":
            os.mkfifo(strange)
        elif how == "empty":
            path.write_bytes(b"")
        elif how == "twice":
            shutil.copy(path, strange)
        else:
            path.write_bytes(data * 200)
    elif chance < 0.45:
        lines = data.split(b"\n")
        at = draw.randrange(len(lines) - 1)
        value, done = mutations.damaged_value(
            json.loads(lines[at]), draw, lambda _: draw.choice(place.payloads.scalars)
        )
        if isinstance(value, dict) and draw.random() < 0.8:  # in their order, so that the head is where it was
            value.pop("crc", None)
            checked = json.dumps(value, separators=(",", ":"))[1:].encode("ascii")
            lines[at] = b'{"crc":"%08x",%b' % (zlib.crc32(checked), checked)
            done += ", resealed"
            case.is_readable = True
        else:
            lines[at] = json.dumps(value, separators=(",", ":")).encode("ascii")
        path.write_bytes(b"\n".join(lines))
        case.what = f"line {at + 1}: {done}"
    else:
        data, case.what = mutations.damaged_bytes(data, draw) if chance < 0.8 else mutations.damaged_lines(data, draw)
        path.write_bytes(data)


def _damage_settings(case: Case, draw: random.Random, place: Workplace) -> None:
    """An ini file or environment variables with hostile values."""
    special = [
        *_SETTING_VALUES,
        *place.payloads.paths,
        *(one for one in place.payloads.scalars if isinstance(one, str)),
    ]
    lines = {}
    for name in draw.sample(_SETTINGS, draw.choice((1, 1, 2))):
        value = draw.choice(special).replace("{secret}", place.payloads.secret).replace("{canary}", str(place.canary))
        lines[name] = value
    lines.setdefault("llm_model", "python:model.py:Steady")
    case.what = ", ".join(f"{name} = {value[:60]!r}" for name, value in lines.items())
    case.named = "\n".join(f"{name} = {value}" for name, value in lines.items())
    if case.file == "environment":
        safe = {f"PYTEST_{name.upper()}": value.replace("\0", "")[:100_000] for name, value in lines.items()}
        case.environment = {name: value.encode("utf-8", "replace").decode() for name, value in safe.items()}
        return
    text = "[pytest]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())
    data = text.encode("utf-8", "replace")
    if draw.random() < 0.2:
        data, done = mutations.damaged_bytes(data, draw)
        case.what += f"; {done}"
    (place.case / "pytest.ini").write_bytes(data.decode("utf-8", "replace").encode())


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
        model = f"--llm-model={url}?timeout=3&max_connections=1&api_key_env={_KEY}&dialect={case.file}"
        return _session(model if draw_dialect else model.rpartition("&")[0], *suites, judge="session")

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
            model = f"--llm-model={server.url}?timeout=3&max_connections=1&api_key_env={_KEY}&dialect={dialect}"
            _CLEAN_OF_SERVERS[key] = place.run(
                Case(-1, "server", dialect, _session(model, *suites, judge="session"))
            ).numbers
    return _CLEAN_OF_SERVERS[key]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 where a figure is not 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--count", type=int, default=3000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--only", type=int, help="only the mutant of this number")
    parser.add_argument("--format", action="append", choices=list(FORMATS), help="only of this format; may be repeated")
    parser.add_argument("--show", action="store_true", help="print what the sessions and commands printed")
    options = parser.parse_args(arguments)
    chosen = options.format or ()
    numbers = [options.only] if options.only is not None else range(options.first, options.first + options.count)
    by_format: dict[str, Counter[str]] = {name: Counter() for name in chosen or FORMATS}
    started = time.monotonic()
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
            case, outcome, found = future.result()
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
    return int(any(counts[figure] for figure in FIGURES))


if __name__ == "__main__":
    sys.exit(main())
