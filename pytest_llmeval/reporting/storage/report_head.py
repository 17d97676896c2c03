"""Reads what ``report_json`` writes before the records: every part of a report as the dataclass that it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar, cast

from pytest_llmeval.reporting.report.gate_results import GateResult, Regression
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import Averages, Comparison, Phases, Report, SuiteReport, Summary
from pytest_llmeval.reporting.storage.typed_fields import DamagedPart, check_fields, is_number
from pytest_llmeval.scoring.comparison.differences import Difference
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin
from pytest_llmeval.scoring.metrics.percentiles import Percentiles
from pytest_llmeval.scoring.metrics.summary import Metric
from pytest_llmeval.text.wording import describe
from pytest_llmeval.types import JSON, EngineUse

__all__ = ["engine_from_json", "info_from_json", "report_from_json"]

T = TypeVar("T")


def report_from_json(data: Mapping[str, Any], records: Sequence[Record]) -> Report:
    """A report from its head as ``json`` gives it, of schema 1 or 2. Unknown keys are left alone.

    Raises ``DamagedPart``. Schema 1 has no averages, gates, definitions and percentiles, and its means over categories
    are plain numbers.
    """
    if "suites" not in data:
        raise DamagedPart("suites: there are none, expected a list")
    return Report(
        schema=_whole(data, "schema", ""),
        created=_text(data, "created", ""),
        seconds=_number(data, "seconds", ""),
        exit_code=_whole(data, "exit_code", ""),
        stopped=_text_or_none(data, "stopped", ""),
        problems=tuple(str(problem) for problem in _list(data, "problems", "")),
        environment=_mapping(data, "environment", ""),
        models=tuple(_members(data, "models", "", _model)),
        options=_mapping(data, "options", ""),
        collected=_optional_names(data, "collected", ""),
        num_failed_tests=None if data.get("num_failed_tests") is None else _count(data, "num_failed_tests", ""),
        definitions=_named(data, "definitions", "", lambda found, _: found),
        suites=tuple(_members(data, "suites", "", _suite)),
        comparisons=tuple(_members(data, "comparisons", "", _comparison)),
        averages=tuple(_members(data, "averages", "", _averages)),
        gates=tuple(_members(data, "gates", "", _gate)),
        records=records,
    )


def info_from_json(data: Mapping[str, Any], where: str) -> SuiteInfo:
    """What a report says of a suite before any sample. Raises ``DamagedPart``."""
    known = {name: value for name, value in data.items() if value is not None}
    if isinstance(known.get("metrics"), dict):  # their names, and in a report what they are
        known["metrics"] = list(known["metrics"])
    check_fields(known, SuiteInfo, where)
    return SuiteInfo.from_dict(known)


def engine_from_json(data: Mapping[str, Any], where: str) -> EngineUse:
    """How log-likelihoods were computed. Raises ``DamagedPart``."""
    return EngineUse(**_of_fields(data, EngineUse, where))


def _model(data: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    _text(data, "name", where)
    return data


def _suite(data: Mapping[str, Any], where: str) -> SuiteReport:
    categories = _named(data, "categories", where, _summary)
    return SuiteReport(
        info=info_from_json(data, where),
        summary=_summary(data, where),
        categories=categories,
        macro={
            name: _macro(value, len(categories), f"{where}.macro.{name}")
            for name, value in _mapping(data, "macro", where).items()
        },
        num_skipped=_count(data, "num_skipped", where),
        models=tuple(str(model) for model in _list(data, "models", where)),
        num_prompt_tokens=_count(data, "num_prompt_tokens", where),
        num_tokens=_count(data, "num_tokens", where),
        seconds=_number(data, "seconds", where),
        engine=_optional(data, "engine", where, engine_from_json),
        reliability=(
            tuple(
                _members(
                    data, "reliability", where, lambda part, at: ReliabilityBin(**_of_fields(part, ReliabilityBin, at))
                )
            )
            if data.get("reliability") is not None
            else None
        ),
        latency=_optional(data, "latency", where, _percentiles),
        tokens_per_second=_optional(data, "tokens_per_second", where, _percentiles),
        phases=_optional(data, "phases", where, lambda part, at: Phases(**_of_fields(part, Phases, at))),
    )


def _summary(data: Mapping[str, Any], where: str) -> Summary:
    counts = {name: _count(data, name, where) for name in ("num_expected", "num_scored", "num_unscored")}
    return Summary(
        **counts,
        num_no_answer=_count(data, "num_no_answer", where),
        metrics=_named(data, "metrics", where, _metric),
        not_measurable=_named(
            data, "not_measurable", where, lambda found, at: {reason: _count(found, reason, at) for reason in found}
        ),
    )


def _metric(data: Mapping[str, Any], where: str) -> Metric:
    return Metric(**_of_fields(data, Metric, where))


def _macro(value: object, num_categories: int, where: str) -> Metric:
    """A number in schema 1, which every category had a part in."""
    if isinstance(value, Mapping):
        return _metric(value, where)
    if not is_number(value):
        raise DamagedPart(f"{where}: found {describe(value)}, expected a metric")
    return Metric(value=float(cast(float, value)), n=num_categories, kind="mean")


def _percentiles(data: Mapping[str, Any], where: str) -> Percentiles:
    return Percentiles(**_of_fields(data, Percentiles, where))


def _comparison(data: Mapping[str, Any], where: str) -> Comparison:
    return Comparison(
        suite=_text(data, "suite", where),
        first=_text(data, "first", where),
        second=_text(data, "second", where),
        differences=_named(
            data, "differences", where, lambda found, at: Difference(**_of_fields(found, Difference, at))
        ),
    )


def _averages(data: Mapping[str, Any], where: str) -> Averages:
    return Averages(
        model=_text_or_none(data, "model", where),
        macro=_named(data, "macro", where, _metric),
        micro=_named(data, "micro", where, _metric),
        unlike=_named(data, "unlike", where, lambda found, _: {suite: str(form) for suite, form in found.items()}),
    )


def _gate(data: Mapping[str, Any], where: str) -> GateResult:
    check_fields(data, GateResult, where)
    if data.get("regression") is not None:
        check_fields(data["regression"], Regression, f"{where}.regression")
    return GateResult.from_dict(data)


# Values at a place


def _of_fields(data: Mapping[str, Any], made: type[Any], where: str) -> dict[str, Any]:
    """The arguments of a dataclass."""
    check_fields(data, made, where)
    names = {field.name for field in fields(made)}
    return {name: value for name, value in data.items() if name in names}


def _found(data: Mapping[str, Any], name: str, where: str) -> tuple[Any, str]:
    return data.get(name), f"{where}.{name}" if where else name


def _text(data: Mapping[str, Any], name: str, where: str) -> str:
    value, place = _found(data, name, where)
    if not isinstance(value, str):
        raise DamagedPart(f"{place}: found {describe(value)}, expected text")
    return value


def _text_or_none(data: Mapping[str, Any], name: str, where: str) -> str | None:
    return None if data.get(name) is None else _text(data, name, where)


def _whole(data: Mapping[str, Any], name: str, where: str) -> int:
    value, place = _found(data, name, where)
    if not isinstance(value, int) or not is_number(value):
        raise DamagedPart(f"{place}: found {describe(value)}, expected a whole number")
    return value


def _count(data: Mapping[str, Any], name: str, where: str) -> int:
    if (value := _whole(data, name, where)) < 0:
        raise DamagedPart(f"{_found(data, name, where)[1]}: found {value}, expected 0 or more")
    return value


def _number(data: Mapping[str, Any], name: str, where: str) -> float:
    value, place = _found(data, name, where)
    if not is_number(value):
        raise DamagedPart(f"{place}: found {describe(value)}, expected a number")
    return cast(float, value)


def _mapping(data: Mapping[str, Any], name: str, where: str) -> Mapping[str, JSON]:
    """The mapping; an empty one where there is none."""
    value, place = _found(data, name, where)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DamagedPart(f"{place}: found {describe(value)}, expected a mapping")
    return value


def _list(data: Mapping[str, Any], name: str, where: str) -> list[Any]:
    """The list; an empty one where there is none."""
    value, place = _found(data, name, where)
    if value is None:
        return []
    if not isinstance(value, list):
        raise DamagedPart(f"{place}: found {describe(value)}, expected a list")
    return value


def _optional_names(data: Mapping[str, Any], name: str, where: str) -> tuple[str, ...] | None:
    return None if data.get(name) is None else tuple(str(one) for one in _list(data, name, where))


def _members(
    data: Mapping[str, Any], name: str, where: str, read: Callable[[Mapping[str, Any], str], T]
) -> Sequence[T]:
    _, place = _found(data, name, where)
    return [_of_mapping(read, value, f"{place}[{number}]") for number, value in enumerate(_list(data, name, where))]


def _named(data: Mapping[str, Any], name: str, where: str, read: Callable[[Mapping[str, Any], str], T]) -> dict[str, T]:
    _, place = _found(data, name, where)
    return {key: _of_mapping(read, value, f"{place}.{key}") for key, value in _mapping(data, name, where).items()}


def _optional(data: Mapping[str, Any], name: str, where: str, read: Callable[[Mapping[str, Any], str], T]) -> T | None:
    value, place = _found(data, name, where)
    return None if value is None else _of_mapping(read, value, place)


def _of_mapping(read: Callable[[Mapping[str, Any], str], T], value: object, where: str) -> T:
    if not isinstance(value, Mapping):
        raise DamagedPart(f"{where}: found {describe(value)}, expected a mapping")
    return read(value, where)
