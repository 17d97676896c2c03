"""Every kind of file that is damaged: where it is in the project, and the sessions and commands that read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.damaged_server import DIALECTS

__all__ = ["DATA_SUITES", "FORMATS", "KEY", "PLAIN", "STEADY", "Case", "Format", "Use", "session"]

KEY = "KEY_OF_STUB"
"""The variable that holds the key of stub servers."""

_UNUSED = ("cacheprovider", "doctest", "unittest", "pastebin", "stepwise", "legacypath", "setupplan", "setuponly")
PLAIN = (
    "-p",
    "llmeval_suites",
    *(part for name in _UNUSED for part in ("-p", f"no:{name}")),
    "--color=no",
    "--assert=plain",
)
STEADY = "--llm-model=python:model.py:Steady"
_SESSION = (*PLAIN, "--llm-report=out.json")


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


def session(*arguments: str, judge: str = "") -> Use:
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
        *[session(STEADY, f"--llm-baseline={file}", "pets.yaml", "sums.yaml", judge="baseline")] * 3,
        session(f"--llm-model=replay:{file}", "pets.yaml", "sums.yaml"),
    ]
    return uses


def _uses_of_shard(file: str) -> list[Use]:
    return [_command("merge", "part1.json", "part2.json", "-o", "merged.json", judge="merged")]


def _uses_of_store(file: str) -> list[Use]:
    return [
        *[session(STEADY, "pets.yaml", "sums.yaml", "texts.yaml", "--llm-store=store", judge="session")] * 5,
        session(STEADY, "pets.yaml", "sums.yaml", "--llm-store=store", "--llm-store-refresh", judge="session"),
        *(_command("store", action, "store") for action in ("show", "verify", "compact")),
        _command("store", "clear", "store", "--model=python:model.py:Steady"),
        _command("store", "clear", "store", "--older-than=1d"),
    ]


def _uses_of_replay(file: str) -> list[Use]:
    suite = {"replies.jsonl": "sums.yaml", "logged.jsonl": "caps.yaml"}.get(file, "pets.yaml")
    return [
        session(f"--llm-model=replay:{file}", suite),
        session(f"--llm-model=replay:{file}?partial=true", suite),
        session(f"--llm-model=replay:{file}?id=name&response=x", suite),
    ]


def _uses_of_journal(file: str) -> list[Use]:
    return [
        *(use for use in _uses_of_report(file) if "export" not in use.arguments and not use.judge),
        *(Use(use.kind, use.arguments) for use in _uses_of_report(file) if use.judge),
        session(f"--llm-model=replay:{file}?partial=true", "pets.yaml", "sums.yaml"),
    ]


def _uses_of_suite(file: str) -> list[Use]:
    suite = {"schema.json": "shapes.yaml", "examples.jsonl": "sums.yaml"}.get(file, file)
    return [
        *[session(STEADY, suite)] * 4,
        session(STEADY, "--llm-show-prompts", suite),
        session(STEADY, "."),
        session("--llm-model=random", suite),
    ]


def _uses_of_task(file: str) -> list[Use]:
    return [
        *[session(STEADY, file if file.endswith(".yaml") else "little.yaml")] * 2,
        session(STEADY, "--llm-lm-eval", "."),
        session(STEADY, "--llm-trust-task-code", file if file.endswith(".yaml") else "little.yaml"),
        _command("convert", file if file.endswith(".yaml") else "little.yaml"),
    ]


DATA_SUITES = {
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
    uses = [session(STEADY, f"data_{DATA_SUITES[file]}.yaml")]
    return [*uses, session(STEADY, "sums.yaml")] if file == "rows.jsonl" else uses


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
    "data": Format(170, tuple(DATA_SUITES), _uses_of_data, "data"),
    "report": Format(170, ("report.json", "other.json"), _uses_of_report, "json"),
    "shard": Format(30, ("part1.json", "part2.json"), _uses_of_shard, "json"),
    "journal": Format(80, ("killed.journal",), _uses_of_journal, "json lines"),
    "store": Format(120, ("store",), _uses_of_store, "store"),
    "replay": Format(80, ("replies.jsonl", "scores.json", "scores.csv", "logged.jsonl"), _uses_of_replay, "data"),
    "task": Format(70, ("little.yaml", "written.yaml", "group.yaml", "task.jsonl"), _uses_of_task, "yaml"),
    "server": Format(70, DIALECTS, lambda _: (), "server"),
    "settings": Format(30, ("pytest.ini", "environment"), lambda _: [session("pets.yaml")], "settings"),
}


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
