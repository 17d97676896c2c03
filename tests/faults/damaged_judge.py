"""What counts as a fault of the package when it has read a damaged file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.damaged_formats import Case
from tests.faults.damaged_projects import TOKEN

__all__ = ["FIGURES", "MOST_S", "Outcome", "faults_of", "numbers_for"]

MOST_S = 10.0
MOST_BYTES = 2 << 30
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it.

    ``limit_s`` is how many ``seconds`` it may take on the machine as it is. ``numbers`` are those that the use's judge
    compares; None where there are none.
    """

    status: int | None
    output: str
    written: str
    seconds: float
    processor_s: float
    limit_s: float = MOST_S
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
    if outcome.processor_s > MOST_S or outcome.seconds > outcome.limit_s:
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
    found: dict[str, Any] = {}
    for record in report["records"]:
        name = f"{record['suite']} {record['id']}"
        if record["status"] != "unscored":
            found |= {f"{name} status": record["status"], f"{name} output": record["output"]}
            found |= {f"{name} {key}": value for key, value in record["values"].items()}
    return found
