"""Reports for the tests of commands: made by hand, with numbers computed as a session computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import Comparison, Report, SuiteReport, definitions_of
from pytest_llmeval.reporting.report.summaries import average_suites, compare_models, summarize_suite
from pytest_llmeval.reporting.storage.report_file import write_report

MODEL: dict[str, Any] = {
    "name": "demo",
    "backend": "huggingface",
    "revision": None,
    "dtype": "float32",
    "device": "cpu",
    "fingerprint": "aa",
    "details": {},
}


def info(name: str, **values: Any) -> SuiteInfo:
    settings: dict[str, Any] = {
        "name": name,
        "path": f"suites/{name}.yaml",
        "scorer": "exact",
        "fingerprint": f"{name}-fingerprint",
        "metrics": ("accuracy", "correct", "total"),
        **values,
    }
    return SuiteInfo(**settings)


def sample(suite: str, id: str, status: str = "correct", **values: Any) -> Record:
    right = {"correct": 1.0, "wrong": 0.0}
    settings: dict[str, Any] = {
        "suite": suite,
        "id": id,
        "nodeid": f"suites/{suite}.yaml::{id}",
        "status": status,
        "model": "demo",
        "question": f"question {id}?",
        "target": "yes",
        "answer": {"correct": "yes", "wrong": "no"}.get(status),
        "values": {"accuracy": right[status]} if status in right else {},
        "fingerprint": f"{suite}-{id}",
        "seconds": 0.5,
        "num_tokens": 2,
        "num_prompt_tokens": 3,
        **values,
    }
    return Record(**settings)


def samples(suite: str, statuses: str, start: int = 1, **values: Any) -> list[Record]:
    """One for each letter: ``c`` is correct, ``w`` wrong, ``u`` unscored."""
    names = {"c": "correct", "w": "wrong", "u": "unscored"}
    return [sample(suite, f"q{start + place}", names[letter], **values) for place, letter in enumerate(statuses)]


def report_of(
    records: Sequence[Record],
    infos: Sequence[SuiteInfo] | None = None,
    *,
    num_whole: Mapping[str, int] | None = None,
    models: Sequence[Mapping[str, Any]] = (MODEL,),
    **values: Any,
) -> Report:
    """A session's report of these records: every suite on each of ``models``, where these are several.

    ``num_whole`` is how many samples a suite has, where that is more than those of ``records``.
    """
    names = [str(model["name"]) for model in models]
    several = len(names) > 1
    infos = infos or [info(name) for name in dict.fromkeys(record.suite for record in records)]
    suites: list[SuiteReport] = []
    comparisons: list[Comparison] = []
    for one in infos:
        own = [record for record in records if record.suite == one.name]
        whole = (num_whole or {}).get(one.name, len({record.id for record in own}))
        by_model = {name: [record for record in own if not several or record.model == name] for name in names}
        for name, members in by_model.items():
            suites.append(
                summarize_suite(
                    replace(one, num_samples=whole), members, num_expected=len(members), num_skipped=0, model=name
                )
            )
        comparisons += compare_models(one.name, by_model, names, one.metrics) if several else []
    settings: dict[str, Any] = {
        "created": "2026-11-22T00:30:15+00:00",
        "seconds": 12.5,
        "environment": {"python": "3.11.7", "versions": {"torch": "2.13.0"}},
        "models": tuple(models),
        "options": {"model": names},
        "exit_code": int(any(record.status == "unscored" for record in records)),
        "definitions": definitions_of(suites),
        "suites": tuple(suites),
        "comparisons": tuple(comparisons),
        "averages": average_suites(suites, records),
        "records": tuple(records),
        **values,
    }
    return Report(**settings)


def saved(folder: Path, name: str, report: Report) -> str:
    path = folder / name
    write_report(report, path)
    return str(path)
