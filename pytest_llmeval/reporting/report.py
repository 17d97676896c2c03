"""The session's report: one JSON document with a schema version."""

from __future__ import annotations

import json
import math
import platform
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path

from pytest_llmeval.errors import ReportError
from pytest_llmeval.models.base import EngineUse
from pytest_llmeval.reporting.gate_results import GateResult
from pytest_llmeval.reporting.records import Record, SuiteInfo
from pytest_llmeval.reporting.whole_file import whole_file
from pytest_llmeval.scoring.calibration import ReliabilityBin, reliability
from pytest_llmeval.scoring.comparison import Difference, compare
from pytest_llmeval.scoring.metrics import Metric, by_category, expanded, summarize
from pytest_llmeval.scoring.percentiles import Percentiles
from pytest_llmeval.types import JSON

__all__ = [
    "SCHEMA_VERSION",
    "Averages",
    "Comparison",
    "Report",
    "SuiteReport",
    "Summary",
    "check_writable",
    "compare_models",
    "counted_suite",
    "describe_environment",
    "summarize_suite",
    "write_report",
]

SCHEMA_VERSION = 2
"""Grows when a reader of older reports would misread newer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts and metrics over some samples: a suite's, or one category's.

    ``num_expected`` were to run (selected and not skipped); ``num_scored`` of them were judged.
    """

    num_expected: int
    num_scored: int
    num_unscored: int
    num_no_answer: int
    metrics: Mapping[str, Metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteReport:
    """What the session found about one suite; where several models were given, on one of them.

    ``models`` names those that answered it: one, unless its numbers mix them. Token counts and seconds are sums over
    its records. ``macro`` are its metrics' means over its categories, every category counting alike. ``engine`` is how
    its log-likelihoods were computed, where the model tells. ``reliability`` are the bins of its expected calibration
    error, where its scorer gives probabilities. ``latency`` is of the model's seconds for a sample,
    ``tokens_per_second`` of all its tokens by its seconds; of the samples that took any.
    """

    info: SuiteInfo
    summary: Summary
    categories: Mapping[str, Summary]
    macro: Mapping[str, float] = field(default_factory=dict)
    num_skipped: int = 0
    models: tuple[str, ...] = ()
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    engine: EngineUse | None = None
    reliability: tuple[ReliabilityBin, ...] | None = None
    latency: Percentiles | None = None
    tokens_per_second: Percentiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One suite on two models, over the samples that both scored: ``differences`` by metric, second minus first."""

    suite: str
    first: str
    second: str
    differences: Mapping[str, Difference]


@dataclass(frozen=True, slots=True, kw_only=True)
class Averages:
    """Metrics over the suites of one model (None where there is one): of each that at least two suites have.

    ``macro`` has every suite count alike, ``micro`` every sample; a macro average's ``n`` counts suites.
    """

    model: str | None
    macro: Mapping[str, Metric]
    micro: Mapping[str, Metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole session.

    ``created`` is its start, ISO 8601 in UTC. ``stopped`` says why it ended early; ``problems`` are what makes its
    numbers incomplete. ``records`` may lie on disk and be read when they are asked for; those of a session that is
    still to be written hold no texts.
    """

    created: str
    seconds: float
    environment: Mapping[str, JSON]
    models: tuple[Mapping[str, JSON], ...]
    options: Mapping[str, JSON]
    exit_code: int
    suites: tuple[SuiteReport, ...]
    comparisons: tuple[Comparison, ...] = ()
    averages: tuple[Averages, ...] = ()
    gates: tuple[GateResult, ...] = ()
    records: Sequence[Record] = field(repr=False)
    stopped: str | None = None
    problems: tuple[str, ...] = ()
    schema: int = SCHEMA_VERSION


def summarize_suite(
    info: SuiteInfo,
    records: Sequence[Record],
    *,
    num_expected: int,
    num_skipped: int,
    model: str | None = None,
    engine: EngineUse | None = None,
) -> SuiteReport:
    """One suite's part of the report, broken down by category where its samples have one.

    ``model`` names the one that was to answer it, whether it did or not; None where only the records know.
    ``ValueError`` and others for values that are no scorer's of ours: ``counted_suite`` is the report without metrics.
    """
    scores = [record.score for record in records]
    info = replace(info, metrics=expanded(info.metrics, scores))
    metrics = by_category(scores, [record.category for record in records], info.metrics)
    counted = counted_suite(
        info, records, num_expected=num_expected, num_skipped=num_skipped, model=model, engine=engine
    )
    by_name: dict[str, list[Record]] = {}
    for record in records:
        if record.category is not None:
            by_name.setdefault(record.category, []).append(record)
    return replace(
        counted,
        info=info,
        summary=_summary(records, summarize(scores, info.metrics), num_expected),
        categories={name: _summary(by_name[name], metrics[name], len(by_name[name])) for name in metrics},
        macro=_macro(metrics.values()),
        reliability=reliability(scores) if "ece" in info.metrics else None,
    )


def counted_suite(
    info: SuiteInfo,
    records: Sequence[Record],
    *,
    num_expected: int,
    num_skipped: int,
    model: str | None = None,
    engine: EngineUse | None = None,
) -> SuiteReport:
    """``summarize_suite`` without metrics and categories: only what is counted of the records."""
    answered = [record.model for record in records if record.model is not None]
    return SuiteReport(
        info=replace(info, metrics=()),
        summary=_summary(records, {}, num_expected),
        categories={},
        num_skipped=num_skipped,
        models=tuple(dict.fromkeys(answered if model is None else (model, *answered))),
        num_prompt_tokens=sum(record.num_prompt_tokens for record in records),
        num_tokens=sum(record.num_tokens for record in records),
        seconds=math.fsum(record.seconds for record in records),
        engine=engine,
    )


def compare_models(
    suite: str, records: Mapping[str, Sequence[Record]], models: Sequence[str], metrics: Sequence[str]
) -> Iterator[Comparison]:
    """The suite on each of ``models`` against the first of them; ``records`` are those of the suite, by model."""
    scores = {model: {record.id: record.score for record in members} for model, members in records.items()}
    for second in models[1:]:
        differences = compare(scores.get(models[0], {}), scores.get(second, {}), metrics)
        if differences:
            yield Comparison(suite=suite, first=models[0], second=second, differences=differences)


def _macro(categories: Iterable[Mapping[str, Metric]]) -> dict[str, float]:
    """Each metric's mean over the categories, every one counting alike; only of metrics that each of them has."""
    parts = list(categories)
    if len(parts) < 2:
        return {}
    values = {name: [part[name].value for part in parts] for name, metric in parts[0].items() if metric.kind != "count"}
    return {
        name: math.fsum(found) / len(found)
        for name, found in ((name, [value for value in some if value is not None]) for name, some in values.items())
        if len(found) == len(parts)
    }


def _summary(records: Sequence[Record], metrics: Mapping[str, Metric], num_expected: int) -> Summary:
    num_unscored = sum(record.status == "unscored" for record in records)
    return Summary(
        num_expected=num_expected,
        num_scored=len(records) - num_unscored,
        num_unscored=num_unscored,
        num_no_answer=sum(record.no_answer for record in records),
        metrics=metrics,
    )


_VERSIONED = (
    *("pytest-llmeval-suites", "pytest", "pytest-xdist"),
    *("torch", "transformers", "tokenizers", "peft"),
    *("sacrebleu", "rouge-score", "nltk", "math-verify"),
)
"""Distributions that decide what a model answers, or what number an answer gets."""


def describe_environment() -> dict[str, JSON]:
    """Versions of what a number can depend on, read without importing any of it."""
    versions: dict[str, JSON] = {}
    for name in _VERSIONED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), "platform": platform.platform(), "versions": versions}


def check_writable(path: Path) -> None:
    """Find out before a long run that its report could not be written. Raises ``ReportError``."""
    if path.is_dir():
        raise ReportError(f"cannot write the report {path}: it is a folder; name a file in it")
    folder = path.parent
    if not folder.is_dir():
        raise ReportError(f"cannot write the report {path}: there is no folder {folder}; create it first")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        if path.exists():
            with path.open("ab"):
                pass
    except OSError as error:
        raise ReportError(f"cannot write the report {path}: {error.strerror}") from None


def write_report(report: Report, path: Path) -> None:
    """Write the report: ``path`` holds the old content or all of the new, never a part. Raises ``ReportError``."""
    with whole_file(path) as file:
        file.writelines(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    """The report as JSON, one record a line. A number that JSON cannot hold (an infinite loglikelihood) is null."""
    head = {
        "schema": report.schema,
        "created": report.created,
        "seconds": report.seconds,
        "exit_code": report.exit_code,
        "stopped": report.stopped,
        "problems": list(report.problems),
        "environment": report.environment,
        "models": report.models,
        "options": report.options,
        "suites": [_suite_to_json(suite) for suite in report.suites],
        "comparisons": [_comparison_to_json(comparison) for comparison in report.comparisons],
    }
    yield json.dumps(_finite(head), indent=1).removesuffix("\n}") + ',\n "records": ['
    for place, record in enumerate(report.records):
        yield ("," if place else "") + "\n  " + _record_to_json(record)
    yield "\n ]\n}\n"


def _record_to_json(record: Record) -> str:
    values = record.to_dict()
    try:
        return _STRICT.encode(values)
    except (TypeError, ValueError):
        return json.dumps(_finite(values))


_STRICT = json.JSONEncoder(allow_nan=False)


def _suite_to_json(suite: SuiteReport) -> JSON:
    return {
        **suite.info.to_dict(),
        **_summary_to_json(suite.summary),
        "categories": {name: _summary_to_json(summary) for name, summary in suite.categories.items()},
        "macro": dict(suite.macro),
        "num_skipped": suite.num_skipped,
        "models": list(suite.models),
        "num_prompt_tokens": suite.num_prompt_tokens,
        "num_tokens": suite.num_tokens,
        "seconds": suite.seconds,
        "engine": None if suite.engine is None else asdict(suite.engine),
        "reliability": None if suite.reliability is None else [part.to_dict() for part in suite.reliability],
    }


def _comparison_to_json(comparison: Comparison) -> JSON:
    return {
        "suite": comparison.suite,
        "first": comparison.first,
        "second": comparison.second,
        "differences": {name: difference.to_dict() for name, difference in comparison.differences.items()},
    }


def _summary_to_json(summary: Summary) -> dict[str, JSON]:
    return {
        "num_expected": summary.num_expected,
        "num_scored": summary.num_scored,
        "num_unscored": summary.num_unscored,
        "num_no_answer": summary.num_no_answer,
        "metrics": {name: metric.to_dict() for name, metric in summary.metrics.items()},
    }


def _finite(value: object) -> JSON:
    """``value`` as JSON, lists for tuples and null for what is not a finite number."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
