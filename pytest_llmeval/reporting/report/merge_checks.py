"""Check that reports are parts of one run; each refusal says what differs, and where.

The parts that a report holds are those of ``--llm-shard``, as the report's options have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_llmeval.data.code_version import SOURCE
from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.reporting.report.report import Report, definitions_of
from pytest_llmeval.types import JSON

__all__ = [
    "NamedReport",
    "Shards",
    "asked_models",
    "check_definitions",
    "check_models",
    "check_suites",
    "ends_badly",
    "joined_shards",
    "missing_problem",
    "shards_of",
    "uncollected",
    "without_missing",
]

NamedReport = tuple[str, Report]
"""A report with the name of its file."""

_MODEL_KEYS = ("backend", "revision", "dtype", "fingerprint")
_SUITE_KEYS = (
    *("judged_by", "judge", "fingerprint", "scorer", "settings", "cluster", "primary_metric", "higher_is_better"),
    *("interval", "min_measurable", "num_samples", "overridden"),
)
"""Keys that are the same in all parts. ``path`` depends on a machine's root folder, ``metrics`` on the scores."""

_FAILED = 1
_ENDED = (0, _FAILED, 5)
"""pytest's exit codes of sessions that ran to their end: all passed, some failed, nothing was selected."""

_MAX_SHOWN = 60
_MAX_SHOWN_OF_HASH = 12


def asked_models(report: Report) -> tuple[str, ...]:
    """Return the values of ``--llm-model``, in their order; none if the report does not say."""
    given = report.options.get("model")
    if isinstance(given, list | tuple):
        return tuple(map(str, given))
    return () if given is None else (str(given),)


def check_models(parts: Sequence[NamedReport]) -> None:
    """Raise ``ReportError`` unless the parts ran the same models; their devices may differ.

    A part that met no model (no sample of any suite was its own) goes with all others.
    """
    known: dict[str, tuple[str, Mapping[str, JSON]]] = {}
    first: NamedReport | None = None
    for name, report in parts:
        names = {str(model.get("name")) for model in report.models}
        if names:
            first = first or (name, report)
            others = {str(model.get("name")) for model in first[1].models}
            asked, asked_first = set(asked_models(report)), set(asked_models(first[1]))
            # One of several that were asked for can have failed to load on one machine.
            if names != others and (not asked or asked != asked_first):
                raise ReportError(
                    f"different models: {first[0]} ran {_listed(others)}, {name} ran {_listed(names)}; "
                    "only shards of one run are merged (to compare two models: llmeval compare)"
                )
        for model in report.models:
            other, same = known.setdefault(str(model.get("name")), (name, model))
            if differing := _differing(_with_source(same), _with_source(model), (*_MODEL_KEYS, SOURCE)):
                raise ReportError(
                    f"model {str(model.get('name'))!r} is not the same in {other} and {name}: {differing}; "
                    "only shards of one run are merged"
                )


def _with_source(model: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Return what is known of a model with the hash of its code, which is among its details, if it is Python code."""
    details = model.get("details")
    return {**model, SOURCE: details.get(SOURCE) if isinstance(details, Mapping) else None}


def check_suites(parts: Sequence[NamedReport]) -> None:
    """Raise ``ReportError`` unless suites of one name are equal: questions, prompt, scorer, settings, judge, gates."""
    known: dict[str, tuple[str, SuiteInfo]] = {}
    for name, report in parts:
        for suite in report.suites:
            info = suite.info
            other, same = known.setdefault(info.name, (name, info))
            differing = _differing(asdict(same), asdict(info), _SUITE_KEYS)
            if differing and same.fingerprint != info.fingerprint and (parts_of := _differing_parts(same, info)):
                differing = f"other {parts_of}"
            if not differing and list(same.gates) != list(info.gates):
                differing = f"its gates are {_listed(same.gates)} and {_listed(info.gates)}"
            if differing:
                raise ReportError(
                    f"suite {info.name!r} is not the same in {other} and {name}: {differing}; "
                    "only shards of one run are merged"
                )


def uncollected(parts: Sequence[NamedReport]) -> Iterator[str]:
    """Yield a text for each suite that a part found and another part did not; parts that do not say are left out."""
    finders: dict[str, str] = {}
    for name, report in parts:
        for suite in report.collected or ():
            finders.setdefault(suite, name)
    for name, report in parts:
        if report.collected is not None:
            for suite in sorted(finders.keys() - set(report.collected)):
                yield f"{name} did not collect the suite {suite!r}, which {finders[suite]} did"


def ends_badly(parts: Sequence[NamedReport]) -> Iterator[str]:
    """Yield a text for each part that did not end as a run does that did all it had to do; gates may have failed."""
    for name, report in parts:
        if report.stopped is not None:
            yield f"{name} stopped early: {report.stopped}"
        elif report.exit_code not in _ENDED:
            yield f"{name} ended with exit code {report.exit_code}"
        elif report.exit_code == _FAILED and (num_failed := report.num_failed_tests):
            yield f"{name} ended with {num_failed} failed test{'' if num_failed == 1 else 's'}"
        elif report.exit_code == _FAILED and not _says_why(report):
            guess = "gates and samples says why: a test failed"  # of an older version
            if num_failed is not None:
                guess = "gates, samples and tests says why"
            yield f"{name} ended with exit code 1, and none of its {guess}"


def _says_why(report: Report) -> bool:
    return (
        bool(report.problems)
        or any(gate.outcome == "failed" for gate in report.gates)
        or any(suite.summary.num_unscored for suite in report.suites)
        or bool(report.options.get("strict"))
    )


def check_definitions(parts: Sequence[NamedReport]) -> None:
    """Raise ``ReportError`` unless the names of metrics mean the same in all parts, and in this version."""
    own = definitions_of(suite for _, report in parts for suite in report.suites)
    for name, report in parts:
        for metric, meant in report.definitions.items():
            if metric in own and (differing := _differing(own[metric], meant, tuple(own[metric]))):
                raise ReportError(
                    f"metric {metric!r} has another definition in {name} than in this version: {differing}; "
                    "merge with the version that made the reports"
                )


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Describe the first of the keys that differs, with both values; the text is empty if none does."""
    for key in keys:
        first, second = one.get(key), other.get(key)
        if first != second:
            return f"{key} is {_shown(first)} and {_shown(second)}"
    return ""


def _differing_parts(one: SuiteInfo, other: SuiteInfo) -> str:
    names = one.fingerprint_parts.keys() & other.fingerprint_parts.keys()
    return ", ".join(sorted(name for name in names if one.fingerprint_parts[name] != other.fingerprint_parts[name]))


def _shown(value: object) -> str:
    """Shorten a value for a message; of a hash the beginning is shown."""
    text = "none" if value is None else " and ".join(value) or "none" if isinstance(value, tuple) else str(value)
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[: _MAX_SHOWN if ' ' in text else _MAX_SHOWN_OF_HASH]}…"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


_SHARD = re.compile(r"(?P<number>[0-9]{1,9})/(?P<count>[0-9]{1,9})")
_MISSING = "the report lacks "


@dataclass(frozen=True, slots=True)
class Shards:
    """The parts ``numbers`` (from 1) of a run that was cut into ``count``."""

    numbers: frozenset[int]
    count: int

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(number for number in range(1, self.count + 1) if number not in self.numbers)

    def texts(self) -> list[str]:
        """Return the parts in their order, each as the option is written."""
        return [f"{number}/{self.count}" for number in sorted(self.numbers)]


def shards_of(name: str, report: Report) -> Shards | None:
    """Return the shards that the report holds, or None if its run had none. Raises ``ReportError``, naming ``name``."""
    given = report.options.get("shard")
    if given is None:
        return None
    found = [_SHARD.fullmatch(str(text)) for text in (given if isinstance(given, list | tuple) else [given])]
    numbers = {int(one["number"]) for one in found if one is not None}
    counts = {int(one["count"]) for one in found if one is not None}
    if None in found or len(counts) != 1 or not numbers or min(numbers) < 1 or max(numbers) > min(counts):
        raise ReportError(f"{name}: option 'shard' is {given!r}; expected a shard such as '2/5'")
    return Shards(frozenset(numbers), counts.pop())


def joined_shards(parts: Sequence[tuple[str, Report]]) -> Shards | None:
    """Return the shards of all parts together, or None if no part is a shard.

    Raises ``ReportError`` for shards of differently cut runs, and for one shard given twice.
    """
    found = [(name, shards) for name, shards in ((name, shards_of(name, report)) for name, report in parts) if shards]
    owners: dict[int, str] = {}
    for name, shards in found:
        first_name, first = found[0]
        if shards.count != first.count:
            raise ReportError(
                f"{first_name} is shard {', '.join(first.texts())} and {name} is {', '.join(shards.texts())}: "
                "they are shards of different runs"
            )
        for number in sorted(shards.numbers):
            if number in owners:
                raise ReportError(f"{owners[number]} and {name} are both shard {number}/{shards.count}: give one")
            owners[number] = name
    return Shards(frozenset(owners), found[0][1].count) if found else None


def missing_problem(shards: Shards) -> str:
    """Return the problem of a report that lacks some shards."""
    texts = [f"{number}/{shards.count}" for number in shards.missing]
    return f"{_MISSING}shard{'' if len(texts) == 1 else 's'} {', '.join(texts)}"


def without_missing(problems: Iterable[str]) -> list[str]:
    """Return the problems without those of ``missing_problem``: a merged report says for itself what it lacks."""
    return [problem for problem in problems if not problem.startswith(_MISSING)]
