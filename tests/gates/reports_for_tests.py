"""Reports made by hand, of suites whose samples are right, wrong, unscored or numbers, and their comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pytest_llmeval.gates.baseline import compare_reports
from pytest_llmeval.gates.earlier_reports import EarlierReports
from pytest_llmeval.gates.options import BaselineSettings, GateOptions, Margin, Selection
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import GateResult, Report, SuiteReport, definitions_of
from pytest_llmeval.reporting.report.summaries import summarize_suite
from pytest_llmeval.types import JSON

Outcome: TypeAlias = bool | Mapping[str, float] | None
"""Right or wrong, the values of what is neither, or unscored."""


@dataclass(frozen=True)
class Ran:
    """One suite of a session."""

    suite: SuiteReport
    records: tuple[Record, ...]


def ran(
    outcomes: Mapping[str, Outcome] | Sequence[Outcome],
    name: str = "s",
    *,
    model: str = "m",
    num_expected: int | None = None,
    num_skipped: int = 0,
    fingerprint: str | None = "same",
    changed: Sequence[str] = (),
    clusters: Mapping[str, str] | None = None,
    **info: Any,
) -> Ran:
    """A suite that ran; ids are 0, 1, … where ``outcomes`` names none. A sample of ``changed`` is another one."""
    named = outcomes if isinstance(outcomes, Mapping) else {str(place): one for place, one in enumerate(outcomes)}
    records = tuple(
        Record(
            suite=name,
            id=sample_id,
            nodeid=f"{name}.yaml::{sample_id}",
            model=model,
            fingerprint=None if fingerprint is None else sample_id + ("'" if sample_id in changed else ""),
            cluster=(clusters or {}).get(sample_id),
            **_judged(outcome),
        )
        for sample_id, outcome in named.items()
    )
    own = {"path": f"{name}.yaml", "num_samples": None if fingerprint is None else len(named), **info}
    metrics = tuple(dict.fromkeys(metric for record in records for metric in record.values)) or ("accuracy",)
    suite = summarize_suite(
        SuiteInfo(name=name, fingerprint=fingerprint, **{"metrics": metrics, **own}),
        records,
        num_expected=len(records) if num_expected is None else num_expected,
        num_skipped=num_skipped,
        model=model,
    )
    return Ran(suite, records)


def report(
    *suites: Ran,
    stopped: str | None = None,
    problems: Sequence[str] = (),
    definitions: Mapping[str, Any] | None = None,
    **more: Any,
) -> Report:
    """A session of these suites; ``definitions`` replaces what it says of its metrics."""
    models = list(dict.fromkeys(model for one in suites for model in one.suite.models))
    options: dict[str, JSON] = {"model": list(models), **more.pop("options", {})}
    reports = tuple(one.suite for one in suites)
    return Report(
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        environment={},
        models=more.pop("models", ()),
        options=options,
        exit_code=0,
        suites=reports,
        records=tuple(record for one in suites for record in one.records),
        stopped=stopped,
        problems=tuple(problems),
        definitions=definitions_of(reports) if definitions is None else definitions,
        **more,
    )


def answers(n: int, *, right: int, lost: int = 0, gained: int = 0) -> tuple[list[Outcome], list[Outcome]]:
    """What ``n`` samples were and are: ``right`` of them were, of which ``lost`` are wrong now, and others right."""
    before = [place < right for place in range(n)]
    after = [place >= lost if place < right else place < right + gained for place in range(n)]
    return list(before), list(after)


def _judged(outcome: Outcome) -> dict[str, Any]:
    if outcome is None:
        return {"status": "unscored", "reason": "the model raised"}
    if isinstance(outcome, bool):
        return {"status": "correct" if outcome else "wrong", "values": {"accuracy": float(outcome)}}
    return {"status": "scored", "values": dict(outcome)}


DEFAULT = BaselineSettings()
COMMON = BaselineSettings(compare="common")


def compared(before: Report, after: Report, settings: BaselineSettings = DEFAULT, **options: Any) -> list[GateResult]:
    """``options`` are those of ``GateOptions`` and ``Selection``."""
    chosen = {name: options.pop(name) for name in ("covers",) if name in options}
    selection = Selection(is_partial=options.pop("is_selection", False), **chosen)
    earlier = EarlierReports.of([("before.json", before)])
    return list(compare_reports(earlier, after, GateOptions(comparison=settings, **options), selection))


def the_one(before: Ran, after: Ran, settings: BaselineSettings = DEFAULT, **options: Any) -> GateResult:
    (result,) = compared(report(before), report(after), settings, **options)
    return result


def margins(*texts: str, **settings: Any) -> BaselineSettings:
    return BaselineSettings(margins=tuple(map(Margin.parse, texts)), **settings)


def outcomes(results: list[GateResult]) -> list[tuple[str | None, str, str]]:
    return [(result.suite, result.name, result.outcome) for result in results]
